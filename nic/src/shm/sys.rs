//! What the shared-memory driver needs of Linux beyond std: abstract sockets that pass descriptors, futexes, poll.
#![allow(unsafe_code)] // Raw system calls.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
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

/// The effective user of the process at the other end of a connection, as the kernel noted it.
pub(super) fn peer_uid(socket: &Socket) -> io::Result<u32> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = mem::size_of_val(&cred) as libc::socklen_t;
    let cred_ptr: *mut libc::ucred = &mut cred;
    // SAFETY: `cred` has room for `len` bytes, and both outlive the call.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, cred_ptr.cast(), &mut len)
    })?;
    Ok(cred.uid)
}

/// Sends all of `bytes` with descriptors beside them, or fails: never waits, and a message this small is never cut.
pub(super) fn send_with_fds(socket: &Socket, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let mut control = Control::new();
    let data = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = control.message(&data);
    assert!(fds.len() <= FDS_MAX, "room for the descriptors is fixed");
    // SAFETY: the control buffer has room for one header and FDS_MAX descriptors (`Control`), so the first header
    // exists and its data part takes `fds`; everything outlives the call. The kernel only reads `bytes`.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of_val(fds) as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of_val(fds) as u32) as usize;
        ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(header).cast::<RawFd>(), fds.len());
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    match sent {
        -1 => Err(io::Error::last_os_error()),
        sent if sent as usize == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives what is there, up to the length of `bytes`, and the descriptors that came beside it. Never waits.
/// Zero bytes: the other end is closed. An error too when there was no room for all of the descriptors.
pub(super) fn recv_with_fds(socket: &Socket, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control::new();
    let data = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = control.message(&data);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `data` is the whole of `bytes`, and the control buffer is as long as `message` says; all outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut fds = Vec::new();
    // SAFETY: the kernel wrote the headers that these macros walk, within the length that it left in `message`; each
    // descriptor in an SCM_RIGHTS header is new in this process and nobody else's.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                fds.extend((0..count).map(|at| OwnedFd::from_raw_fd(first.add(at).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok((received as usize, fds))
}

/// Sleeps until one of `fds` is readable or closed, or `timeout_ms` have passed. Returns which are.
pub(super) fn poll(fds: &[RawFd], timeout_ms: Option<i32>) -> Vec<bool> {
    let mut polled: Vec<_> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 }).collect();
    // SAFETY: `polled` has as many entries as are passed, and outlives the call.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms.unwrap_or(-1)) };
    polled.iter().map(|entry| ready > 0 && entry.revents != 0).collect()
}

/// Descriptors that travel with one message at most: a ring and a doorbell.
pub(super) const FDS_MAX: usize = 2;

/// Connections that wait for being accepted: all ranks of a large host at once.
const BACKLOG: libc::c_int = 4096;

/// Room for the control part of a message, aligned for its header.
#[repr(align(8))]
struct Control([u8; 64]);

const _: () = assert!(size_of::<Control>() >= size_of::<libc::cmsghdr>() + 8 + FDS_MAX * size_of::<RawFd>());

impl Control {
    fn new() -> Self {
        Self([0; 64])
    }

    /// A message of one part. What it points to must outlive it.
    fn message(&mut self, data: &libc::iovec) -> libc::msghdr {
        // SAFETY: plain old data for which zeroes are a value.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = ptr::from_ref(data).cast_mut();
        message.msg_iovlen = 1;
        message.msg_control = self.0.as_mut_ptr().cast();
        message.msg_controllen = self.0.len();
        message
    }
}

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
