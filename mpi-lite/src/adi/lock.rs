//! How this crate locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what is whole whenever the lock is free, also after a panic elsewhere.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
