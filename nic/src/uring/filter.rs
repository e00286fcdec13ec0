//! Socket filters: which frames of an interface are one endpoint's.
//!
//! The kernel runs them before a frame takes a slot of the ring. So several endpoints share an interface, and none pays for,
//! or sees, another's frames, but for the few small ones that come while there is no filter ([`super::steering`]). The EtherType
//! is not tested: the socket is bound to it.

use std::ops::Range;

use libc::sock_filter;

use crate::encap::{ether, gso, train};
use crate::socket_filter::{Test, all_of};

/// Accepts frames under our EtherType to `endpoint` behind `mac`.
pub fn ether_frames_to(mac: [u8; 6], endpoint: u16) -> Vec<sock_filter> {
    let [mac_high, mac_low] = mac_equals(mac);
    all_of(&[Test { size: libc::BPF_H, at: ether::DST.start as u32, equals: endpoint.into() }, mac_low, mac_high])
}

/// Accepts super-packets to `endpoint` behind `mac`, of one service or of any.
pub fn super_packets_to(mac: [u8; 6], endpoint: u16, service: Option<gso::Service>) -> Vec<sock_filter> {
    let service = service.map(|service| Test { size: libc::BPF_B, at: gso::SERVICE as u32, equals: service as u32 });
    dressed_to(mac, endpoint, gso::IPV4_NO_OPTIONS, gso::PROTOCOL_TCP, gso::DST_PORT, service)
}

/// Accepts pieces of trains to `endpoint` behind `mac`.
pub fn trains_to(mac: [u8; 6], endpoint: u16) -> Vec<sock_filter> {
    dressed_to(mac, endpoint, train::IPV4_ONE_OPTION, train::PROTOCOL_UDP, train::DST_PORT, None)
}

fn dressed_to(
    mac: [u8; 6],
    endpoint: u16,
    version_ihl: u8,
    protocol: u8,
    port: Range<usize>,
    more: Option<Test>,
) -> Vec<sock_filter> {
    let [mac_high, mac_low] = mac_equals(gso::disguise(mac));
    let mut tests = vec![
        mac_low,
        mac_high,
        Test { size: libc::BPF_B, at: gso::VERSION_IHL as u32, equals: version_ihl.into() },
        Test { size: libc::BPF_B, at: gso::PROTOCOL as u32, equals: protocol.into() },
        Test { size: libc::BPF_H, at: port.start as u32, equals: endpoint.into() },
    ];
    tests.extend(more);
    all_of(&tests)
}

fn mac_equals([a, b, c, d, e, f]: [u8; 6]) -> [Test; 2] {
    [
        Test { size: libc::BPF_W, at: 0, equals: u32::from_be_bytes([a, b, c, d]) },
        Test { size: libc::BPF_H, at: 4, equals: u16::from_be_bytes([e, f]).into() },
    ]
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::socket;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0xb, 1];

    /// Lets the kernel itself judge: Unix datagram sockets run socket filters too, from the datagram's first byte.
    fn accepts(filter: &[sock_filter], frame: &[u8]) -> bool {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        socket::attach_filter(receiver.as_fd(), filter).unwrap();
        receiver.set_nonblocking(true).unwrap();
        // A rejected datagram reads to the sender as one that was sent.
        sender.send(frame).unwrap();
        receiver.recv(&mut [0; 256]).is_ok()
    }

    fn ether_frame(dst_mac: [u8; 6], dst: u16) -> Vec<u8> {
        ether::Header { dst_mac, src_mac: [2; 6], dst, src: 9, len: 0 }.emit().to_vec()
    }

    fn super_packet(dst_mac: [u8; 6], dst: u16) -> Vec<u8> {
        gso::Header { dst_mac, src_mac: [2; 6], dst, src: 9, len: 0 }.emit(1448)[gso::VNET_LEN..].to_vec()
    }

    fn piece(dst_mac: [u8; 6], dst: u16) -> Vec<u8> {
        let header = train::Header { dst_mac, src_mac: [2; 6], dst, src: 9, kind: train::Kind::Frame };
        header.emit(1448, 0)[gso::VNET_LEN..].to_vec()
    }

    #[test]
    fn own_frames_pass() {
        assert!(accepts(&trains_to(MAC, 7), &piece(MAC, 7)));
        assert!(accepts(&ether_frames_to(MAC, 7), &ether_frame(MAC, 7)));
        assert!(accepts(&super_packets_to(MAC, 7, None), &super_packet(MAC, 7)));
    }

    #[test]
    fn frames_to_another_endpoint_do_not() {
        assert!(!accepts(&ether_frames_to(MAC, 7), &ether_frame(MAC, 8)));
        assert!(!accepts(&ether_frames_to(MAC, 7), &ether_frame(MAC, 0x0700)));
        assert!(!accepts(&super_packets_to(MAC, 7, None), &super_packet(MAC, 8)));
        assert!(!accepts(&trains_to(MAC, 7), &piece(MAC, 8)));
    }

    #[test]
    fn frames_to_another_interface_do_not() {
        for at in 0..6 {
            let mut other = MAC;
            other[at] ^= 0x10;
            assert!(!accepts(&ether_frames_to(MAC, 7), &ether_frame(other, 7)), "byte {at}");
            assert!(!accepts(&super_packets_to(MAC, 7, None), &super_packet(other, 7)), "byte {at}");
        }
    }

    #[test]
    fn super_packets_and_trains_are_told_apart() {
        assert!(!accepts(&super_packets_to(MAC, 7, None), &piece(MAC, 7)));
        assert!(!accepts(&trains_to(MAC, 7), &super_packet(MAC, 7)));
    }

    #[test]
    fn who_has_no_other_socket_takes_super_packets_of_every_service() {
        let mut placed = [0; gso::HEADER_LEN];
        placed[gso::VNET_LEN..].copy_from_slice(&super_packet(MAC, 7));
        gso::set(&mut placed, 0, gso::Service::Placed);
        let (placed, ordinary) = (&placed[gso::VNET_LEN..], &super_packet(MAC, 7)[..]);
        for (service, takes) in [
            (None, [true, true]),
            (Some(gso::Service::Ordinary), [true, false]),
            (Some(gso::Service::Placed), [false, true]),
        ] {
            let filter = super_packets_to(MAC, 7, service);
            assert_eq!([ordinary, placed].map(|packet| accepts(&filter, packet)), takes, "{service:?}");
        }
    }

    #[test]
    fn ordinary_tcp_to_the_interface_does_not() {
        assert!(!accepts(&super_packets_to(MAC, 7, None), &super_packet(gso::disguise(MAC), 7)));
    }

    #[test]
    fn short_frames_do_not() {
        for len in 1..16 {
            assert!(!accepts(&ether_frames_to(MAC, 7), &ether_frame(MAC, 7)[..len]), "{len} bytes");
        }
    }
}
