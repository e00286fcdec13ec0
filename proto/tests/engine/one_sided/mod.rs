//! One-sided operations: the same stories for every driver of endpoints.

mod port;

use std::collections::{HashMap, HashSet};

use sidelane_proto::{Event, Op, OpError, PutHow, Region, RemoteKey, Rights, RmaError, SendError};

use crate::KEPT_MAX;
use crate::face::{Face, Stage, Until, join, pair, send};

stories! {
    bytes_of_every_size_go_there_and_come_back
    a_message_comes_after_the_puts_before_it
    operations_that_find_no_room_are_refused_and_each_is_told_once
    a_peer_that_takes_no_messages_is_put_to_all_the_same
    each_operation_to_a_peer_that_ends_is_told_once
    what_cannot_be_done_is_told_and_harms_nothing
}

/// Of `owner`'s memory: which it is, and its key.
fn publish(owner: &mut dyn Face, memory: Vec<u8>, rights: Rights) -> (Region, RemoteKey) {
    let region = owner.register(memory);
    (region, owner.publish(region, rights))
}

/// At once, or when there is room.
fn ordered(
    a: &mut dyn Face,
    mut other: impl FnMut(),
    mut order: impl FnMut(&mut dyn Face) -> Result<Op, RmaError>,
) -> Op {
    let mut order = |a: &mut dyn Face| match order(a) {
        Ok(op) => Some(op),
        Err(RmaError::Full) => None,
        Err(error) => panic!("{error}"),
    };
    order(a).unwrap_or_else(|| {
        a.until("ordering", |a| {
            other();
            order(a)
        })
    })
}

/// The next event, which tells of an operation.
fn told(a: &mut dyn Face, mut other: impl FnMut()) -> (Op, Event) {
    let event = a.until("an operation's event", |a| {
        other();
        a.poll_event()
    });
    match event {
        Event::Got { op } | Event::Fetched { op, .. } | Event::OpFailed { op, .. } => (op, event),
        other => panic!("{other:?}"),
    }
}

/// Across the borders of what is copied (1,024), of a frame, of a record in the ring, and of the FIFOs.
const LENS: [usize; 9] = [0, 1, 8, 1_024, 1_025, 1_400, KEPT_MAX, KEPT_MAX + 1, 100_000];

fn bytes_of_every_size_go_there_and_come_back(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    let (region, key) = publish(&mut *b, vec![0; 400_000], Rights::ALL);
    let pattern: Vec<u8> = (0..100_000u32).map(|at| (at * 7 + at / 256) as u8).collect();
    let source = pattern.clone();
    let source = a.register(source);
    let landing = a.register(vec![0; 400_000]);
    let mut turn = || b.turn();
    // One after another, each length twice; the first word is for atomics.
    let (mut expected, mut puts) = (vec![0; 8], Vec::new());
    for len in LENS {
        let at = expected.len() as u64;
        puts.push(ordered(&mut *a, &mut turn, |a| a.put(to_b, &key, at, &pattern[..len], PutHow::default())));
        let (at, from) = (at + len as u64, (source, 0..len));
        puts.push(ordered(&mut *a, &mut turn, |a| a.put_from(to_b, &key, at, from.clone(), PutHow::SIGNAL)));
        expected.extend([&pattern[..len], &pattern[..len]].concat());
    }
    for put in puts {
        a.until("a put", |a| {
            turn();
            a.is_done(put).then_some(())
        });
    }
    let (mut at, mut gets) = (8, HashSet::new());
    for len in LENS.map(|len| len * 2) {
        let into = (landing, at..at + len);
        let get = ordered(&mut *a, &mut turn, |a| a.get(to_b, &key, at as u64, into.clone()));
        assert!(gets.insert(get));
        at += len;
    }
    while !gets.is_empty() {
        let (op, event) = told(&mut *a, &mut turn);
        assert!(gets.remove(&op) && event == Event::Got { op }, "{event:?}");
        // An engine tells of it first, and lets it count as done a moment later, or when all before it are.
        a.until("its end", |a| {
            turn();
            a.is_done(op).then_some(())
        });
    }
    let add = ordered(&mut *a, &mut turn, |a| a.fetch_add(to_b, &key, 0, 5));
    let swap = ordered(&mut *a, &mut turn, |a| a.compare_swap(to_b, &key, 0, 5, 9));
    let failed = ordered(&mut *a, &mut turn, |a| a.compare_swap(to_b, &key, 0, 5, 1));
    for (op, value) in [(add, 0), (swap, 5), (failed, 9)] {
        assert_eq!(told(&mut *a, &mut turn).1, Event::Fetched { op, value });
    }
    expected[0] = 9;
    assert!(b.bytes(region)[..at] == expected);
    expected[..8].fill(0);
    assert!(a.bytes(landing)[..at] == expected);
    assert_eq!(b.signals(region), Some(LENS.len() as u64));
    assert_eq!(a.poll_event(), None);
}

