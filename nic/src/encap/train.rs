//! Several frames in one segmentation-offload packet, which the sender's kernel cuts into one UDP datagram a frame.
//!
//! An interface without the offload makes the kernel cut a packet "to be segmented later" in software, before it gets to
//! the wire. That costs half of what sending each frame costs (`bench/NOTES.md`, "Frame trains"): one system call, one
//! allocation and one copy for all of them. The kernel cuts only what is TCP or UDP; cut as UDP, each piece has the whole
//! header and a chunk of the payload, which is a frame. As in [`super::gso`], nothing of IP or UDP is meant but the
//! shape, and the destination MAC is disguised, so that the receiving kernel's own IP ignores the pieces.
//!
//! Each piece has an IP option, which says what it is, and keeps it from being merged with others again (GRO) on its way to a
//! receiver that wants frames: what has options is left alone (`inet_gro_receive`).
//!
//! | offset | length | field | value |
//! | --- | --- | --- | --- |
//! | 0 | 10 | virtio-net header | checksum needed, UDP, header length 46, segment size |
//! | 10 | 6 | destination MAC | [`super::gso::disguise`] of the peer's |
//! | 16 | 6 | source MAC | |
//! | 22 | 2 | EtherType | 0x0800, IPv4 |
//! | 24 | 20 | IPv4 header | as in [`super::gso`], of 6 words, protocol UDP; length and checksum are the kernel's to write, in each piece |
//! | 44 | 2 | IPv4 option | 94, for experiments (RFC 4727, 3.2), and its length of 4 |
//! | 46 | 2 | kind | 0 a frame, 1 a probe, 2 the answer to one: [`Kind`] |
//! | 48 | 2 | UDP source port | source endpoint |
//! | 50 | 2 | UDP destination port | destination endpoint |
//! | 52 | 2 | UDP length | 8 and the frame's payload, in each piece |
//! | 54 | 2 | UDP checksum | not read |
//! | 56 | | payload | |

use std::ops::Range;

use super::gso::{self, VNET_LEN, vnet};
use super::{Reject, field, read_mac, read_u16};

/// What a train's pieces are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Frames.
    Frame = 0,
    /// Asks whether trains get through, and are read. Its payload is a [`probe`], in pieces of [`PROBE_SEGMENT`] bytes.
    Probe = 1,
    /// Says to a probe that it came as trains do. Like one but for that, and of the same number.
    Answer = 2,
}

/// Between whom a train travels, and what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Interface that they go to, as the world knows it.
    pub dst_mac: [u8; 6],
    /// Interface that they come from.
    pub src_mac: [u8; 6],
    /// Endpoint behind `dst_mac`.
    pub dst: u16,
    /// Endpoint behind `src_mac`.
    pub src: u16,
    /// What its pieces are.
    pub kind: Kind,
}

impl Header {
    /// The header's bytes, with the virtio-net header in front, before frames of `segment` bytes (the last may be
    /// shorter) and `len` bytes together.
    ///
    /// # Panics
    /// If `len` is above [`PAYLOADS_MAX`]: IP cannot say it.
    pub fn emit(&self, segment: u16, len: usize) -> [u8; HEADER_LEN] {
        assert!(len <= PAYLOADS_MAX, "IP's total length has 16 bits");
        let mut bytes = [0; HEADER_LEN];
        let (vnet, packet) = bytes.split_at_mut(VNET_LEN);
        vnet[vnet::FLAGS] = vnet::NEEDS_CSUM;
        vnet[vnet::GSO_TYPE] = vnet::GSO_UDP_L4;
        vnet[vnet::HDR_LEN].copy_from_slice(&(PACKET_HEADER_LEN as u16).to_ne_bytes());
        vnet[vnet::GSO_SIZE].copy_from_slice(&segment.to_ne_bytes());
        vnet[vnet::CSUM_START].copy_from_slice(&(SRC_PORT.start as u16).to_ne_bytes());
        vnet[vnet::CSUM_OFFSET].copy_from_slice(&UDP_CHECKSUM_OFFSET.to_ne_bytes());

        gso::put_ip(packet, self.dst_mac, self.src_mac, IPV4_ONE_OPTION, PROTOCOL_UDP);
        packet[OPTION].copy_from_slice(&OPTION_OF_4_BYTES);
        packet[KIND].copy_from_slice(&(self.kind as u16).to_be_bytes());
        packet[gso::TOTAL_LENGTH].copy_from_slice(&((len + IP_UDP_LEN) as u16).to_be_bytes());
        packet[SRC_PORT].copy_from_slice(&self.src.to_be_bytes());
        packet[DST_PORT].copy_from_slice(&self.dst.to_be_bytes());
        packet[UDP_LENGTH].copy_from_slice(&((len + UDP_LEN) as u16).to_be_bytes());
        bytes
    }

    /// Reads one piece from its Ethernet header on; the second part is the frame's payload.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Reject> {
        let (header, rest) = packet.split_at_checked(PACKET_HEADER_LEN).ok_or(Reject::Truncated)?;
        if !gso::is_dressed(header, IPV4_ONE_OPTION, PROTOCOL_UDP) || header[OPTION] != OPTION_OF_4_BYTES {
            return Err(Reject::Foreign);
        }
        let kind = [Kind::Frame, Kind::Probe, Kind::Answer];
        let kind = *kind.get(usize::from(read_u16(header, KIND))).ok_or(Reject::Foreign)?;
        let len = usize::from(read_u16(header, UDP_LENGTH)).checked_sub(UDP_LEN).ok_or(Reject::Truncated)?;
        // Ethernet pads short frames.
        let payload = rest.get(..len).ok_or(Reject::Truncated)?;
        let header = Self {
            dst_mac: gso::disguise(read_mac(header, field::DST_MAC)),
            src_mac: read_mac(header, field::SRC_MAC),
            dst: read_u16(header, DST_PORT),
            src: read_u16(header, SRC_PORT),
            kind,
        };
        Ok((header, payload))
    }
}

