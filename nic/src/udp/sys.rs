//! System calls on UDP sockets that the standard library lacks, as safe functions: udp(7), socket(7).
#![allow(unsafe_code)] // Raw system calls; each wrapper checks what the kernel needs and returns owned values.

use std::io;
use std::mem::size_of;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_void, socklen_t};

use super::filter;
use crate::socket::{self, check};

/// A socket bound to `addr` beside another that allows it. It hears `peer` alone until [`socket::detach_filter`]: before it is
/// connected it would take datagrams from peers of the other.
pub fn bind_beside(addr: SocketAddr, peer: SocketAddr) -> io::Result<UdpSocket> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointer is passed.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    socket::set_int_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    socket::attach_filter(socket.as_fd(), &filter::datagrams_from(peer))?;
    let raw = RawAddr::from(addr);
    // SAFETY: `raw` is a whole socket address of `raw.len` bytes and lives through the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), raw.as_ptr().cast(), raw.len) })?;
    Ok(UdpSocket::from(socket))
}

/// Bytes of its receive buffer that datagrams take, in the kernel's own accounting; sometimes more, of some that were read.
pub fn rx_buffer_used(socket: BorrowedFd) -> usize {
    meminfo(socket)[0] as usize
}

/// Datagrams dropped at this socket since it was opened.
pub fn drops(socket: BorrowedFd) -> u64 {
    u64::from(meminfo(socket)[MEMINFO_VARS - 1])
}

/// `SK_MEMINFO_*` (linux/sock_diag.h): the first is what is received and not read, the last one the drops.
fn meminfo(socket: BorrowedFd) -> [u32; MEMINFO_VARS] {
    let mut meminfo = [0; MEMINFO_VARS];
    socket::read_option(socket, libc::SO_MEMINFO, &mut meminfo);
    meminfo
}

const MEMINFO_VARS: usize = 9;

/// A socket address as the kernel reads it.
#[derive(Clone, Copy)]
pub struct RawAddr {
    storage: Storage,
    len: socklen_t,
}

#[derive(Clone, Copy)]
union Storage {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddr {
    /// Where it begins.
    pub fn as_ptr(&self) -> *const c_void {
        (&raw const self.storage).cast()
    }

    /// How many bytes it has.
    pub fn len(&self) -> socklen_t {
        self.len
    }
}

impl From<SocketAddr> for RawAddr {
    fn from(addr: SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(addr) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                    sin_zero: [0; 8],
                };
                Self { storage: Storage { v4 }, len: size_of::<libc::sockaddr_in>() as socklen_t }
            }
            SocketAddr::V6(addr) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                    sin6_scope_id: addr.scope_id(),
                };
                Self { storage: Storage { v6 }, len: size_of::<libc::sockaddr_in6>() as socklen_t }
            }
        }
    }
}
