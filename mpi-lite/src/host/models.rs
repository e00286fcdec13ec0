//! Every interleaving of those who sleep and those who write, under loom's model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p sidelane-mpi --lib models`

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::sleepers;

/// What members share, and messages to each.
struct Host {
    count: AtomicU32,
    marks: Vec<AtomicU32>,
    /// What member 0 waits for, part by part.
    written: Vec<AtomicU32>,
    messages: Vec<(Mutex<u32>, Condvar)>,
}

impl Host {
    fn new(sleepers: usize, parts: usize) -> Arc<Self> {
        Arc::new(Self {
            count: AtomicU32::new(0),
            marks: (0..sleepers).map(|_| AtomicU32::new(0)).collect(),
            written: (0..parts).map(|_| AtomicU32::new(0)).collect(),
            messages: (0..sleepers).map(|_| (Mutex::new(0), Condvar::new())).collect(),
        })
    }

    fn write(&self, part: usize) {
        self.written[part].store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if sleepers::does_anybody_sleep(&self.count) {
            for (mark, (messages, came)) in self.marks.iter().zip(&self.messages) {
                if sleepers::take(mark) {
                    *messages.lock().unwrap() += 1;
                    came.notify_one();
                }
            }
        }
    }

    /// Takes the next message, which somebody has sent or is about to.
    fn take_message(&self, member: usize) {
        let (messages, came) = &self.messages[member];
        let mut waiting = messages.lock().unwrap();
        while *waiting == 0 {
            waiting = came.wait(waiting).unwrap();
        }
        *waiting -= 1;
    }

    /// Sleeps until all parts are written. Nothing but a message ends its sleep, so one that does not come is a deadlock.
    fn await_all(&self, member: usize) {
        let is_there = || self.written.iter().all(|part| part.load(Ordering::Acquire) != 0);
        while !is_there() {
            sleepers::lie_down(&self.count, &self.marks[member]);
            fence(Ordering::SeqCst);
            let there = is_there();
            if !there {
                self.take_message(member);
                assert!(sleepers::is_woken(&self.marks[member]));
            }
            let woken = sleepers::rise(&self.count, &self.marks[member]);
            assert!(woken || there, "a message came of nobody");
            if woken && there {
                self.take_message(member);
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        let told = self.messages.iter().all(|(messages, _)| *messages.lock().unwrap() == 0);
        told && self.count.load(Ordering::Relaxed) == 0
    }
}

/// Three preemptions at most, as in the models of `sidelane-nic`.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_member_sleeps_through_nothing_and_each_wake_up_is_one_message() {
    explore(|| {
        let host = Host::new(1, 2);
        let writer = {
            let host = Arc::clone(&host);
            thread::spawn(move || (0..2).for_each(|part| host.write(part)))
        };
        host.await_all(0);
        writer.join().unwrap();
        assert!(host.is_at_rest());
    });
}

#[test]
fn one_of_two_writers_wakes_a_member_that_waits_for_both() {
    explore(|| {
        let host = Host::new(1, 2);
        let writers = [0, 1].map(|part| {
            let host = Arc::clone(&host);
            thread::spawn(move || host.write(part))
        });
        host.await_all(0);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(host.is_at_rest());
    });
}

#[test]
fn a_writer_wakes_all_that_sleep() {
    explore(|| {
        let host = Host::new(2, 1);
        let sleepers = [0, 1].map(|member| {
            let host = Arc::clone(&host);
            thread::spawn(move || host.await_all(member))
        });
        host.write(0);
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        assert!(host.is_at_rest());
    });
}
