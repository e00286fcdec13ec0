//! One-sided operations: the same stories for every driver of endpoints, and what only a port does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::thread;

use sidelane_nic::fault::{Fault, Faults};
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{Nic, clock};
use sidelane_proto::am::{ActiveMessages, Handlers};
use sidelane_proto::engine::{Options, Port, WithState, start};
use sidelane_proto::{
    Config, Endpoint, Event, Op, OpError, PeerId, PutHow, Region, RemoteKey, Rights, RmaError, SendError,
};

use crate::face::{ByAnEngine, ByItsUser, ByOneEngine, Domain, Drive, Face, PATIENCE, config, join, pair, send, udp};

stories! {
    bytes_of_every_size_go_there_and_come_back
    a_message_comes_after_the_puts_before_it
    operations_that_find_no_room_are_refused_and_each_is_told_once
    a_peer_that_takes_no_messages_is_put_to_all_the_same
    each_operation_to_a_peer_that_ends_is_told_once
    what_cannot_be_done_is_told_and_harms_nothing
}

/// Of `owner`'s memory: which it is, and its key.
fn publish<F: Face>(owner: &mut F, memory: Vec<u8>, rights: Rights) -> (Region, RemoteKey) {
    owner.at_endpoint(move |endpoint| {
        let region = endpoint.register(memory);
        (region, endpoint.publish(region, rights, None).unwrap())
    })
}

fn bytes<F: Face>(owner: &mut F, region: Region) -> Vec<u8> {
    owner.at_endpoint(move |endpoint| endpoint.region(region).unwrap().to_vec())
}

/// At once, or when there is room.
fn ordered<A: Face>(a: &mut A, mut other: impl FnMut(), mut order: impl FnMut(&mut A) -> Result<Op, RmaError>) -> Op {
    let mut order = |a: &mut A| match order(a) {
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
fn told<A: Face>(a: &mut A, mut other: impl FnMut()) -> (Op, Event) {
    let event = a.until("an operation's event", |a| {
        other();
        a.poll_event()
    });
    match event {
        Event::Got { op } | Event::Fetched { op, .. } | Event::OpFailed { op, .. } => (op, event),
        other => panic!("{other:?}"),
    }
}

/// Across the borders of what is copied (1,024), of a frame, of a record in the ring (32 KiB), and of the FIFOs.
const LENS: [usize; 9] = [0, 1, 8, 1_024, 1_025, 1_400, 32_760, 32_761, 100_000];

fn bytes_of_every_size_go_there_and_come_back<D: Drive, N: Nic + Send + 'static>(open: impl Fn() -> N) {
    let (mut a, mut b) = pair::<D, N>(open);
    let (to_b, _) = join(&mut a, &mut b);
    let (region, key) = publish(&mut b, vec![0; 400_000], Rights::ALL);
    let pattern: Vec<u8> = (0..100_000u32).map(|at| (at * 7 + at / 256) as u8).collect();
    let source = pattern.clone();
    let source = a.at_endpoint(move |a| a.register(source));
    let landing = a.at_endpoint(|a| a.register(vec![0; 400_000]));
    let mut turn = || b.turn();
    // One after another, each length twice; the first word is for atomics.
    let (mut expected, mut puts) = (vec![0; 8], Vec::new());
    for len in LENS {
        let at = expected.len() as u64;
        puts.push(ordered(&mut a, &mut turn, |a| a.put(to_b, &key, at, &pattern[..len], PutHow::default())));
        let (at, from) = (at + len as u64, (source, 0..len));
        puts.push(ordered(&mut a, &mut turn, |a| a.put_from(to_b, &key, at, from.clone(), PutHow::SIGNAL)));
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
        let get = ordered(&mut a, &mut turn, |a| a.get(to_b, &key, at as u64, into.clone()));
        assert!(gets.insert(get));
        at += len;
    }
    while !gets.is_empty() {
        let (op, event) = told(&mut a, &mut turn);
        assert!(gets.remove(&op) && event == Event::Got { op }, "{event:?}");
        assert!(a.is_done(op));
    }
    let add = ordered(&mut a, &mut turn, |a| a.fetch_add(to_b, &key, 0, 5));
    let swap = ordered(&mut a, &mut turn, |a| a.compare_swap(to_b, &key, 0, 5, 9));
    let failed = ordered(&mut a, &mut turn, |a| a.compare_swap(to_b, &key, 0, 5, 1));
    for (op, value) in [(add, 0), (swap, 5), (failed, 9)] {
        assert_eq!(told(&mut a, &mut turn).1, Event::Fetched { op, value });
    }
    expected[0] = 9;
    assert!(bytes(&mut b, region)[..at] == expected);
    expected[..8].fill(0);
    assert!(bytes(&mut a, landing)[..at] == expected);
    assert_eq!(b.at_endpoint(move |b| b.signals(region)), Some(LENS.len() as u64));
    assert_eq!(a.poll_event(), None);
}

fn a_message_comes_after_the_puts_before_it<D: Drive, N: Nic + Send + 'static>(open: impl Fn() -> N) {
    const ROUNDS: u64 = 300;
    // Not many of them find room in the endpoint.
    const LEN: usize = 6_000;
    let (mut a, mut b) = pair::<D, N>(open);
    let (to_b, _) = join(&mut a, &mut b);
    let (region, key) = publish(&mut b, vec![0; LEN], Rights::WRITE);
    let mut received = 0;
    let take = |b: &mut D::Face<N>, received: &mut u64| {
        b.turn();
        while let Some((_, number)) = b.recv() {
            *received += 1;
            assert_eq!(number, received.to_le_bytes());
            let there = bytes(b, region);
            let words = there.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            assert!(words.min() >= Some(*received), "message {received} came before its put");
        }
    };
    for number in 1..=ROUNDS {
        let long = number.to_le_bytes().repeat(LEN / 8);
        // Each puts to the same place, so what came before has to be there first.
        a.fence(to_b);
        let mut take = || take(&mut b, &mut received);
        ordered(&mut a, &mut take, |a| a.put(to_b, &key, 0, &long, PutHow { signal: false, silent: true }));
        send(&mut a, to_b, &number.to_le_bytes(), take);
    }
    a.until("the last message", |_| {
        take(&mut b, &mut received);
        (received == ROUNDS).then_some(())
    });
    assert!(bytes(&mut b, region) == ROUNDS.to_le_bytes().repeat(LEN / 8));
}

