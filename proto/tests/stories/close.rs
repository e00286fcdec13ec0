//! Closing: everything that was sent before is delivered, and both sides hear of it.

use sidelane_nic::mem::Config as NodeConfig;
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, GoneReason, PeerId, SendError};

use crate::world::{KERNEL_FLOOR, VirtualTime, World, addr, config, good_link, lossy_link, numbered};

fn has_closed(world: &mut World, node: u32, peer: PeerId) -> bool {
    world.node(node).events.contains(&Event::Closed { peer })
}

#[test]
fn what_was_sent_before_a_close_arrives_also_at_a_third_lost() {
    for (seed, loss) in (0..60).map(|seed| (seed, if seed < 10 { 0.0 } else { 0.3 })) {
        let mut world = World::new(seed, lossy_link(loss));
        let nic = NodeConfig { rto_floor: KERNEL_FLOOR, ..NodeConfig::default() };
        world.add(nic, config());
        world.add(nic, config());
        let (peer, back) = world.join(0, 1);
        for number in 0..20 {
            world.send(0, peer, &numbered(number, 2_000));
        }
        world.node(0).endpoint.close(peer);
        assert_eq!(world.node(0).endpoint.send(peer, b"late"), Err(SendError::NoPeer));
        let closed =
            world.run(Duration::from_millis(3_000), |world| has_closed(world, 0, peer) && has_closed(world, 1, back));
        let (ours, theirs) = (format!("{:?}", world.node(0).events), format!("{:?}", world.node(1).events));
        assert!(closed, "seed {seed}: {ours} / {theirs}");
        let got: Vec<_> = world.node(1).got.iter().map(|(_, message)| message.clone()).collect();
        assert_eq!(got, (0..20).map(|number| numbered(number, 2_000)).collect::<Vec<_>>(), "seed {seed}");
        world.pass(Duration::from_millis(2_000));
        assert_eq!((world.node(0).events.len(), world.node(1).events.len()), (1, 1), "seed {seed}: once each");
        assert_eq!((world.node(0).endpoint.peers(), world.node(1).endpoint.peers()), (0, 0), "seed {seed}");
    }
}

#[test]
fn both_sides_closing_at_once_lose_nothing() {
    for seed in 0..30 {
        let mut world = World::new(seed, lossy_link(if seed < 10 { 0.0 } else { 0.3 }));
        world.add(NodeConfig::default(), config());
        world.add(NodeConfig::default(), config());
        let (a, b) = world.join(0, 1);
        for number in 0..5 {
            world.send(0, a, &numbered(number, 100));
            world.send(1, b, &numbered(number, 100));
        }
        world.node(0).endpoint.close(a);
        world.node(1).endpoint.close(b);
        let closed =
            world.run(Duration::from_millis(3_000), |world| has_closed(world, 0, a) && has_closed(world, 1, b));
        let (ours, theirs) = (format!("{:?}", world.node(0).events), format!("{:?}", world.node(1).events));
        assert!(closed, "seed {seed}: {ours} / {theirs}");
        assert_eq!((world.node(0).got.len(), world.node(1).got.len()), (5, 5), "seed {seed}");
    }
}

#[test]
fn a_close_before_the_answer_still_delivers() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let peer = world.connect(0, 1);
    world.send(0, peer, b"all I have to say");
    world.node(0).endpoint.close(peer);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.node(1).got.len(), 1);
    assert!(has_closed(&mut world, 0, peer));
    assert!(matches!(world.node(1).events[..], [Event::Connected { .. }, Event::Closed { .. }]));
}

#[test]
fn a_close_without_anything_sent_before_the_answer_is_done_at_once() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let peer = world.connect(0, 1);
    world.node(0).endpoint.close(peer);
    world.settle();
    assert_eq!(world.node(0).events, [Event::Closed { peer }]);
    world.pass(Duration::from_millis(1_100));
    assert_eq!((world.node(0).endpoint.peers(), world.node(1).endpoint.peers()), (0, 0));
}

#[test]
fn a_slow_reader_of_a_close_sees_a_close_and_no_error() {
    let (mut world, peer, back) = World::pair();
    world.node(1).reads = false;
    world.send(0, peer, b"read me when you have time");
    world.node(0).endpoint.close(peer);
    world.pass(Duration::from_millis(3_000));
    assert_eq!(world.node(0).events, [Event::Closed { peer }]);
    assert!(world.node(1).events.is_empty(), "{:?}", world.node(1).events);
    world.node(1).reads = true;
    world.pass(Duration::from_millis(300));
    assert_eq!(world.node(1).got.len(), 1);
    assert_eq!(world.node(1).events, [Event::Closed { peer: back }]);
    assert_eq!(world.node(1).endpoint.peers(), 0);
}

