//! Operators of the program's own. They run within a call, while this process's device is in use: they must not call MPI
//! (MPI-4.1 6.9.5), and who does so is told, as nobody could go on.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

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
pub fn lock_outside_operators<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
        Err(TryLockError::WouldBlock) => lock_late(mutex),
    }
}

#[cold]
fn lock_late<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    assert!(!RUNS.get(), "an operator of the program's own calls MPI, which it must not (MPI-4.1 6.9.5)");
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Also of one that panics.
struct End(bool);

impl Drop for End {
    fn drop(&mut self) {
        RUNS.set(self.0);
    }
}