fn operations_that_find_no_room_are_refused_and_each_is_told_once<D: Drive, N: Nic + Send + 'static>(
    open: impl Fn() -> N,
) {
    // More than a port's queue of events holds.
    const COUNT: u64 = 3_000;
    let (mut a, mut b) = pair::<D, N>(open);
    let (to_b, _) = join(&mut a, &mut b);
    let (region, key) = publish(&mut b, vec![0; 8], Rights::ATOMIC);
    let ops: Vec<_> = (0..COUNT).map(|_| ordered(&mut a, || b.turn(), |a| a.fetch_add(to_b, &key, 0, 1))).collect();
    // Known before its event is taken.
    a.until("the last one", |a| {
        b.turn();
        a.is_done(ops[ops.len() - 1]).then_some(())
    });
    for (op, value) in ops.into_iter().zip(0..) {
        assert_eq!(told(&mut a, || b.turn()).1, Event::Fetched { op, value });
    }
    assert_eq!(a.poll_event(), None);
    assert_eq!(bytes(&mut b, region), COUNT.to_le_bytes());
}

fn a_peer_that_takes_no_messages_is_put_to_all_the_same<D: Drive, N: Nic + Send + 'static>(open: impl Fn() -> N) {
    let (mut a, mut b) = pair::<D, N>(open);
    let (to_b, _) = join(&mut a, &mut b);
    let (region, key) = publish(&mut b, vec![0; 1_000], Rights::WRITE);
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
                a.at_endpoint(|_| ());
                b.at_endpoint(|_| ());
            }
        }
    }
    ordered(&mut a, || b.turn(), |a| a.put(to_b, &key, 0, &[7; 1_000], PutHow::default()));
    ordered(&mut a, || b.turn(), |a| a.signal(to_b, &key));
    a.until("the signal", |_| {
        b.turn();
        (b.at_endpoint(move |b| b.signals(region)) == Some(1)).then_some(())
    });
    assert_eq!(bytes(&mut b, region), [7; 1_000]);
    for number in 0..sent {
        let (_, got) = b.until("what waited", |b| {
            a.turn();
            b.recv()
        });
        assert_eq!(got, number.to_le_bytes());
    }
}

