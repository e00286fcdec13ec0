mod peers;
mod sleeping;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use proptest::prelude::*;

use super::mapping::{BELL_BYTES, PAIR_BYTES, Ring, map_pair, sealed_memory};
use super::open::{MTU, socket_name};
use super::ring::{CELLS, Consumer, Memory, Producer};
use super::sync::Ordering;
use super::{OpenError, ShmNic, doorbell, draft, handshake, sys};
use crate::clock;
use crate::passing;
use crate::patience::until;
use crate::rng::Rng;
use crate::time::Duration;
use crate::{Link, LinkAddr, LinkError, Nic, TxSlot, names, rights};

/// Polls, and never waits, until something is so.
fn polled(what: &str, nic: &mut ShmNic, budget: usize, mut done: impl FnMut(&mut ShmNic) -> bool) {
    until(what, || {
        nic.rx_burst(budget, |_, _| ());
        done(nic)
    });
}

fn address(endpoint: u16) -> LinkAddr {
    LinkAddr::Shm { endpoint }
}

/// The two ends of one ring, each over a mapping of its own, and a third mapping for whoever breaks the rules.
fn ring() -> (Producer<Ring>, Consumer<Ring>, Ring) {
    let memory = sealed_memory(PAIR_BYTES).unwrap();
    let [[tx, _], [rx, _], [other, _]] = [(); 3].map(|()| map_pair(&memory).unwrap());
    (Producer::new(tx), Consumer::new(rx, MTU), other)
}

fn push(producer: &mut Producer<Ring>, byte: u8, len: usize) -> bool {
    let Some(mut room) = producer.reserve(len) else { return false };
    producer.payload_mut(&mut room).fill(byte);
    producer.publish(room);
    true
}

/// Writes a frame, and forgets it.
fn drop_written(producer: &mut Producer<Ring>, len: usize) {
    if let Some(mut room) = producer.reserve(len) {
        producer.payload_mut(&mut room).fill(0xee);
    }
}

pub(super) fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![0..400usize, 0..=MTU, Just(MTU), Just(56), Just(57), Just(draft::LEN_MAX), Just(draft::LEN_MAX + 1)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_ring_is_a_queue(steps in prop::collection::vec((sizes(), 0..3u8, prop::option::weighted(0.2, sizes())), 1..500)) {
        let (mut producer, mut consumer, _) = ring();
        let mut queue = VecDeque::new();
        for (number, (len, takes, dropped)) in steps.into_iter().enumerate() {
            let byte = number as u8 | 1;
            dropped.into_iter().for_each(|len| drop_written(&mut producer, len));
            if push(&mut producer, byte, len) {
                queue.push_back((byte, len));
            } else {
                prop_assert!(!queue.is_empty(), "an empty ring is full");
            }
            for _ in 0..takes {
                let mut taken = None;
                consumer.take(|frame| taken = Some((frame.first().copied(), frame.len(), frame.to_vec())));
                let expected = queue.pop_front();
                prop_assert_eq!(taken.is_some(), expected.is_some());
                if let (Some((first, len, bytes)), Some((byte, expected))) = (taken, expected) {
                    prop_assert_eq!(len, expected);
                    prop_assert!(bytes.iter().all(|&other| other == byte) && first.is_none_or(|first| first == byte));
                }
            }
        }
        prop_assert!(!consumer.is_broken() && !producer.is_broken());
    }

    #[test]
    fn a_hostile_producer_gets_nothing_but_frames_within_the_ring_read(seed: u64) {
        let (mut producer, mut consumer, other) = ring();
        let mut rng = Rng::new(seed);
        for _ in 0..2_000 {
            let line = rng.below(u64::from(other.lines())) as u32;
            let word = match rng.below(4) {
                0 => u32::MAX,
                1 => rng.below(MTU as u64 + 2) as u32,
                2 => rng.next_u64() as u32,
                _ => 0,
            };
            other.header(line).store(word, Ordering::Relaxed);
            push(&mut producer, 7, rng.below(300) as usize);
            // Reads every byte: one outside of the mapping would end the test.
            consumer.take(|frame| assert!(frame.len() <= MTU && frame.iter().map(|&byte| usize::from(byte)).sum::<usize>() < usize::MAX));
        }
    }

    #[test]
    fn a_hostile_consumer_does_no_harm(seed: u64) {
        let (mut producer, _, other) = ring();
        let mut rng = Rng::new(seed);
        for _ in 0..2_000 {
            if rng.chance(0.3) {
                other.control().forge_head(rng.next_u64() as u32 >> rng.below(32));
            }
            push(&mut producer, 7, rng.below(MTU as u64) as usize);
        }
    }
}

