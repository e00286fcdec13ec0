//! Going to sleep without missing the frame that comes just then.
//!
//! Each endpoint has one word that its peers share. The sleeper says that it sleeps and then looks for frames; a sender
//! publishes its frame and then looks whether the receiver sleeps. With a full fence between the two steps on both
//! sides at least one of them sees the other's store: no frame is slept through. A sleeping word is a futex. It is
//! changed by swaps only, never by stores, so that a late waker's change cannot be taken for one after the next sleep.

use super::sync::{AtomicU32, Ordering, fence};

/// After publishing and before [`ring`]: one fence serves any number of doorbells.
#[inline]
pub(super) fn published() {
    // Pairs with the fence in `sleep`.
    fence(Ordering::SeqCst);
}

/// Wakes the owner of `bell` by `wake` if it sleeps, or is about to. What it is to find was published before.
#[inline]
pub(super) fn ring(bell: &AtomicU32, wake: impl FnOnce()) {
    // The swap lets one of many senders make the system call.
    if bell.load(Ordering::Relaxed) == ASLEEP && bell.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
        wake();
    }
}

/// Sleeps by `wait`, which returns at once if `bell` is no longer [`ASLEEP`] when it begins, unless `ready` is true
/// already. Called by the owner of `bell` only.
pub(super) fn sleep<E>(
    bell: &AtomicU32,
    ready: impl FnOnce() -> bool,
    wait: impl FnOnce(&AtomicU32) -> Result<(), E>,
) -> Result<(), E> {
    bell.swap(ASLEEP, Ordering::AcqRel);
    // Pairs with the fence in `published`.
    fence(Ordering::SeqCst);
    let ended = if ready() { Ok(()) } else { wait(bell) };
    bell.swap(AWAKE, Ordering::AcqRel);
    ended
}

/// The owner polls. What a new bell is.
const AWAKE: u32 = 0;

/// The owner sleeps on this word, or is about to.
pub(super) const ASLEEP: u32 = 1;