fn each_operation_to_a_peer_that_ends_is_told_once<D: Drive, N: Nic + Send + 'static>(open: impl Fn() -> N) {
    let (mut a, mut b) = pair::<D, N>(open);
    let (to_b, _) = join(&mut a, &mut b);
    let (_, key) = publish(&mut b, vec![0; 8_000], Rights::ALL);
    let landing = a.at_endpoint(|a| a.register(vec![0; 8_000]));
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

fn what_cannot_be_done_is_told_and_harms_nothing<D: Drive, N: Nic + Send + 'static>(open: impl Fn() -> N) {
    let (mut a, mut b) = pair::<D, N>(open);
    let (to_b, _) = join(&mut a, &mut b);
    let (region, key) = publish(&mut b, vec![0; 64], Rights::WRITE | Rights::ATOMIC);
    let (other, void) = publish(&mut b, vec![0; 64], Rights::ALL);
    b.at_endpoint(move |b| b.unpublish(other)).unwrap();
    let landing = a.at_endpoint(|a| a.register(vec![0; 8]));
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
            Ok(op) => assert_eq!(told(&mut a, || b.turn()).1, Event::OpFailed { op, why }),
            refused => assert_eq!(refused.err(), error),
        }
    }
    let op = ordered(&mut a, || b.turn(), |a| a.fetch_add(to_b, &key, 0, 3));
    assert_eq!(told(&mut a, || b.turn()).1, Event::Fetched { op, value: 0 });
    assert_eq!(bytes(&mut b, region)[0], 3);
    assert_eq!(a.poll_event(), None);
}

fn engine<N: Nic + Send + 'static>(nic: N) -> Port<Endpoint<N>> {
    start(Endpoint::new(nic, config()), Options::default()).unwrap()
}

/// Two engines, the peer of the first, and memory there.
fn engines() -> (Port<Endpoint<ShmNic>>, Port<Endpoint<ShmNic>>, PeerId, Region, RemoteKey) {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    let (region, key) = publish(&mut b, vec![0; 40_000], Rights::ALL);
    (a, b, to_b, region, key)
}

/// Waits without a limit but the test's own.
fn sleep_until_done<N: Nic + Send + 'static>(a: &mut Port<Endpoint<N>>, op: Op) {
    let give_up = clock::monotonic() + PATIENCE;
    while !a.is_done(op).unwrap() {
        a.wait(Some(give_up)).unwrap();
        assert!(clock::monotonic() < give_up, "slept beside an operation that is done");
    }
}

#[test]
fn a_put_that_is_done_wakes_who_waits() {
    let (mut a, _b, to_b, _, key) = engines();
    for round in 0..1_000 {
        // Longer than the engines spin, now and then.
        if round % 10 == 0 {
            thread::park_timeout(std::time::Duration::from_micros(100));
        }
        let put = a.put(to_b, &key, 0, b"there", PutHow::default()).unwrap();
        sleep_until_done(&mut a, put);
    }
}

/// A refused port sleeps until there is room, and what was taken is done in order.
#[test]
fn room_for_an_operation_wakes_who_was_refused() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), Endpoint::new(domain.open(), config()));
    let (to_b, _) = join(&mut a, &mut b);
    let (region, key) = publish(&mut b, vec![0; 8], Rights::ALL);
    // Nobody polls the peer. Short ones, of which thousands wait on the engine.
    let (mut taken, mut refused) = (0u64, 0);
    while refused < 100 {
        a.fence(to_b);
        match a.put(to_b, &key, 0, &(taken + 1).to_le_bytes(), PutHow::default()) {
            Ok(_) => (taken, refused) = (taken + 1, 0),
            Err(error) => {
                assert_eq!(error, RmaError::Full);
                refused += 1;
                a.call(|_| ()).unwrap();
            }
        }
    }
    a.send(to_b, b"behind them").unwrap();
    let waits = thread::spawn(move || {
        let give_up = clock::monotonic() + PATIENCE;
        let last = loop {
            match a.fetch_add(to_b, &key, 0, 1) {
                Ok(op) => break op,
                Err(error) => assert_eq!(error, RmaError::Full),
            }
            a.wait(Some(give_up)).unwrap();
            assert!(clock::monotonic() < give_up, "slept beside room");
        };
        sleep_until_done(&mut a, last);
        assert_eq!(a.poll_event(), Some(Event::Fetched { op: last, value: taken }));
        a
    });
    let (_, got) = b.until("the message", Face::recv);
    assert_eq!(got, b"behind them");
    // An addition may have come since.
    let there = bytes(&mut b, region);
    assert!([taken, taken + 1].map(u64::to_le_bytes).contains(&there.try_into().unwrap()), "it came before puts");
    b.until("the last operation", |_| waits.is_finished().then_some(()));
    waits.join().unwrap();
}

