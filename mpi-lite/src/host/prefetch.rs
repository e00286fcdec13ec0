#![allow(unsafe_code)]
//! A cache line asked for before it is needed. Unsafe, for the instruction.

use sidelane_nic::share::Shared;

/// Asks for the line at `at`, to be written: whoever has read it has to give it up, which takes as long as many calls.
#[inline]
pub(super) fn to_write(shared: &Shared, at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: A hint: it reads and writes nothing, whatever the address. It is the mapping's, or behind its end.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(shared.start().as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (shared, at);
}
