//! What only an engine does: it serves peers while the application does nothing, takes orders of many threads, sleeps and is woken.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;

use sidelane_nic::Nic;
use sidelane_nic::clock;
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_proto::engine::{Options, Port, start};
use sidelane_proto::{Config, Endpoint, Event, PeerId, SendError};

use crate::KEPT_MAX;
use crate::face::{Domain, Face, PATIENCE, Until, config, join, send, udp};

pub fn engine<N: Nic + Send + 'static>(nic: N) -> Port<Endpoint<N>> {
    start(Endpoint::new(nic, config()), Options::default()).unwrap()
}

#[test]
fn a_peer_that_takes_nothing_keeps_no_other_waiting() {
    let domain = Domain::new();
    let (mut a, mut slow, mut fast) = (engine(domain.open()), engine(domain.open()), engine(domain.open()));
    let (to_slow, _) = join(&mut a, &mut slow);
    let (to_fast, _) = join(&mut a, &mut fast);
    // All that the way to it holds: until many turns of both engines make no more room.
    let (mut stuck, mut refused) = (0u64, 0);
    while refused < 100 {
        match a.send(to_slow, &stuck.to_le_bytes()) {
            Ok(()) => (stuck, refused) = (stuck + 1, 0),
            Err(error) => {
                assert_eq!(error, SendError::Full);
                refused += 1;
                a.call(|_| ()).unwrap();
                slow.call(|_| ()).unwrap();
            }
        }
    }
    for number in 0..1_000u64 {
        send(&mut a, to_fast, &number.to_le_bytes(), || {});
        let (_, got) = fast.until("a message beside the slow peer", Face::recv);
        assert_eq!(got, number.to_le_bytes());
    }
    // Whoever asked was refused by the port: that the engine tries again is no refusal.
    let refused = |a: &mut Port<Endpoint<_>>| a.call(|endpoint| endpoint.counters().messages_refused).unwrap();
    let before = refused(&mut a);
    (0..100).for_each(|_| a.call(|_| ()).unwrap());
    assert_eq!(refused(&mut a), before);
    let mut next = 0u64;
    slow.until("what waited", |slow| {
        while let Some((_, got)) = Face::recv(slow) {
            assert_eq!(got, next.to_le_bytes());
            next += 1;
        }
        (next == stuck).then_some(())
    });
}

#[test]
fn what_many_threads_send_arrives_once_and_in_the_order_of_each() {
    const THREADS: usize = 4;
    const EACH: u32 = 5_000;
    let (mut a, mut b) = (engine(udp()), engine(udp()));
    let (to_b, _) = join(&mut a, &mut b);
    let message = |thread: usize, number: u32| {
        let mut bytes = [&(thread as u32).to_le_bytes()[..], &number.to_le_bytes()].concat();
        // Some longer than what an order holds.
        bytes.resize(8 + number as usize % 300, thread as u8);
        bytes
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let sender = a.sender();
            scope.spawn(move || {
                for number in 0..EACH {
                    let give_up = clock::monotonic() + PATIENCE;
                    while let Err(error) = sender.send(to_b, &message(thread, number)) {
                        assert_eq!(error, SendError::Full);
                        assert!(clock::monotonic() < give_up, "no room for message {number} of thread {thread}");
                        sender.flush();
                        thread::yield_now();
                    }
                }
                sender.flush();
            });
        }
        let mut next = [0; THREADS];
        b.until("receiving", |b| {
            while let Some((_, got)) = Face::recv(b) {
                let thread = u32::from_le_bytes(got[..4].try_into().unwrap()) as usize;
                assert_eq!(got, message(thread, next[thread]));
                next[thread] += 1;
            }
            (next == [EACH; THREADS]).then_some(())
        });
    });
}

/// On the engine's own thread, which alone could make room.
#[test]
fn work_that_finds_no_place_is_handed_back() {
    let mut a = engine(Domain::new().open());
    let (sender, ran) = (a.sender(), Arc::new(AtomicU32::new(0)));
    let counts = Arc::clone(&ran);
    let (told, is_full) = mpsc::channel();
    let order = move |_: &mut Endpoint<ShmNic>| {
        let work = move |_: &mut Endpoint<ShmNic>| _ = counts.fetch_add(1, Relaxed);
        let mut ordered = 0;
        let refused = loop {
            match sender.run(work.clone()) {
                Ok(()) => ordered += 1,
                Err(work) => break work,
            }
            assert!(ordered < 1 << 20, "there is a place for any number");
        };
        told.send((ordered, refused)).unwrap();
    };
    assert!(a.run(order).is_ok());
    a.flush();
    let (ordered, refused) = is_full.recv_timeout(PATIENCE.into()).expect("the engine does not wait for itself");
    assert!(ordered > 100);
    a.until("all that was ordered", |_| (ran.load(Relaxed) == ordered).then_some(()));
    a.call(refused).unwrap();
    assert_eq!(ran.load(Relaxed), ordered + 1);
}