fn a_message_comes_after_the_puts_before_it(stage: &dyn Stage) {
    const ROUNDS: u64 = 300;
    // Not many of them find room in the endpoint.
    const LEN: usize = 6_000;
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    let (region, key) = publish(&mut *b, vec![0; LEN], Rights::WRITE);
    let mut received = 0;
    let take = |b: &mut dyn Face, received: &mut u64| {
        b.turn();
        while let Some((_, number)) = b.recv() {
            *received += 1;
            assert_eq!(number, received.to_le_bytes());
            let there = b.bytes(region);
            let words = there.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            assert!(words.min() >= Some(*received), "message {received} came before its put");
        }
    };
    for number in 1..=ROUNDS {
        let long = number.to_le_bytes().repeat(LEN / 8);
        // Each puts to the same place, so what came before has to be there first.
        a.fence(to_b);
        let mut take = || take(&mut *b, &mut received);
        ordered(&mut *a, &mut take, |a| a.put(to_b, &key, 0, &long, PutHow { silent: true, ..PutHow::default() }));
        send(&mut *a, to_b, &number.to_le_bytes(), take);
    }
    a.until("the last message", |_| {
        take(&mut *b, &mut received);
        (received == ROUNDS).then_some(())
    });
    assert!(b.bytes(region) == ROUNDS.to_le_bytes().repeat(LEN / 8));
}

fn operations_that_find_no_room_are_refused_and_each_is_told_once(stage: &dyn Stage) {
    // More than a port's queue of events holds.
    const COUNT: u64 = 3_000;
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    let (region, key) = publish(&mut *b, vec![0; 8], Rights::ATOMIC);
    let ops: Vec<_> = (0..COUNT).map(|_| ordered(&mut *a, || b.turn(), |a| a.fetch_add(to_b, &key, 0, 1))).collect();
    // Known before its event is taken.
    a.until("the last one", |a| {
        b.turn();
        a.is_done(ops[ops.len() - 1]).then_some(())
    });
    for (op, value) in ops.into_iter().zip(0..) {
        assert_eq!(told(&mut *a, || b.turn()).1, Event::Fetched { op, value });
    }
    assert_eq!(a.poll_event(), None);
    assert_eq!(b.bytes(region), COUNT.to_le_bytes());
}

fn a_peer_that_takes_no_messages_is_put_to_all_the_same(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    let (region, key) = publish(&mut *b, vec![0; 1_000], Rights::WRITE);
    // All that the way to it holds.
    let (mut sent, mut refused) = (0u64, 0);
    while refused < 100 {
        match a.send(to_b, &sent.to_le_bytes()) {
            Ok(()) => (sent, refused) = (sent + 1, 0),
            Err(error) => {
                assert_eq!(error, SendError::Full);
                refused += 1;
                a.turn();
                b.turn();
                // An engine answers between two turns.
                a.addr();
                b.addr();
            }
        }
    }
    ordered(&mut *a, || b.turn(), |a| a.put(to_b, &key, 0, &[7; 1_000], PutHow::default()));
    ordered(&mut *a, || b.turn(), |a| a.signal(to_b, &key));
    a.until("the signal", |_| {
        b.turn();
        (b.signals(region) == Some(1)).then_some(())
    });
    assert_eq!(b.bytes(region), [7; 1_000]);
    for number in 0..sent {
        let (_, got) = b.until("what waited", |b| {
            a.turn();
            b.recv()
        });
        assert_eq!(got, number.to_le_bytes());
    }
}

