//! What the shared-memory driver needs of Linux beyond std: abstract sockets, futexes, poll.
#![allow(unsafe_code)] // Raw system calls.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::sync::AtomicU32;
use crate::time::Duration;

/// Has these pages at once: a page fault costs more than the message that meets it. Only faster, so it may fail, as before Linux 5.14.
///
/// # Safety
/// They are of a [`Mapping`](crate::mapping::Mapping).
pub(super) unsafe fn populate(address: ptr::NonNull<u8>, len: usize) {
    // SAFETY: takes a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let before = address.as_ptr() as usize % page;
    // SAFETY: the pages stay what they are, and are the caller's, as mappings begin with one; it is the kernel that writes to them, what they
    // hold.
    unsafe { libc::madvise(address.as_ptr().sub(before).cast(), before + len, libc::MADV_POPULATE_WRITE) };
}

/// Sleeps while `word` is `expected`: until it is woken, `timeout` has passed, or a signal came.
pub(super) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|span| libc::timespec {
        tv_sec: (span.as_nanos() / 1_000_000_000) as libc::time_t,
        tv_nsec: (span.as_nanos() % 1_000_000_000) as _,
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `word` and `timeout` outlive the call. Not FUTEX_PRIVATE: the waker is another process.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, timeout) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ETIMEDOUT | libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

/// Wakes whoever sleeps on `word`; only its owner does.
pub(super) fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is mapped for the length of the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// A socket that ends when this is dropped. A process that was forked from ours has copies of all of them, if only until its
/// exec: were they merely closed, the other side would not hear of it.
pub(super) struct Socket(pub(super) OwnedFd);

impl Socket {
    fn shut_down(&self) {
        // SAFETY: a plain call. It fails only where there is no connection to end.
        unsafe { libc::shutdown(self.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A socket that listens at an abstract name, which vanishes with the last process that has it open.
pub(super) fn listen(name: &str) -> io::Result<Socket> {
    let socket = socket()?;
    let (addr, len) = abstract_addr(name)?;
    // SAFETY: `addr` is a sockaddr_un of `len` meaningful bytes and outlives the calls.
    unsafe {
        check(libc::bind(socket.as_raw_fd(), ptr::from_ref(&addr).cast(), len))?;
        check(libc::listen(socket.as_raw_fd(), BACKLOG))?;
    }
    Ok(socket)
}

/// Turns away whoever has called and calls. Those in the queue do not hear of a listener's end while there is a copy of it.
pub(super) fn stop_listening(listener: &Socket) {
    listener.shut_down();
    while let Ok(Some(_)) = accept(listener) {}
}

/// A connection to whoever listens at an abstract name. Never waits: a listener that is absent or busy is an error.
pub(super) fn connect(name: &str) -> io::Result<Socket> {
    let socket = socket()?;
    let (addr, len) = abstract_addr(name)?;
    // SAFETY: as in `listen`.
    check(unsafe { libc::connect(socket.as_raw_fd(), ptr::from_ref(&addr).cast(), len) })?;
    Ok(socket)
}

/// The next connection to `listener`; `None` when there is none. An error leaves it in the queue: there is no descriptor
/// for it, or no memory.
pub(super) fn accept(listener: &Socket) -> io::Result<Option<Socket>> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    loop {
        // SAFETY: a plain call; null asks for no address.
        match owned(unsafe { libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) }) {
            Ok(socket) => return Ok(Some(Socket(socket))),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                // A signal, or a caller that has hung up: the next one may be there.
                Some(libc::EINTR | libc::ECONNABORTED) => {}
                _ => return Err(error),
            },
        }
    }
}

/// Sleeps until one of `fds` is readable or closed, or `timeout_ms` have passed. Returns which are.
pub(super) fn poll(fds: &[RawFd], timeout_ms: Option<i32>) -> Vec<bool> {
    let mut polled: Vec<_> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 }).collect();
    // SAFETY: `polled` has as many entries as are passed, and outlives the call.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms.unwrap_or(-1)) };
    polled.iter().map(|entry| ready > 0 && entry.revents != 0).collect()
}

/// Connections that wait for being accepted: all ranks of a large host at once.
const BACKLOG: libc::c_int = 4096;

fn socket() -> io::Result<Socket> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a plain call.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }).map(Socket)
}

/// unix(7): an abstract name starts with a zero byte and is as long as the address says.
fn abstract_addr(name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: plain old data for which zeroes are a value.
    let mut addr: libc::sockaddr_un = unsafe { mem::zeroed() };
    addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if name.len() >= addr.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of the domain is too long"));
    }
    for (to, from) in addr.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let len = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((addr, len as libc::socklen_t))
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: the call that returned it made it, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
