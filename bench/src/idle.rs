//! What a poll loop does when nothing came.

use std::sync::atomic::{AtomicBool, Ordering};

/// Set once at the start of a side: more pollers than cores.
static CROWDED: AtomicBool = AtomicBool::new(false);

/// Says that pollers share cores, so that an idle one has to make way.
pub fn set_crowded(crowded: bool) {
    CROWDED.store(crowded, Ordering::Relaxed);
}

/// One turn of doing nothing.
#[inline]
pub fn relax() {
    if CROWDED.load(Ordering::Relaxed) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Nothing came, and finding that out took a system call.
#[inline]
pub fn make_way() {
    if CROWDED.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
}