fn each_operation_to_a_peer_that_ends_is_told_once(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    let (_, key) = publish(&mut *b, vec![0; 8_000], Rights::ALL);
    let landing = a.register(vec![0; 8_000]);
    drop(b);
    let mut ops = HashMap::new();
    for _ in 0..20 {
        // An engine may hear of the end at any time.
        let begun = [
            a.put(to_b, &key, 0, &[1; 8_000], PutHow::default()),
            a.put_from(to_b, &key, 0, (landing, 0..8_000), PutHow::default()),
            a.get(to_b, &key, 0, (landing, 0..8_000)),
            a.fetch_add(to_b, &key, 0, 1),
        ];
        for begun in begun {
            match begun {
                Ok(op) => assert_eq!(ops.insert(op, 0), None),
                Err(error) => assert!(matches!(error, RmaError::Full | RmaError::NoPeer), "{error}"),
            }
        }
    }
    let (mut gone, mut untold) = (false, ops.len());
    a.until("hearing of it", |a| {
        while let Some(event) = a.poll_event() {
            match event {
                Event::OpFailed { op, why: OpError::PeerGone } => {
                    *ops.get_mut(&op).unwrap() += 1;
                    untold -= 1;
                }
                Event::Gone { peer, .. } if peer == to_b => gone = true,
                other => panic!("{other:?}"),
            }
        }
        (gone && untold == 0).then_some(())
    });
    assert!(ops.values().all(|told| *told == 1), "{ops:?}");
    for op in ops.into_keys() {
        a.until("its end", |a| a.is_done(op).then_some(()));
    }
    assert_eq!(a.put(to_b, &key, 0, &[], PutHow::default()), Err(RmaError::NoPeer));
    assert_eq!(a.poll_event(), None);
}

fn what_cannot_be_done_is_told_and_harms_nothing(stage: &dyn Stage) {
    let [mut a, mut b] = pair(stage);
    let (to_b, _) = join(&mut *a, &mut *b);
    let (region, key) = publish(&mut *b, vec![0; 64], Rights::WRITE | Rights::ATOMIC);
    let (other, void) = publish(&mut *b, vec![0; 64], Rights::ALL);
    b.unpublish(other);
    let landing = a.register(vec![0; 8]);
    let bounds = Err(RmaError::Bounds);
    assert_eq!(a.put(to_b, &key, 60, &[0; 5], PutHow::default()), bounds);
    assert_eq!(a.put(to_b, &key, u64::MAX, &[0; 5], PutHow::default()), bounds);
    #[expect(clippy::reversed_empty_ranges)]
    let backwards = 5..4;
    assert_eq!(a.get(to_b, &key, 0, (landing, backwards.clone())), bounds);
    assert_eq!(a.put_from(to_b, &key, 0, (landing, backwards), PutHow::default()), bounds);
    assert_eq!(a.get(to_b, &key, 60, (landing, 0..8)), bounds);
    assert_eq!(a.fetch_add(to_b, &key, 64, 1), bounds);
    assert_eq!(a.fetch_add(to_b, &key, 4, 1), Err(RmaError::Misaligned));
    // Our own region is known where the endpoint is.
    for (key, len, error, why) in [
        (key, 9, Some(RmaError::Bounds), OpError::Bounds),
        (key, 8, None, OpError::Rights),
        (void, 8, None, OpError::NoRegion),
    ] {
        match a.get(to_b, &key, 0, (landing, 0..len)) {
            Ok(op) => assert_eq!(told(&mut *a, || b.turn()).1, Event::OpFailed { op, why }),
            refused => assert_eq!(refused.err(), error),
        }
    }
    let op = ordered(&mut *a, || b.turn(), |a| a.fetch_add(to_b, &key, 0, 3));
    assert_eq!(told(&mut *a, || b.turn()).1, Event::Fetched { op, value: 0 });
    assert_eq!(b.bytes(region)[0], 3);
    assert_eq!(a.poll_event(), None);
}
