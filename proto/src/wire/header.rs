//! The frame header: 24 bytes, or 8 where the driver itself is reliable.

use super::{Seq, VERSION, u16_at, u32_at};
use crate::counters::Reject;
use crate::hint::seldom;

pub(super) mod field {
    use std::ops::Range;
    /// First, so that what it covers is one run. The running number of a frame with a tag.
    pub const CHECK: Range<usize> = 0..4;
    /// Version in the upper half, kind in the lower.
    pub const KIND: usize = 4;
    pub const FLAGS: usize = 5;
    /// Index of the connection at the receiver.
    pub const PEER: Range<usize> = 6..8;
    pub const SEQ: Range<usize> = 8..12;
    pub const ACK: Range<usize> = 12..16;
    pub const SACK: Range<usize> = 16..20;
    pub const CREDIT: Range<usize> = 20..22;
    pub const EPOCH: Range<usize> = 22..24;

    pub const PLAIN_KIND: usize = 0;
    pub const PLAIN_FLAGS: usize = 1;
    pub const PLAIN_PEER: Range<usize> = 2..4;
    pub const PLAIN_EPOCH: Range<usize> = 4..6;
    pub const PLAIN_CREDIT: Range<usize> = 6..8;
}

/// Where the running number of a frame with a tag stands.
pub(crate) const NUMBER: std::ops::Range<usize> = field::CHECK;
/// Length of the header on drivers that lose, reorder or alter.
pub(crate) const FULL_LEN: usize = field::EPOCH.end;
/// Length of the header on reliable drivers.
pub(crate) const PLAIN_LEN: usize = field::PLAIN_CREDIT.end;
const _: () = assert!(FULL_LEN == 24 && PLAIN_LEN == 8, "headers stay multiples of 8 bytes");

/// What a frame is for. One paragraph each in `PROTOCOL.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Records, and everything that an Ack says.
    Data = 0,
    /// What has arrived and what may be sent; no records, no sequence number of its own.
    Ack = 1,
    /// Opens a connection.
    Hello = 2,
    /// Answers a Hello.
    HelloAck = 3,
    /// Asks whether this very connection still lives.
    Ping = 4,
    /// Answers a Ping or HelloAck to a connection that nobody here knows.
    Reset = 5,
}

/// Bits of the flags byte. Unknown bits are ignored, but for TAG.
pub(crate) mod flags {
    /// The receiver shall answer with an ack at once.
    pub const ACK_NOW: u8 = 1 << 0;
    /// The sender of this frame has received a duplicate since its last ack.
    pub const DUPLICATE: u8 = 1 << 1;
    /// The sender of this frame was away when what it acknowledges came: the delay is that of a processor, not of the path.
    pub const AWAY: u8 = 1 << 2;
    /// The frame ends with a 16-byte authentication tag, and begins with a running number.
    pub const TAG: u8 = 1 << 7;
}

/// The header of drivers that lose, reorder or alter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub kind: Kind,
    pub flags: u8,
    pub peer: u16,
    /// Number of this frame; of the next one when the kind is not Data.
    pub seq: Seq,
    /// Everything before this has arrived.
    pub ack: Seq,
    /// Bit `i`: frame `ack + 1 + i` has arrived too.
    pub sack: u32,
    /// Stream position up to which the receiver of this frame may send, in units of 64 bytes, modulo 2^16.
    pub credit: u16,
    /// Lower half of the receiver's token.
    pub epoch: u16,
}

/// The header of reliable drivers. Fields as in [`Header`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlainHeader {
    pub kind: Kind,
    pub flags: u8,
    pub peer: u16,
    pub epoch: u16,
    pub credit: u16,
}

impl Kind {
    #[inline]
    fn parse(byte: u8) -> Result<Self, Reject> {
        if seldom(byte >> 4 != VERSION) {
            return Err(Reject::Version);
        }
        match byte & 0x0f {
            0 => Ok(Self::Data),
            1 => Ok(Self::Ack),
            2 => Ok(Self::Hello),
            3 => Ok(Self::HelloAck),
            4 => Ok(Self::Ping),
            5 => Ok(Self::Reset),
            _ => Err(Reject::Kind),
        }
    }

    /// Of a frame that we wrote.
    #[inline]
    pub fn of(frame: &[u8]) -> Self {
        Self::parse(frame[field::KIND]).expect("a frame that we wrote has a kind")
    }

    #[inline]
    const fn emit(self) -> u8 {
        VERSION << 4 | self as u8
    }
}

impl Header {
    /// Reads a header. `tagged` says whether frames here have a tag. Check and tag are the caller's to verify: they need the
    /// connection's key.
    #[inline]
    pub fn parse(frame: &[u8], tagged: bool) -> Result<Self, Reject> {
        if seldom(frame.len() < FULL_LEN) {
            return Err(Reject::Truncated);
        }
        let flags = frame[field::FLAGS];
        if seldom((flags & flags::TAG != 0) != tagged) {
            return Err(Reject::Tag);
        }
        Ok(Self {
            kind: Kind::parse(frame[field::KIND])?,
            flags,
            peer: u16_at(frame, field::PEER.start),
            seq: Seq(u32_at(frame, field::SEQ.start)),
            ack: Seq(u32_at(frame, field::ACK.start)),
            sack: u32_at(frame, field::SACK.start),
            credit: u16_at(frame, field::CREDIT.start),
            epoch: u16_at(frame, field::EPOCH.start),
        })
    }

