//! Peers that die, come back, and stay silent.

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, LinkModel};
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, GoneReason, PeerId, SendError};

use crate::world::{KERNEL_FLOOR, VirtualTime, World, addr, config, good_link};

#[test]
fn a_crashed_peer_is_gone_within_four_keep_alives() {
    for keep_alive in [Duration::from_millis(250), Duration::from_millis(20)] {
        // Dying at various points of the keep-alive's cycle, with and without something outstanding.
        for (part, outstanding) in [(0, false), (3, false), (7, true), (9, false), (9, true)] {
            let mut world = World::new(1, good_link());
            world.add(NodeConfig::default(), Config { keep_alive, ..config() });
            world.add(NodeConfig::default(), Config { keep_alive, ..config() });
            let (peer, _) = world.join(0, 1);
            world.pass(Duration::from_nanos(keep_alive.as_nanos() * (20 + part) / 10));
            world.crash(1);
            let died = world.now();
            if outstanding {
                world.send(0, peer, b"are you there?");
            }
            let limit = Duration::from_nanos(keep_alive.as_nanos() * 4 + 1_000_000);
            assert!(world.run(limit, |world| !world.node(0).events.is_empty()), "not noticed in {limit:?}");
            println!("keep-alive {keep_alive:?}: noticed after {:?}", world.now().since(died));
            assert_eq!(world.node(0).events, [Event::Gone { peer, reason: GoneReason::Silent }]);
            assert_eq!(world.node(0).endpoint.send(peer, b"?"), Err(SendError::NoPeer));
        }
    }
}

#[test]
fn the_driver_is_asked_about_a_peer_that_is_silent_and_no_other() {
    let (mut world, peer, _) = World::pair();
    let asked_before = world.node(0).controls.borrow().asked;
    // Longer than any timer but that of silence, which each ack puts off.
    for _ in 0..20 * KERNEL_FLOOR.as_nanos() / 50_000 {
        world.send(0, peer, b"acknowledged soon");
        world.pass(Duration::from_micros(50));
    }
    assert_eq!(world.node(0).controls.borrow().asked, asked_before);
    world.pass(config().keep_alive.saturating_mul(2));
    assert!(world.node(0).controls.borrow().asked > asked_before);
}

#[test]
fn what_has_come_of_a_peer_is_received_also_after_its_end() {
    for count in [1, 2, 5] {
        let (mut world, peer, back) = World::pair();
        world.node(1).reads = false;
        for number in 0..count {
            world.send(0, peer, &[number; 8]);
            world.pass(Duration::from_millis(1));
        }
        world.crash(0);
        world.pass(Duration::from_millis(10_000));
        assert_eq!(world.node(1).events, [Event::Gone { peer: back, reason: GoneReason::Silent }]);
        // Its successor has a place of its own.
        world.start(0, NodeConfig::default(), Config { seed: Some(8), ..config() });
        let (again, anew) = world.join(0, 1);
        world.send(0, again, b"successor");
        world.pass(Duration::from_millis(1));
        world.node(1).reads = true;
        world.pass(Duration::from_millis(10_000));
        let first: Vec<_> = (0..count).map(|number| (back, vec![number; 8])).collect();
        assert_eq!(world.node(1).got, [first, vec![(anew, b"successor".to_vec())]].concat());
        assert_eq!(world.node(1).endpoint.peers(), 1);
    }
}

#[test]
fn nobody_at_the_address_is_an_error_within_the_connect_timeout() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), Config { connect_timeout: Duration::from_millis(300), ..config() });
    let peer = world.connect(0, 9);
    world.node(0).endpoint.send_owned(peer, vec![1; 5_000]).unwrap();
    world.pass(Duration::from_millis(310));
    let gone = Event::Gone { peer, reason: GoneReason::NoAnswer };
    assert!(world.node(0).events == [Event::Unsent { peer, buffer: vec![1; 5_000] }, gone]);
    assert_eq!(world.node(0).endpoint.peers(), 0);
}

