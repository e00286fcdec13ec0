//! Under loom's model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p sidelane-proto --test interleavings`

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::done::{AnyDone, Done};
use super::life::Life;

/// Three preemptions at most, as in the models of `sidelane-nic`.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The port's doorbell, as `sidelane-nic` has it and its models.
#[derive(Default)]
struct Bell {
    is_asleep: AtomicBool,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Bell {
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::AcqRel) {
            drop(self.queue.lock().unwrap());
            self.woken.notify_one();
        }
    }

    fn sleep(&self, ready: impl FnOnce() -> bool) {
        self.is_asleep.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if !ready() {
            let queue = self.queue.lock().unwrap();
            if self.is_asleep.load(Ordering::Relaxed) {
                drop(self.woken.wait(queue).unwrap());
            }
        }
        self.is_asleep.swap(false, Ordering::AcqRel);
    }
}

#[test]
fn a_port_sleeps_through_nothing_that_is_done_and_finds_what_tells_of_it() {
    #[derive(Default)]
    struct Shared {
        events: AtomicU64,
        done: [Done; 2],
        any: AnyDone,
        bell: Bell,
    }
    explore(|| {
        let shared = Arc::new(Shared::default());
        let engines = Arc::clone(&shared);
        let engine = thread::spawn(move || {
            for (done, event) in engines.done.iter().zip(1..) {
                engines.events.store(event, Ordering::Relaxed);
                done.publish(1, &engines.any);
                engines.bell.ring();
            }
        });
        for (done, event) in shared.done.iter().zip(1..) {
            while !done.is_done(0) {
                // With a wake-up missed nobody runs any more, which loom reports.
                if !shared.any.take() {
                    shared.bell.sleep(|| shared.any.is_set());
                }
            }
            assert!(shared.events.load(Ordering::Relaxed) >= event);
            assert!(!done.is_done(1));
        }
        engine.join().unwrap();
    });
}

#[test]
fn who_finds_a_peer_open_finds_what_it_takes() {
    explore(|| {
        let life = Arc::new(Life::default());
        let engines = Arc::clone(&life);
        let engine = thread::spawn(move || {
            engines.open(0, 100, 10);
            engines.close(0);
            engines.open(1, 200, 20);
        });
        loop {
            if let Some(max) = life.message_max(0) {
                assert!(max == 100 && [10, 20].contains(&life.room_max()));
            }
            if let Some(max) = life.message_max(1) {
                assert!(max == 200 && life.room_max() == 20);
                break;
            }
            thread::yield_now();
        }
        engine.join().unwrap();
        assert_eq!(life.message_max(0), None);
    });
}

/// The engine opens a peer once more when it has answered, or somebody else has its place by then.
#[test]
fn an_application_closes_whom_it_means_for_good_and_nobody_else() {
    for is_another in [false, true] {
        explore(move || {
            let life = Arc::new(Life::default());
            life.open(0, 100, 10);
            let engines = Arc::clone(&life);
            let engine = thread::spawn(move || {
                if is_another {
                    engines.close(0);
                }
                engines.open(u32::from(is_another), 200, 20);
            });
            life.close(0);
            assert_eq!(life.message_max(0), None);
            engine.join().unwrap();
            assert_eq!([0, 1].map(|generation| life.message_max(generation)), [None, is_another.then_some(200)]);
        });
    }
}