/// Bytes before the first frame's payload, the virtio-net header among them.
pub const HEADER_LEN: usize = VNET_LEN + PACKET_HEADER_LEN;
/// Most bytes of payload that a train's frames have together.
pub const PAYLOADS_MAX: usize = 65_535 - IP_UDP_LEN;
/// What a piece's headers take of an interface's MTU.
pub const MTU_COST: usize = IP_UDP_LEN;

/// Payload of the probe of a number, or of the answer to it: two pieces, the second of which is the number.
pub fn probe(number: u64) -> [u8; PROBE_LEN] {
    let mut bytes = [0; PROBE_LEN];
    bytes[PROBE_SEGMENT..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The number of the probe of which `piece` is the second piece: whoever gets that by itself gets trains in pieces, and would read them.
/// `None`: it is the first one, which says nothing more, or came uncut.
pub fn probe_number(piece: &[u8]) -> Option<u64> {
    piece.try_into().ok().map(u64::from_be_bytes)
}

/// Bytes of a probe's first piece. The second is shorter, as a train's last frame may be.
pub const PROBE_SEGMENT: usize = PROBE_LEN - size_of::<u64>();
/// Bytes of a probe's payload.
pub const PROBE_LEN: usize = 17;

// Offsets from the Ethernet header on. Options: RFC 791 (3.1). UDP: RFC 768.
const OPTION: Range<usize> = gso::IP_DST.end..36;
const KIND: Range<usize> = 36..38;
const SRC_PORT: Range<usize> = 38..40;
pub(crate) const DST_PORT: Range<usize> = 40..42;
const UDP_LENGTH: Range<usize> = 42..44;
const UDP_CHECKSUM_OFFSET: u16 = 6;
const UDP_LEN: usize = 8;
pub(crate) const PROTOCOL_UDP: u8 = 17;
pub(crate) const IPV4_ONE_OPTION: u8 = 0x46;
const OPTION_OF_4_BYTES: [u8; 2] = [94, 4];
const PACKET_HEADER_LEN: usize = SRC_PORT.start + UDP_LEN;
const IP_UDP_LEN: usize = PACKET_HEADER_LEN - gso::VERSION_IHL;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        dst_mac: [2, 0, 0, 0, 0xb, 1],
        src_mac: [2, 0, 0, 0, 0xa, 1],
        dst: 0x0102,
        src: 0x0304,
        kind: Kind::Frame,
    };

    fn piece(payload: &[u8]) -> Vec<u8> {
        let header = HEADER.emit(1472, payload.len());
        [&header[VNET_LEN..], payload].concat()
    }

    #[test]
    fn header_is_laid_out_as_documented() {
        let header = HEADER.emit(1472, 3);
        let [len, segment, start, offset] = [46u16, 1472, 38, 6].map(u16::to_ne_bytes);
        assert_eq!(header[..VNET_LEN], [&[1, 5][..], &len, &segment, &start, &offset].concat());
        let packet = [
            &[0, 0, 0, 0, 0xb, 1, 2, 0, 0, 0, 0xa, 1, 8, 0][..],
            &[0x46, 0, 0, 35, 0, 0, 0x40, 0, 1, 17, 0, 0, 192, 0, 0, 8, 192, 0, 0, 8, 94, 4, 0, 0],
            &[3, 4, 1, 2, 0, 11, 0, 0],
        ];
        assert_eq!(header[VNET_LEN..], packet.concat(), "offsets are part of the wire format");
    }

    #[test]
    fn piece_reads_back_as_it_was_written() {
        assert_eq!(Header::parse(&piece(b"abc")), Ok((HEADER, &b"abc"[..])));
        assert_eq!(Header::parse(&piece(b"")), Ok((HEADER, &b""[..])));
        for kind in [Kind::Probe, Kind::Answer] {
            let header = Header { kind, ..HEADER };
            assert_eq!(Header::parse(&header.emit(1, 0)[VNET_LEN..]), Ok((header, &b""[..])));
        }
    }

    #[test]
    fn a_probe_is_known_by_its_second_piece_alone() {
        let probe = probe(0x0102_0304_0506_0708);
        assert_eq!(
            probe.chunks(PROBE_SEGMENT).map(probe_number).collect::<Vec<_>>(),
            [None, Some(0x0102_0304_0506_0708)]
        );
        assert_eq!(probe_number(&probe), None, "uncut");
    }

    #[test]
    fn padding_is_no_payload() {
        let padded = [&piece(b"abc")[..], &[0; 15]].concat();
        assert_eq!(Header::parse(&padded), Ok((HEADER, &b"abc"[..])));
    }

    #[test]
    fn short_packets_are_rejected() {
        let whole = piece(b"abc");
        for len in 0..whole.len() {
            assert_eq!(Header::parse(&whole[..len]), Err(Reject::Truncated), "{len} bytes");
        }
    }

    #[test]
    fn other_protocols_options_and_kinds_are_foreign() {
        for at in [gso::PROTOCOL, gso::VERSION_IHL, OPTION.start, KIND.end - 1] {
            let mut packet = piece(b"abc");
            packet[at] ^= 0x40;
            assert_eq!(Header::parse(&packet), Err(Reject::Foreign));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100)) {
            let _ = Header::parse(&bytes);
        }
    }
}
