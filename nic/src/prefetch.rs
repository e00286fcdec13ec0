//! Lines of memory that are asked for before they are needed, and come while something else is done. Hints, to processors that we know
//! how to give them to: nothing is read or written.
#![allow(unsafe_code)] // Instructions that only some processors have.

/// Asks for the line at `at`, to be read.
#[inline]
pub fn to_read<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the line at `at`, to be written: whoever has read it has to give it up, which takes as long as many calls.
#[inline]
pub fn to_write<T>(at: *const T) {
    // The intrinsic becomes a prefetch to read where not every processor that is compiled for has this one. It does nothing on those without.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for all lines of `bytes`, which are to be copied soon, if they are few: they come all at once. A longer copy asks for many lines
/// at a time itself, and one that is left over by those that were asked for comes a whole way later (`bench/NOTES.md`, 64).
#[inline]
pub fn few(bytes: &[u8]) {
    if bytes.len() <= FEW * LINE {
        // The last one is a line of its own where `bytes` does not begin with one.
        bytes.iter().step_by(LINE).chain(bytes.last()).for_each(|line| to_read(std::ptr::from_ref(line)));
    }
}

/// Bytes of a line.
const LINE: usize = 64;
/// Lines that are few.
const FEW: usize = 6;
