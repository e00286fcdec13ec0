//! Several endpoints on one engine: fair turns, sleep on all of their drivers, and ends of their own.

use std::sync::{Arc, Weak, mpsc};
use std::thread;

use sidelane_nic::Nic;
use sidelane_nic::clock;
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::udp::Udp;
use sidelane_proto::am::{ActiveMessages, Handlers};
use sidelane_proto::engine::{Engine, Options, Port, WithState, start};
use sidelane_proto::{Endpoint, Event, PeerId, SendError};

use crate::face::{Domain, Face, PATIENCE, Until, config, join, send, udp};

/// An engine's endpoint, one elsewhere that it talks to, and how each calls the other.
struct Talk<N: Nic + Send + 'static> {
    ours: Port<Endpoint<N>>,
    other: Port<Endpoint<N>>,
    to_other: PeerId,
    to_ours: PeerId,
}

fn talk<N: Nic + Send + 'static>(engine: &Engine, open: impl Fn() -> N) -> Talk<N> {
    let mut ours = engine.drive(Endpoint::new(open(), config())).unwrap();
    let mut other = start(Endpoint::new(open(), config()), Options::default()).unwrap();
    let (to_other, to_ours) = join(&mut ours, &mut other);
    Talk { ours, other, to_other, to_ours }
}

fn two_drivers(domain: &Domain) -> (Engine, Talk<ShmNic>, Talk<Udp>) {
    let engine = Engine::start(Options::default()).unwrap();
    let (a, b) = (talk(&engine, || domain.open()), talk(&engine, udp));
    (engine, a, b)
}

fn waits<N: Nic + Send + 'static>(port: &mut Port<Endpoint<N>>) -> u64 {
    port.call(|endpoint| endpoint.nic().counters().waits).unwrap()
}

/// Waits for the next message, without a limit but for the test's own.
fn receive<N: Nic + Send + 'static>(port: &mut Port<Endpoint<N>>) -> Vec<u8> {
    let give_up = clock::monotonic() + PATIENCE;
    loop {
        if let Some((_, message)) = Face::recv(port) {
            return message;
        }
        port.wait(Some(give_up)).unwrap();
        assert!(clock::monotonic() < give_up, "slept through a message");
    }
}

/// A round trip that the engine sleeps before, and so wakes up by this driver.
fn wake_by<N: Nic + Send + 'static>(talk: &mut Talk<N>, round: u32) {
    // Longer than an engine spins.
    thread::park_timeout(std::time::Duration::from_micros(150));
    talk.other.send(talk.to_ours, &round.to_le_bytes()).unwrap();
    talk.other.flush();
    assert_eq!(receive(&mut talk.ours), round.to_le_bytes());
    talk.ours.send(talk.to_other, &round.to_le_bytes()).unwrap();
    talk.ours.flush();
    assert_eq!(receive(&mut talk.other), round.to_le_bytes());
}

#[test]
fn an_engine_that_sleeps_is_woken_by_each_of_its_drivers() {
    let domain = Domain::new();
    let (engine, mut a, mut b) = two_drivers(&domain);
    let mut c = talk(&engine, || domain.open());
    let before = (waits(&mut a.ours), waits(&mut b.ours), waits(&mut c.ours));
    for round in 0..200 {
        wake_by(&mut a, round);
        wake_by(&mut b, round);
        wake_by(&mut c, round);
    }
    let after = (waits(&mut a.ours), waits(&mut b.ours), waits(&mut c.ours));
    assert!(after.0 > before.0 && after.1 > before.1 && after.2 > before.2, "{before:?}, {after:?}: never slept");
}

#[test]
fn it_stays_asleep_while_nothing_happens() {
    let domain = Domain::new();
    let (_engine, mut a, mut b) = two_drivers(&domain);
    let before = waits(&mut a.ours) + waits(&mut b.ours);
    thread::park_timeout(std::time::Duration::from_millis(200));
    let slept = waits(&mut a.ours) + waits(&mut b.ours) - before;
    // Its orders here, and keep-alives of some 50 ms. One that wakes itself would sleep thousands of times.
    assert!(slept < 200, "slept {slept} times");
}

#[test]
fn two_endpoints_of_one_engine_talk_to_each_other_asleep() {
    let domain = Domain::new();
    let engine = Engine::start(Options::default()).unwrap();
    let open = || engine.drive(Endpoint::new(domain.open(), config())).unwrap();
    let (mut a, mut b) = (open(), open());
    let (to_b, to_a) = join(&mut a, &mut b);
    for round in 0..300u32 {
        if round % 10 == 0 {
            thread::park_timeout(std::time::Duration::from_micros(150));
        }
        a.send(to_b, &round.to_le_bytes()).unwrap();
        a.flush();
        assert_eq!(receive(&mut b), round.to_le_bytes());
        b.send(to_a, &round.to_le_bytes()).unwrap();
        b.flush();
        assert_eq!(receive(&mut a), round.to_le_bytes());
    }
}

