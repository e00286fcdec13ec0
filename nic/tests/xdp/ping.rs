//! Pings by the kernel, past the driver.
#![allow(unsafe_code)] // Sockets of the kernel, by plain system calls.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Sends `count` echo requests (RFC 792), one after another, and counts the replies.
pub fn ping(to: Ipv4Addr, count: u16) -> usize {
    // SAFETY: all pointers live through the calls and have the lengths that are stated; the descriptor is new.
    unsafe {
        let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP));
        let patience = libc::timeval { tv_sec: 5, tv_usec: 0 };
        let len = size_of_val(&patience) as u32;
        let fd = socket.as_raw_fd();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const patience).cast(), len);
        let mut addr: libc::sockaddr_in = std::mem::zeroed();
        addr.sin_family = libc::AF_INET as u16;
        addr.sin_addr.s_addr = u32::from_ne_bytes(to.octets());
        let answered = |number: u16| {
            let [high, low] = number.to_be_bytes();
            let checksum = !(0x0800 + number);
            let request = [8, 0, (checksum >> 8) as u8, checksum as u8, 0, 0, high, low];
            let len = size_of_val(&addr) as u32;
            let sent = libc::sendto(fd, request.as_ptr().cast(), 8, 0, (&raw const addr).cast(), len);
            assert_eq!(sent, 8, "{}", std::io::Error::last_os_error());
            let mut reply = [0u8; 128];
            let got = libc::recv(fd, reply.as_mut_ptr().cast(), reply.len(), 0);
            // Behind the IP header: type 0, and our number.
            got >= 28 && reply[20] == 0 && reply[26..28] == [high, low]
        };
        (0..count).filter(|number| answered(*number)).count()
    }
}