#[test]
fn a_word_that_cannot_be_stops_the_reader_for_good() {
    // The last is of an empty frame in a cell behind the last one.
    for word in [u32::MAX, MTU as u32 + 2, u32::MAX - 1, (CELLS as u32 + 1) << 24 | 1] {
        let (mut producer, mut consumer, other) = ring();
        // WRAP at line 0 would lead nowhere.
        other.header(0).store(word, Ordering::Relaxed);
        assert_eq!(consumer.take(|_| ()), None);
        assert!(consumer.is_broken() && !consumer.is_ready());
        assert!(push(&mut producer, 1, 1));
        assert_eq!(consumer.take(|_| ()), None);
    }
}

/// Behind a ring is memory too, of the other direction or of cells.
#[test]
fn a_frame_that_would_end_behind_the_ring_stops_the_reader_for_good() {
    let (mut producer, mut consumer, other) = ring();
    let last = other.lines() - 1;
    for _ in 0..last {
        assert!(push(&mut producer, 1, 1) && consumer.take(|_| ()).is_some());
    }
    // Its header is there, and its second line is not.
    other.header(last).store(57 + 1, Ordering::Relaxed);
    assert_eq!(consumer.take(|_| ()), None);
    assert!(consumer.is_broken());
}

#[test]
fn a_head_that_cannot_be_stops_the_writer_for_good() {
    for ahead in [1, u32::MAX / 2] {
        let (mut producer, _, other) = ring();
        let lines = producer.memory().lines();
        while push(&mut producer, 1, 50) {}
        assert!(!producer.is_broken());
        // More was given back than was written.
        other.control().forge_head(lines - 1 + ahead);
        assert!(!push(&mut producer, 1, 50) && producer.is_broken() && !producer.may_have_room());
        other.control().forge_head(lines - 1);
        assert!(!producer.may_have_room());
    }
}

#[test]
fn a_full_ring_takes_frames_again_after_an_eighth_is_read() {
    let (mut producer, mut consumer, _) = ring();
    let mut frames = 0;
    while push(&mut producer, 1, 50) {
        frames += 1;
    }
    assert_eq!(frames, producer.memory().lines() - 1);
    assert!(!producer.may_have_room());
    let eighth = producer.memory().lines() / 8;
    let told = (0..eighth).filter(|_| consumer.take(|_| ()) == Some(true)).count();
    assert_eq!(told, 1, "the producer is told once that there is room");
    assert!((1..eighth).all(|_| consumer.take(|_| ()) == Some(false)), "and again when as much is free");
    assert!(producer.may_have_room());
    assert!(push(&mut producer, 1, 50));
    assert!((0..eighth).all(|_| consumer.take(|_| ()) == Some(false)), "who waits no more is told nothing");
}

#[test]
fn who_never_found_the_ring_full_waits_for_no_room() {
    let (mut producer, mut consumer, _) = ring();
    for _ in 0..producer.memory().lines() {
        assert!(push(&mut producer, 1, 50) && consumer.take(|_| ()) == Some(false));
        assert!(!producer.may_have_room());
    }
}

