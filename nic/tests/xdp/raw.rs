//! Packets past the driver.
#![allow(unsafe_code)] // Sockets of the kernel, by plain system calls.

use std::ffi::CString;
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

/// Sends any bytes as an Ethernet frame, and sees what the kernel sees.
pub struct RawSocket(OwnedFd);

impl RawSocket {
    pub fn on(interface: &str) -> Self {
        let name = CString::new(interface).unwrap();
        // SAFETY: the name and the address live through the calls; the descriptor is new and ours.
        unsafe {
            let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0));
            let mut addr: libc::sockaddr_ll = std::mem::zeroed();
            addr.sll_family = libc::AF_PACKET as u16;
            addr.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            addr.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let bound = libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), size_of_val(&addr) as u32);
            assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
            Self(socket)
        }
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the frame is readable for its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }

    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 2048];
        // SAFETY: the bytes are writable for their length.
        let got = unsafe { libc::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        bytes.truncate(usize::try_from(got).ok()?);
        Some(bytes)
    }
}
