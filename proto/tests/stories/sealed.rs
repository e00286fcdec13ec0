//! Endpoints with a job's key, and somebody in the middle without it.

use sidelane_nic::mem::Config as NodeConfig;
use sidelane_nic::rng::Rng;
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, GoneReason, JobKey, Protection, PutHow, Reject, Rights};

use crate::hostile::{assert_all_counted, from_whom, mutate, recorded};
use crate::world::{VirtualTime, World, addr, config, good_link, lossy_link, numbered};

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

/// Opening frames are sealed for the whole job: what is brought to a member that it was not sent to has a true answer, and that is
/// brought to whomever it harms.
#[test]
fn who_carries_frames_to_the_wrong_member_ends_no_connection() {
    const PING: u8 = 0x14;
    const HELLO_ACK: u8 = 0x13;
    const RESET: u8 = 0x15;
    for protection in BOTH {
        let (mut world, peer, back, heard) = recorded(protected(protection));
        let third = world.add(NodeConfig::default(), protected(protection));
        let mut carried = 0;
        for frame in heard.iter().filter(|frame| [HELLO_ACK, PING].contains(&frame[4])) {
            for (to, from) in [(0, 1), (1, 0), (third, 0), (third, 1)] {
                world.node(from).controls.borrow_mut().heard = Some(Vec::new());
                world.node(to).controls.borrow_mut().forged.push_back((addr(from), frame.clone()));
                world.pass(Duration::from_micros(100));
                let answers = world.node(from).controls.borrow_mut().heard.take().unwrap();
                for answer in answers.iter().filter(|frame| frame[4] == RESET) {
                    for victim in 0..2 {
                        carried += 1;
                        world.node(victim).controls.borrow_mut().forged.push_back((addr(1 - victim), answer.clone()));
                    }
                }
                world.pass(Duration::from_micros(100));
            }
        }
        assert!(carried > 10, "{carried} Resets");
        world.send(0, peer, b"still here");
        world.send(1, back, b"here too");
        world.pass(Duration::from_millis(2_000));
        for (node, message) in [(0, &b"here too"[..]), (1, b"still here")] {
            assert_eq!(world.node(node).events, []);
            assert_eq!(world.node(node).got.last().map(|(_, message)| &message[..]), Some(message));
            assert_all_counted(&mut world, node);
        }
    }
}

/// It is answered by a Reset, sealed for whomever it names: nobody without the key may have one made.
#[test]
fn a_ping_for_nobody_is_answered_only_if_a_member_wrote_it() {
    const PING: u8 = 0x14;
    for protection in BOTH {
        let (mut world, _, _, heard) = recorded(protected(protection));
        let third = world.add(NodeConfig::default(), protected(protection));
        let ping = heard.iter().rfind(|frame| frame[4] == PING).expect("one was asked for");
        let mut forged = ping.clone();
        *forged.last_mut().expect("a tag") ^= 1;
        for (frame, resets) in [(&forged, 0), (ping, 1)] {
            world.node(third).controls.borrow_mut().forged.push_back((addr(0), frame.clone()));
            world.pass(Duration::from_micros(100));
            let counters = world.counters(third);
            assert_eq!((counters.resets_sent, counters.rejected(Reject::Forged)), (resets, 1), "{protection:?}");
        }
    }
}

/// Nobody else is needed to answer a Hello that comes back to its sender, unless it is known there.
#[test]
fn who_sends_back_all_that_it_hears_is_no_peer() {
    for protection in [Protection::Checked, BOTH[0], BOTH[1]] {
        let mut world = World::new(1, good_link());
        world.add(NodeConfig::default(), protected(protection));
        // It answers nothing itself.
        let other = if protection == Protection::Checked { BOTH[0] } else { Protection::Checked };
        let mirror = world.add(NodeConfig::default(), protected(other));
        let peer = world.connect(0, mirror);
        world.send(0, peer, b"to a peer");
        for round in 0..200 {
            world.node(mirror).controls.borrow_mut().heard = Some(Vec::new());
            world.pass(Duration::from_micros(100));
            let heard = world.node(mirror).controls.borrow_mut().heard.take().unwrap();
            // As the peer, and as a stranger.
            let from = addr(if round % 2 == 0 { mirror } else { 50_000 });
            world.node(0).controls.borrow_mut().forged.extend(heard.into_iter().map(|frame| (from, frame)));
        }
        assert!(world.node(0).events.is_empty() && world.node(0).got.is_empty(), "{protection:?}");
        assert_eq!(world.node(0).endpoint.peers(), 1, "{protection:?}");
        assert!(world.counters(0).rejected(Reject::Replay) > 1, "{protection:?}");
        assert_all_counted(&mut world, 0);
        // Who dials itself has meant it.
        let own = world.connect(0, 0);
        world.send(0, own, b"to oneself");
        world.pass(Duration::from_millis(10));
        assert_eq!(world.node(0).got, [(own, b"to oneself".to_vec())], "{protection:?}");
    }
}

