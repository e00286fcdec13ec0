//! System calls on sockets of every kind, as safe functions.
#![allow(unsafe_code)] // Raw system calls; each wrapper checks what the kernel needs and returns owned values.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};

use crate::event::Event;
use crate::time::Duration;

/// Sets a socket option whose value is one C int.
pub fn set_int_option(socket: BorrowedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set_option(socket, level, option, &value)
}

/// Lets only frames through that `filter` accepts.
pub fn attach_filter(socket: BorrowedFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    // The kernel copies the program and does not write to it, whatever the pointer's type says.
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Lets everything through again.
pub fn detach_filter(socket: BorrowedFd) -> io::Result<()> {
    set_int_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
}

/// Sets a socket option. `T` is a plain struct of the kernel's, without pointers that outlive the call.
pub fn set_option<T>(socket: BorrowedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is readable for its whole size through the call; the kernel checks that size against the option.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as socklen_t,
        )
    })?;
    Ok(())
}

/// Reads a socket-level option of some words; leaves them alone when the kernel has no such option.
pub fn read_option<const WORDS: usize>(socket: BorrowedFd, option: c_int, words: &mut [u32; WORDS]) {
    let mut len = (WORDS * size_of::<u32>()) as socklen_t;
    // SAFETY: `words` is writable for `len` bytes through the call.
    unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, words.as_mut_ptr().cast(), &raw mut len);
    }
}

/// Asks for `len` bytes each way, past the system's limit where that is allowed.
pub fn grow_buffers(socket: BorrowedFd, len: c_int) {
    for (forced, clamped) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set_int_option(socket, libc::SOL_SOCKET, forced, len).is_err() {
            // Cannot fail, and if it did, the default would have to do.
            let _ = set_int_option(socket, libc::SOL_SOCKET, clamped, len);
        }
    }
}

/// What the receive buffer may hold, in the kernel's own accounting.
pub fn rx_buffer_len(socket: BorrowedFd) -> usize {
    let mut len = [0u32; 1];
    read_option(socket, libc::SO_RCVBUF, &mut len);
    len[0] as usize
}

/// Takes the socket's pending error, which would wake every `poll`; 0: there is none.
fn take_error(socket: BorrowedFd) -> c_int {
    let mut error: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `error` is writable for `len` bytes through the call. There is nothing to do about a failure.
    unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &raw mut len);
    }
    error
}

/// Hands one frame to the interface, or says why not, without waiting.
#[inline]
pub fn send(socket: BorrowedFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: `frame` is readable for its length through the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// As [`send`], for a frame in parts.
#[inline]
pub fn send_parts<const N: usize>(socket: BorrowedFd, parts: [&[u8]; N]) -> io::Result<()> {
    let mut parts = parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    // SAFETY: the message points to the parts, and they to slices that are readable through the call; sendmsg writes to
    // neither.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the packet that waits longest, in parts, without waiting: how many bytes. What it has beyond the parts is dropped.
pub fn receive_parts<const N: usize>(socket: BorrowedFd, parts: [&mut [u8]; N]) -> io::Result<usize> {
    let mut parts = parts.map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    // SAFETY: the message points to the parts, and they to slices of their own that are writable through the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// True when one of `sockets` has something to receive.
pub fn is_any_readable(sockets: &[BorrowedFd]) -> bool {
    let mut set = poll_set(sockets, libc::POLLIN);
    // SAFETY: `set` holds an entry for each socket, and no wait keeps it beyond this call.
    let ready = unsafe { libc::poll(set.as_mut_ptr(), sockets.len() as libc::nfds_t, 0) };
    ready > 0 && set[..sockets.len()].iter().any(|entry| entry.revents & libc::POLLIN != 0)
}

/// Sleeps until one of `sockets` has something to receive, or `event` is raised, at most `limit`. A signal ends it early. True if
/// `event` was raised; it is lowered.
pub fn poll(sockets: &[BorrowedFd], event: Option<&Event>, limit: Option<Duration>) -> io::Result<bool> {
    poll_telling(sockets, &[], event, limit, |_| ())
}

/// As [`poll`]; room to send ends the sleep too, on those of `sockets` that are `full`, in the same order. Tells each socket's pending
/// error, by its number.
pub fn poll_telling(
    sockets: &[BorrowedFd],
    full: &[bool],
    event: Option<&Event>,
    limit: Option<Duration>,
    mut tell: impl FnMut(c_int),
) -> io::Result<bool> {
    let mut set = poll_set(sockets, libc::POLLIN);
    for (entry, _) in set.iter_mut().zip(full).filter(|(_, full)| **full) {
        entry.events |= libc::POLLOUT;
    }
    let count = sockets.len() + usize::from(event.is_some());
    if let Some(event) = event {
        // It is always writable.
        set[sockets.len()] = libc::pollfd { fd: event.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    }
    let timeout = limit.map(|limit| libc::timespec {
        tv_sec: (limit.as_nanos() / 1_000_000_000) as libc::time_t,
        tv_nsec: (limit.as_nanos() % 1_000_000_000) as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` holds `count` entries, and `timeout` is null or points to a timespec that lives on.
    let ready = unsafe { libc::ppoll(set.as_mut_ptr(), count as libc::nfds_t, timeout, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
    }
    for (entry, socket) in set.iter().zip(sockets) {
        if entry.revents & libc::POLLERR != 0 {
            tell(take_error(*socket));
        }
    }
    let raised = event.filter(|_| set[sockets.len()].revents != 0);
    if let Some(event) = raised {
        event.lower();
    }
    Ok(raised.is_some())
}

/// What `poll` is asked about each of `sockets`, and room for one descriptor more.
fn poll_set(sockets: &[BorrowedFd], events: libc::c_short) -> [libc::pollfd; SOCKETS_MAX + 1] {
    assert!(sockets.len() <= SOCKETS_MAX, "a driver polls its own few sockets");
    let mut set = [libc::pollfd { fd: -1, events, revents: 0 }; SOCKETS_MAX + 1];
    for (entry, socket) in set.iter_mut().zip(sockets) {
        entry.fd = socket.as_raw_fd();
    }
    set
}

/// Sockets that one driver polls at most.
const SOCKETS_MAX: usize = 7;

/// A system call's result, with what went wrong.
pub fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
