//! Copies of payloads of any length.
//!
//! `memcpy` of glibc 2.36 copies more than 2 KiB by `rep movsb` where a processor says that it is fast (FSRM). On an EPYC of AMD
//! it is not where the destination is 17 to 47 bytes further in its page than the source is in its own: four times as slow within
//! the first cache, and a message from another core's takes four to eight times as long (`bench/NOTES.md` 57). And that is where
//! what is sent goes: behind a header at the beginning of a page, out of a large allocation, which begins 16 bytes behind that of
//! its own. So what is neither short nor very long is copied by wide registers here; frames by the widest, whose store is a whole
//! line (`bench/NOTES.md` 76).
#![allow(unsafe_code)] // Instructions that only some processors have, and memory that others write too.

/// Copies `from` to `to`.
///
/// # Panics
///
/// If they are not as long as each other.
#[inline]
pub fn copy(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "both ends of a copy are as long");
    // SAFETY: both are slices of that length, one of which nobody else has.
    unsafe { copy_raw(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Copies `len` bytes.
///
/// # Safety
///
/// So many bytes can be read at `from` and written at `to`, and none of them is both.
#[inline]
pub unsafe fn copy_raw(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len > SHORT_MAX && len <= LONG_MAX && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: as the caller says, and the processor has the instructions.
        return unsafe {
            if len <= LINES_MAX && std::arch::is_x86_feature_detected!("avx512f") {
                wide::copy_lines(from, to, len)
            } else {
                wide::copy(from, to, len)
            }
        };
    }
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Up to here `memcpy` does well: it takes wide registers itself.
#[cfg(target_arch = "x86_64")]
const SHORT_MAX: usize = 2 << 10;

/// Up to here, which is every frame but super-packets, lines are written whole.
#[cfg(target_arch = "x86_64")]
const LINES_MAX: usize = 16 << 10;

/// And beyond this it may know better: from a length on that differs by machine it writes past the cache.
#[cfg(target_arch = "x86_64")]
const LONG_MAX: usize = 4 << 20;

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256};
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_store_si512, _mm512_storeu_si512};

    /// Bytes of a register.
    const REGISTER: usize = size_of::<__m256i>();
    /// As many at a time as there are bytes in two lines of the cache.
    const AT_ONCE: usize = 4 * REGISTER;
    /// Bytes of a line of the cache, and of the widest register.
    const LINE: usize = size_of::<__m512i>();

    /// Copies `len` bytes, at least as many as a register has. Those that are written at a time lie in whole lines: a store to two
    /// lines takes twice as long.
    ///
    /// # Safety
    ///
    /// As for [`super::copy_raw`].
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        debug_assert!(len >= AT_ONCE, "the first and the last register are within");
        // SAFETY: registers at `at` are within `len`, where `at` is as the loops say; those written by aligned stores are
        // aligned, since `at` begins there and goes on by whole registers.
        unsafe {
            let load = |at: usize| _mm256_loadu_si256(from.add(at).cast());
            let (first, last) = (load(0), load(len - REGISTER));
            let mut at = to.align_offset(2 * REGISTER);
            if at > REGISTER {
                _mm256_storeu_si256(to.add(REGISTER).cast(), load(REGISTER));
            }
            _mm256_storeu_si256(to.cast(), first);
            while at + AT_ONCE <= len {
                let (a, b, c, d) = (load(at), load(at + REGISTER), load(at + 2 * REGISTER), load(at + 3 * REGISTER));
                let place = to.add(at).cast::<__m256i>();
                _mm256_store_si256(place, a);
                _mm256_store_si256(place.add(1), b);
                _mm256_store_si256(place.add(2), c);
                _mm256_store_si256(place.add(3), d);
                at += AT_ONCE;
            }
            while at + REGISTER <= len {
                _mm256_store_si256(to.add(at).cast(), load(at));
                at += REGISTER;
            }
            _mm256_storeu_si256(to.add(len - REGISTER).cast(), last);
        }
    }

    /// As [`copy`], a line at a time.
    ///
    /// # Safety
    ///
    /// As for [`super::copy_raw`].
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn copy_lines(from: *const u8, to: *mut u8, len: usize) {
        debug_assert!(len >= LINE, "the first and the last register are within");
        // SAFETY: as in `copy`.
        unsafe {
            let load = |at: usize| _mm512_loadu_si512(from.add(at).cast());
            let (first, last) = (load(0), load(len - LINE));
            _mm512_storeu_si512(to.cast(), first);
            let mut at = to.align_offset(LINE);
            while at + 2 * LINE <= len {
                let (a, b) = (load(at), load(at + LINE));
                let place = to.add(at).cast::<__m512i>();
                _mm512_store_si512(place, a);
                _mm512_store_si512(place.add(1), b);
                at += 2 * LINE;
            }
            if at + LINE <= len {
                _mm512_store_si512(to.add(at).cast(), load(at));
            }
            _mm512_storeu_si512(to.add(len - LINE).cast(), last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths about where one way ends and another begins, and where a register more or less is full, of any place in a line.
    #[test]
    fn every_byte_is_copied_and_none_beside() {
        const ROOM: usize = LONG_MAX + 4096;
        let source: Vec<u8> = (0..ROOM).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut lens: Vec<usize> = (0..300).chain(SHORT_MAX - 2..SHORT_MAX + 260).step_by(7).collect();
        lens.extend([
            4096,
            5000,
            LINES_MAX - 1,
            LINES_MAX,
            LINES_MAX + 1,
            32 << 10,
            LONG_MAX - 1,
            LONG_MAX,
            LONG_MAX + 1,
        ]);
        let mut target = vec![0xaa; ROOM];
        for len in lens {
            for (from, to) in [(0, 0), (16, 48), (3, 1), (1, 63), (64, 33), (7, 0), (0, 7)] {
                copy(&mut target[to..to + len], &source[from..from + len]);
                assert!(target[to..to + len] == source[from..from + len], "{len} bytes from {from} to {to}");
                assert!(target[..to].iter().chain(&target[to + len..to + len + 200]).all(|byte| *byte == 0xaa));
                target[to..to + len].fill(0xaa);
            }
        }
    }

    #[test]
    #[should_panic(expected = "as long")]
    fn what_is_not_as_long_is_refused() {
        copy(&mut [0; 3], &[0; 2]);
    }
}
