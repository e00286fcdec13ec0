//! The system calls of packet sockets, as safe functions: packet(7).
#![allow(unsafe_code)] // Raw system calls; each wrapper checks what the kernel needs and returns owned values.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::socklen_t;

use crate::interface::Interface;
use crate::socket::{self, check};

/// A raw packet socket that sees nothing yet: protocol 0, so that a filter can be set before the first frame comes.
pub fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts receiving frames of `ethertype` from one interface, and sending to it.
pub fn bind_packet(socket: BorrowedFd, interface: Interface, ethertype: u16) -> io::Result<()> {
    let addr = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: interface.index(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `addr` is a whole sockaddr_ll and lives through the call.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), size_of::<libc::sockaddr_ll>() as socklen_t)
    })?;
    Ok(())
}

/// Bytes of a page of this machine's memory.
pub fn page_len() -> usize {
    // SAFETY: no pointer is passed.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(len).expect("a page has a length")
}

/// Asks for a receive ring.
pub fn set_rx_ring(socket: BorrowedFd, ring: &libc::tpacket_req) -> io::Result<()> {
    socket::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, ring)
}

/// Frames that the kernel dropped at this socket's ring since the last call.
pub fn take_drops(socket: BorrowedFd) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as socklen_t;
    // SAFETY: `stats` is writable for `len` bytes through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    if result == 0 { u64::from(stats.tp_drops) } else { 0 }
}

/// True once the interface that the socket was bound to no longer exists: the kernel then unbinds the socket.
pub fn interface_is_gone(socket: BorrowedFd) -> bool {
    // SAFETY: all zeroes is a valid sockaddr_ll.
    let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: `addr` is writable for `len` bytes through the call.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut addr).cast(), &raw mut len) };
    result == 0 && addr.sll_ifindex < 0
}
