//! The frame check: a CRC-32C keyed by the connection, so that damage and strangers both fail it.

use super::crc::{crc32c, crc32c_behind, crc32c_copying};
use super::header::field;
use super::u32_at;

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

    /// The check of a whole frame but for the check field, which stands first.
    #[inline]
    fn of(self, frame: &[u8]) -> u32 {
        self.key ^ crc32c(&frame[field::CHECK.end..])
    }

    /// Writes the check into a finished frame, but for its `tail`.
    #[inline]
    pub fn seal(self, frame: &mut [u8], tail: Tail) {
        let check = match tail {
            Tail::Here => self.of(frame),
            Tail::Elsewhere(tail) => self.key ^ crc32c_behind(crc32c(&frame[field::CHECK.end..]), tail),
            Tail::Copied(from) => {
                let (front, to) = frame.split_at_mut(frame.len() - from.len());
                self.key ^ crc32c_copying(crc32c(&front[field::CHECK.end..]), from, to)
            }
        };
        frame[field::CHECK].copy_from_slice(&check.to_le_bytes());
    }

    /// True when the frame is as its sender sealed it.
    #[inline]
    pub fn holds(self, frame: &[u8]) -> bool {
        // A fuzzer would never get past it.
        if cfg!(fuzzing) {
            return true;
        }
        self.of(frame) == u32_at(frame, field::CHECK.start)
    }

    /// As [`Self::holds`], of a frame whose `end` is elsewhere.
    #[inline]
    pub fn holds_apart(self, front: &[u8], end: &[u8]) -> bool {
        let check = self.key ^ crc32c_behind(crc32c(&front[field::CHECK.end..]), end);
        cfg!(fuzzing) || check == u32_at(front, field::CHECK.start)
    }

    /// As [`Self::holds`], and copies the frame's end to `to`, each byte read once for both. What was copied is worth nothing
    /// where the check does not hold.
    #[inline]
    pub fn holds_copying(self, frame: &[u8], to: &mut [u8]) -> bool {
        let (front, end) = frame.split_at(frame.len() - to.len());
        let check = self.key ^ crc32c_copying(crc32c(&front[field::CHECK.end..]), end, to);
        cfg!(fuzzing) || check == u32_at(frame, field::CHECK.start)
    }
}

/// Where the last bytes of a frame are when the rest of it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tail<'a> {
    /// Written, as the rest.
    Here,
    /// Here, and they are sent from here: the frame ends before them.
    Elsewhere(&'a [u8]),
    /// Here, to be copied to the frame's end when the check is made: each byte is read once for both.
    Copied(&'a [u8]),
}

impl Tail<'_> {
    /// Bytes of the frame that are not written yet.
    #[inline]
    pub const fn copied_len(self) -> usize {
        match self {
            Self::Here | Self::Elsewhere(_) => 0,
            Self::Copied(from) => from.len(),
        }
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
        check.seal(&mut frame, Tail::Here);
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
        let mut whole: Vec<u8> = (0..9_000u32).map(|i| (i * 7) as u8).collect();
        let check = Check::between(1, 2);
        check.seal(&mut whole, Tail::Here);
        for at in [4, 5, 28, 36, 1_000, 8_700, 8_999, 9_000] {
            let (front, tail) = whole.split_at(at);
            let mut frame = front.to_vec();
            check.seal(&mut frame, Tail::Elsewhere(tail));
            assert_eq!(frame, front, "cut at {at}");
            frame.resize(whole.len(), 0xee);
            check.seal(&mut frame, Tail::Copied(tail));
            assert!(frame == whole, "copied from {at} on");

            let mut end = vec![0xee; tail.len()];
            assert!(check.holds_copying(&whole, &mut end) && end == tail, "from {at} on");
            assert!(check.holds_apart(front, tail), "cut at {at}");
            frame[8_999] ^= 1;
            assert!(!check.holds_copying(&frame, &mut end), "from {at} on");
        }
    }

    #[test]
    fn any_flipped_bit_breaks_the_check() {
        let mut frame: Vec<u8> = (0..61).collect();
        let check = Check::between(1, 2);
        check.seal(&mut frame, Tail::Here);
        assert!(check.holds(&frame));
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(!check.holds(&frame), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!Check::between(2, 1).holds(&frame), "the other direction has another key");
    }
}