#[test]
fn an_application_that_sleeps_loses_no_peer() {
    // A peer that waits for a core on a busy machine is silent too, for a tenth of a second now and then.
    let quick = Config { keep_alive: Duration::from_millis(100), ..config() };
    let start = |nic| start(Endpoint::new(nic, quick), Options::default()).unwrap();
    let (mut a, mut b) = (start(udp()), start(udp()));
    let (to_b, to_a) = join(&mut a, &mut b);
    // Nobody calls anything for twice as long as a peer may be silent.
    let until = clock::monotonic() + Duration::from_millis(1_000);
    while clock::monotonic() < until {
        thread::park_timeout(std::time::Duration::from_millis(1_000));
    }
    assert_eq!((a.poll_event(), b.poll_event()), (None, None));
    send(&mut a, to_b, b"still here?", || {});
    assert_eq!(b.until("the question", Face::recv), (to_a, b"still here?".to_vec()));
}

/// Sleeps without a limit, on both threads of both sides: one wake-up missed, and it stands still.
fn exchange_asleep<N: Nic + Send + 'static>(open: impl Fn() -> N) {
    const ROUNDS: u32 = 500;
    let (mut a, mut b) = (engine(open()), engine(open()));
    let (to_b, to_a) = join(&mut a, &mut b);
    let play = |mut port: Port<Endpoint<N>>, to: PeerId, begins: bool| {
        for round in 0..ROUNDS {
            if begins || round > 0 {
                // Longer than the engine spins, now and then.
                if round % 10 == 0 {
                    thread::park_timeout(std::time::Duration::from_micros(100));
                }
                port.send(to, &round.to_le_bytes()).unwrap();
                port.flush();
            }
            let give_up = clock::monotonic() + PATIENCE;
            while port.recv(|_, _| ()).is_none() {
                port.wait(Some(give_up)).unwrap();
                assert!(clock::monotonic() < give_up, "round {round}: slept through it");
            }
        }
        if !begins {
            port.send(to, b"the last").unwrap();
            port.flush();
            port.until("the last ack", |port| port.is_settled(to).unwrap().then_some(()));
        }
        port
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| play(b, to_a, false));
        let mut a = play(a, to_b, true);
        let waits = a.call(|endpoint| endpoint.nic().counters().waits).unwrap();
        assert!(waits > 0, "the engine never slept");
        other.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost_on_shm() {
    let domain = Domain::new();
    exchange_asleep(|| domain.open());
}

#[test]
fn no_wake_up_is_lost_on_udp() {
    exchange_asleep(udp);
}

/// A refused sender sleeps until there is room, whatever it was that was full.
#[test]
fn room_wakes_who_was_refused() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..20_000u32 {
                let give_up = clock::monotonic() + PATIENCE;
                while let Err(error) = a.send(to_b, &number.to_le_bytes().repeat(20 + number as usize % 50)) {
                    assert_eq!(error, SendError::Full);
                    Port::wait(&mut a, Some(give_up)).unwrap();
                    assert!(clock::monotonic() < give_up, "message {number}: slept beside room");
                }
            }
            a.until("the end", |a| a.is_settled(to_b).unwrap().then_some(()));
        });
        for number in 0..20_000u32 {
            let (_, got) = b.until("a message", Face::recv);
            assert_eq!(got[..4], number.to_le_bytes());
        }
        // Its acks go on until the sender has them.
        b.until("the sender's end", |b| b.poll_event());
    });
}

/// More than find room, of buffers that have left.
pub const EVENTS: usize = 1_100;

pub fn fill_events(a: &mut Port<Endpoint<ShmNic>>, to_b: PeerId, b: &mut Port<Endpoint<ShmNic>>) {
    for _ in 0..EVENTS {
        a.until("room", |a| {
            while Face::recv(b).is_some() {}
            a.send_owned(to_b, vec![1; 8]).is_ok().then_some(())
        });
    }
    a.until("all of it leaving", |a| {
        while Face::recv(b).is_some() {}
        a.is_settled(to_b).unwrap().then_some(())
    });
}

/// It takes no events meanwhile, among them the one that tells of the sender.
#[test]
fn whoever_has_a_message_can_answer_it() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    fill_events(&mut a, to_b, &mut b);
    let mut c = Endpoint::new(domain.open(), config());
    let to_a = c.connect(a.addr()).unwrap();
    c.send(to_a, b"a question").unwrap();
    let (from, _) = a.until("a question", |a| {
        c.poll();
        Face::recv(a)
    });
    assert_eq!(a.send(from, b"an answer"), Ok(()));
    a.flush();
    let (_, got) = c.until("an answer", Face::recv);
    assert_eq!(got, b"an answer");
}

#[test]
fn whoever_has_a_message_of_a_new_peer_finds_the_event_that_tells_of_it() {
    let domain = Domain::new();
    let mut a = engine(domain.open());
    let at_a = a.addr();
    for round in 0..100 {
        let mut c = Endpoint::new(domain.open(), config());
        let to_a = c.connect(at_a).unwrap();
        // So many that it takes a while to hand them over.
        while c.send(to_a, b"hello").is_ok() {}
        let give_up = clock::monotonic() + PATIENCE;
        while !a.has_messages() {
            c.poll();
            assert!(clock::monotonic() < give_up, "no message comes");
        }
        let event = a.poll_event();
        assert!(matches!(event, Some(Event::Connected { .. })), "round {round}: {event:?}");
        c.close(to_a);
        a.until("its end", |a| {
            c.poll();
            while Face::recv(a).is_some() {}
            Face::poll_event(a)
        });
        // What came between the two looks.
        while Face::recv(&mut a).is_some() {}
    }
}

