//! A frame whose bytes are in its slot, and whose slot the kernel has not handed over yet.
//!
//! In between the kernel takes the time and fills in the slot's header (`tpacket_rcv`): some 100 ns of a lone frame's way
//! (`bench/NOTES.md`, 50). Nothing tells then how much of a frame is there. So whoever gives a slot back fills the place of a short
//! frame with [`POISON`], and a frame is whole when none of that is left where it stands, looked at in pairs of bytes, and not even one
//! byte at its end. So whatever a copy has come to that goes forwards in steps of any length, or in any order in steps of at least two,
//! shows. A frame that has the same two bytes in it itself, or that last one, is seen when its slot is handed over.

use super::rx_ring::FRAME_AT;
use crate::LinkAddr;
use crate::encap::ether;

/// A copy of a short frame that is whole.
pub struct Glance {
    bytes: [u8; WORDS * WORD],
}

impl Glance {
    /// Of a slot that was given back with poison, by its eight-byte words in memory's order; each is asked for once.
    #[inline]
    pub fn of(slot: impl Fn(usize) -> u64) -> Option<Self> {
        let mut glance = Self { bytes: [0; WORDS * WORD] };
        let is_written =
            glance.copy(0, BEFORE, &slot) & (1..HEADER_WORDS).fold(true, |all, at| all & glance.copy(at, 0, &slot));
        let len = ether::payload_len(glance.frame());
        if !is_written || len > PAYLOAD_MAX {
            return None;
        }
        // The last pair may have one byte of the frame; the other one stays as it is.
        let (whole, rest) = (HEADER_WORDS + len / WORD, len % WORD);
        let mut is_written = (HEADER_WORDS..whole).fold(true, |all, at| all & glance.copy(at, 0, &slot));
        if rest > 0 {
            is_written &= glance.copy(whole, !0 << (8 * rest.next_multiple_of(2) - 1) << 1, &slot);
        }
        let end = FRAME_AT % WORD + ether::HEADER_LEN + len;
        (is_written && glance.bytes[end - 1] != POISON.to_ne_bytes()[(end - 1) % WORD]).then_some(glance)
    }

    /// Copies a word. True if no pair of bytes in it is poison, but for the bits to be `ignored`.
    #[inline]
    fn copy(&mut self, at: usize, ignored: u64, slot: impl Fn(usize) -> u64) -> bool {
        let word = slot(FIRST + at);
        self.bytes.as_chunks_mut::<WORD>().0[at] = word.to_ne_bytes();
        let pairs = (word ^ POISON).to_le() | ignored;
        // Of a pair that is zero the highest bit (Mycroft's test; Warren, "Hacker's Delight", 6-1).
        pairs.wrapping_sub(0x0001_0001_0001_0001) & !pairs & 0x8000_8000_8000_8000 == 0
    }

    /// Who sent it, and its payload, if it is to this endpoint.
    #[inline]
    pub fn to(&self, mac: [u8; 6], endpoint: u16) -> Option<(LinkAddr, &[u8])> {
        let (header, payload) = ether::Header::parse(self.frame()).ok()?;
        let from = LinkAddr::Ether { mac: header.src_mac, endpoint: header.src };
        ((header.dst_mac, header.dst) == (mac, endpoint)).then_some((from, payload))
    }

    /// From its Ethernet header on; behind it is anything.
    #[inline]
    pub fn frame(&self) -> &[u8] {
        &self.bytes[FRAME_AT % WORD..]
    }
}

