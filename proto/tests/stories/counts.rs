//! What is counted of what happens seldom: each by what must happen for it.

use sidelane_nic::Nic;
use sidelane_nic::mem::Config as NodeConfig;
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, GoneReason, SendError};

use crate::world::{VirtualTime, World, config, good_link, lossy_link};

#[test]
fn hellos_that_nobody_answers() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), Config { connect_timeout: Duration::from_millis(300), ..config() });
    world.connect(0, 9);
    world.pass(Duration::from_millis(310));
    // At 0, 2, 6, 14, 30, 62, 126, 190 and 254 ms.
    assert_eq!((world.counters(0).hellos_sent, world.counters(0).peers_gone), (9, 1));
}

#[test]
fn refused_messages() {
    let (mut world, peer, _) = World::pair();
    let mut refused = 0;
    while refused < 3 {
        match world.node(0).endpoint.send(peer, &[0; 1_000]) {
            Ok(()) => assert_eq!(world.counters(0).messages_refused, 0),
            Err(error) => {
                assert_eq!(error, SendError::Full);
                refused += 1;
                assert_eq!(world.counters(0).messages_refused, refused);
            }
        }
    }
}

#[test]
fn time_outs_while_nothing_comes_through() {
    let (mut world, peer, _) = World::pair();
    world.fabric.set_default_link(lossy_link(1.0));
    world.send(0, peer, b"lost");
    world.pass(Duration::from_millis(50));
    let counters = world.counters(0);
    assert_eq!((counters.probes_sent, counters.timeouts), (1, 1 + counters.retransmitted));
    assert!(counters.retransmitted > 2, "{counters:?}");
    world.fabric.set_default_link(good_link());
    assert!(world.run(Duration::from_millis(500), |world| !world.node(1).got.is_empty()));
    world.pass(Duration::from_millis(1));
    let after = world.counters(0).timeouts;
    world.pass(Duration::from_millis(500));
    assert_eq!(world.counters(0).timeouts, after, "acknowledged");
}

#[test]
fn every_frame_whether_it_was_written_before_or_not() {
    let mut world = World::new(1, lossy_link(0.05));
    world.add(NodeConfig::default(), config());
    world.add(NodeConfig::default(), config());
    let (peer, _) = world.join(0, 1);
    world.flood(0, 1, peer, 2_000, 1_000);
    world.crash(1);
    world.start(1, NodeConfig::default(), config());
    assert!(world.run(Duration::from_millis(1_100), |world| !world.node(0).events.is_empty()));
    assert!(world.counters(0).retransmitted > 0 && world.counters(1).resets_sent > 0);
    for node in 0..2 {
        let written = world.node(node).endpoint.nic().counters().tx_frames;
        assert_eq!(world.counters(node).frames_sent, written, "node {node}");
    }
}

#[test]
fn resets_of_who_knows_nothing_of_a_connection() {
    let (mut world, peer, _) = World::pair();
    world.crash(1);
    world.start(1, NodeConfig::default(), config());
    assert!(world.run(Duration::from_millis(1_100), |world| !world.node(0).events.is_empty()));
    assert_eq!(world.node(0).events, [Event::Gone { peer, reason: GoneReason::Restarted }]);
    assert_eq!((world.counters(1).resets_sent, world.counters(0).pings_sent), (1, 1));
}
