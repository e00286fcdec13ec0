//! One of several threads sleeps in a driver, in a call that waits. It keeps the others out of the state meanwhile, so whoever comes ends
//! its sleep; those that wait as well stay behind it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::task::Waker;

use crate::adi::Device;

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
    /// As [`operator::lock`].
    #[inline]
    pub fn enter<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        match mutex.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => self.enter_late(mutex),
        }
    }

    #[cold]
    fn enter_late<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        let wanted = Wanted::new(&self.wanted);
        // Either this sees that somebody sleeps, or that one sees before that it is wanted: both are of one order.
        if self.asleep.load(Ordering::SeqCst) {
            self.wakers.iter().flatten().for_each(Waker::wake_by_ref);
        }
        let guard = operator::lock(mutex);
        drop(wanted);
        guard
    }

    /// Whether who has the lock may sleep with it.
    pub fn may_sleep(&self) -> bool {
        self.wakers.is_some()
    }

    #[cfg(test)]
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
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
