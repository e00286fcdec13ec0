//! What peers' hosts and routers say of earlier frames, by ICMP.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::FromRawFd;

use sidelane_nic::Nic;
use sidelane_nic::time::Duration;
use sidelane_nic::udp::{Config, Udp};

use crate::stage::*;

/// As if a router had refused a datagram from `from` to `to`: an ICMP message of type 3 with this code (RFC 792).
pub fn refuse(from: SocketAddr, to: SocketAddr, code: u8) {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { unreachable!() };
    // The rest of it is of use to code 4: an MTU (RFC 1191).
    let mut message = [&[3, code, 0, 0, 0, 0][..], &65_000u16.to_be_bytes()].concat();
    // The headers of the datagram: IP (RFC 791) and UDP (RFC 768).
    message.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    message.extend([from.ip().octets(), to.ip().octets()].concat());
    message.extend([from.port().to_be_bytes(), to.port().to_be_bytes(), [0, 8], [0, 0]].concat());
    let mut sum: u32 = message.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[2..4].copy_from_slice(&(!sum as u16).to_be_bytes());
    // SAFETY: no pointer is passed; the descriptor is new and ours, and send_to(2) is the same for all sockets of IPv4.
    let raw = unsafe { UdpSocket::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)) };
    raw.send_to(&message, (*from.ip(), 0)).unwrap();
}

#[test]
fn refusals_are_counted_and_a_late_peer_is_reached() {
    let mut a = open();
    let late = unused();
    let to_late = link_at(&mut a, late);
    for number in 0..20u8 {
        send(&mut a, to_late, &[number]);
        let now = a.now();
        a.rx_burst(1, |_, _| unreachable!());
        a.wait(Some(now)).unwrap();
    }
    assert!(a.counters().tx_failed > 0, "{:?}", a.counters());
    assert!(!a.is_gone(to_late));
    let mut b = Udp::open(&Config::new(late)).unwrap();
    send(&mut a, to_late, b"at last");
    assert_eq!(receive(&mut b).0, b"at last");
}

#[test]
fn a_refusal_that_comes_while_it_sleeps_is_counted() {
    let mut a = open();
    let nobody = unused();
    let to_nobody = link_at(&mut a, nobody);
    for refused in 1..=5 {
        // On the loopback a refusal has come when the call returns, and wakes whoever would sleep.
        send(&mut a, to_nobody, b"nobody there");
        a.wait(Some(a.now() + Duration::from_millis(10_000))).unwrap();
        assert_eq!(a.counters().tx_failed, refused);
    }
}

#[test]
fn a_burst_behind_a_refusal_arrives_whole() {
    // One run of equal frames, and several.
    for lengths in [[500; 12], std::array::from_fn(|at| 500 + at)] {
        let mut a = open();
        let late = unused();
        let to_late = link_at(&mut a, late);
        // On the loopback a refusal has come when the call returns.
        for _ in 0..3 {
            send(&mut a, to_late, b"nobody there");
        }
        let mut b = Udp::open(&Config::new(late)).unwrap();
        for len in lengths {
            assert!(commit(&mut a, to_late, &vec![len as u8; len]));
        }
        a.flush();
        let mut got: Vec<usize> = lengths.iter().map(|_| receive(&mut b).0.len()).collect();
        // What leaves again leaves last.
        got.sort_unstable();
        assert_eq!(got, lengths);
    }
}

/// A refusal is reported before what waits.
#[test]
fn a_refusal_behind_a_lone_datagram_costs_none() {
    let mut a = open();
    for _ in 0..20 {
        let mut b = open();
        let (to_b, to_a) = (link(&mut a, &b), link(&mut b, &a));
        pass_quietly(&mut a);
        send(&mut b, to_a, b"lone");
        assert_eq!(receive(&mut a).0, b"lone");
        send(&mut b, to_a, b"last");
        let at = addr_of(&b);
        drop(b);
        until_left(at);
        let failed = a.counters().tx_failed;
        send(&mut a, to_b, b"nobody listens");
        assert_eq!(receive(&mut a).0, b"last");
        pass_quietly(&mut a);
        assert_eq!(a.counters().tx_failed, failed + 1);
        a.unlink(to_b);
    }
}