/// Behind a short frame lies what was written of a longer one that was never published.
#[test]
fn answers_and_frames_of_a_few_lines_are_drafted_and_the_ring_is_as_it_was_until_they_are_published() {
    let (mut producer, mut consumer, other) = ring();
    let drafted = |producer: &mut Producer<Ring>, len| producer.reserve(len).unwrap().is_drafted();
    for _ in 0..2 {
        assert!(!drafted(&mut producer, 56) && drafted(&mut producer, 57));
        assert!(drafted(&mut producer, draft::LEN_MAX) && !drafted(&mut producer, draft::LEN_MAX + 1));
        producer.on_received();
        assert!(drafted(&mut producer, 56) && drafted(&mut producer, 0) && !drafted(&mut producer, draft::LEN_MAX + 1));
        assert!(!producer.reserve_in(1, 56).unwrap().is_drafted());
        assert!(push(&mut producer, 7, 56), "the answer");
    }
    drop_written(&mut producer, draft::LEN_MAX);
    let behind = other.header(2 + draft::LINES - 1).load(Ordering::Relaxed);
    assert_eq!(behind, 0, "nothing is written behind the first line");
    assert!(push(&mut producer, 9, draft::LEN_MAX));
    for (byte, len) in [(7, 56), (7, 56), (9, draft::LEN_MAX)] {
        assert!(
            consumer.take(|frame| assert!(frame.len() == len && frame.iter().all(|other| *other == byte))).is_some()
        );
    }
}

#[test]
fn what_was_written_and_dropped_is_no_frame() {
    for laps in [0, 1] {
        let (mut producer, mut consumer, _) = ring();
        for _ in 0..laps * producer.memory().lines() {
            assert!(push(&mut producer, 1, 1) && consumer.take(|_| ()).is_some());
        }
        for len in [1, 56, 57, 120, 121, MTU] {
            drop_written(&mut producer, len);
            assert!(push(&mut producer, 7, 1));
            assert_eq!(consumer.take(|frame| assert_eq!(frame, [7])), Some(false), "{len} B, lap {laps}");
            assert!(!consumer.is_ready(), "{len} B were dropped");
        }
    }
}

#[test]
fn two_threads_share_a_ring_without_a_race() {
    let memory = sealed_memory(PAIR_BYTES).unwrap();
    let [ring, _] = map_pair(&memory).unwrap();
    let mut consumer = Consumer::new(ring.twin(), MTU);
    let mut producer = Producer::new(ring);
    let len = |number: usize| number * 61 % 2_000;
    const FRAMES: usize = 20_000;
    let receiver = std::thread::spawn(move || {
        for number in 0..FRAMES {
            let fine = |frame: &[u8]| {
                assert!(frame.len() == len(number) && frame.iter().all(|&byte| byte == number as u8), "{number}");
            };
            until("a frame is there", || consumer.take(fine).is_some());
        }
    });
    for number in 0..FRAMES {
        until("a frame has room", || push(&mut producer, number as u8, len(number)));
    }
    receiver.join().unwrap();
}

// Endpoints.

