//! Frames whose bytes are in the ring, and whose slot the kernel has not handed over yet.
//!
//! In between it takes the time and fills in the slot's header: 90 to 110 ns of a lone frame's way (`bench/NOTES.md`, 48 and 50).
//! Nothing tells how much of a frame is there, so what is shown is a copy, for who has a check.

use std::ops::Deref;

use super::datapath::LOOKS;
use super::rx_ring::{FRAME_AT, RxRing};
use super::{Uring, ether};
use crate::{EarlyFrame, LinkAddr};

impl Uring {
    /// What may be a frame of ours, if none waits.
    #[inline]
    pub(super) fn early(&mut self) -> Option<Early<'_>> {
        if !self.small.settle() {
            return None;
        }
        for _ in 0..LOOKS {
            if self.has_frame() {
                return None;
            }
            if self.small.has_news() {
                // Whoever sees a frame in one ring and then looks at the other sees all that came before it.
                let is_first = self.dressed.as_ref().is_none_or(|(ring, _)| !ring.has_frame());
                return if is_first { self.glance() } else { None };
            }
        }
        None
    }

    #[inline]
    fn glance(&mut self) -> Option<Early<'_>> {
        let glance = Glance::at(&self.small)?;
        let (header, payload) = ether::Header::parse(glance.frame()).ok()?;
        if (header.dst_mac, header.dst) != (self.mac, self.endpoint) {
            return None;
        }
        let (len, sender) = (payload.len(), LinkAddr::Ether { mac: header.src_mac, endpoint: header.src });
        Some(Early { glance, len, sender, nic: self })
    }
}

/// Perhaps a frame.
pub(super) struct Early<'a> {
    glance: Glance,
    /// Bytes of payload.
    len: usize,
    sender: LinkAddr,
    nic: &'a mut Uring,
}

impl Deref for Early<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.glance.frame()[ether::HEADER_LEN..][..self.len]
    }
}

impl EarlyFrame for Early<'_> {
    #[inline]
    fn sender(&self) -> LinkAddr {
        self.sender
    }

    #[inline]
    fn stands_still(&self) -> bool {
        self.glance.is_still_at(&self.nic.small)
    }

    #[inline]
    fn take(self) {
        self.nic.small.take_early();
        self.nic.on_shown(self.len);
    }
}

/// A copy of the beginning of a slot's frame, word by word.
struct Glance {
    bytes: [u8; WORDS_MAX * WORD],
    words: usize,
}

impl Glance {
    /// `None` if the frame is longer than [`PAYLOAD_MAX`].
    #[inline]
    fn at(ring: &RxRing) -> Option<Self> {
        let mut glance = Self { bytes: [0; WORDS_MAX * WORD], words: 0 };
        glance.copy_up_to(HEADER_WORDS, ring);
        let len = ether::payload_len(glance.frame());
        if len > PAYLOAD_MAX {
            return None;
        }
        glance.copy_up_to(HEADER_WORDS + len.div_ceil(WORD), ring);
        Some(glance)
    }

    #[inline]
    fn copy_up_to(&mut self, words: usize, ring: &RxRing) {
        let chunks = self.bytes.as_chunks_mut::<WORD>().0;
        for (at, chunk) in chunks[..words].iter_mut().enumerate().skip(self.words) {
            *chunk = ring.word(FIRST + at).to_ne_bytes();
        }
        self.words = words;
    }

    /// Whether the same stands there.
    #[inline]
    fn is_still_at(&self, ring: &RxRing) -> bool {
        let chunks = self.bytes.as_chunks::<WORD>().0[..self.words].iter();
        chunks.enumerate().all(|(at, chunk)| ring.word(FIRST + at).to_ne_bytes() == *chunk)
    }

    /// From its Ethernet header on.
    #[inline]
    fn frame(&self) -> &[u8] {
        &self.bytes[FRAME_AT % WORD..]
    }
}

const WORD: usize = size_of::<u64>();
/// Word of the slot that a frame's first byte is in, and words from there to its payload.
const FIRST: usize = FRAME_AT / WORD;
const HEADER_WORDS: usize = (FRAME_AT % WORD + ether::HEADER_LEN) / WORD;
/// What is longer is half written for longer, and what is copied and compared costs more than it saves.
const PAYLOAD_MAX: usize = 128;
const WORDS_MAX: usize = HEADER_WORDS + PAYLOAD_MAX / WORD;