/// Floods one endpoint as fast as it goes while `lasts` does.
fn flood<N: Nic + Send + 'static>(mut talk: Talk<N>, lasts: &Weak<()>) -> u64 {
    let (mut sent, mut received, mut last_came) = (0u64, 0u64, clock::monotonic());
    while lasts.strong_count() > 0 || received < sent {
        let mut sending = || talk.other.send(talk.to_ours, &[&sent.to_le_bytes()[..], &[0; 200]].concat());
        let refused = if lasts.strong_count() > 0 { sending().err() } else { Some(SendError::Full) };
        let full = refused.is_some();
        assert!(matches!(refused, None | Some(SendError::Full)), "{refused:?}");
        sent += u64::from(!full);
        if full {
            talk.other.flush();
            while let Some((_, got)) = Face::recv(&mut talk.ours) {
                assert_eq!(got[..8], received.to_le_bytes());
                received += 1;
                last_came = clock::monotonic();
            }
            assert!(clock::monotonic() < last_came + PATIENCE, "{received} of {sent} came");
        }
    }
    received
}

#[test]
fn a_flooded_endpoint_keeps_no_other_waiting() {
    let domain = Domain::new();
    let (_engine, a, mut b) = two_drivers(&domain);
    let flooding = Arc::new(());
    let lasts = Arc::downgrade(&flooding);
    thread::scope(|scope| {
        let flooded = scope.spawn(|| flood(a, &lasts));
        // Ends when a round fails, too.
        let flooding = flooding;
        for number in 0..500u32 {
            send(&mut b.other, b.to_ours, &number.to_le_bytes(), || {});
            assert_eq!(receive(&mut b.ours), number.to_le_bytes());
        }
        drop(flooding);
        assert!(flooded.join().unwrap() > 0, "nothing of the flood came");
    });
}

#[test]
fn a_panic_on_one_endpoint_leaves_the_others() {
    let domain = Domain::new();
    let (engine, mut a, mut b) = two_drivers(&domain);
    let ended = a.ours.call::<()>(|_| panic!("as ordered")).unwrap_err();
    assert_eq!(ended.to_string(), "the engine has ended with this endpoint: as ordered");
    let event = a.other.until("the other side", |other| other.poll_event());
    assert!(matches!(event, Event::Gone { peer, .. } if peer == a.to_ours), "{event:?}");
    for round in 0..20 {
        wake_by(&mut b, round);
    }
    // And there is room for another.
    wake_by(&mut talk(&engine, || domain.open()), 0);
}

/// A state whose end is no better than what it was through.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("and again");
    }
}

/// What was ordered behind a panic is dropped with its endpoint, as is the state, and both may panic too.
#[test]
fn a_panic_after_the_panic_is_told_all_the_same_and_leaves_the_others() {
    let domain = Domain::new();
    let (engine, _a, mut b) = two_drivers(&domain);
    let am = ActiveMessages::new(Endpoint::new(domain.open(), config()), Handlers::new());
    let mut fragile = engine.drive(WithState { am, state: Fragile }).unwrap();
    let sender = fragile.sender();
    let (kept, came) = mpsc::channel::<()>();
    let ended = fragile.call::<()>(move |_| {
        let held = Fragile;
        assert!(sender.run(move |_| drop(held)).is_ok());
        assert!(sender.run(move |_| drop(kept)).is_ok());
        panic!("as ordered")
    });
    let ended = ended.unwrap_err();
    assert_eq!(ended.to_string(), "the engine has ended with this endpoint: as ordered");
    let patience = std::time::Duration::from_nanos(PATIENCE.as_nanos());
    assert_eq!(came.recv_timeout(patience), Err(mpsc::RecvTimeoutError::Disconnected));
    assert_eq!(fragile.stop().err(), Some(ended));
    for round in 0..20 {
        wake_by(&mut b, round);
    }
}

