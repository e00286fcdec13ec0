//! Where a frame of a few lines is written before its lines in the ring are.
//!
//! Its receiver looks at the first of them all the time, and asks for those behind it. What is written there a word now and a word then
//! goes to the receiver and back in between, each time a whole way between two cores. From here all is written in one go, to lines that were
//! asked for when the draft was begun (`bench/NOTES.md`, 87). In a train of frames of one line each, nobody looks yet at what is written: they
//! do without, and only an answer is drafted.

use super::ring::{HEADER_BYTES, LINE_BYTES};

/// Lines of the longest frame that is written here. One of five comes sooner through a cell.
pub(super) const LINES: u32 = 4;

/// Its payload.
pub(super) const LEN_MAX: usize = LINES as usize * LINE_BYTES - HEADER_BYTES;

/// A frame's payload, in whole words: behind it in the last is what earlier ones have left.
#[repr(align(64))]
pub(super) struct Draft([u8; LEN_MAX]);

const _: () = assert!(LEN_MAX.is_multiple_of(WORD));

impl Draft {
    pub(super) const EMPTY: Self = Self([0; LEN_MAX]);

    /// What is written, or was before, of a frame of `len` bytes.
    #[inline]
    pub(super) fn payload(&self, len: usize) -> &[u8] {
        &self.0[..len]
    }

    /// The same, to be written.
    #[inline]
    pub(super) fn payload_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.0[..len]
    }

    /// The words that hold a payload of `len` bytes.
    #[inline]
    pub(super) fn words(&self, len: usize) -> &[[u8; WORD]] {
        &self.0.as_chunks().0[..len.div_ceil(WORD)]
    }
}

/// Bytes of a word.
pub(super) const WORD: usize = 8;
