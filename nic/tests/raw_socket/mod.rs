//! Frames past a driver: any bytes, by a socket of the kernel's.
#![allow(unsafe_code)] // Plain system calls.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use sidelane_nic::LinkAddr;

/// Sends any bytes as an Ethernet frame.
pub struct RawSocket(OwnedFd);

impl RawSocket {
    pub fn on(interface: &str) -> Self {
        Self::bound(interface, 0)
    }

    /// Sees what the kernel sees, too.
    pub fn listening_on(interface: &str) -> Self {
        Self::bound(interface, libc::ETH_P_ALL as u16)
    }

    /// Its frames begin with a virtio-net header.
    pub fn dressing_on(interface: &str) -> Self {
        Self::on(interface).dressed()
    }

    /// As [`Self::listening_on`], and each frame begins with a virtio-net header.
    pub fn tapping(interface: &str) -> Self {
        Self::listening_on(interface).dressed()
    }

    fn dressed(self) -> Self {
        // SAFETY: the value lives through the call.
        let set = unsafe {
            let on = 1i32;
            let len = size_of_val(&on) as u32;
            libc::setsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, (&raw const on).cast(), len)
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        self
    }

    fn bound(interface: &str, protocol: u16) -> Self {
        let name = CString::new(interface).unwrap();
        // SAFETY: the name and the address live through the calls; the descriptor is new and ours.
        unsafe {
            let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0));
            let mut addr: libc::sockaddr_ll = std::mem::zeroed();
            addr.sll_family = libc::AF_PACKET as u16;
            addr.sll_protocol = protocol.to_be();
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

    /// Sends a frame of our EtherType with these bytes to where a driver is. Every other one is steered to it, so that it meets the bytes
    /// itself.
    pub fn throw(&self, victim: LinkAddr, bytes: &[u8]) {
        let LinkAddr::Ether { mac, endpoint } = victim else { unreachable!("it is on an interface") };
        let steered = bytes.first().is_some_and(|byte| byte % 2 == 0);
        let start = if steered { endpoint.to_be_bytes() } else { [0xee; 2] };
        self.send(&[&mac[..], &[2; 6], &[0x88, 0xb5], &start, bytes].concat());
    }

    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 2048];
        // SAFETY: the bytes are writable for their length.
        let got = unsafe { libc::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        bytes.truncate(usize::try_from(got).ok()?);
        Some(bytes)
    }
}
