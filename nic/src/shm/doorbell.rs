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

/// As [`ring`], of an owner that may sleep on a word which says that it is awake: whoever has changed it may have been killed
/// before it made the system call.
pub(super) fn ring_all_the_same(bell: &AtomicU32, wake: impl FnOnce()) {
    bell.swap(AWAKE, Ordering::AcqRel);
    wake();
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

/// A reason to wake that is no frame: knocked by any thread, heard by the bell's owner.
pub(super) struct Knock(AtomicU32);

impl Knock {
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Ends the sleep on `bell` that is under way or comes next.
    pub fn knock(&self, bell: &AtomicU32, wake: impl FnOnce()) {
        // A swap, as of the bell: it comes before or after the swap of `hear`, and nothing in between is lost.
        self.0.swap(1, Ordering::Release);
        published();
        ring(bell, wake);
    }

    /// True when somebody knocked since the last [`Knock::hear`].
    pub fn is_knocked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Takes back all knocks so far; true when there was one. Pairs with the Release in `knock`: what was done before it is seen.
    pub fn hear(&self) -> bool {
        self.is_knocked() && self.0.swap(0, Ordering::Acquire) != 0
    }
}

/// The owner polls. What a new bell is.
pub(super) const AWAKE: u32 = 0;

/// The owner sleeps on this word, or is about to.
pub(super) const ASLEEP: u32 = 1;
