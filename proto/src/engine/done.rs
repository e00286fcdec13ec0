//! How the port learns which of its one-sided operations are done, without asking the engine.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of one peer: every operation before this number is done. The engine writes, the port reads.
#[derive(Default)]
pub(super) struct Done(AtomicU64);

/// Some [`Done`] tells of more than when the port last looked here.
#[derive(Default)]
pub(super) struct AnyDone(AtomicBool);

impl Done {
    /// Tells the port.
    pub fn publish(&self, number: u64, any: &AnyDone) {
        // Pairs with the Acquire in `is_done`: events that tell of them were pushed before, as far as there was room.
        self.0.store(number, Ordering::Release);
        // Pairs with the AcqRel in `take`. A swap as that one: which of the two came first is known to both, also to loom, which does not
        // know that nothing comes between what a swap reads and what it writes. It costs nothing beside the fence of the bell that follows.
        any.0.swap(true, Ordering::Release);
    }

    /// True when operation `number` is done.
    #[inline]
    pub fn is_done(&self, number: u64) -> bool {
        self.0.load(Ordering::Acquire) > number
    }
}

impl AnyDone {
    /// True if any operation may be done that was not when this was last taken.
    pub fn take(&self) -> bool {
        // What is done is seen by whoever looks afterwards.
        self.is_set() && self.0.swap(false, Ordering::AcqRel)
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