#[test]
fn a_core_that_is_not_there_is_an_error() {
    let options = Options { core: Some(1_000), spin: false };
    assert!(start(Endpoint::new(udp(), config()), options).is_err());
    let mut on_first = start(Endpoint::new(udp(), config()), Options { core: Some(0), spin: true }).unwrap();
    assert_eq!(on_first.call(|_| sidelane_nic::affinity::cores()).unwrap(), [0]);
}

/// `expect_only` lets its peers in whatever `peers_max` is.
#[test]
fn expected_peers_beyond_the_most_are_served_too() {
    let domain = Domain::new();
    let (mut b, mut c) = (engine(domain.open()), engine(domain.open()));
    let mut a = Endpoint::new(domain.open(), Config { peers_max: 1, ..config() });
    a.expect_only([b.addr(), c.addr()]);
    let mut a = start(a, Options::default()).unwrap();
    let (to_b, _) = join(&mut a, &mut b);
    let (to_a, to_c) = join(&mut c, &mut a);
    send(&mut a, to_b, b"for b", || {});
    send(&mut a, to_c, b"for c", || {});
    assert_eq!(b.until("a message", Face::recv).1, b"for b");
    assert_eq!(c.until("a message", Face::recv), (to_a, b"for c".to_vec()));
}

/// The engine is held up meanwhile.
#[test]
fn whoever_waits_for_room_in_the_ring_sleeps() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    let (release, held) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    let hold = move |_: &mut Endpoint<ShmNic>| {
        begin.send(()).unwrap();
        let _ = held.recv();
    };
    assert!(a.run(hold).is_ok());
    a.flush();
    begun.recv().unwrap();
    let message = vec![7; KEPT_MAX];
    let mut sent = 0;
    while a.send(to_b, &message) == Ok(()) {
        sent += 1;
    }
    let until = clock::monotonic() + Duration::from_millis(100);
    let mut waits = 0;
    while clock::monotonic() < until {
        Port::wait(&mut a, Some(until)).unwrap();
        assert_eq!(a.send(to_b, &message), Err(SendError::Full));
        waits += 1;
    }
    drop(release);
    assert!(waits < 100, "{waits} waits within 100 ms ended, and nothing had changed");
    for _ in 0..sent {
        b.until("what was sent", Face::recv);
    }
    a.until("room", |a| a.send(to_b, &message).is_ok().then_some(()));
}

#[test]
fn what_is_run_comes_after_a_lent_message_before_it() {
    let domain = Domain::new();
    let (mut a, mut b) = (engine(domain.open()), engine(domain.open()));
    let (to_b, _) = join(&mut a, &mut b);
    for round in 1..=100 {
        a.send_owned(to_b, vec![0; 10]).unwrap();
        assert_eq!(a.call(|endpoint| endpoint.counters().messages_sent).unwrap(), round);
        b.until("it", Face::recv);
    }
}

#[test]
fn a_peer_whose_ring_is_full_takes_no_turn_of_another() {
    let domain = Domain::new();
    let mut a = Endpoint::new(domain.open(), Config::default());
    let mut stuck: Vec<_> = (0..3).map(|_| Endpoint::new(domain.open(), Config::default())).collect();
    let mut free = Endpoint::new(domain.open(), Config::default());
    let to_stuck: Vec<_> = stuck.iter_mut().map(|peer| join(&mut a, peer).0).collect();
    let (to_free, _) = join(&mut a, &mut free);
    for to in to_stuck {
        // None of them polls: one frame each, as many as there is room for.
        while a.send(to, &[0; 8]).is_ok() {
            a.flush();
        }
    }
    assert!(a.counters().nic_full > 0, "rings are full, not only FIFOs");
    for number in 0..20u64 {
        a.send(to_free, &number.to_le_bytes()).unwrap();
        a.flush();
        free.poll();
        assert_eq!(free.recv(|_, message| message == number.to_le_bytes()), Some(true), "with the first flush");
    }
}

/// Also when its answer comes after the close.
#[test]
fn what_is_closed_takes_no_message() {
    let (mut a, mut b) = (engine(udp()), Endpoint::new(udp(), config()));
    let peer = a.connect(b.nic().caps().addr).unwrap();
    a.send(peer, b"before").unwrap();
    a.close(peer);
    assert_eq!(a.send(peer, b"after"), Err(SendError::NoPeer));
    // Answers, and is silent from then on: the close goes on.
    b.until("a Hello", |b| (b.counters().frames_sent > 0).then_some(()));
    let event = a.until("its answer", Face::poll_event);
    assert!(matches!(event, Event::Connected { .. }), "{event:?}");
    assert_eq!(a.send(peer, b"after"), Err(SendError::NoPeer));
}