/// On a link that mixes up the frames of two puts, as is seen first.
#[test]
fn a_fence_keeps_the_later_of_two_puts_to_one_place_last() {
    let faults = Faults { loss: 0.1, reorder: 0.5, reorder_span: Duration::from_micros(200), ..Faults::NONE };
    let at_once = Config { congestion_control: false, ..config() };
    let mut a = start(Endpoint::new(Fault::new(udp(), faults, 1), at_once), Options::default()).unwrap();
    let mut b = engine(udp());
    let (to_b, _) = join(&mut a, &mut b);
    let (region, key) = publish(&mut b, vec![0; 6_000], Rights::WRITE);
    // From regions, each in frames of its own.
    let [ones, twos] = [1, 2].map(|byte| a.call(move |endpoint| endpoint.register(vec![byte; 6_000])).unwrap());
    let mut is_mixed_up = |fenced: bool| {
        a.put_from(to_b, &key, 0, ones, 0..6_000, PutHow::default()).unwrap();
        if fenced {
            a.fence(to_b);
        }
        let last = a.put_from(to_b, &key, 0, twos, 0..6_000, PutHow::default()).unwrap();
        sleep_until_done(&mut a, last);
        bytes(&mut b, region) != [2; 6_000]
    };
    let give_up = clock::monotonic() + PATIENCE;
    while !is_mixed_up(false) {
        assert!(clock::monotonic() < give_up, "the link keeps them in order");
    }
    for _ in 0..50 {
        assert!(!is_mixed_up(true));
    }
}

#[test]
fn operations_of_closures_beside_the_ports_keep_their_own_ids() {
    let (mut a, _b, to_b, _, key) = engines();
    let mut ops = Vec::new();
    for round in 0..20 {
        ops.push(a.fetch_add(to_b, &key, 0, 1).unwrap());
        if round % 3 == 0 {
            ops.push(a.call(move |endpoint| endpoint.fetch_add(to_b, &key, 0, 1)).unwrap().unwrap());
        }
    }
    for (op, value) in ops.iter().zip(0..) {
        assert_eq!(told(&mut a, || ()).1, Event::Fetched { op: *op, value });
    }
    for op in ops {
        a.until("each", |a| a.is_done(op).unwrap().then_some(()));
    }
}

#[test]
fn operations_of_an_engine_that_panicked_are_no_more() {
    let (mut a, _b, to_b, _, key) = engines();
    let put = a.put(to_b, &key, 0, b"there", PutHow::default()).unwrap();
    sleep_until_done(&mut a, put);
    let ended = a.call::<()>(|_| panic!("as ordered")).unwrap_err();
    assert_eq!(a.put(to_b, &key, 0, b"?", PutHow::default()), Err(RmaError::NoPeer));
    assert_eq!(a.fetch_add(to_b, &key, 0, 1), Err(RmaError::NoPeer));
    assert_eq!(a.is_done(put), Ok(true));
    assert_eq!(a.poll_event(), None);
    assert_eq!(a.stop().err(), Some(ended));
}

#[test]
fn what_an_engine_can_no_more_tell_of_is_an_error() {
    let (mut a, _b, to_b, _, key) = engines();
    let ended = a.run(|_| panic!("as ordered"));
    assert!(ended.is_ok());
    // It is behind the panic, if it is taken at all.
    let Ok(add) = a.fetch_add(to_b, &key, 0, 1) else { return };
    let give_up = clock::monotonic() + PATIENCE;
    let why = loop {
        match a.is_done(add) {
            Ok(done) => assert!(!done),
            Err(ended) => break ended,
        }
        let _ = a.wait(Some(give_up));
        assert!(clock::monotonic() < give_up, "nothing is told");
    };
    assert_eq!(why.to_string(), "the engine's thread has ended: as ordered");
}