/// Both dial, and one dies before it has the other's answer; whoever lives at its address then is met all the same.
#[test]
fn who_dials_back_and_dies_does_not_keep_its_next_life_away() {
    for protection in BOTH {
        let mut world = World::new(1, good_link());
        world.add(NodeConfig::default(), protected(protection));
        world.add(NodeConfig::default(), protected(protection));
        let peer = world.connect(0, 1);
        world.connect(1, 0);
        world.send(0, peer, b"to whoever lives");
        world.settle();
        world.crash(1);
        world.pass(Duration::from_micros(8));
        world.start(1, NodeConfig::default(), protected(protection));
        world.pass(Duration::from_millis(1));
        assert_eq!((world.counters(1).resets_sent, world.counters(0).hellos_sent), (1, 1), "its answer finds nobody");
        // By a Hello that is said again: the Resets of who is met count only after a long silence.
        assert!(world.run(Duration::from_millis(100), |world| !world.node(1).got.is_empty()));
        assert!(matches!(world.node(0).events[..], [Event::Connected { peer: new, .. }] if new == peer));
    }
}

/// The same of puts, gets and atomics: altered or repeated, they change no byte of memory and no word twice.
#[test]
fn who_reads_operations_can_neither_alter_nor_repeat_them() {
    const LEN: usize = 6_000;
    for protection in BOTH {
        let (mut world, peer, _, mut heard) = recorded(protected(protection));
        let theirs = world.node(1).endpoint.register(vec![0; LEN + 8]);
        let hidden = world.node(1).endpoint.register(vec![0x5e; 64]);
        let key = world.node(1).endpoint.publish(theirs, Rights::ALL, None).unwrap();
        let own = world.node(0).endpoint.register(vec![0; LEN]);
        let mut rng = Rng::new(6);
        let mut expected = vec![0; LEN];
        for node in 0..2 {
            world.node(node).controls.borrow_mut().heard = Some(Vec::new());
        }
        for round in 0..500u64 {
            for _ in 0..20 {
                // Half of them of late: what is heard of old keys and numbers is easily told.
                let newest = (heard.len() - heard.len().min(40)) as u64 * rng.below(2);
                let mut bytes = heard[(newest + rng.below(heard.len() as u64 - newest)) as usize].clone();
                if rng.below(4) > 0 {
                    mutate(&mut bytes, &mut rng);
                }
                let to = rng.below(2) as u32;
                world.node(to).controls.borrow_mut().forged.push_back((addr(1 - to), bytes));
            }
            let len = if rng.chance(0.5) { 8 } else { LEN };
            expected[..len].fill(round as u8);
            let endpoint = &mut world.node(0).endpoint;
            let put = endpoint.put(peer, &key, 0, &expected[..len], PutHow::SIGNAL).unwrap();
            endpoint.fetch_add(peer, &key, LEN as u64, 1).unwrap();
            let get = endpoint.get(peer, &key, 0, own, 0..LEN).unwrap();
            assert!(world.run(Duration::from_millis(50), |world| world.node(0).events.len() == 2));
            let events = std::mem::take(&mut world.node(0).events);
            assert!(matches!(events[0], Event::Fetched { value, .. } if value == round), "{events:?}");
            assert_eq!(events[1], Event::Got { op: get });
            assert!(world.node(0).endpoint.is_done(put));
            assert_eq!(world.node(0).endpoint.region(own), Some(&expected[..]));
            let there = &world.node(1).endpoint;
            assert_eq!(there.region(theirs).unwrap()[..LEN], expected);
            assert_eq!((there.region(hidden).unwrap(), there.signals(theirs)), (&[0x5e; 64][..], Some(round + 1)));
            for node in 0..2 {
                let controls = &world.node(node).controls;
                heard.extend(controls.borrow_mut().heard.replace(Vec::new()).unwrap());
            }
        }
        let shows_key = heard.iter().any(|frame| frame.windows(8).any(|window| *window == key.to_bytes()[4..12]));
        assert_eq!(shows_key, protection == BOTH[0], "who sees a key can use it, if he is of the job");
        for node in 0..2 {
            assert!(world.node(node).events.is_empty(), "{:?}", world.node(node).events);
            assert_all_counted(&mut world, node);
            let counters = world.counters(node);
            let counts = [Reject::Forged, Reject::Replay].map(|reason| counters.rejected(reason));
            assert!(counts.iter().all(|count| *count > 10), "forged, again: {counts:?}");
            assert_eq!((counters.operations_failed, counters.rejected(Reject::NoRegion)), (0, 0));
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

/// A connection's keys are of its tokens: with those of a seed, which repeats, they would come again.
#[test]
fn a_seed_repeats_tokens_only_where_there_is_no_key() {
    for protection in [Protection::Checked, BOTH[0], BOTH[1]] {
        let token = || {
            let (_, _, _, heard) = recorded(protected(protection));
            let hello = heard.iter().find(|frame| frame[4] == 0x12).expect("it began with a Hello");
            hello[24..32].to_vec()
        };
        assert_eq!(token() == token(), protection == Protection::Checked, "{protection:?}");
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
