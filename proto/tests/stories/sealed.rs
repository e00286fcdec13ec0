//! Endpoints with a job's key, and somebody in the middle without it.

use sidelane_nic::mem::Config as NodeConfig;
use sidelane_nic::rng::Rng;
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, GoneReason, JobKey, Protection, Reject};

use crate::hostile::{assert_all_counted, from_whom, mutate, recorded};
use crate::world::{World, addr, config, good_link, lossy_link, numbered};

const KEY: JobKey = JobKey::from_bytes([0x51; JobKey::LEN]);
const BOTH: [Protection; 2] = [Protection::Authenticated(KEY), Protection::Encrypted(KEY)];

fn protected(protection: Protection) -> Config {
    Config { protection, ..config() }
}

/// Who hears every frame, and sends any of them again, altered or not, from whatever address.
#[test]
fn who_reads_the_traffic_can_neither_forge_nor_replay() {
    for protection in BOTH {
        let (mut world, peer, back, heard) = recorded(protected(protection));
        let mut rng = Rng::new(5);
        for round in 0..1_000u32 {
            for _ in 0..20 {
                let mut bytes = heard[rng.below(heard.len() as u64) as usize].clone();
                if rng.below(4) > 0 {
                    mutate(&mut bytes, &mut rng);
                }
                let from = if rng.below(2) == 0 { addr(1 - round % 2) } else { from_whom(&mut rng) };
                world.node(round % 2).controls.borrow_mut().forged.push_back((from, bytes));
            }
            world.send(0, peer, &numbered(round, 40));
            world.send(1, back, &numbered(round, 5_000));
            assert!(world.run(Duration::from_millis(50), |world| {
                !world.node(0).got.is_empty() && !world.node(1).got.is_empty()
            }));
            assert_eq!(std::mem::take(&mut world.node(0).got), [(peer, numbered(round, 5_000))]);
            assert_eq!(std::mem::take(&mut world.node(1).got), [(back, numbered(round, 40))]);
        }
        for node in 0..2 {
            assert!(world.node(node).events.is_empty(), "{:?}", world.node(node).events);
            assert_all_counted(&mut world, node);
            let counters = world.counters(node);
            for reason in [Reject::Forged, Reject::Replay, Reject::Tag, Reject::Truncated] {
                assert!(counters.rejected(reason) > 0, "{reason:?} in {:?}", counters.rejected);
            }
        }
    }
}

#[test]
fn only_messages_are_hidden_and_only_if_that_is_asked_for() {
    let secret = *b"attack at dawn";
    for (protection, hidden) in [(Protection::Checked, false), (BOTH[0], false), (BOTH[1], true)] {
        let (mut world, peer, ..) = recorded(protected(protection));
        world.node(1).controls.borrow_mut().heard = Some(Vec::new());
        world.send(0, peer, &secret);
        world.pass(Duration::from_millis(1));
        assert_eq!(world.node(1).got.len(), 1);
        let heard = world.node(1).controls.borrow_mut().heard.take().unwrap();
        let seen = heard.iter().any(|frame| frame.windows(secret.len()).any(|window| window == secret));
        assert_eq!(seen, !hidden, "{protection:?}");
    }
}

#[test]
fn who_has_no_key_or_another_one_gets_no_answer() {
    let other = JobKey::from_bytes([0x52; JobKey::LEN]);
    let cases = [
        (Protection::Checked, Reject::Tag),
        (Protection::Encrypted(other), Reject::Forged),
        (Protection::Authenticated(KEY), Reject::Forged),
    ];
    for (protection, reason) in cases {
        for stranger in 0..2 {
            let mut world = World::new(1, good_link());
            let mine = [protection, Protection::Encrypted(KEY)];
            world.add(NodeConfig::default(), protected(mine[stranger]));
            world.add(NodeConfig::default(), protected(mine[1 - stranger]));
            let peer = world.connect(0, 1);
            world.pass(Duration::from_millis(11_000));
            assert_eq!(world.node(0).events, [Event::Gone { peer, reason: GoneReason::NoAnswer }]);
            assert!(world.node(1).events.is_empty() && world.node(1).endpoint.peers() == 0);
            assert!(world.counters(1).rejected(reason) > 0);
        }
    }
}

#[test]
fn messages_of_all_sizes_come_whole_over_a_bad_link() {
    for protection in BOTH {
        let mut world = World::new(1, lossy_link(0.03));
        world.add(NodeConfig::default(), protected(protection));
        world.add(NodeConfig::default(), protected(protection));
        let (peer, _) = world.join(0, 1);
        for len in [0, 1, 100, 1_400, 10_000] {
            world.flood(0, 1, peer, 300, len);
        }
        world.flood(0, 1, peer, 2, 3 << 20);
        assert!(world.counters(0).retransmitted > 0);
    }
}

#[test]
fn a_restarted_peer_is_known_for_one_and_a_dead_one_for_gone() {
    for protection in BOTH {
        for restarts in [true, false] {
            let mut world = World::new(1, good_link());
            world.add(NodeConfig::default(), protected(protection));
            world.add(NodeConfig::default(), protected(protection));
            let (old, back) = world.join(0, 1);
            world.send(1, back, b"from the old life");
            world.pass(Duration::from_millis(1));
            world.crash(1);
            if restarts {
                world.start(1, NodeConfig::default(), protected(protection));
            }
            assert!(world.run(Duration::from_millis(1_100), |world| !world.node(0).events.is_empty()));
            let reason = if restarts { GoneReason::Restarted } else { GoneReason::Silent };
            assert_eq!(world.node(0).events, [Event::Gone { peer: old, reason }]);
            if restarts {
                let peer = world.connect(0, 1);
                world.send(0, peer, b"to the new life");
                world.pass(Duration::from_millis(10));
                assert_eq!(world.node(1).got.last().map(|(_, message)| &message[..]), Some(&b"to the new life"[..]));
            }
        }
    }
}
