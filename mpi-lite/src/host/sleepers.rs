//! Who sleeps, and who is woken: two words of shared memory by which no member sleeps through what another writes.
//!
//! A sleeper says that it sleeps and then looks whether what it waits for is there; a writer writes it and then looks whether anybody
//! sleeps. With a full fence between the two steps on both sides at least one of them sees the other's. A wake-up is a message, and
//! exactly one comes to each sleep that was ended by one: whoever takes the mark of a sleeper away sends it, and the sleeper knows
//! by that when it rises.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// Says that a member sleeps. A full fence follows, and then its look for what it waits for. `count` is that of all members that
/// sleep, `mark` its own.
pub(super) fn lie_down(count: &AtomicU32, mark: &AtomicU32) {
    count.fetch_add(1, Ordering::Relaxed);
    // A mark is changed by swaps only: what each of them reads tells its place among the others', also to loom, which does not know
    // that nothing comes between what a swap reads and what it writes. It costs nothing beside a sleep.
    mark.swap(1, Ordering::Relaxed);
}

/// Whether somebody wakes the member that has marked itself, or has.
pub(super) fn is_woken(mark: &AtomicU32) -> bool {
    mark.load(Ordering::Relaxed) == 0
}

/// Ends [`lie_down`]. True if somebody wakes the member, or has already.
pub(super) fn rise(count: &AtomicU32, mark: &AtomicU32) -> bool {
    count.fetch_sub(1, Ordering::Relaxed);
    mark.swap(0, Ordering::Relaxed) == 0
}

/// Whether to look for marks. A full fence is before it, and what sleepers may wait for is written before that.
#[inline]
pub(super) fn does_anybody_sleep(count: &AtomicU32) -> bool {
    count.load(Ordering::Relaxed) > 0
}

/// True if it is ours to wake the member with this mark.
pub(super) fn take(mark: &AtomicU32) -> bool {
    mark.swap(0, Ordering::Relaxed) != 0
}
