//! Frames under our own EtherType.
//!
//! | offset | length | field | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 6 | destination MAC | |
//! | 6 | 6 | source MAC | |
//! | 12 | 2 | EtherType | 0x88B5, local experimental 1 (IEEE 802 clause 9.2.3) |
//! | 14 | 2 | destination endpoint | what the receiver's socket filter steers by |
//! | 16 | 2 | source endpoint | |
//! | 18 | 2 | payload length | Ethernet pads frames to 60 bytes, so the frame's own length says nothing |
//! | 20 | 2 | version | 1; makes the header a multiple of 8 bytes behind the Ethernet header, as the kernel aligns it |
//! | 22 | | payload | |
//!
//! Numbers are big-endian.

use std::ops::Range;

use super::{Reject, field, read_mac, read_u16};

/// Between whom a frame travels, and how long its payload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Interface that it goes to.
    pub dst_mac: [u8; 6],
    /// Interface that it comes from.
    pub src_mac: [u8; 6],
    /// Endpoint behind `dst_mac`.
    pub dst: u16,
    /// Endpoint behind `src_mac`.
    pub src: u16,
    /// Bytes of payload; Ethernet may have padded behind them.
    pub len: u16,
}

impl Header {
    /// The header's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[field::DST_MAC].copy_from_slice(&self.dst_mac);
        bytes[field::SRC_MAC].copy_from_slice(&self.src_mac);
        bytes[field::ETHERTYPE].copy_from_slice(&ETHERTYPE.to_be_bytes());
        bytes[DST].copy_from_slice(&self.dst.to_be_bytes());
        bytes[SRC].copy_from_slice(&self.src.to_be_bytes());
        bytes[LEN].copy_from_slice(&self.len.to_be_bytes());
        bytes[VERSION].copy_from_slice(&VERSION_1.to_be_bytes());
        bytes
    }

    /// Reads a frame from its Ethernet header on; the second part is its payload.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), Reject> {
        let (header, rest) = frame.split_at_checked(HEADER_LEN).ok_or(Reject::Truncated)?;
        if read_u16(header, field::ETHERTYPE) != ETHERTYPE || read_u16(header, VERSION) != VERSION_1 {
            return Err(Reject::Foreign);
        }
        let len = read_u16(header, LEN);
        let payload = rest.get(..usize::from(len)).ok_or(Reject::Truncated)?;
        let header = Self {
            dst_mac: read_mac(header, field::DST_MAC),
            src_mac: read_mac(header, field::SRC_MAC),
            dst: read_u16(header, DST),
            src: read_u16(header, SRC),
            len,
        };
        Ok((header, payload))
    }
}

/// Bytes of payload that the header of a frame states, of which no more may be known.
#[inline]
pub fn payload_len(header: &[u8]) -> usize {
    usize::from(read_u16(header, LEN))
}

/// Local experimental EtherType 1 (IEEE 802 clause 9.2.3).
pub const ETHERTYPE: u16 = 0x88B5;

/// Bytes before the payload.
pub const HEADER_LEN: usize = VERSION.end;

/// Bytes of [`HEADER_LEN`] that an interface's MTU counts: what follows the Ethernet header.
pub const MTU_COST: usize = HEADER_LEN - field::ETHERTYPE.end;

/// Where the destination endpoint stands, for socket filters.
pub(crate) const DST: Range<usize> = 14..16;
const SRC: Range<usize> = 16..18;
/// Where the payload's length stands, for prebuilt headers that are used again with another length.
pub(crate) const LEN: Range<usize> = 18..20;
const VERSION: Range<usize> = 20..22;
const VERSION_1: u16 = 1;

const _: () = assert!(MTU_COST == 8, "the payload must stay 8-byte aligned behind the Ethernet header");

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { dst_mac: [2, 0, 0, 0, 0xb, 1], src_mac: [2, 0, 0, 0, 0xa, 1], dst: 0x0102, src: 0x0304, len: 3 };

    fn frame(payload: &[u8]) -> Vec<u8> {
        [&HEADER.emit()[..], payload].concat()
    }

    #[test]
    fn header_is_laid_out_as_documented() {
        assert_eq!(
            HEADER.emit(),
            [2, 0, 0, 0, 0xb, 1, 2, 0, 0, 0, 0xa, 1, 0x88, 0xb5, 1, 2, 3, 4, 0, 3, 0, 1],
            "offsets are part of the wire format"
        );
    }

    #[test]
    fn frame_reads_back_as_it_was_written() {
        assert_eq!(Header::parse(&frame(b"abc")), Ok((HEADER, &b"abc"[..])));
    }

    #[test]
    fn padding_is_no_part_of_the_payload() {
        assert_eq!(Header::parse(&frame(b"abc\0\0\0\0\0\0")).unwrap().1, b"abc");
    }

    #[test]
    fn short_frames_are_rejected() {
        let whole = frame(b"abc");
        for len in 0..whole.len() {
            assert_eq!(Header::parse(&whole[..len]), Err(Reject::Truncated), "{len} bytes");
        }
    }

    #[test]
    fn other_protocols_and_versions_are_foreign() {
        for at in field::ETHERTYPE.chain(VERSION) {
            let mut other = frame(b"abc");
            other[at] ^= 0x40;
            assert_eq!(Header::parse(&other), Err(Reject::Foreign));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100)) {
            let _ = Header::parse(&bytes);
        }
    }
}
