//! The frame check: a CRC-32C keyed by the connection, so that damage and strangers both fail it.

use super::crc::{crc32c, crc32c_parts};
use super::header::field;

/// Key of the check in one direction of a connection, drawn from both sides' tokens. It keeps damaged frames out, and
/// strangers who do not see the traffic; against those who do, frames need an authentication tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Check {
    key: u32,
}

impl Check {
    /// For frames that belong to no connection yet: Hello, HelloAck, Reset.
    pub const OPEN: Self = Self { key: u32::from_le_bytes(*b"SDL1") };

    /// For frames from the side with token `from` to the side with token `to`.
    pub fn between(from: u64, to: u64) -> Self {
        let mixed = from.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ to.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        Self { key: (mixed ^ (mixed >> 32)) as u32 }
    }

    /// The check of a whole frame but for the check field, which stands first. `tail` is the end of the frame that is
    /// elsewhere in memory.
    #[inline]
    pub fn of(self, frame: &[u8], tail: &[u8]) -> u32 {
        let front = &frame[field::CHECK.end..];
        self.key ^ if tail.is_empty() { crc32c(front) } else { crc32c_parts(front, tail) }
    }

    /// Writes the check into a finished frame, but for its `tail` elsewhere.
    #[inline]
    pub fn seal(self, frame: &mut [u8], tail: &[u8]) {
        let check = self.of(frame, tail);
        frame[field::CHECK].copy_from_slice(&check.to_le_bytes());
    }

    /// True when the frame is as its sender sealed it.
    #[inline]
    pub fn holds(self, frame: &[u8]) -> bool {
        // A fuzzer would never get past it.
        if cfg!(fuzzing) {
            return true;
        }
        let c = &frame[field::CHECK];
        self.of(frame, &[]) == u32::from_le_bytes([c[0], c[1], c[2], c[3]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRC-32C has a Hamming distance of 6 up to 5,243 bits (Castagnoli 1993): two flips never cancel out.
    #[test]
    fn any_two_flipped_bits_break_the_check() {
        let mut frame: Vec<u8> = (0..61).collect();
        let check = Check::between(1, 2);
        check.seal(&mut frame, &[]);
        let flip = |frame: &mut [u8], bit: usize| frame[bit / 8] ^= 1 << (bit % 8);
        for first in 0..frame.len() * 8 {
            for second in 0..first {
                flip(&mut frame, first);
                flip(&mut frame, second);
                assert!(!check.holds(&frame), "bits {first} and {second}");
                flip(&mut frame, first);
                flip(&mut frame, second);
            }
        }
    }

    #[test]
    fn frame_in_parts_has_the_check_of_the_whole() {
        let whole: Vec<u8> = (0..9_000u32).map(|i| (i * 7) as u8).collect();
        let check = Check::between(1, 2);
        for at in [4, 5, 28, 36, 1_000, 8_999] {
            let (frame, tail) = whole.split_at(at);
            assert_eq!(check.of(frame, tail), check.of(&whole, &[]), "cut at {at}");
        }
    }

    #[test]
    fn any_flipped_bit_breaks_the_check() {
        let mut frame: Vec<u8> = (0..61).collect();
        let check = Check::between(1, 2);
        check.seal(&mut frame, &[]);
        assert!(check.holds(&frame));
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(!check.holds(&frame), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!Check::between(2, 1).holds(&frame), "the other direction has another key");
    }
}