    /// Writes the header, but for the check, which covers what follows too.
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) {
        // Three words, one store each: the check reads them in the next moment (see `crate::copy`).
        let first = u64::from(self.kind.emit()) << 32 | u64::from(self.flags) << 40 | u64::from(self.peer) << 48;
        let second = u64::from(self.seq.0) | u64::from(self.ack.0) << 32;
        let third = u64::from(self.sack) | u64::from(self.credit) << 32 | u64::from(self.epoch) << 48;
        let (words, _) = frame[..FULL_LEN].as_chunks_mut::<8>();
        for (word, value) in words.iter_mut().zip([first, second, third]) {
            *word = value.to_le_bytes();
        }
    }
}

impl PlainHeader {
    /// Reads a header.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, Reject> {
        if frame.len() < PLAIN_LEN {
            return Err(Reject::Truncated);
        }
        let flags = frame[field::PLAIN_FLAGS];
        if flags & flags::TAG != 0 {
            return Err(Reject::Tag);
        }
        Ok(Self {
            kind: Kind::parse(frame[field::PLAIN_KIND])?,
            flags,
            peer: u16_at(frame, field::PLAIN_PEER.start),
            epoch: u16_at(frame, field::PLAIN_EPOCH.start),
            credit: u16_at(frame, field::PLAIN_CREDIT.start),
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) {
        let word = u64::from(self.kind.emit())
            | u64::from(self.flags) << 8
            | u64::from(self.peer) << 16
            | u64::from(self.epoch) << 32
            | u64::from(self.credit) << 48;
        frame[..PLAIN_LEN].copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_reads_back_as_it_was_written(kind in 0u8..6, flags in 0u8..128, peer: u16, seq: u32, ack: u32, sack: u32, credit: u16, epoch: u16) {
            let kind = Kind::parse(VERSION << 4 | kind).unwrap();
            let header = Header { kind, flags, peer, seq: Seq(seq), ack: Seq(ack), sack, credit, epoch };
            let mut frame = [0xee; FULL_LEN];
            header.emit(&mut frame);
            prop_assert_eq!(Header::parse(&frame, false), Ok(header));
            prop_assert_eq!(Header::parse(&frame, true), Err(Reject::Tag));
            let plain = PlainHeader { kind, flags, peer, epoch, credit };
            plain.emit(&mut frame);
            prop_assert_eq!(PlainHeader::parse(&frame[..PLAIN_LEN]), Ok(plain));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::parse(&bytes, bytes.len() % 2 == 0);
            let _ = PlainHeader::parse(&bytes);
        }
    }

    /// As `PROTOCOL.md` has it: both ends of this code would agree on other places, too. (Its scripts play only full headers.)
    #[test]
    fn headers_are_laid_out_as_documented() {
        let plain = PlainHeader { kind: Kind::Ping, flags: 2, peer: 0x0403, epoch: 0x0605, credit: 0x0807 };
        let mut frame = [0; PLAIN_LEN];
        plain.emit(&mut frame);
        assert_eq!(frame, [0x14, 2, 3, 4, 5, 6, 7, 8]);
        let (seq, ack) = (Seq(0x0908_0706), Seq(0x0d0c_0b0a));
        let (sack, credit, epoch) = (0x1110_0f0e, 0x1312, 0x1514);
        let mut frame = [0; FULL_LEN];
        Header { kind: Kind::Reset, flags: 3, peer: 0x0504, seq, ack, sack, credit, epoch }.emit(&mut frame);
        assert_eq!(frame[..4], [0; 4], "the check's place");
        assert_eq!(frame[4..8], [0x15, 3, 4, 5]);
        assert!(frame[8..].iter().copied().eq(6..=0x15), "{frame:x?}");
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let mut frame = [0; FULL_LEN];
        assert_eq!(Header::parse(&frame[..23], false), Err(Reject::Truncated));
        assert_eq!(Header::parse(&frame, false), Err(Reject::Version));
        frame[field::KIND] = VERSION << 4 | 9;
        assert_eq!(Header::parse(&frame, false), Err(Reject::Kind));
        frame[field::FLAGS] = flags::TAG;
        assert_eq!(Header::parse(&frame, false), Err(Reject::Tag));
        assert_eq!(PlainHeader::parse(&frame[..PLAIN_LEN - 1]), Err(Reject::Truncated));
        frame[field::PLAIN_FLAGS] = flags::TAG;
        assert_eq!(PlainHeader::parse(&frame), Err(Reject::Tag), "a reliable driver's frames have none");
    }
}
