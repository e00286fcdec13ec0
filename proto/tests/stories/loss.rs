//! What losses cost.

use sidelane_nic::mem::Config as NodeConfig;
use sidelane_nic::time::Duration;

use crate::world::{BYPASS_FLOOR, KERNEL_FLOOR, VirtualTime, World, config, good_link, lossy_link};

/// Virtual time of 30,000 messages of 1 KiB over 10 Gbit/s at a loss.
fn flood_time(loss: f64, rto_floor: Duration, seed: u64) -> Duration {
    let mut world = World::new(seed, lossy_link(loss));
    let nic = NodeConfig { rto_floor, ..NodeConfig::default() };
    world.add(nic, config());
    world.add(nic, config());
    let (peer, _) = world.join(0, 1);
    world.flood(0, 1, peer, 30_000, 1024)
}

#[test]
fn a_thousandth_lost_keeps_nine_tenths_of_the_goodput() {
    for rto_floor in [KERNEL_FLOOR, BYPASS_FLOOR] {
        let free = flood_time(0.0, rto_floor, 1).as_nanos() as f64;
        for seed in 2..6 {
            let kept = free / flood_time(0.001, rto_floor, seed).as_nanos() as f64;
            println!("floor {rto_floor:?}, seed {seed}: {:.1} % of loss-free goodput", kept * 100.0);
            assert!(kept >= 0.9, "floor {rto_floor:?}, seed {seed}: {kept}");
        }
    }
}

/// How much later than without a loss the last of `burst` messages comes whose frame was lost.
fn tail_loss_cost(rto_floor: Duration, burst: u32) -> Duration {
    let times = [false, true].map(|lose| {
        let mut world = World::new(3, good_link());
        let nic = NodeConfig { rto_floor, ..NodeConfig::default() };
        world.add(nic, config());
        world.add(nic, config());
        let (peer, back) = world.join(0, 1);
        for _ in 0..50 {
            world.send(0, peer, b"ping");
            assert!(world.run(Duration::from_millis(10), |world| world.node(1).got.pop().is_some()));
            world.send(1, back, b"pong");
            assert!(world.run(Duration::from_millis(10), |world| world.node(0).got.pop().is_some()));
        }
        world.pass(Duration::from_millis(5));
        let begun = world.now();
        for number in 0..burst {
            world.fabric.set_default_link(lossy_link(if lose && number + 1 == burst { 1.0 } else { 0.0 }));
            world.send(0, peer, &[number as u8; 1400]);
            world.node(0).endpoint.flush();
        }
        world.fabric.set_default_link(good_link());
        assert!(world.run(Duration::from_millis(100), |world| world.node(1).got.len() == burst as usize));
        world.now().since(begun)
    });
    times[1] - times[0]
}

#[test]
fn a_lost_tail_frame_costs_no_more_than_the_floor() {
    for rto_floor in [KERNEL_FLOOR, BYPASS_FLOOR] {
        for burst in [1, 2, 10] {
            let cost = tail_loss_cost(rto_floor, burst);
            println!("floor {rto_floor:?}, last of {burst}: {cost:?}");
            assert!(cost <= rto_floor, "floor {rto_floor:?}, last of {burst}: {cost:?}");
        }
    }
}

#[test]
fn a_pause_of_the_receiver_does_not_make_the_next_loss_dearer() {
    let mut world = World::new(3, good_link());
    let nic = NodeConfig { rto_floor: KERNEL_FLOOR, ..NodeConfig::default() };
    world.add(nic, config());
    world.add(nic, config());
    let (peer, _) = world.join(0, 1);
    world.node(1).reads = false;
    while world.node(0).endpoint.send(peer, &[0; 1000]).is_ok() || world.counters(0).credit_stalls == 0 {
        world.pass(Duration::from_micros(100));
    }
    world.pass(Duration::from_millis(2_000));
    // All that waits goes out at once when the receiver reads on; its first frames are lost.
    world.fabric.set_link(0, 1, lossy_link(1.0));
    world.node(1).reads = true;
    world.pass(Duration::from_micros(20));
    world.fabric.set_link(0, 1, good_link());
    assert!(!world.node(0).endpoint.is_settled(peer));
    let begun = world.now();
    assert!(world.run(Duration::from_millis(1_000), |world| world.node(0).endpoint.is_settled(peer)));
    let took = world.now().since(begun);
    println!("recovered in {took:?}");
    assert!(took <= Duration::from_millis(10), "{took:?}");
}

#[test]
fn everything_arrives_at_a_third_lost() {
    let mut world = World::new(11, lossy_link(0.3));
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let (peer, _) = world.join(0, 1);
    world.flood(0, 1, peer, 2_000, 700);
}