/// It is dropped: whoever waits for what it does learns that. Most that come too late wait for a place in a full queue.
#[test]
fn an_order_that_was_taken_just_when_the_engine_ended_is_dropped() {
    let patience = std::time::Duration::from_nanos(PATIENCE.as_nanos());
    for _ in 0..50 {
        let mut a = start(Endpoint::new(udp(), config()), Options::default()).unwrap();
        let sender = a.sender();
        let (release, held) = mpsc::channel::<()>();
        assert!(a.run(move |_| _ = held.recv()).is_ok());
        a.flush();
        let (kept, came) = mpsc::channel::<()>();
        let (tell, is_full) = mpsc::channel();
        let lasts = Arc::new(());
        let filled = thread::scope(|scope| {
            for _ in 0..8 {
                let (sender, kept, tell, until) = (&sender, kept.clone(), tell.clone(), Arc::downgrade(&lasts));
                scope.spawn(move || {
                    while until.strong_count() > 0 {
                        let kept = kept.clone();
                        if sender.run(move |_| drop(kept)).is_err() {
                            let _ = tell.send(());
                        }
                    }
                });
            }
            let filled = is_full.recv_timeout(patience);
            drop((release, a, lasts));
            filled
        });
        assert_eq!(filled, Ok(()));
        drop(kept);
        assert_eq!(came.recv_timeout(patience), Err(mpsc::RecvTimeoutError::Disconnected), "an order is nowhere");
    }
}

#[test]
fn an_endpoint_that_is_taken_back_leaves_the_others() {
    let domain = Domain::new();
    let (engine, a, mut b) = two_drivers(&domain);
    let Talk { ours, mut other, to_other, .. } = a;
    let mut by_hand: Endpoint<ShmNic> = ours.stop().unwrap();
    for round in 0..20 {
        wake_by(&mut b, round);
    }
    // Back on the engine, with its peers.
    send(&mut by_hand, to_other, b"by hand", || {});
    Endpoint::flush(&mut by_hand);
    assert_eq!(receive(&mut other), b"by hand");
    let mut ours = engine.drive(by_hand).unwrap();
    assert_eq!(ours.call(|endpoint| endpoint.peers()).unwrap(), 1);
    send(&mut ours, to_other, b"by the engine again", || {});
    ours.flush();
    assert_eq!(receive(&mut other), b"by the engine again");
}

#[test]
fn an_engine_without_endpoints_waits_for_the_next_and_ends_with_the_last() {
    let domain = Domain::new();
    let engine = Engine::start(Options { spin: true, ..Options::default() }).unwrap();
    for _ in 0..3 {
        wake_by(&mut talk(&engine, || domain.open()), 0);
    }
    let mut last = engine.drive(Endpoint::new(domain.open(), config())).unwrap();
    drop(engine);
    let alive = last.call(|_| thread::current().id()).unwrap();
    assert_ne!(alive, thread::current().id());
    // Joins the thread.
    drop(last);
}

#[test]
fn endpoints_come_and_go_while_others_are_asleep() {
    let domain = Domain::new();
    let (engine, mut a, _b) = two_drivers(&domain);
    let until = clock::monotonic() + Duration::from_millis(100);
    let mut round = 0;
    while round < 20 || clock::monotonic() < until {
        drop(engine.drive(Endpoint::new(domain.open(), config())).unwrap());
        wake_by(&mut a, round);
        round += 1;
    }
}

/// It cannot wait for its own thread.
#[test]
fn a_port_may_be_dropped_by_an_order_on_its_own_engine() {
    let domain = Domain::new();
    let engine = Engine::start(Options::default()).unwrap();
    let mut a = engine.drive(Endpoint::new(domain.open(), config())).unwrap();
    let b = engine.drive(Endpoint::new(domain.open(), config())).unwrap();
    let (dropped, is_dropped) = mpsc::channel();
    let ordered = a.run(move |_| {
        drop(b);
        let _ = dropped.send(());
    });
    assert!(ordered.is_ok());
    a.flush();
    let outcome = is_dropped.recv_timeout(std::time::Duration::from_nanos(PATIENCE.as_nanos()));
    if outcome.is_err() {
        // Its end would wait for ever too.
        std::mem::forget((a, engine));
        panic!("the engine waits for itself");
    }
    a.call(|_| ()).unwrap();
}

/// A port that is moved into work on its own engine.
#[test]
fn what_would_make_the_engine_wait_for_itself_is_told() {
    let domain = Domain::new();
    let engine = Engine::start(Options::default()).unwrap();
    let open = || engine.drive(Endpoint::new(domain.open(), config())).unwrap();
    type Wait = fn(Port<Endpoint<ShmNic>>);
    let waits: [Wait; 2] = [|mut port| _ = port.call(|_| ()), |port| _ = port.stop()];
    for wait in waits {
        let (mut a, b, mut beside) = (open(), open(), open());
        let ended = a.call(move |_| wait(b)).unwrap_err();
        assert!(ended.to_string().contains("an engine cannot wait for itself"), "{ended}");
        beside.call(|_| ()).unwrap();
    }
}