fn domain(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// A number that another endpoint had is free as soon as no process that another test starts has a copy of it, until its exec.
fn join(domain: &str, endpoint: u16) -> ShmNic {
    let mut joined = None;
    until("a number is free", || match ShmNic::open(domain, Some(endpoint)) {
        Err(OpenError::EndpointTaken { .. }) => false,
        opened => joined.replace(opened.unwrap()).is_none(),
    });
    joined.unwrap()
}

fn commit(nic: &mut ShmNic, link: Link, byte: u8) -> bool {
    let Some(mut slot) = nic.tx_slot(link, 1) else { return false };
    slot[0] = byte;
    slot.commit();
    true
}

/// Sends one byte, as soon as there is a connection.
fn send(nic: &mut ShmNic, link: Link, byte: u8) {
    let give_up = nic.now() + Duration::from_millis(10_000);
    while !commit(nic, link, byte) {
        assert!(nic.now() < give_up, "no connection, or no room");
        nic.wait(Some(nic.now() + Duration::from_millis(1))).unwrap();
        nic.rx_burst(0, |_, _| {});
    }
    nic.flush();
}

/// Receives one byte; fails after a while.
fn receive(nic: &mut ShmNic) -> (u8, LinkAddr) {
    let give_up = nic.now() + Duration::from_millis(10_000);
    let mut got = None;
    while nic.rx_burst(1, |frame, from| got = Some((frame[0], from))) == 0 {
        assert!(nic.now() < give_up, "no frame came");
        nic.wait(Some(give_up)).unwrap();
    }
    got.unwrap()
}

fn until_gone(nic: &mut ShmNic, link: Link) {
    let give_up = clock::monotonic() + Duration::from_millis(10_000);
    while !nic.is_gone(link) {
        assert!(nic.now() < give_up, "the peer never was gone");
        nic.wait(Some(give_up)).unwrap();
        nic.rx_burst(1, |_, _| {});
    }
}

#[test]
fn the_first_frame_of_an_empty_ring_is_shown_before_others_are_looked_for() {
    let domain = domain("first");
    let (mut a, mut b) = (join(&domain, 3), join(&domain, 4));
    let to_b = a.link(b.caps().addr).unwrap();
    send(&mut a, to_b, 0);
    assert_eq!(receive(&mut b).0, 0);
    for round in 0..3 {
        assert_eq!(b.rx_burst(64, |_, _| ()), 0);
        (1..=5).for_each(|byte| assert!(commit(&mut a, to_b, byte)));
        a.flush();
        assert_eq!([1, 2, 3].map(|_| b.rx_burst(64, |_, _| ())), [1, 4, 0], "round {round}");
    }
}

#[test]
fn two_that_dial_each_other_at_once_get_one_connection() {
    let domain = domain("both");
    for round in 0..200 {
        let mut a = join(&domain, 3);
        let mut b = join(&domain, 4);
        let (to_b, to_a) = (a.link(b.caps().addr).unwrap(), b.link(a.caps().addr).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| (0..10).for_each(|n| send(&mut a, to_b, n ^ round)));
            scope.spawn(|| (0..10).for_each(|n| send(&mut b, to_a, n ^ round)));
        });
        for n in 0..10 {
            assert_eq!(receive(&mut b), (n ^ round, a.caps().addr));
            assert_eq!(receive(&mut a), (n ^ round, b.caps().addr));
        }
        assert!(!a.is_gone(to_b) && !b.is_gone(to_a));
    }
}

#[test]
fn a_restarted_peer_is_another_and_the_last_words_of_the_first_come_before_its_end() {
    let domain = domain("restart");
    let mut a = join(&domain, 1);
    let mut b = join(&domain, 2);
    let (old, to_a) = (a.link(b.caps().addr).unwrap(), b.link(a.caps().addr).unwrap());
    send(&mut a, old, 1);
    assert_eq!(receive(&mut b).0, 1);
    for word in 2..5 {
        send(&mut b, to_a, word);
    }
    drop(b);
    let mut b = join(&domain, 2);
    let to_a = b.link(a.caps().addr).unwrap();
    send(&mut b, to_a, 9);
    // The second life waits for the words of the first, and ends meanwhile.
    let waits = |a: &mut ShmNic, is_over| {
        until("the second life waits", || {
            a.rx_burst(0, |_, _| {});
            a.successors.iter().any(|(_, wire)| wire.hung_up == is_over)
        });
    };
    waits(&mut a, false);
    drop(b);
    waits(&mut a, true);
    assert_eq!([(); 4].map(|()| receive(&mut a).0), [2, 3, 4, 9]);
    until_gone(&mut a, old);
    let mut b = join(&domain, 2);
    let new = a.link(b.caps().addr).unwrap();
    assert_ne!(old, new);
    a.unlink(old);
    send(&mut a, new, 10);
    assert_eq!(receive(&mut b).0, 10);
    assert!(!a.is_gone(new));
}

#[test]
fn a_link_that_waits_for_its_peer_comes_up_with_it_and_wakes_its_owner() {
    let domain = domain("early");
    let mut a = join(&domain, 1);
    let link = a.link(LinkAddr::Shm { endpoint: 2 }).unwrap();
    assert!(!commit(&mut a, link, 1));
    let late = std::thread::spawn({
        let domain = domain.clone();
        move || receive(&mut join(&domain, 2))
    });
    a.wait(Some(a.now() + Duration::from_millis(10_000))).unwrap();
    send(&mut a, link, 7);
    assert_eq!(late.join().unwrap(), (7, a.caps().addr));
}

