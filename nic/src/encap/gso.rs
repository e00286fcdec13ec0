//! Frames above the interface's MTU, dressed as segmentation-offload super-packets.
//!
//! A kernel takes a 64 KB packet from a packet socket only as a TCP or UDP packet "to be segmented later", with the
//! virtio-net header that says how (virtio 1.2, 5.1.6). Between two ends of a veth pair, or ports of a bridge of veths,
//! nobody ever segments it: it arrives whole. Nothing of TCP is meant but the shape: no connection, sequence or port
//! exists, and the destination MAC differs from the interface's, so that the receiving kernel's own IP ignores the
//! packet as somebody else's (`PACKET_OTHERHOST`) while our socket gets it.
//!
//! | offset | length | field | value |
//! | --- | --- | --- | --- |
//! | 0 | 10 | virtio-net header | checksum needed, TCPv4, header length 54 or [`in_one_piece`], segment size |
//! | 10 | 6 | destination MAC | the peer's with the local bit inverted: [`disguise`] |
//! | 16 | 6 | source MAC | |
//! | 22 | 2 | EtherType | 0x0800, IPv4 |
//! | 24 | 20 | IPv4 header | type of service ([`Service`]), total length, don't fragment, TTL 1, both addresses 192.0.0.8 (RFC 7600: dummy) |
//! | 44 | 2 | TCP source port | source endpoint |
//! | 46 | 2 | TCP destination port | destination endpoint |
//! | 48 | 16 | rest of TCP | sequence 0, header of 5 words, ACK and URG |
//! | 64 | | payload | its length is the IP total length less 40 |
//!
//! Offsets are in the packet as a packet socket with `PACKET_VNET_HDR` sends it. Numbers are big-endian on the wire,
//! native in the virtio-net header (which stays within this host).
//!
//! A packet that is cut for a wire has lost the virtio-net header's mark, and is none any more. URG keeps a kernel at the wire's other
//! end from putting the pieces together again, mark and all (generic receive offload, `tcp_gro_receive`): so what arrives was in
//! memory all the way.

use std::ops::Range;

use super::{Reject, field, read_mac, read_u16};

/// Between whom a super-packet travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Interface that it goes to, as the world knows it.
    pub dst_mac: [u8; 6],
    /// Interface that it comes from.
    pub src_mac: [u8; 6],
    /// Endpoint behind `dst_mac`.
    pub dst: u16,
    /// Endpoint behind `src_mac`.
    pub src: u16,
    /// Bytes of payload.
    pub len: u16,
}

impl Header {
    /// The header's bytes, with the virtio-net header in front. `segment` is the size that a TCP segment would be cut
    /// to, were it ever cut.
    pub fn emit(&self, segment: u16) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let (vnet, packet) = bytes.split_at_mut(VNET_LEN);
        vnet[vnet::FLAGS] = vnet::NEEDS_CSUM;
        vnet[vnet::GSO_TYPE] = vnet::GSO_TCPV4;
        vnet[vnet::HDR_LEN].copy_from_slice(&(PACKET_HEADER_LEN as u16).to_ne_bytes());
        vnet[vnet::GSO_SIZE].copy_from_slice(&segment.to_ne_bytes());
        vnet[vnet::CSUM_START].copy_from_slice(&(SRC_PORT.start as u16).to_ne_bytes());
        vnet[vnet::CSUM_OFFSET].copy_from_slice(&TCP_CHECKSUM_OFFSET.to_ne_bytes());

