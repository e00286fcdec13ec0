//! One of several threads sleeps in a driver, in a call that waits. It keeps the others out of the state meanwhile, so whoever comes ends
//! its sleep; those that wait as well stay behind it, until there is something new for them to look at.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;

use crate::adi::Device;
use crate::biased::{Biased, Guard};

use super::operator;

/// What threads that call know of the one that sleeps.
#[derive(Debug)]
pub(super) struct Sleeper {
    /// Of all drivers that it may sleep in. `None` where one cannot be woken: then nobody sleeps.
    wakers: Option<Box<[Waker]>>,
    asleep: AtomicBool,
    /// Calls that are to be let in.
    wanted: AtomicU32,
}

/// Which of the threads that wait have looked whether they wait still. Behind the lock.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// Turns and calls after which somebody's wait may be over.
    news: u64,
    waiting: u32,
    /// Of those, who have looked since the last news.
    looked: u32,
}

/// One of those that wait.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    /// Of its last look.
    news: Option<u64>,
}

impl Sleeper {
    pub fn new(device: &mut Device) -> Self {
        let wakers = device.wakers().inspect_err(|error| tracing::warn!(%error, "threads that wait do not sleep"));
        Self {
            wakers: wakers.ok().map(Vec::into_boxed_slice),
            asleep: AtomicBool::new(false),
            wanted: AtomicU32::new(0),
        }
    }

    /// Locks what a sleeper may have.
    ///
    /// # Panics
    ///
    /// As [`operator::lock_outside_operators`].
    #[inline]
    pub fn enter<'a, T>(&self, lock: &'a Biased<T>) -> Guard<'a, T> {
        lock.try_lock().unwrap_or_else(|| self.enter_late(lock))
    }

    #[cold]
    fn enter_late<'a, T>(&self, lock: &'a Biased<T>) -> Guard<'a, T> {
        let wanted = Wanted::new(&self.wanted);
        // Either this sees that somebody sleeps, or that one sees before that it is wanted: both are of one order.
        if self.asleep.load(Ordering::SeqCst) {
            self.wakers.iter().flatten().for_each(Waker::wake_by_ref);
        }
        let guard = operator::lock_outside_operators(lock);
        drop(wanted);
        guard
    }

    /// Whether drivers can be slept in.
    pub fn may_sleep(&self) -> bool {
        self.wakers.is_some()
    }

    /// Sleeps by `sleep`, with the lock, unless somebody wants it.
    pub fn sleep(&self, sleep: impl FnOnce()) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.wanted.load(Ordering::SeqCst) == 0 {
            sleep();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

impl Lookout {
    /// All that wait are to look again before one sleeps.
    pub fn tell(&mut self) {
        self.news += 1;
        self.looked = 0;
    }

    /// Somebody waits who has moved something, of which all are to be told, and has to look again as well.
    pub fn wait(&mut self, watcher: &mut Watcher) {
        self.waiting += u32::from(watcher.news.is_none());
        watcher.news.get_or_insert(self.news);
    }

    /// Somebody has looked and waits still. True if all have since the last news.
    pub fn have_all_looked(&mut self, watcher: &mut Watcher) -> bool {
        let before = watcher.news.replace(self.news);
        self.waiting += u32::from(before.is_none());
        self.looked += u32::from(before != Some(self.news));
        self.looked == self.waiting
    }

    /// Whether nobody waits, or only this one.
    pub fn has_nobody_but(&self, watcher: &Watcher) -> bool {
        self.waiting == u32::from(watcher.news.is_some())
    }

    /// Somebody waits no longer. What it has done since may be what others wait for.
    pub fn leave(&mut self, watcher: &Watcher) {
        if watcher.news.is_some() {
            self.waiting -= 1;
            self.tell();
        }
    }
}

/// One call that waits for the lock: also until it panics.
struct Wanted<'a>(&'a AtomicU32);