/// Its user takes the last message and the close, and then its endpoint has no turn for longer than it lingers.
#[test]
fn who_is_away_behind_a_close_that_it_took_acknowledges_it_all_the_same() {
    let (mut world, peer, back) = World::pair();
    world.node(1).reads = false;
    world.send(0, peer, b"the last");
    world.node(0).endpoint.close(peer);
    let before = world.counters(1).frames_received;
    assert!(world.run(Duration::from_millis(1), |world| world.counters(1).frames_received > before));
    let taken = std::iter::from_fn(|| world.node(1).endpoint.recv(|_, message| message == b"the last"));
    assert_eq!(taken.collect::<Vec<_>>(), [true]);
    world.fabric.advance_to(world.now() + Duration::from_millis(260));
    world.pass(Duration::from_millis(1_100));
    assert_eq!(world.node(0).events, [Event::Closed { peer }]);
    assert_eq!(world.node(1).events, [Event::Closed { peer: back }]);
    assert_eq!((world.node(0).endpoint.peers(), world.node(1).endpoint.peers()), (0, 0));
}

/// Who closed sends again seldom by then, and the first ack is lost.
#[test]
fn a_close_that_the_other_one_comes_to_late_finds_an_answer_all_the_same() {
    for late in (300..700).step_by(50) {
        let (mut world, peer, back) = World::pair();
        world.send(0, peer, b"the last");
        world.node(0).endpoint.close(peer);
        let stopped = world.nodes[1].take();
        world.pass(Duration::from_millis(late));
        world.nodes[1] = stopped;
        world.fabric.partition(0, 1, world.now() + Duration::from_millis(1));
        world.pass(Duration::from_millis(1_100));
        assert_eq!(world.node(0).events, [Event::Closed { peer }], "{late} ms");
        assert_eq!(world.node(1).events, [Event::Closed { peer: back }], "{late} ms");
    }
}

#[test]
fn a_close_with_messages_the_other_way_outstanding_is_told() {
    let (mut world, peer, back) = World::pair();
    world.node(0).reads = false;
    while world.node(1).endpoint.send(back, &[1; 1000]).is_ok() {
        world.settle();
        if world.counters(1).credit_stalls > 0 {
            break;
        }
    }
    world.node(1).endpoint.send_owned(back, vec![2; 3_000]).unwrap();
    world.node(0).endpoint.close(peer);
    world.pass(Duration::from_millis(100));
    let gone = Event::Gone { peer: back, reason: GoneReason::ClosedByPeer };
    assert_eq!(world.node(1).events, [Event::Unsent { peer: back, buffer: vec![2; 3_000] }, gone]);
    assert_eq!(world.node(0).events, [Event::Closed { peer }]);
}

/// As the one before, of a side that closes as well, and has more to say than the other one takes.
#[test]
fn a_close_whose_messages_the_peer_never_takes_ends_with_the_peers() {
    let (mut world, peer, back) = World::pair();
    world.node(0).reads = false;
    while world.counters(1).credit_stalls == 0 {
        world.send(1, back, &[1; 1000]);
        world.pass(Duration::from_micros(50));
    }
    world.node(1).endpoint.close(back);
    world.node(0).endpoint.close(peer);
    world.pass(Duration::from_millis(1_100));
    assert_eq!(world.node(0).events, [Event::Closed { peer }]);
    assert_eq!(world.node(1).events, [Event::Gone { peer: back, reason: GoneReason::ClosedByPeer }]);
}

/// It waits for the acks of what it sent, whatever becomes of what is sent to it meanwhile.
#[test]
fn a_close_that_a_message_of_the_peers_crosses_is_a_close() {
    let (mut world, peer, back) = World::pair();
    world.node(0).endpoint.send_owned(peer, vec![7; 2_000]).unwrap();
    world.node(0).endpoint.close(peer);
    world.send(1, back, b"crosses");
    world.pass(Duration::from_millis(1_100));
    assert_eq!(world.node(0).events, [Event::Sent { peer, buffer: vec![7; 2_000] }, Event::Closed { peer }]);
    assert_eq!(world.node(1).events, [Event::Gone { peer: back, reason: GoneReason::ClosedByPeer }]);
    assert_eq!(world.node(0).got, [(peer, b"crosses".to_vec())]);
    assert_eq!(world.node(1).got, [(back, vec![7; 2_000])]);
    assert_eq!((world.node(0).endpoint.peers(), world.node(1).endpoint.peers()), (0, 0));
}

