//! A plain packet socket (packet(7)): frames as they are, past every layer of ours.
#![allow(unsafe_code)] // std has no packet sockets.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Sends and receives whole frames on one interface.
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Sees every frame that arrives at `interface`.
    pub fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: Takes a string that lives and ends with a zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: Takes no pointer.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: The descriptor was opened just now and belongs to nobody else.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set(libc::PACKET_IGNORE_OUTGOING, 1)?;
        // SAFETY: sockaddr_ll is plain data for which zeroes are valid.
        let mut at: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        at.sll_family = libc::AF_PACKET as u16;
        at.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        at.sll_ifindex = index as i32;
        // SAFETY: `at` is a whole sockaddr_ll, and its size is given.
        check(unsafe {
            libc::bind(socket.0.as_raw_fd(), (&raw const at).cast(), size_of::<libc::sockaddr_ll>() as u32)
        })?;
        Ok(socket)
    }

    /// From now on a virtio-net header stands before every frame, so that super-packets can be sent.
    pub fn with_vnet_header(self) -> io::Result<Self> {
        self.set(libc::PACKET_VNET_HDR, 1)?;
        Ok(self)
    }

    /// Sends one frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: The pointer and length are one slice's, which the kernel only reads.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for a frame.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<usize> {
        // SAFETY: The pointer and length are one slice's, which nobody else uses during the call.
        let len = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        usize::try_from(len).map_err(|_| io::Error::last_os_error())
    }

    fn set(&self, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: `value` is an int that lives during the call, and its size is given.
        check(unsafe {
            let size = size_of::<libc::c_int>() as u32;
            libc::setsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, option, (&raw const value).cast(), size)
        })
        .map(|_| ())
    }
}

fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}
