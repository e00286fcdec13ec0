//! Socket options that std has no name for.

#![allow(unsafe_code)] // setsockopt and getsockopt.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Chooses the congestion control of a TCP socket (tcp(7)).
pub(super) fn set_congestion(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
}

/// Asks for a receive buffer of `bytes`; root gets it whole, others up to `net.core.rmem_max`.
pub(super) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// The receive buffer there is: twice what was set, since the kernel's own overhead counts too (socket(7)).
pub(super) fn receive_buffer(socket: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(get_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)?.max(0) as usize)
}

/// Asks for a send buffer of `bytes`, with the same limits.
pub(super) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
}

/// Lets the kernel cut each write into datagrams of `bytes` (udp(7), UDP_SEGMENT); zero: no cutting.
pub(super) fn set_udp_segment(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes)
}

/// Lets one read return many datagrams of a train (udp(7), UDP_GRO).
pub(super) fn set_udp_gro(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_int(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Largest IP packet that fits the route of a connected socket (ip(7), IP_MTU).
pub(super) fn ip_mtu(socket: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(get_int(socket, libc::IPPROTO_IP, libc::IP_MTU)?.max(0) as usize)
}

/// Notices within about half a minute that the machine at the other end is gone (tcp(7), TCP_KEEPIDLE): asks after ten
/// seconds of silence and every five seconds thereafter, four times.
pub(crate) fn keep_alive(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 10)?;
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5)?;
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4)
}

fn set_int(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set(socket, level, name, &value.to_ne_bytes())
}

fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: The kernel reads `len` bytes, which is the length of `value`; the descriptor is open while borrowed.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get_int(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: The kernel writes at most `len` bytes, which is the size of `value`; the descriptor is open while borrowed.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}