#[test]
fn an_idle_connection_lives_on() {
    let (mut world, peer, back) = World::pair();
    world.pass(Duration::from_millis(60_000));
    assert!(world.node(0).events.is_empty() && world.node(1).events.is_empty());
    world.send(0, peer, b"still here");
    world.pass(Duration::from_millis(1));
    assert_eq!(world.node(1).got, [(back, b"still here".to_vec())]);
}

/// Nothing tells the two apart but what their endpoints draw: settings are copied as they are.
#[test]
fn settings_used_again_make_another_life() {
    let mut world = World::new(1, good_link());
    let settings = Config::default();
    (0..2).for_each(|_| _ = world.add(NodeConfig::default(), settings));
    world.start_as(0, NodeConfig::default(), settings);
    let (peer, _) = world.join(0, 1);
    world.send(0, peer, b"first");
    world.pass(Duration::from_millis(1));
    world.crash(0);
    world.start_as(0, NodeConfig::default(), settings);
    let peer = world.connect(0, 1);
    world.send(0, peer, b"second");
    world.pass(Duration::from_millis(100));
    let got: Vec<_> = world.node(1).got.iter().map(|(_, message)| &message[..]).collect();
    assert_eq!(got, [&b"first"[..], b"second"]);
}

/// The new life connects by itself, or is connected to.
#[test]
fn a_restarted_peer_is_not_mistaken_for_the_old_one() {
    for connects in [true, false] {
        let (mut world, old, back) = World::pair();
        world.send(1, back, b"from the old life");
        world.send(0, old, b"to the old life");
        world.crash(1);
        world.start(1, NodeConfig::default(), config());
        if connects {
            let peer = world.connect(1, 0);
            world.send(1, peer, b"from the new life");
        }
        let gone = world.run(Duration::from_millis(1_100), |world| {
            world.node(0).events.iter().any(|event| matches!(event, Event::Gone { .. }))
        });
        assert!(gone);
        let Some(Event::Gone { peer, reason }) = world.node(0).events.first() else {
            panic!("{:?}", world.node(0).events)
        };
        assert_eq!((*peer, *reason), (old, GoneReason::Restarted));
        assert_eq!(world.node(0).endpoint.send(old, b"more"), Err(SendError::NoPeer));
        if !connects {
            let peer = world.node(0).endpoint.connect(addr(1)).unwrap();
            assert_ne!(peer, old);
            world.send(0, peer, b"to the new life");
        }
        world.pass(Duration::from_millis(100));
        if connects {
            let [(peer, message)] = &world.node(0).got[..] else { panic!("{:?}", world.node(0).got) };
            assert_ne!(*peer, old);
            assert_eq!(message, b"from the new life");
            let peer = *peer;
            world.send(0, peer, b"welcome");
            world.pass(Duration::from_millis(1));
        }
        let got: Vec<_> = world.node(1).got.iter().map(|(_, message)| message.clone()).collect();
        assert_eq!(got, [if connects { b"welcome".to_vec() } else { b"to the new life".to_vec() }]);
    }
}

#[test]
fn a_partition_shorter_than_four_keep_alives_is_survived() {
    let (mut world, peer, back) = World::pair();
    let until = world.now() + Duration::from_nanos(config().keep_alive.as_nanos() * 7 / 2);
    world.fabric.partition(0, 1, until);
    world.send(0, peer, b"through the dark");
    world.pass(Duration::from_millis(1_300));
    assert!(world.node(0).events.is_empty() && world.node(1).events.is_empty());
    assert_eq!(world.node(1).got, [(back, b"through the dark".to_vec())]);
}