        put_ip(packet, self.dst_mac, self.src_mac, IPV4_NO_OPTIONS, PROTOCOL_TCP);
        packet[SRC_PORT].copy_from_slice(&self.src.to_be_bytes());
        packet[DST_PORT].copy_from_slice(&self.dst.to_be_bytes());
        packet[DATA_OFFSET] = 5 << 4;
        packet[TCP_FLAGS] = TCP_ACK_URG;
        set(&mut bytes, self.len, Service::Ordinary);
        bytes
    }

    /// Reads a packet as a ring with `PACKET_VNET_HDR` shows it; the second part is its payload.
    #[inline]
    pub fn parse<'a>(vnet: &[u8; VNET_LEN], packet: &'a [u8]) -> Result<(Self, &'a [u8]), Reject> {
        let (header, rest) = Self::parse_front(vnet, packet)?;
        Ok((header, rest.get(..header.len.into()).ok_or(Reject::Truncated)?))
    }

    /// As [`Self::parse`], of a packet that may have been cut off behind its header; the second part is all that follows that.
    #[inline]
    pub fn parse_front<'a>(vnet: &[u8; VNET_LEN], packet: &'a [u8]) -> Result<(Self, &'a [u8]), Reject> {
        let (header, rest) = packet.split_at_checked(PACKET_HEADER_LEN).ok_or(Reject::Truncated)?;
        // A packet that somebody on the way did cut has lost this mark: its pieces are no frames.
        if vnet[vnet::GSO_TYPE] & !vnet::GSO_ECN != vnet::GSO_TCPV4
            || !is_dressed(header, IPV4_NO_OPTIONS, PROTOCOL_TCP)
            || header[DATA_OFFSET..=TCP_FLAGS] != [5 << 4, TCP_ACK_URG]
        {
            return Err(Reject::Foreign);
        }
        let total = usize::from(read_u16(header, TOTAL_LENGTH));
        let len = total.checked_sub(IP_HEADERS_LEN).ok_or(Reject::Truncated)?;
        let header = Self {
            dst_mac: disguise(read_mac(header, field::DST_MAC)),
            src_mac: read_mac(header, field::SRC_MAC),
            dst: read_u16(header, DST_PORT),
            src: read_u16(header, SRC_PORT),
            len: len as u16,
        };
        Ok((header, rest))
    }
}

/// How a packet's receiver shall take it: its type of service (RFC 1349, 3).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Service {
    /// By a ring.
    #[default]
    Ordinary = 0,
    /// Out of the kernel into its place; "maximize throughput".
    Placed = 8,
}

/// Inverts the local bit of a MAC address: another address, unicast as before, that no neighbour has by numbering on.
pub const fn disguise(mac: [u8; 6]) -> [u8; 6] {
    const LOCAL_BIT: u8 = 0x02;
    let [first, b, c, d, e, f] = mac;
    [first ^ LOCAL_BIT, b, c, d, e, f]
}

/// Writes the Ethernet and IPv4 headers, but for IP's length, checksum and options, into a packet of zeroes.
pub(super) fn put_ip(packet: &mut [u8], dst_mac: [u8; 6], src_mac: [u8; 6], version_ihl: u8, protocol: u8) {
    packet[field::DST_MAC].copy_from_slice(&disguise(dst_mac));
    packet[field::SRC_MAC].copy_from_slice(&src_mac);
    packet[field::ETHERTYPE].copy_from_slice(&ETHERTYPE.to_be_bytes());
    packet[VERSION_IHL] = version_ihl;
    packet[IP_FLAGS].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
    packet[TTL] = 1;
    packet[PROTOCOL] = protocol;
    packet[IP_SRC].copy_from_slice(&DUMMY_ADDR);
    packet[IP_DST].copy_from_slice(&DUMMY_ADDR);
}

/// True for a whole header that [`put_ip`] may have written.
#[inline]
pub(super) fn is_dressed(header: &[u8], version_ihl: u8, protocol: u8) -> bool {
    read_u16(header, field::ETHERTYPE) == ETHERTYPE
        && header[VERSION_IHL] == version_ihl
        && header[PROTOCOL] == protocol
        && header[IP_SRC] == DUMMY_ADDR
}

/// Writes the length of the payload and the service into a header made by [`Header::emit`], and the IP checksum that follows from them.
///
/// # Panics
/// If `len` is above [`PAYLOAD_MAX`]: IP cannot say it.
#[inline]
pub fn set(header: &mut [u8; HEADER_LEN], len: u16, service: Service) {
    assert!(usize::from(len) <= PAYLOAD_MAX, "IP's total length has 16 bits");
    let ip = &mut header[VNET_LEN..];
    ip[SERVICE] = service as u8;
    ip[TOTAL_LENGTH].copy_from_slice(&(len + IP_HEADERS_LEN as u16).to_be_bytes());
    ip[IP_CHECKSUM].fill(0);
    let checksum = internet_checksum(&ip[VERSION_IHL..SRC_PORT.start]);
    ip[IP_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
}

/// The same header for a packet that the kernel shall keep in one piece of its memory: it puts as many bytes as the virtio-net header's
/// length says into a packet's linear part, and the rest into pieces of up to 32 KiB (`packet_snd`, Linux 6.18). The length has 16 bits.
#[inline]
pub fn in_one_piece(header: &[u8; HEADER_LEN]) -> [u8; HEADER_LEN] {
    let mut header = *header;
    let len = read_u16(&header[VNET_LEN..], TOTAL_LENGTH).saturating_add(VERSION_IHL as u16);
    header[vnet::HDR_LEN].copy_from_slice(&len.to_ne_bytes());
    header
}

/// RFC 1071, over an even number of bytes.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded + (folded >> 16)) as u16)
}