const WORD: usize = size_of::<u64>();
/// Word of the slot that a frame begins in.
pub const FIRST: usize = FRAME_AT / WORD;
/// Its bits before the frame.
const BEFORE: u64 = (1 << (8 * (FRAME_AT % WORD))) - 1;
/// Words that are poisoned: two lines of the cache.
pub const WORDS: usize = 2 * 64 / WORD;
const HEADER_WORDS: usize = (FRAME_AT % WORD + ether::HEADER_LEN) / WORD;
const _: () = assert!((FRAME_AT + ether::HEADER_LEN).is_multiple_of(WORD) && FRAME_AT.is_multiple_of(2));
/// The first word of payload, which tells whether there may be a frame.
pub const TELLTALE: usize = FIRST + HEADER_WORDS;
const PAYLOAD_MAX: usize = (WORDS - HEADER_WORDS) * WORD;
/// Four pairs of bytes. No two that are often found; as a length it is beyond what is looked at.
pub const POISON: u64 = 0xc35a_c35a_c35a_c35a_u64.to_le();

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as the kernel leaves it, with so much payload.
    fn frame(len: usize) -> Vec<u8> {
        let header = ether::Header { dst_mac: [2; 6], src_mac: [4; 6], dst: 1, src: 2, len: len as u16 }.emit();
        header.into_iter().chain((0..len).map(|at| at as u8 + 1)).collect()
    }

    /// Of a slot in which only those bytes of a frame are written that `is_written` is true of.
    fn glance(frame: &[u8], is_written: impl Fn(usize) -> bool) -> Option<Glance> {
        let mut slot: Vec<u8> = POISON.to_ne_bytes().repeat(FIRST + WORDS + 10);
        for at in (0..frame.len()).filter(|at| is_written(*at)) {
            slot[FRAME_AT + at] = frame[at];
        }
        Glance::of(|word| u64::from_ne_bytes(slot.as_chunks().0[word]))
    }

    /// What is seen of such a slot.
    fn seen(frame: &[u8], is_written: impl Fn(usize) -> bool) -> Option<Vec<u8>> {
        Some(glance(frame, is_written)?.frame()[..frame.len()].to_vec())
    }

    #[test]
    fn only_the_endpoint_that_a_frame_is_to_is_shown_it() {
        let frame = frame(20);
        let glance = glance(&frame, |_| true).unwrap();
        let from = LinkAddr::Ether { mac: [4; 6], endpoint: 2 };
        assert_eq!(glance.to([2; 6], 1), Some((from, &frame[ether::HEADER_LEN..])));
        for (mac, endpoint) in [([2; 6], 2), ([4; 6], 1), ([4; 6], 2), ([2, 2, 2, 2, 2, 3], 1)] {
            assert_eq!(glance.to(mac, endpoint), None);
        }
    }

    #[test]
    fn a_short_frame_is_seen_when_all_of_it_is_written() {
        for len in 0..=PAYLOAD_MAX {
            assert_eq!(seen(&frame(len), |_| true), Some(frame(len)), "{len} bytes");
        }
        assert_eq!(seen(&frame(PAYLOAD_MAX + 1), |_| true), None);
        assert_eq!(seen(&frame(20), |_| false), None);
    }

    /// Forwards, backwards, and but for a store of whatever width anywhere.
    #[test]
    fn a_frame_of_which_something_is_missing_is_not_seen() {
        for len in 0..=PAYLOAD_MAX {
            let frame = frame(len);
            for at in 0..frame.len() {
                assert_eq!(seen(&frame, |byte| byte < at), None, "{at} of {len} and no more");
            }
            for at in 2..frame.len() {
                assert_eq!(seen(&frame, |byte| byte >= at), None, "{len} but for the first {at}");
            }
            for width in [2, 4, 8, 16, 32] {
                // As of a copy in such pieces, the last of which ends where the frame does.
                let starts = (0..frame.len()).step_by(width).map(|at| at.min(frame.len().saturating_sub(width)) & !1);
                for at in starts {
                    let end = (at + width).min(frame.len());
                    assert_eq!(seen(&frame, |byte| byte < at || end <= byte), None, "{len} but for {at}..{end}");
                }
            }
        }
    }

    #[test]
    fn a_frame_with_poison_in_it_waits() {
        let mut poisoned = frame(40);
        poisoned[30..32].copy_from_slice(&POISON.to_ne_bytes()[..2]);
        assert_eq!(seen(&poisoned, |_| true), None);
        let mut last = frame(40);
        last[61] = POISON.to_ne_bytes()[1];
        assert_eq!(seen(&last, |_| true), None);
        // Half of it, or across two pairs, is none.
        let mut across = frame(40);
        across[31..33].copy_from_slice(&POISON.to_ne_bytes()[..2]);
        assert_eq!(seen(&across, |_| true), Some(across));
    }
}
