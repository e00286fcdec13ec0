//! What only a port does with one-sided operations: wakes, counts on its own, and outlives its engine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::thread;

use sidelane_nic::fault::{Fault, Faults};
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{Nic, clock};
use sidelane_proto::am::{ActiveMessages, Handlers};
use sidelane_proto::engine::{Options, Port, WithState, start};
use sidelane_proto::{Config, Endpoint, Event, Op, PeerId, PutHow, Region, RemoteKey, Rights, RmaError};

use super::{publish, told};
use crate::KEPT_MAX;
use crate::face::{Domain, Face, PATIENCE, Until, config, join, udp};

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
    let there = b.bytes(region);
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
        b.bytes(region) != [2; 6_000]
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
    assert_eq!(why.to_string(), "the engine has ended with this endpoint: as ordered");
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
    assert_eq!(b.bytes(region), [7; 16]);
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
    // What is told of counts as done a moment later.
    while events.len() < 2 || !a.is_done(add).unwrap() {
        a.wait(Some(give_up)).unwrap();
        events.extend(a.poll_event());
        assert!(clock::monotonic() < give_up, "not all is told: {events:?}");
    }
    assert_eq!(events[1], Event::Fetched { op: add, value: 9 });
    assert_eq!(a.is_done(put), Ok(true));
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
    let long = vec![7; KEPT_MAX];
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