/// `struct virtio_net_hdr` (linux/virtio_net.h; virtio 1.2, 5.1.6.1).
pub(super) mod vnet {
    use std::ops::Range;

    pub const FLAGS: usize = 0;
    pub const GSO_TYPE: usize = 1;
    pub const HDR_LEN: Range<usize> = 2..4;
    pub const GSO_SIZE: Range<usize> = 4..6;
    pub const CSUM_START: Range<usize> = 6..8;
    pub const CSUM_OFFSET: Range<usize> = 8..10;

    pub const NEEDS_CSUM: u8 = 1;
    pub const GSO_TCPV4: u8 = 1;
    pub const GSO_UDP_L4: u8 = 5;
    /// Flag beside the type.
    pub const GSO_ECN: u8 = 0x80;
}

/// Bytes of the virtio-net header.
pub const VNET_LEN: usize = vnet::CSUM_OFFSET.end;
/// Bytes before the payload, the virtio-net header among them.
pub const HEADER_LEN: usize = VNET_LEN + PACKET_HEADER_LEN;
/// Largest payload that IP's 16 bits of total length allow.
pub const PAYLOAD_MAX: usize = 65_535 - IP_HEADERS_LEN;
/// EtherType of IPv4 (RFC 894).
pub const ETHERTYPE: u16 = 0x0800;

// Offsets from the Ethernet header on. IPv4: RFC 791 (3.1). TCP: RFC 9293 (3.1).
pub(crate) const VERSION_IHL: usize = 14;
pub(crate) const SERVICE: usize = 15;
pub(super) const TOTAL_LENGTH: Range<usize> = 16..18;
const IP_FLAGS: Range<usize> = 20..22;
const TTL: usize = 22;
pub(crate) const PROTOCOL: usize = 23;
const IP_CHECKSUM: Range<usize> = 24..26;
const IP_SRC: Range<usize> = 26..30;
pub(super) const IP_DST: Range<usize> = 30..34;
const SRC_PORT: Range<usize> = 34..36;
pub(crate) const DST_PORT: Range<usize> = 36..38;
const DATA_OFFSET: usize = 46;
const TCP_FLAGS: usize = 47;
const TCP_CHECKSUM_OFFSET: u16 = 16;
const PACKET_HEADER_LEN: usize = 54;
const IP_HEADERS_LEN: usize = PACKET_HEADER_LEN - VERSION_IHL;

pub(crate) const IPV4_NO_OPTIONS: u8 = 0x45;
const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const PROTOCOL_TCP: u8 = 6;
const TCP_ACK_URG: u8 = 0x30;
const DUMMY_ADDR: [u8; 4] = [192, 0, 0, 8];