/// The other one's user has not come so far as to take what was sent before: that is not waited for.
#[test]
fn who_closed_connects_anew_before_its_close_is_taken() {
    for answers in [false, true] {
        let (mut world, first, back) = World::pair();
        world.node(1).reads = false;
        world.send(0, first, b"read me when you have time");
        world.node(0).endpoint.close(first);
        assert!(world.run(Duration::from_millis(10), |world| has_closed(world, 0, first)));
        assert_eq!(std::mem::take(&mut world.node(0).events), [Event::Closed { peer: first }]);
        let (second, anew) = world.join(0, 1);
        world.send(0, second, b"anew");
        if answers {
            world.send(1, back, b"to whom?");
        }
        world.pass(Duration::from_millis(500));
        let gone = Event::Gone { peer: back, reason: GoneReason::ClosedByPeer };
        assert_eq!(std::mem::take(&mut world.node(1).events), if answers { vec![gone] } else { vec![] });
        world.node(1).reads = true;
        world.pass(Duration::from_millis(1_000));
        assert_eq!(world.node(1).events, if answers { vec![] } else { vec![Event::Closed { peer: back }] });
        assert_eq!(world.node(1).got, [(back, b"read me when you have time".to_vec()), (anew, b"anew".to_vec())]);
        assert_eq!((world.node(0).endpoint.peers(), world.node(1).endpoint.peers()), (1, 1));
    }
}

/// The old connection still lingers when the new one begins; its end must not touch the new one's link.
#[test]
fn a_peer_can_be_connected_anew_right_after_a_close() {
    let (mut world, mut peer, mut back) = World::pair();
    for round in 0..20 {
        world.send(0, peer, &numbered(round, 8));
        world.pass(Duration::from_millis(1));
        world.node(round % 2).endpoint.close(if round % 2 == 0 { peer } else { back });
        assert!(world.run(Duration::from_millis(10), |world| has_closed(world, 0, peer) && has_closed(world, 1, back)));
        (peer, back) = world.join(0, 1);
        world.send(0, peer, b"anew");
        world.pass(Duration::from_millis(260));
        assert_eq!(world.node(1).got.pop(), Some((back, b"anew".to_vec())), "round {round}");
        world.node(1).got.clear();
    }
    assert_eq!((world.node(0).endpoint.peers(), world.node(1).endpoint.peers()), (1, 1));
}

#[test]
fn a_message_longer_than_an_unknown_peer_takes_ends_in_an_error() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), Config { message_max: 1_000, ..config() });
    let peer = world.connect(0, 1);
    world.node(0).endpoint.send_owned(peer, vec![3; 1_001]).unwrap();
    world.pass(Duration::from_millis(1_000));
    assert!(
        world.node(0).events.contains(&Event::Gone { peer, reason: GoneReason::MessageTooLong }),
        "{:?}",
        world.node(0).events
    );
    assert!(world.node(0).events.contains(&Event::Unsent { peer, buffer: vec![3; 1_001] }));
    assert!(world.node(1).got.is_empty());
}

/// Its address was connected anew meanwhile, and that connection has ended first.
#[test]
fn a_connection_that_lingers_keeps_its_link_while_a_newer_one_comes_and_goes() {
    let (mut world, first, back) = World::pair();
    world.node(0).controls.borrow_mut().heard = Some(Vec::new());
    world.send(1, back, b"to be repeated");
    world.pass(Duration::from_millis(1));
    let repeated = world.node(0).controls.borrow_mut().heard.take().unwrap().remove(0);
    world.node(0).endpoint.close(first);
    assert!(world.run(Duration::from_millis(10), |world| has_closed(world, 0, first)));
    let second = world.connect(0, 1);
    world.node(0).endpoint.close(second);
    world.settle();
    assert!(has_closed(&mut world, 0, second));
    assert_eq!(world.node(0).endpoint.peers(), 1, "only the first, which lingers");
    let acks = world.counters(0).acks_sent;
    world.node(0).controls.borrow_mut().forged.push_back((addr(1), repeated));
    world.settle();
    assert_eq!(world.counters(0).acks_sent, acks + 1, "it answers by the link that both had");
    world.pass(Duration::from_millis(260));
    assert_eq!(world.node(0).endpoint.peers(), 0);
}
