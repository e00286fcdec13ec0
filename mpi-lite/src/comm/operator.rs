//! Operators of the program's own. They run within a call, while this process's device is in use: they must not call MPI
//! (MPI-4.1 6.9.5), and who does so is told, as nobody could go on.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::biased::{self, Biased};

thread_local! {
    /// An operator of the program's runs on this thread.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Runs an operator.
pub fn run<T>(operator: impl FnOnce() -> T) -> T {
    let _end = End(RUNS.replace(true));
    operator()
}

/// Locks what calls lock. Its value is whole whenever the lock is free, also after a panic elsewhere.
///
/// # Panics
///
/// In an operator, of whose call it is locked; that takes it for the operator's failure.
#[inline]
pub fn lock_outside_operators<'a, L: Lock<'a>>(lock: &'a L) -> L::Guard {
    lock.try_now().unwrap_or_else(|| lock_late(lock))
}

#[cold]
fn lock_late<'a, L: Lock<'a>>(lock: &'a L) -> L::Guard {
    assert!(!RUNS.get(), "an operator of the program's own calls MPI, which it must not (MPI-4.1 6.9.5)");
    lock.wait()
}

/// What calls lock. No panic leaves it locked, or is told of later.
pub trait Lock<'a> {
    type Guard;
    /// If nobody has it.
    fn try_now(&'a self) -> Option<Self::Guard>;
    /// As soon as nobody has it.
    fn wait(&'a self) -> Self::Guard;
}

impl<'a, T: 'a> Lock<'a> for Mutex<T> {
    type Guard = MutexGuard<'a, T>;

    #[inline]
    fn try_now(&'a self) -> Option<MutexGuard<'a, T>> {
        match self.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn wait(&'a self) -> MutexGuard<'a, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, L: Lock<'a>> Lock<'a> for Arc<L> {
    type Guard = L::Guard;

    #[inline]
    fn try_now(&'a self) -> Option<L::Guard> {
        (**self).try_now()
    }

    fn wait(&'a self) -> L::Guard {
        (**self).wait()
    }
}

impl<'a, T: 'a> Lock<'a> for Biased<T> {
    type Guard = biased::Guard<'a, T>;

    #[inline]
    fn try_now(&'a self) -> Option<biased::Guard<'a, T>> {
        self.try_lock()
    }

    fn wait(&'a self) -> biased::Guard<'a, T> {
        self.lock()
    }
}

/// Also of one that panics.
struct End(bool);

impl Drop for End {
    fn drop(&mut self) {
        RUNS.set(self.0);
    }
}