#[test]
fn a_longer_partition_ends_in_an_error_on_both_sides_and_a_new_connection_works() {
    let (mut world, peer, back) = World::pair();
    let until = world.now() + Duration::from_millis(1_500);
    world.fabric.partition(0, 1, until);
    world.send(0, peer, b"lost");
    world.pass(Duration::from_millis(1_100));
    assert_eq!(world.node(0).events, [Event::Gone { peer, reason: GoneReason::Silent }]);
    assert_eq!(world.node(1).events, [Event::Gone { peer: back, reason: GoneReason::Silent }]);
    world.pass(Duration::from_millis(500));
    world.node(0).events.clear();
    world.node(1).events.clear();
    let (again, _) = world.join(0, 1);
    assert_ne!(again, peer);
    world.send(0, again, b"anew");
    world.pass(Duration::from_millis(1));
    assert_eq!(world.node(1).got.last().unwrap().1, b"anew");
    assert_eq!(world.node(1).got.len(), 1);
}

/// Nobody is polled meanwhile: a job that Ctrl-Z stops and `fg` continues.
#[test]
fn two_that_were_stopped_go_on_where_they_were() {
    let (mut world, peer, back) = World::pair();
    world.send(0, peer, b"before");
    world.node(0).endpoint.flush();
    world.fabric.advance_to(world.now() + Duration::from_millis(3_600_000));
    world.send(1, back, b"after");
    world.pass(Duration::from_millis(10));
    assert!(world.node(0).events.is_empty() && world.node(1).events.is_empty());
    assert_eq!(world.node(1).got, [(back, b"before".to_vec())]);
    assert_eq!(world.node(0).got, [(peer, b"after".to_vec())]);
    assert_eq!((world.counters(0).absences, world.counters(1).absences), (1, 1));
}

/// As the one before, when one of them has answered the other's Hello and was not heard since.
#[test]
fn two_that_were_stopped_while_they_connect_go_on_too() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let peer = world.connect(0, 1);
    world.send(0, peer, b"before");
    assert!(world.run(Duration::from_millis(1), |world| world.node(1).endpoint.peers() == 1));
    world.fabric.advance_to(world.now() + Duration::from_millis(3_600_000));
    world.pass(Duration::from_millis(10));
    assert_eq!(world.node(0).events, [Event::Connected { peer, addr: addr(1) }]);
    let [Event::Connected { peer: back, .. }] = world.node(1).events[..] else { panic!("{:?}", world.node(1).events) };
    assert_eq!(world.node(1).got, [(back, b"before".to_vec())]);
    assert_eq!((world.counters(0).absences, world.counters(1).absences), (1, 0));
}

#[test]
fn one_that_was_stopped_still_notices_a_dead_peer() {
    let (mut world, peer, _) = World::pair();
    world.crash(1);
    world.fabric.advance_to(world.now() + Duration::from_millis(3_600_000));
    let limit = Duration::from_nanos(config().keep_alive.as_nanos() * 4);
    assert!(world.run(limit, |world| !world.node(0).events.is_empty()), "not noticed in {limit:?}");
    assert_eq!(world.node(0).events, [Event::Gone { peer, reason: GoneReason::Silent }]);
}

/// Between two polls it may have slept, or done something else.
#[test]
fn one_that_is_seldom_polled_notices_a_dead_peer() {
    let (mut world, _, _) = World::pair();
    world.crash(1);
    let mut polls = 0;
    while world.node(0).events.is_empty() {
        world.fabric.advance_to(world.now() + Duration::from_millis(1_000));
        world.settle();
        polls += 1;
    }
    assert_eq!(polls, 4, "each counts for a keep-alive");
}

#[test]
fn an_endpoint_without_peers_is_not_missed() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    world.pass(Duration::from_millis(10_000));
    assert_eq!(world.counters(0).absences, 0);
}

#[test]
fn both_sides_connecting_at_once_get_one_connection() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let (a, b) = (world.connect(0, 1), world.connect(1, 0));
    world.send(0, a, b"from a");
    world.send(1, b, b"from b");
    world.pass(Duration::from_millis(50));
    assert_eq!(world.node(0).got, [(a, b"from b".to_vec())]);
    assert_eq!(world.node(1).got, [(b, b"from a".to_vec())]);
    assert_eq!((world.node(0).endpoint.peers(), world.node(1).endpoint.peers()), (1, 1));
    assert_eq!(world.node(0).events, [Event::Connected { peer: a, addr: addr(1) }]);
}

