//! What connections cost: frames beside the messages, and memory.

use sidelane_nic::mem::Config as NodeConfig;
use sidelane_nic::time::Duration;

use crate::world::{VirtualTime, World, config, good_link, lossy_link, numbered};

#[test]
fn a_ping_pong_sends_no_pure_acks() {
    let (mut world, peer, back) = World::pair();
    let before = (world.counters(0), world.counters(1));
    for round in 0..1_000 {
        world.send(0, peer, &numbered(round, 8));
        assert!(world.run(Duration::from_millis(10), |world| world.node(1).got.pop().is_some()));
        world.send(1, back, &numbered(round, 8));
        assert!(world.run(Duration::from_millis(10), |world| world.node(0).got.pop().is_some()));
    }
    let after = (world.counters(0), world.counters(1));
    assert_eq!(after.0.acks_sent - before.0.acks_sent, 0);
    assert_eq!(after.1.acks_sent - before.1.acks_sent, 0);
    assert_eq!(after.0.frames_sent - before.0.frames_sent, 1_000);
}

#[test]
fn messages_that_wait_together_share_frames() {
    let (mut world, peer, _) = World::pair();
    let before = world.counters(0).frames_sent;
    for number in 0..1_000 {
        world.send(0, peer, &numbered(number, 8));
    }
    world.pass(Duration::from_millis(10));
    // 12 bytes each in frames of 1476.
    let frames = world.counters(0).frames_sent - before;
    assert!(frames <= 1_000 / (1_476 / 12) + 1, "{frames} frames");
}

#[test]
fn a_flood_one_way_is_acknowledged_by_the_quarter_window() {
    let (mut world, peer, _) = World::pair();
    let (ours, theirs) = (world.counters(0), world.counters(1));
    world.flood(0, 1, peer, 20_000, 1_400);
    let frames = world.counters(0).frames_sent - ours.frames_sent;
    let acks = world.counters(1).acks_sent - theirs.acks_sent;
    println!("{acks} acks for {frames} frames");
    // Of the congestion window, which is 20 to 40 frames here.
    assert!(acks * 4 <= frames, "{acks} acks for {frames} frames");
}

#[test]
fn an_idle_peer_costs_at_most_a_kibibyte_beside_its_fifos() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    let mut peers = Vec::new();
    for node in 1..=200 {
        world.add(NodeConfig::default(), config());
        let (peer, _) = world.join(0, node);
        world.flood(0, node, peer, 20, 1_000);
        peers.push(peer);
    }
    // Longer than 16 keep-alives: idle peers give their FIFOs back.
    world.pass(Duration::from_millis(10_000));
    let (mut fixed, mut heap) = (0, 0);
    for &peer in &peers {
        let (state, tables) = world.node(0).endpoint.peer_memory(peer).expect("connected");
        (fixed, heap) = (fixed.max(state), heap.max(tables));
    }
    println!("an idle peer: {fixed} bytes of state, {heap} bytes in FIFOs and tables");
    assert!(fixed + heap <= 1_024, "{fixed} + {heap}");
}

/// Ten virtual minutes of traffic on a path that loses and reorders: state and tables stay as they were after the first.
#[test]
fn ten_minutes_of_traffic_do_not_grow_memory() {
    let mut link = lossy_link(0.01);
    link.faults.reorder = 0.05;
    let mut world = World::new(9, link);
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let (peer, back) = world.join(0, 1);
    let mut number = 0;
    let mut memory = Vec::new();
    for _minute in 0..10 {
        for _ in 0..600 {
            for _ in 0..10 {
                world.send(0, peer, &numbered(number, number as usize * 37 % 5_000));
                world.send(1, back, &numbered(number, number as usize * 91 % 5_000));
                number += 1;
            }
            world.pass(Duration::from_millis(100));
            for node in 0..2 {
                assert!(world.node(node).events.is_empty());
                let got = std::mem::take(&mut world.node(node).got);
                let factor = [91, 37][node as usize];
                for ((_, message), expected) in got.iter().zip(number - 10..) {
                    assert_eq!(message, &numbered(expected, expected as usize * factor % 5_000));
                }
                assert_eq!(got.len(), 10);
            }
        }
        let held = |world: &mut World, node: u32, peer| world.node(node).endpoint.peer_memory(peer).unwrap().1;
        memory.push(held(&mut world, 0, peer) + held(&mut world, 1, back));
    }
    println!("{memory:?}");
    assert!(memory[9] <= memory[0] + 16_384, "{memory:?}");
}
