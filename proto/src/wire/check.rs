//! The frame check: a CRC-32C keyed by the connection, so that damage and strangers both fail it.

use sidelane_nic::copy::copy;

use super::crc::{crc32c, crc32c_behind, crc32c_copying};
use super::header::{FULL_LEN, field};
use super::operation::PUT_LEN;
use super::u32_at;
use crate::hint::seldom;

/// The check in one direction of a connection. Its key is drawn from both sides' tokens, so that it keeps damaged frames out, and
/// strangers who do not see the traffic; against those who do, frames need an authentication tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Check {
    key: u32,
    /// Of longer frames it covers the front only.
    whole_max: u32,
}

/// Bytes that the check of every frame covers: the header, and the longest head that a record has before bytes of the user's.
const FRONT_LEN: usize = FULL_LEN + PUT_LEN;

impl Check {
    /// For frames that belong to no connection yet: Hello, HelloAck, Reset.
    pub const OPEN: Self = Self::new(u32::from_le_bytes(*b"SDL1"), u32::MAX);

    /// Keyed by `key`. Frames longer than `whole_max` never leave a host's memory, where nothing damages them: of these it covers the
    /// front.
    #[inline]
    pub const fn new(key: u32, whole_max: u32) -> Self {
        Self { key, whole_max }
    }

    /// For whole frames from the side with token `from` to the side with token `to`.
    pub const fn between(from: u64, to: u64) -> Self {
        Self::new(Self::key_between(from, to), u32::MAX)
    }

    /// The key from the side with token `from` to the side with token `to`.
    pub const fn key_between(from: u64, to: u64) -> u32 {
        let mixed = from.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ to.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        (mixed ^ (mixed >> 32)) as u32
    }

    /// True if it covers only the front of a frame of `len` bytes.
    #[inline]
    const fn is_front_only(self, len: usize) -> bool {
        seldom(len > self.whole_max as usize)
    }

    /// The check of a frame but for the check field, which stands first.
    #[inline]
    fn of(self, frame: &[u8]) -> u32 {
        let covered = if self.is_front_only(frame.len()) { FRONT_LEN.min(frame.len()) } else { frame.len() };
        self.key ^ crc32c(&frame[field::CHECK.end..covered])
    }

    /// The same of a frame whose `end` is elsewhere.
    #[inline]
    fn of_apart(self, front: &[u8], end: &[u8]) -> u32 {
        let (mut front, mut end) = (front, end);
        if self.is_front_only(front.len() + end.len()) {
            front = &front[..FRONT_LEN.min(front.len())];
            end = &end[..(FRONT_LEN - front.len()).min(end.len())];
        }
        self.key ^ crc32c_behind(crc32c(&front[field::CHECK.end..]), end)
    }

    /// The same, and copies the frame's `end` to `to`, each byte read once for both.
    #[inline]
    fn of_copying(self, front: &[u8], end: &[u8], to: &mut [u8]) -> u32 {
        if self.is_front_only(front.len() + end.len()) {
            copy(to, end);
            return self.of_apart(front, end);
        }
        self.key ^ crc32c_copying(crc32c(&front[field::CHECK.end..]), end, to)
    }

    /// Writes the check into a finished frame, but for its `tail`.
    #[inline]
    pub fn seal(self, frame: &mut [u8], tail: Tail) {
        let check = match tail {
            Tail::Here => self.of(frame),
            Tail::Elsewhere(tail) => self.of_apart(frame, tail),
            Tail::Copied(from) => {
                let (front, to) = frame.split_at_mut(frame.len() - from.len());
                self.of_copying(front, from, to)
            }
        };
        frame[field::CHECK].copy_from_slice(&check.to_le_bytes());
    }

    /// True when the frame is as its sender sealed it, as far as the check covers it.
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
        cfg!(fuzzing) || self.of_apart(front, end) == u32_at(front, field::CHECK.start)
    }

    /// As [`Self::holds`], and copies the frame's end to `to`. What was copied is worth nothing where the check does not hold.
    #[inline]
    pub fn holds_copying(self, frame: &[u8], to: &mut [u8]) -> bool {
        let (front, end) = frame.split_at(frame.len() - to.len());
        cfg!(fuzzing) || self.of_copying(front, end, to) == u32_at(frame, field::CHECK.start)
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

    /// However it is cut into parts.
    #[test]
    fn of_longer_frames_than_are_covered_whole_the_front_is() {
        let frame: Vec<u8> = (0..9_000u32).map(|i| (i * 7) as u8).collect();
        for (whole_max, covered) in [(8_999, FRONT_LEN), (9_000, 9_000), (0, FRONT_LEN)] {
            let check = Check::new(Check::key_between(1, 2), whole_max);
            for at in [24, 28, 32, 47, 48, 49, 1_000, 8_999, 9_000] {
                let (front, tail) = frame.split_at(at);
                let mut whole = frame.clone();
                check.seal(&mut whole[..at], Tail::Elsewhere(tail));
                let mut copied = [front, &vec![0xee; tail.len()]].concat();
                check.seal(&mut copied, Tail::Copied(tail));
                assert!(whole == copied, "cut at {at}");
                let other = Check::between(1, 2).of(&whole[..covered]);
                assert_eq!(u32_at(&whole, 0), other, "{covered} bytes, cut at {at}");
                for flipped in [4, 40, 47, 48, 8_999] {
                    whole[flipped] ^= 1;
                    let mut end = vec![0xee; tail.len()];
                    let holds = [
                        check.holds(&whole),
                        check.holds_apart(&whole[..at], &whole[at..]),
                        check.holds_copying(&whole, &mut end),
                    ];
                    assert_eq!(holds, [flipped >= covered; 3], "byte {flipped}, cut at {at}");
                    assert!(end == whole[at..]);
                    whole[flipped] ^= 1;
                }
            }
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