#[test]
fn connecting_twice_gives_the_same_connection() {
    let (mut world, peer, _) = World::pair();
    assert_eq!(world.connect(0, 1), peer);
}

#[test]
fn a_place_that_is_used_again_is_no_longer_who_had_it_before() {
    let (mut world, first, _) = World::pair();
    world.add(NodeConfig::default(), config());
    world.node(0).endpoint.close(first);
    world.pass(Duration::from_millis(10_000));
    let (second, _) = world.join(0, 2);
    assert_eq!(second.index(), first.index(), "nobody else has it");
    // Neither by its name nor by its address.
    assert_eq!(world.node(0).endpoint.send(first, b"to whom?"), Err(SendError::NoPeer));
    let (again, back) = world.join(0, 1);
    assert!(again != first && again != second);
    world.send(0, again, b"anew");
    world.pass(Duration::from_millis(10));
    assert_eq!(world.node(1).got, [(back, b"anew".to_vec())]);
    assert_eq!(world.node(2).got, []);
}

#[test]
fn a_connection_that_only_the_peer_wanted_is_an_error_once_our_user_wants_it() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), Config { connect_timeout: Duration::from_millis(3_000), ..config() });
    world.add(NodeConfig::default(), config());
    world.connect(1, 0);
    assert!(world.run(Duration::from_millis(1), |world| world.node(0).endpoint.peers() == 1));
    world.crash(1);
    let peer = world.connect(0, 1);
    world.pass(Duration::from_millis(3_100));
    assert_eq!(world.node(0).events, [Event::Gone { peer, reason: GoneReason::NoAnswer }]);
}

/// Two nodes that dial each other; node 0's Hello is on its way, node 1's not yet.
fn dialling_each_other(timeout: Duration) -> (World, PeerId, PeerId) {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), Config { connect_timeout: timeout, ..config() });
    world.add(NodeConfig::default(), config());
    let a = world.connect(0, 1);
    world.settle();
    let b = world.connect(1, 0);
    (world, a, b)
}

/// The other side is asked anew: it answers whoever connects, whatever became of its own wish.
#[test]
fn of_two_that_dial_each_other_one_may_close_and_the_other_gets_through() {
    let (mut world, a, b) = dialling_each_other(config().connect_timeout);
    world.node(0).endpoint.close(a);
    world.send(1, b, b"from b");
    world.pass(Duration::from_millis(5));
    let [Event::Closed { peer }, Event::Connected { peer: again, .. }] = world.node(0).events[..] else {
        panic!("{:?}", world.node(0).events)
    };
    assert_eq!(peer, a);
    assert_eq!(world.node(1).events, [Event::Connected { peer: b, addr: addr(0) }]);
    assert_eq!(world.node(0).got, [(again, b"from b".to_vec())]);
}

#[test]
fn of_two_that_dial_each_other_one_may_run_out_of_time_and_the_other_gets_through() {
    let (mut world, a, b) = dialling_each_other(Duration::from_millis(300));
    world.send(1, b, b"from b");
    let deaf = LinkModel { faults: Faults { loss: 1.0, ..Faults::NONE }, ..good_link() };
    world.fabric.set_link(1, 0, deaf);
    world.pass(Duration::from_millis(310));
    assert_eq!(world.node(0).events, [Event::Gone { peer: a, reason: GoneReason::NoAnswer }]);
    assert!(world.node(1).events.is_empty(), "{:?}", world.node(1).events);
    world.fabric.set_link(1, 0, good_link());
    // The longest pause between two answers to a Hello.
    world.pass(Duration::from_millis(70));
    assert_eq!(world.node(1).events, [Event::Connected { peer: b, addr: addr(0) }]);
    assert_eq!(world.node(0).got.len(), 1);
}

