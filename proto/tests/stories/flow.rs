//! Back-pressure: full FIFOs and spent credit stall the sender, and nothing is dropped for it.

use sidelane_nic::mem::Config as NodeConfig;
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, SendError};

use crate::world::{VirtualTime, World, config, good_link, numbered};

#[test]
fn a_full_send_fifo_says_so_and_loses_nothing() {
    let (mut world, peer, _) = World::pair();
    world.node(1).reads = false;
    let mut sent = 0;
    loop {
        match world.node(0).endpoint.send(peer, &numbered(sent, 1_000)) {
            Ok(()) => sent += 1,
            Err(error) => {
                assert_eq!(error, SendError::Full);
                world.pass(Duration::from_millis(1));
                if world.node(0).endpoint.send(peer, &numbered(sent, 1_000)).is_err() {
                    break;
                }
                sent += 1;
            }
        }
    }
    // Both FIFOs are full: 1 MiB over there, 256 KiB here.
    assert!((1_270..1_320).contains(&sent), "{sent}");
    world.node(1).reads = true;
    world.pass(Duration::from_millis(300));
    let got: Vec<_> = world.node(1).got.iter().map(|(_, message)| message.clone()).collect();
    assert_eq!(got, (0..sent).map(|number| numbered(number, 1_000)).collect::<Vec<_>>());
}

#[test]
fn a_slow_receiver_stalls_its_sender_and_drops_nothing() {
    let (mut world, peer, _) = World::pair();
    world.node(1).reads = false;
    let (mut sent, mut got) = (0u32, 0u32);
    while got < 5_000 {
        while sent < 5_000 && world.node(0).endpoint.send(peer, &numbered(sent, 1_000)).is_ok() {
            sent += 1;
        }
        world.pass(Duration::from_micros(200));
        for _ in 0..50 {
            let taken = world.node(1).endpoint.recv(|_, message| message.to_vec());
            let Some(message) = taken else { break };
            assert_eq!(message, numbered(got, 1_000));
            got += 1;
        }
    }
    let (ours, theirs) = (world.counters(0), world.counters(1));
    assert!(ours.credit_stalls > 0);
    assert_eq!(theirs.rejected_total(), 0, "{theirs:?}");
    assert_eq!((ours.retransmitted, theirs.duplicates), (0, 0), "a Ping fetches credit; nothing is sent twice");
    assert_eq!(world.fabric.counters().overflowed, 0);
}

#[test]
fn one_stalled_peer_does_not_hold_up_another() {
    let mut world = World::new(1, good_link());
    for _ in 0..3 {
        world.add(NodeConfig::default(), config());
    }
    let (slow, _) = world.join(0, 1);
    let (quick, _) = world.join(0, 2);
    world.node(1).reads = false;
    while world.node(0).endpoint.send(slow, &[0; 1_000]).is_ok() || world.counters(0).credit_stalls == 0 {
        world.settle();
        world.pass(Duration::from_micros(100));
    }
    world.flood(0, 2, quick, 1_000, 1_000);
}

/// A message that comes alone while none waits goes another way than the others.
#[test]
fn who_sends_one_message_after_the_other_is_not_always_first() {
    let mut world = World::new(1, good_link());
    for _ in 0..3 {
        world.add(NodeConfig::default(), config());
    }
    let (_, many) = world.join(0, 1);
    let (from_alone, alone) = world.join(0, 2);
    world.node(0).reads = false;
    for number in 0..20 {
        world.send(1, many, &numbered(number, 8));
    }
    let mut got = 0;
    for turn in 0..60 {
        world.send(2, alone, &numbered(turn, 8));
        world.pass(Duration::from_micros(50));
        let taken = world.node(0).endpoint.recv(|from, _| from);
        got += u32::from(taken.expect("one waits at least") != from_alone);
    }
    assert_eq!(got, 20);
}

#[test]
fn the_smallest_fifos_carry_the_largest_frames() {
    let mut world = World::new(1, good_link());
    for mtu in [1500, 61_000] {
        let nic = NodeConfig { mtu, mtu_safe: 1500, ..NodeConfig::default() };
        world.add(nic, Config { send_fifo: 0, recv_fifo: 0, ..config() });
        let from = world.add(nic, Config { send_fifo: 0, recv_fifo: 0, ..config() });
        let (peer, _) = world.join(from, from - 1);
        world.flood(from, from - 1, peer, 200, mtu - 100);
        world.flood(from, from - 1, peer, 20, 10 * mtu);
    }
}

/// The window of a sender is half its peer's receive ring, so one sender never overflows it.
#[test]
fn a_small_receive_ring_is_not_overrun() {
    let mut world = World::new(1, good_link());
    let nic = NodeConfig { rx_frames: 16, ..NodeConfig::default() };
    world.add(nic, config());
    world.add(nic, config());
    let (peer, _) = world.join(0, 1);
    world.flood(0, 1, peer, 5_000, 1_000);
    assert_eq!(world.fabric.counters().overflowed, 0);
}

#[test]
fn a_nic_without_free_buffers_is_waited_for() {
    let mut world = World::new(1, good_link());
    let nic = NodeConfig { tx_frames: 2, ..NodeConfig::default() };
    world.add(nic, config());
    world.add(nic, config());
    world.fabric.set_uplink(
        0,
        sidelane_nic::mem::LineModel { rate_bits_per_s: Some(1_000_000_000), queue_limit_bytes: Some(4_000) },
    );
    let (peer, _) = world.join(0, 1);
    world.flood(0, 1, peer, 1_000, 1_000);
    assert!(world.counters(0).nic_full > 0);
    assert_eq!(world.counters(0).retransmitted, 0);
}

/// As on `uring` and `udp`, whose queue of frames that the kernel did not take is tried again by a flush, and by nothing else.
#[test]
fn a_queue_that_was_not_taken_for_a_while_is_flushed_again() {
    let mut world = World::new(1, good_link());
    for _ in 0..2 {
        world.add(NodeConfig { tx_frames: 3, ..NodeConfig::default() }, config());
    }
    let (peer, _) = world.join(0, 1);
    world.node(0).controls.borrow_mut().stuck = true;
    world.node(0).endpoint.send_owned(peer, numbered(1, 20_000)).unwrap();
    world.pass(Duration::from_millis(2));
    assert!(world.counters(0).nic_full > 0, "the queue is full");
    world.node(0).controls.borrow_mut().stuck = false;
    assert!(world.run(Duration::from_millis(2), |world| !world.node(1).got.is_empty()));
    assert_eq!(world.node(1).got[0].1, numbered(1, 20_000));
}

#[test]
fn owned_buffers_come_back_once_the_peer_has_them() {
    let (mut world, peer, _) = World::pair();
    for len in [0, 1, 100, 5_000, 300_000] {
        world.node(0).endpoint.send_owned(peer, numbered(len as u32, len)).unwrap();
        world.send(0, peer, b"between");
        world.pass(Duration::from_millis(5));
        assert_eq!(world.node(0).events.pop(), Some(Event::Sent { peer, buffer: numbered(len as u32, len) }));
        let got: Vec<_> = world.node(1).got.drain(..).map(|(_, message)| message).collect();
        assert_eq!(got, [numbered(len as u32, len), b"between".to_vec()], "{len} bytes");
    }
}
