//! The system calls of AF_XDP sockets, as safe functions: networking/af_xdp.rst, linux/if_xdp.h.
#![allow(unsafe_code)] // Raw system calls; each wrapper checks what the kernel needs and returns owned values.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, socklen_t};

use crate::interface::Interface;
use crate::memfd;
use crate::socket::{self, check};

/// A socket that is bound to nothing yet.
pub fn xdp_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    owned(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

/// Makes `area` the memory that frames of this socket live in. The kernel keeps its pages until the last socket on it
/// is closed.
pub fn register_umem(socket: BorrowedFd, area: *mut u8, len: usize, chunk_len: u32, headroom: u32) -> io::Result<()> {
    // The first form of the struct, which every kernel knows; what later ones add is zero.
    let umem = libc::xdp_umem_reg_v1 { addr: area as u64, len: len as u64, chunk_size: chunk_len, headroom };
    socket::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &umem)
}

/// One of a socket's four rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingKind {
    /// Frames that came.
    Rx,
    /// Frames to send.
    Tx,
    /// Chunks for frames to come; shared by all sockets of a queue.
    Fill,
    /// Chunks whose frames were sent; shared likewise.
    Completion,
}

/// Gives the socket a ring.
pub fn create_ring(socket: BorrowedFd, kind: RingKind, entries: u32) -> io::Result<()> {
    let option = match kind {
        RingKind::Rx => libc::XDP_RX_RING,
        RingKind::Tx => libc::XDP_TX_RING,
        RingKind::Fill => libc::XDP_UMEM_FILL_RING,
        RingKind::Completion => libc::XDP_UMEM_COMPLETION_RING,
    };
    socket::set_option(socket, libc::SOL_XDP, option, &entries)
}

/// Where in a ring's mapping its parts are, and where in the file the ring is.
pub fn ring_layout(socket: BorrowedFd, kind: RingKind) -> io::Result<(libc::xdp_ring_offset, libc::off_t)> {
    // SAFETY: all zeroes is a valid value of this plain struct.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get_option(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(match kind {
        RingKind::Rx => (offsets.rx, libc::XDP_PGOFF_RX_RING),
        RingKind::Tx => (offsets.tx, libc::XDP_PGOFF_TX_RING),
        RingKind::Fill => (offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t),
        RingKind::Completion => (offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t),
    })
}

/// Joins the socket to a queue of an interface: on memory of its own, or on that of `lender`, which is on this queue.
pub fn bind_xdp(
    socket: BorrowedFd,
    interface: Interface,
    queue: u32,
    flags: u16,
    lender: Option<BorrowedFd>,
) -> io::Result<()> {
    let addr = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface.index() as u32,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: lender.map_or(0, |lender| lender.as_raw_fd() as u32),
    };
    // SAFETY: `addr` is a whole sockaddr_xdp and lives through the call.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), size_of::<libc::sockaddr_xdp>() as socklen_t)
    })?;
    Ok(())
}

/// True when frames go between the interface and our memory without a copy.
pub fn is_zero_copy(socket: BorrowedFd) -> bool {
    let mut options = libc::xdp_options { flags: 0 };
    get_option(socket, libc::XDP_OPTIONS, &mut options).is_ok() && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
}

/// Frames that were dropped at this socket since it was bound.
pub fn drops(socket: BorrowedFd) -> u64 {
    // SAFETY: all zeroes is a valid value of this plain struct.
    let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
    if get_option(socket, libc::XDP_STATISTICS, &mut statistics).is_err() {
        return 0;
    }
    // A dry fill ring is among `rx_dropped` too; `rx_fill_ring_empty_descs` counts it for the whole queue.
    statistics.rx_dropped + statistics.rx_ring_full
}

/// Has the kernel send what is in the transmit ring: some of it.
#[inline]
pub fn kick(socket: BorrowedFd) -> io::Result<()> {
    // SAFETY: a null pointer of length 0 is no buffer; the frames are in the ring.
    let sent =
        unsafe { libc::sendto(socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the kernel look at the fill ring again. Fails with ENXIO once the interface no longer exists.
pub fn wake_rx(socket: BorrowedFd) -> io::Result<()> {
    // SAFETY: a null pointer of length 0 is no buffer.
    let got = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Memory without a name, all zeroes, that processes share.
pub fn shared_memory(len: usize) -> io::Result<OwnedFd> {
    memfd::create(c"sidelane-xdp", len).map(OwnedFd::from)
}

/// Bytes of a file.
pub fn file_len(file: BorrowedFd) -> io::Result<usize> {
    // SAFETY: all zeroes is a valid value of this plain struct, and it outlives the call.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        check(libc::fstat(file.as_raw_fd(), &raw mut stat))?;
        stat
    };
    Ok(usize::try_from(stat.st_size).unwrap_or(0))
}

/// A process whose descriptors can be had.
pub fn process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as c_int)
}

/// A descriptor of our own for what is number `fd` in `process` (pidfd_getfd(2), Linux 5.6). Needs the right to trace
/// that process.
pub fn descriptor_of(process: BorrowedFd, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) } as c_int)
}

/// A new descriptor, as a system call returned it.
fn owned(result: c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `T` is the plain struct of `option`.
fn get_option<T>(socket: BorrowedFd, option: c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: `value` is writable for `len` bytes through the call, and the kernel writes no more than that.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_mut(value).cast(), &raw mut len)
    })?;
    Ok(())
}