#[test]
fn what_is_put_before_the_peer_has_answered_lands() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (region, key) = publish(&mut b, vec![0; 16], Rights::ALL);
    let at_b = b.addr();
    let to_b = a.connect(at_b).unwrap();
    let put = a.put(to_b, &key, 0, &[7; 16], PutHow::default()).unwrap();
    sleep_until_done(&mut a, put);
    assert_eq!(bytes(&mut b, region), [7; 16]);
    assert!(a.is_settled(to_b).unwrap());
    a.close(to_b);
    assert_eq!(a.put(to_b, &key, 0, &[8; 16], PutHow::default()), Err(RmaError::NoPeer));
}

#[test]
fn an_engine_of_active_messages_does_them_too() {
    let domain = Domain::new();
    let [mut a, mut b] = [(); 2].map(|()| {
        let am: ActiveMessages<_, ()> = ActiveMessages::new(Endpoint::new(domain.open(), config()), Handlers::new());
        start(WithState { am, state: () }, Options::default()).unwrap()
    });
    let (at_b, region, key) = b
        .call(|on| {
            let endpoint = on.am.endpoint_mut();
            let region = endpoint.register(vec![0; 8]);
            (endpoint.nic().caps().addr, region, endpoint.publish(region, Rights::ALL, None).unwrap())
        })
        .unwrap();
    let to_b = a.connect(at_b).unwrap();
    let put = a.put(to_b, &key, 0, &9u64.to_le_bytes(), PutHow::SIGNAL).unwrap();
    let add = a.fetch_add(to_b, &key, 0, 1).unwrap();
    let (give_up, mut events) = (clock::monotonic() + PATIENCE, Vec::new());
    while events.len() < 2 {
        a.wait(Some(give_up)).unwrap();
        events.extend(a.poll_event());
        assert!(clock::monotonic() < give_up, "not all is told: {events:?}");
    }
    assert_eq!(events[1], Event::Fetched { op: add, value: 9 });
    assert_eq!((a.is_done(put), a.is_done(add)), (Ok(true), Ok(true)));
    assert_eq!(b.call(move |on| on.am.endpoint_mut().signals(region)).unwrap(), Some(1));
}

/// Counts what each thread allocates.
struct Counted;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: It is the system's, which is told everything as it came.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|count| count.set(count.get() + 1));
        // SAFETY: Our caller's promise is the one that is asked for here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: As above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

#[test]
fn operations_are_ordered_and_begun_without_an_allocation() {
    let domain = Domain::new();
    // To lie down takes a few.
    let awake = Options { spin: true, ..Options::default() };
    let mut a = start(Endpoint::new(domain.open(), config()), awake).unwrap();
    let mut b = engine(domain.open());
    let (to_b, _) = join(&mut a, &mut b);
    let (_, key) = publish(&mut b, vec![0; 40_000], Rights::ALL);
    let landing = a.call(|endpoint| endpoint.register(vec![0; 40_000])).unwrap();
    let long = vec![7; 32_760];
    let round = |a: &mut Port<Endpoint<ShmNic>>| {
        for len in [8, long.len()] {
            let put = a.put(to_b, &key, 0, &long[..len], PutHow::default()).unwrap();
            sleep_until_done(a, put);
        }
        a.put_from(to_b, &key, 0, landing, 0..20_000, PutHow::default()).unwrap();
        a.signal(to_b, &key).unwrap();
        a.get(to_b, &key, 0, landing, 0..20_000).unwrap();
        let add = a.fetch_add(to_b, &key, 0, 1).unwrap();
        sleep_until_done(a, add);
        while a.poll_event().is_some() {}
    };
    // What grows once has grown.
    (0..100).for_each(|_| round(&mut a));
    let on_engine = a.call(|_| ALLOCATED.get()).unwrap();
    let here = ALLOCATED.get();
    (0..200).for_each(|_| round(&mut a));
    assert_eq!(ALLOCATED.get() - here, 0, "by the application's thread");
    // Each operation would take one; a queue may have to grow once more.
    let on_engine = a.call(|_| ALLOCATED.get()).unwrap() - on_engine;
    assert!(on_engine < 100, "{on_engine} by the engine's");
}