impl<'a> Wanted<'a> {
    fn new(wanted: &'a AtomicU32) -> Self {
        wanted.fetch_add(1, Ordering::SeqCst);
        Self(wanted)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::adi::Config;
    use crate::comm::{Communicator, Source, in_threads};

    fn call_when_somebody_sleeps(comm: &Communicator, call: impl FnOnce()) {
        while !comm.local().threads().expect("there are threads").asleep.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        call();
    }

    #[test]
    fn who_waits_among_threads_sleeps_until_another_one_calls() {
        const ROUNDS: u32 = 50;
        in_threads(2, &Config::default(), true, |comm| {
            let (own, other) = (comm.rank(), 1 - comm.rank());
            thread::scope(|scope| {
                // Two wait: one asleep, and one behind it.
                for tag in [0, 1] {
                    let comm = &comm;
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let (got, _) = comm.recv_vec::<u32>(Source::Any, Some(tag)).unwrap();
                            assert_eq!(got, [round]);
                        }
                    });
                }
                // From the other rank, and from within: until then one at least has to wait.
                for round in 0..ROUNDS {
                    call_when_somebody_sleeps(&comm, || comm.send(&[round], other, 1).unwrap());
                    call_when_somebody_sleeps(&comm, || comm.send(&[round], own, 0).unwrap());
                }
            });
        });
    }

    #[test]
    fn who_waits_behind_a_sleeper_is_not_slept_over() {
        const ROUNDS: u32 = 50;
        in_threads(2, &Config::default(), true, |comm| {
            let (own, other) = (comm.rank(), 1 - comm.rank());
            let (comm, (say, hear)) = (&comm, channel());
            thread::scope(|scope| {
                scope.spawn(move || comm.recv(&mut [0u8], other, 1).unwrap());
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        comm.recv(&mut [0u8], own, 0).unwrap();
                        say.send(()).unwrap();
                    }
                });
                let mut slept_over = 0;
                for _ in 0..ROUNDS {
                    let mut begun = Instant::now();
                    // Nothing comes by a driver, and nobody calls any more until it is heard of.
                    call_when_somebody_sleeps(comm, || {
                        begun = Instant::now();
                        comm.send(&[0u8], own, 0).unwrap();
                    });
                    hear.recv().unwrap();
                    // A sleep without news takes a tenth of a second.
                    slept_over += u32::from(begun.elapsed() > Duration::from_millis(50));
                }
                comm.send(&[0u8], other, 1).unwrap();
                // On a busy machine one or the other round takes as long all the same.
                assert!(slept_over < ROUNDS / 2, "{slept_over} of {ROUNDS}");
            });
        });
    }

    #[test]
    fn all_that_wait_look_once_after_news() {
        let (mut lookout, mut one, mut other) = (Lookout::default(), Watcher::default(), Watcher::default());
        assert!(lookout.have_all_looked(&mut one));
        assert!(lookout.have_all_looked(&mut other));
        lookout.tell();
        assert!(!lookout.have_all_looked(&mut one));
        assert!(!lookout.have_all_looked(&mut one), "the other one has not looked");
        assert!(lookout.have_all_looked(&mut other));
        lookout.tell();
        assert!(!lookout.have_all_looked(&mut one));
        lookout.leave(&other);
        assert!(lookout.have_all_looked(&mut one), "nobody else waits");
        lookout.leave(&one);
        assert_eq!((lookout.waiting, lookout.looked), (0, 0));
    }

    #[test]
    fn what_one_that_waits_has_moved_or_done_is_looked_at_by_all() {
        let mut lookout = Lookout::default();
        let [mut one, mut other, mut third] = [const { Watcher { news: None } }; 3];
        assert!(lookout.have_all_looked(&mut one));
        // It came with what the other one waits for, which has not seen it yet.
        lookout.wait(&mut other);
        lookout.tell();
        assert!(!lookout.have_all_looked(&mut one));
        assert!(lookout.have_all_looked(&mut other));
        assert!(lookout.have_all_looked(&mut third));
        lookout.leave(&other);
        assert!(!lookout.have_all_looked(&mut one), "the third one may wait for what the other one has done");
        assert!(lookout.have_all_looked(&mut third));
    }
}
