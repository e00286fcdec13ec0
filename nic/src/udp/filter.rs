//! The socket filters of a socket that is about to be connected, and of one that is about to be closed.

use std::net::{IpAddr, SocketAddr};

use libc::sock_filter;

use crate::socket_filter::{Test, all_of};

/// Accepts datagrams from `peer`. A filter of a UDP socket sees a datagram from its UDP header on, and behind [`IP_HEADER`] what
/// stands before that.
pub fn datagrams_from(peer: SocketAddr) -> Vec<sock_filter> {
    let (source, words) = match peer.ip() {
        IpAddr::V4(ip) => (IPV4_SOURCE, vec![u32::from(ip)]),
        IpAddr::V6(ip) => (IPV6_SOURCE, [96, 64, 32, 0].map(|shift| (u128::from(ip) >> shift) as u32).to_vec()),
    };
    let mut tests = vec![Test { size: libc::BPF_H, at: SOURCE_PORT, equals: peer.port().into() }];
    tests.extend((0..).zip(words).map(|(number, equals)| Test {
        size: libc::BPF_W,
        at: IP_HEADER + source + 4 * number,
        equals,
    }));
    all_of(&tests)
}

/// Accepts nothing.
pub const NOTHING: sock_filter = sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };

/// `SKF_NET_OFF` (linux/filter.h).
const IP_HEADER: u32 = libc::SKF_NET_OFF as u32;
/// RFC 768.
const SOURCE_PORT: u32 = 0;
/// RFC 791.
const IPV4_SOURCE: u32 = 12;
/// RFC 8200.
const IPV6_SOURCE: u32 = 8;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::socket;

    fn bind(host: &str, port: u16) -> UdpSocket {
        UdpSocket::bind((host, port)).unwrap()
    }

    fn addr(socket: &UdpSocket) -> SocketAddr {
        socket.local_addr().unwrap()
    }

    /// Lets the kernel itself judge: which of `senders` a socket at `host` hears that wants datagrams from the first, who speaks last.
    fn heard(host: &str, senders: &[UdpSocket]) -> Vec<u8> {
        let receiver = bind(host, 0);
        socket::attach_filter(receiver.as_fd(), &datagrams_from(addr(&senders[0]))).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for (number, sender) in senders.iter().enumerate().rev() {
            sender.send_to(&[number as u8], addr(&receiver)).unwrap();
        }
        let mut heard = Vec::new();
        while heard.last() != Some(&0) {
            let mut number = [0];
            receiver.recv(&mut number).expect("the first is heard");
            heard.push(number[0]);
        }
        heard
    }

    #[test]
    fn its_datagrams_pass_and_those_of_other_ports_and_hosts_do_not() {
        let peer = bind("127.0.0.1", 0);
        let port = addr(&peer).port();
        assert_eq!(heard("127.0.0.1", &[peer, bind("127.0.0.1", 0), bind("127.0.0.2", port)]), [0]);
    }

    /// The loopback interface has but one address of IPv6, of which most is zeroes.
    #[test]
    fn all_of_an_ipv6_address_is_compared() {
        let filter = datagrams_from("[2001:db8:a:b:c:d:e:f]:7".parse().unwrap());
        for (number, word) in (0..).zip([0x2001_0db8, 0x000a_000b, 0x000c_000d, 0x000e_000f]) {
            let at = IP_HEADER + IPV6_SOURCE + 4 * number;
            let load = filter.iter().position(|step| step.k == at).expect("the word is read");
            assert_eq!(filter[load + 1].k, word);
        }
    }

    #[test]
    fn its_datagrams_pass_over_ipv6() {
        // Where there is no IPv6 there is nothing to hear.
        if UdpSocket::bind("[::1]:0").is_ok() {
            assert_eq!(heard("::1", &[bind("::1", 0), bind("::1", 0)]), [0]);
        }
    }
}