#[test]
fn of_two_that_dial_each_other_the_one_that_closes_once_it_was_heard_closes_for_both() {
    let (mut world, a, b) = dialling_each_other(config().connect_timeout);
    // Node 1's Hello is here, and answered; the answer is not yet there.
    world.pass(Duration::from_micros(8));
    world.node(0).endpoint.close(a);
    world.pass(Duration::from_millis(300));
    assert_eq!(world.node(0).events, [Event::Connected { peer: a, addr: addr(1) }, Event::Closed { peer: a }]);
    assert_eq!(world.node(1).events, [Event::Connected { peer: b, addr: addr(0) }, Event::Closed { peer: b }]);
    assert_eq!((world.node(0).endpoint.peers(), world.node(1).endpoint.peers()), (0, 0));
}

#[test]
fn who_was_called_forgets_a_caller_that_gave_up_and_its_user_hears_nothing() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let peer = world.connect(0, 1);
    world.settle();
    world.node(0).endpoint.close(peer);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.node(1).endpoint.peers(), 0);
    assert!(world.node(1).events.is_empty(), "{:?}", world.node(1).events);
}

/// Where the ack of a HelloAck is lost, the HelloAck comes again and is acknowledged again.
#[test]
fn both_sides_open_though_the_first_ack_is_lost() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let b = world.connect(1, 0);
    assert!(world.run(Duration::from_millis(1), |world| world.node(0).endpoint.peers() == 1));
    let a = world.connect(0, 1);
    let deaf = LinkModel { faults: Faults { loss: 1.0, ..Faults::NONE }, ..good_link() };
    world.fabric.set_link(1, 0, deaf);
    world.pass(Duration::from_millis(1));
    assert!(world.node(0).events.is_empty());
    world.fabric.set_link(1, 0, good_link());
    world.pass(Duration::from_millis(2));
    assert_eq!(world.node(0).events, [Event::Connected { peer: a, addr: addr(1) }]);
    assert_eq!(world.node(1).events, [Event::Connected { peer: b, addr: addr(0) }]);
}

/// The longest frames of both sides are found at the handshake. A peer that answers only what is shorter is no peer to wait for.
#[test]
fn a_path_that_narrows_ends_the_connection() {
    let mut world = World::new(1, good_link());
    let nic = NodeConfig { mtu: 9_000, mtu_safe: 1_500, ..NodeConfig::default() };
    world.add(nic, config());
    world.add(nic, config());
    let (peer, back) = world.join(0, 1);
    world.fabric.set_default_link(LinkModel { mtu: Some(1_500), ..good_link() });
    world.node(0).endpoint.send_owned(peer, vec![1; 5_000]).unwrap();
    let ended = world.run(Duration::from_millis(20_000), |world| !world.node(0).events.is_empty());
    assert!(ended, "neither sent nor refused: {:?}", world.counters(0));
    let gone = Event::Gone { peer, reason: GoneReason::Undelivered };
    assert!(world.node(0).events == [Event::Unsent { peer, buffer: vec![1; 5_000] }, gone]);
    assert!(world.now().as_nanos() > 10_000_000_000, "a path may be away for some seconds");
    world.pass(Duration::from_millis(1_100));
    assert!(matches!(world.node(1).events[..], [Event::Gone { peer, .. }] if peer == back));
}

/// A process that stands still longer than frames are written again for, and whose silence is still in order.
#[test]
fn who_stood_still_takes_in_what_was_written_meanwhile() {
    let mut world = World::new(1, good_link());
    let patient = Config { keep_alive: Duration::from_millis(60_000), ..config() };
    world.add(NodeConfig::default(), patient);
    world.add(NodeConfig::default(), patient);
    let (peer, back) = world.join(0, 1);
    world.send(0, peer, b"while you were away");
    let stopped = world.nodes[1].take();
    world.pass(Duration::from_millis(40_000));
    world.nodes[1] = stopped;
    assert!(world.run(Duration::from_millis(1_000), |world| !world.node(1).got.is_empty()));
    assert_eq!(world.node(1).got, [(back, b"while you were away".to_vec())]);
    assert!(world.node(0).events.is_empty());
}