const _: () = assert!(HEADER_LEN == 64, "the payload starts on a cache line of the transmit slot");

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { dst_mac: [2, 0, 0, 0, 0xb, 1], src_mac: [2, 0, 0, 0, 0xa, 1], dst: 0x0102, src: 0x0304, len: 3 };

    fn packet(payload: &[u8]) -> ([u8; VNET_LEN], Vec<u8>) {
        let header = HEADER.emit(1448);
        (header[..VNET_LEN].try_into().unwrap(), [&header[VNET_LEN..], payload].concat())
    }

    #[test]
    fn packet_reads_back_as_it_was_written() {
        let (vnet, packet) = packet(b"abc");
        assert_eq!(Header::parse(&vnet, &packet), Ok((HEADER, &b"abc"[..])));
    }

    #[test]
    fn header_is_laid_out_as_documented() {
        let header = HEADER.emit(1448);
        let [len, segment, start, offset] = [54u16, 1448, 34, 16].map(u16::to_ne_bytes);
        assert_eq!(header[..VNET_LEN], [&[1, 1][..], &len, &segment, &start, &offset].concat());
        let packet = [
            &[0, 0, 0, 0, 0xb, 1, 2, 0, 0, 0, 0xa, 1, 8, 0][..],
            &[0x45, 0, 0, 43, 0, 0, 0x40, 0, 1, 6, 0xf9, 0xbc, 192, 0, 0, 8, 192, 0, 0, 8],
            &[3, 4, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x30, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(header[VNET_LEN..], packet.concat(), "offsets are part of the wire format");
    }

    #[test]
    fn ip_header_sums_to_zero_at_every_length() {
        let mut header = HEADER.emit(1448);
        for len in 0..=PAYLOAD_MAX as u16 {
            set(&mut header, len, [Service::Ordinary, Service::Placed][usize::from(len) % 2]);
            let words = header[VNET_LEN + VERSION_IHL..][..20].chunks(2);
            let sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
            // Zero, in one's complement (RFC 1071).
            assert_eq!(sum % 0xffff, 0, "{len}");
        }
    }

    #[test]
    fn in_one_piece_only_the_length_of_the_linear_part_differs() {
        for len in [0, 1, 65_024, PAYLOAD_MAX as u16] {
            let mut header = HEADER.emit(1448);
            set(&mut header, len, Service::Placed);
            let whole = in_one_piece(&header);
            let linear = u16::from_ne_bytes(whole[vnet::HDR_LEN].try_into().unwrap());
            assert_eq!(usize::from(linear), (PACKET_HEADER_LEN + usize::from(len)).min(65_535));
            header[vnet::HDR_LEN].copy_from_slice(&whole[vnet::HDR_LEN]);
            assert_eq!(whole, header);
        }
    }

    #[test]
    fn disguised_address_is_another_and_unicast() {
        let mac = [2, 0, 0, 0, 0xb, 1];
        assert_ne!(disguise(mac), mac);
        assert_eq!(disguise(mac)[0] & 1, 0);
        assert_eq!(disguise(disguise(mac)), mac);
    }

    #[test]
    fn pieces_of_a_packet_that_was_cut_are_foreign() {
        let (mut vnet, packet) = packet(b"abc");
        vnet[vnet::GSO_TYPE] = 0;
        assert_eq!(Header::parse(&vnet, &packet), Err(Reject::Foreign));
    }

    #[test]
    fn a_packet_that_met_congestion_is_ours() {
        let (mut vnet, packet) = packet(b"abc");
        vnet[vnet::GSO_TYPE] |= vnet::GSO_ECN;
        assert_eq!(Header::parse(&vnet, &packet), Ok((HEADER, &b"abc"[..])));
    }

    #[test]
    fn other_protocols_addresses_and_options_are_foreign() {
        let marks = [field::ETHERTYPE, IP_SRC, VERSION_IHL..VERSION_IHL + 1, PROTOCOL..PROTOCOL + 1];
        for at in marks.into_iter().flatten().chain([DATA_OFFSET]) {
            let (vnet, mut packet) = packet(b"abc");
            packet[at] ^= 0x40;
            assert_eq!(Header::parse(&vnet, &packet), Err(Reject::Foreign), "{at}");
        }
    }

    #[test]
    fn short_packets_are_rejected() {
        let (vnet, whole) = packet(b"abc");
        for len in 0..whole.len() {
            assert_eq!(Header::parse(&vnet, &whole[..len]), Err(Reject::Truncated), "{len} bytes");
        }
    }

    #[test]
    fn a_total_length_below_the_headers_is_rejected() {
        let (vnet, mut packet) = packet(b"abc");
        packet[TOTAL_LENGTH].copy_from_slice(&39u16.to_be_bytes());
        assert_eq!(Header::parse(&vnet, &packet), Err(Reject::Truncated));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            vnet in proptest::array::uniform10(proptest::num::u8::ANY),
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100),
        ) {
            let _ = Header::parse(&vnet, &bytes);
        }
    }
}