#[test]
fn a_sender_that_sleeps_before_a_full_ring_wakes_when_there_is_room() {
    let domain = domain("full");
    let mut a = join(&domain, 1);
    let mut b = join(&domain, 2);
    let link = a.link(b.caps().addr).unwrap();
    send(&mut a, link, 0);
    receive(&mut b);
    const FRAMES: usize = 100_000;
    let receiver = std::thread::spawn(move || {
        for n in 1..FRAMES {
            assert_eq!(receive(&mut b).0, n as u8);
        }
    });
    for n in 1..FRAMES {
        while !commit(&mut a, link, n as u8) {
            let asleep = a.now();
            a.wait(Some(asleep + Duration::from_millis(10_000))).unwrap();
            assert!(a.now().since(asleep) < Duration::from_millis(9_000), "nobody woke the sender");
        }
    }
    a.flush();
    receiver.join().unwrap();
}

#[test]
fn names_and_numbers_that_cannot_be_are_refused_with_reasons() {
    let domain = domain("names");
    let mut first = join(&domain, 7);
    let taken = ShmNic::open(&domain, Some(7)).err().unwrap();
    assert!(matches!(taken, OpenError::EndpointTaken { endpoint: 7, stranger: None, .. }), "{taken}");
    assert!(taken.to_string().contains("taken by another process"), "{taken}");
    let (user, others) = (rights::own_user() + 1, sys::listen(&socket_name(&domain, 9)).unwrap());
    if std::os::unix::fs::fchown(&others.0, Some(user), None).is_err() || names::told_by_kernel().is_err() {
        println!("skipped whose an endpoint is: wants root, and a kernel with CONFIG_UNIX_DIAG");
    } else {
        let taken = ShmNic::open(&domain, Some(9)).err().unwrap().to_string();
        assert!(taken.contains(&format!("taken by a process of user {user}")), "{taken}");
    }
    let free = ShmNic::open(&domain, None).unwrap();
    assert_eq!(free.caps().addr, LinkAddr::Shm { endpoint: 0 });
    for name in ["", "a/b", "a,b", "x".repeat(65).as_str()] {
        assert!(matches!(ShmNic::open(name, None), Err(OpenError::BadDomain(_))), "{name}");
    }
    assert!(ShmNic::open(&"x".repeat(64), Some(65_535)).is_ok());
    assert!(matches!(first.link(first.caps().addr), Err(LinkError::Refused(..))));
}

#[test]
fn who_calls_beyond_the_bound_is_let_in_when_another_has_left() {
    let domain = domain("many");
    let mut hub = ShmNic::open_for(&domain, Some(0), 2).unwrap();
    let mut callers: Vec<_> = (1..=3).map(|endpoint| join(&domain, endpoint)).collect();
    for (n, caller) in callers[..2].iter_mut().enumerate() {
        let link = caller.link(hub.caps().addr).unwrap();
        send(caller, link, n as u8);
        assert_eq!(receive(&mut hub), (n as u8, caller.caps().addr));
    }
    let third = callers[2].link(hub.caps().addr).unwrap();
    let give_up = hub.now() + Duration::from_millis(10_000);
    while hub.counters().peers_refused == 0 {
        assert!(hub.now() < give_up, "the third caller was not turned away");
        hub.wait(Some(hub.now() + Duration::from_millis(1))).unwrap();
        hub.rx_burst(1, |_, _| {});
    }
    assert!(!commit(&mut callers[2], third, 2));
    assert!(matches!(hub.link(LinkAddr::Shm { endpoint: 9 }), Err(LinkError::TableFull(2))));
    callers.remove(0);
    let sent = std::thread::spawn(move || {
        send(&mut callers[1], third, 2);
        // The last word of one that is gone comes all the same.
        drop(callers);
    });
    assert_eq!(receive(&mut hub), (2, LinkAddr::Shm { endpoint: 3 }));
    sent.join().unwrap();
}
