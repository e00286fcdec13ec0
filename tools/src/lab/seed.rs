//! Makes namespaces without becoming part of them: a forked child opens them, hands back descriptors and is gone.
//!
//! Entering a user namespace is possible only for a process with one thread, and for good. So a child does it. It leaves
//! with each network namespace a routing socket and a control socket that were opened inside; a socket stays in the
//! namespace in which it was opened, and whoever made a user namespace holds every capability in it
//! (user_namespaces(7)). The caller thus sets up its lab from outside, with any number of threads of its own.
#![allow(unsafe_code)] // fork, unshare and the rest of namespaces(7) have no safe interface in std.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use sidelane_nic::passing;

/// Namespaces as descriptors: they live as long as these, or a process inside, do.
pub struct Namespaces {
    /// Owner of the network namespaces, where the caller had no right to make them under its own.
    pub user: Option<OwnedFd>,
    /// One for each host, then one for the bridge if there is one.
    pub nets: Vec<Net>,
}

/// One network namespace and two sockets that were opened inside.
pub struct Net {
    /// The namespace itself, for setns(2).
    pub namespace: OwnedFd,
    /// An `AF_NETLINK` socket for rtnetlink(7).
    pub route: OwnedFd,
    /// An `AF_INET` datagram socket for netdevice(7) and ethtool requests.
    pub control: OwnedFd,
}

/// Where the child failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Before any namespace: no process, no socket, no descriptor to be had.
    Start,
    /// unshare(CLONE_NEWUSER).
    User,
    /// Writing the maps of the new user namespace.
    Map,
    /// unshare(CLONE_NEWNET).
    Net,
    /// Opening the descriptors of a namespace.
    Open,
}

/// Makes `count` network namespaces, under a new user namespace if need be.
pub fn open(count: usize) -> Result<Namespaces, (Step, io::Error)> {
    let at_start = |error| (Step::Start, error);
    let (ours, theirs) = UnixStream::pair().map_err(at_start)?;
    // All the text that the child needs: it may not allocate.
    // SAFETY: Both calls only read this process's credentials.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let (uid_map, gid_map) = (format!("0 {uid} 1\n"), format!("0 {gid} 1\n"));

    // SAFETY: Between fork and _exit the child makes only async-signal-safe calls: it does not allocate, lock,
    // unwind (no indexing past `DESCRIPTORS_MAX`, asserted by the caller's bound on hosts) or run destructors.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Err(at_start(io::Error::last_os_error())),
        0 => {
            let outcome = unshare_all(theirs.as_fd(), count, uid_map.as_bytes(), gid_map.as_bytes());
            if let Err((step, errno)) = outcome {
                let [a, b, c, d] = errno.to_ne_bytes();
                let _ = passing::send(theirs.as_fd(), &[step as u8, 0, a, b, c, d], &[], 0);
            }
            // SAFETY: Ends the child at once, without destructors or atexit handlers that belong to the parent.
            unsafe { libc::_exit(0) };
        }
        _ => {}
    }
    drop(theirs);
    let mut report = [0; REPORT_LEN];
    let received = passing::receive(ours.as_fd(), &mut report, 0);
    reap(child);
    let (len, descriptors) = received.map_err(at_start)?;
    if len != REPORT_LEN {
        return Err(at_start(io::ErrorKind::UnexpectedEof.into()));
    }
    let [step, in_user_namespace, a, b, c, d] = report;
    if descriptors.is_empty() {
        let errno = i32::from_ne_bytes([a, b, c, d]);
        return Err((Step::from_byte(step), io::Error::from_raw_os_error(errno)));
    }
    let mut descriptors = descriptors.into_iter();
    let user = if in_user_namespace == 1 { descriptors.next() } else { None };
    let mut nets = Vec::with_capacity(count);
    while let (Some(namespace), Some(route), Some(control)) =
        (descriptors.next(), descriptors.next(), descriptors.next())
    {
        nets.push(Net { namespace, route, control });
    }
    assert_eq!(nets.len(), count, "the child sends three descriptors for each namespace");
    Ok(Namespaces { user, nets })
}

impl Step {
    fn from_byte(byte: u8) -> Self {
        [Self::Start, Self::User, Self::Map, Self::Net, Self::Open][usize::from(byte)]
    }
}

/// Three of each host and of the bridge, and the user namespace.
const DESCRIPTORS_MAX: usize = 3 * (super::HOSTS_MAX + 1) + 1;

const _: () = assert!(DESCRIPTORS_MAX <= passing::DESCRIPTORS_MAX);

/// Step, whether there is a user namespace, errno.
const REPORT_LEN: usize = 6;

/// The child's whole work. Async-signal-safe.
fn unshare_all(out: BorrowedFd<'_>, count: usize, uid_map: &[u8], gid_map: &[u8]) -> Result<(), (Step, i32)> {
    let mut descriptors = [-1; DESCRIPTORS_MAX];
    let mut filled = 0;
    let mut push = |fd| {
        descriptors[filled] = fd;
        filled += 1;
    };
    let mut in_user_namespace = 0;
    for i in 0..count {
        let mut made = unshare(libc::CLONE_NEWNET);
        if i == 0 && made == Err(libc::EPERM) {
            unshare(libc::CLONE_NEWUSER).map_err(|errno| (Step::User, errno))?;
            own_files_in_proc().map_err(|errno| (Step::Map, errno))?;
            // An unprivileged process may map its group only after giving up setgroups (user_namespaces(7)).
            write(c"/proc/self/setgroups", b"deny").map_err(|errno| (Step::Map, errno))?;
            write(c"/proc/self/uid_map", uid_map).map_err(|errno| (Step::Map, errno))?;
            write(c"/proc/self/gid_map", gid_map).map_err(|errno| (Step::Map, errno))?;
            push(open_read(c"/proc/self/ns/user").map_err(|errno| (Step::Open, errno))?);
            in_user_namespace = 1;
            made = unshare(libc::CLONE_NEWNET);
        }
        made.map_err(|errno| (Step::Net, errno))?;
        // Before any interface exists, so that each is born without IPv6 and never speaks on its own. The files are
        // not there on a kernel without IPv6, and not writable in some containers: then it stays as it is.
        let _ = write(c"/proc/sys/net/ipv6/conf/all/disable_ipv6", b"1");
        let _ = write(c"/proc/sys/net/ipv6/conf/default/disable_ipv6", b"1");
        push(open_read(c"/proc/self/ns/net").map_err(|errno| (Step::Open, errno))?);
        push(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).map_err(|errno| (Step::Open, errno))?);
        push(socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(|errno| (Step::Open, errno))?);
    }
    let report = [0, in_user_namespace, 0, 0, 0, 0];
    passing::send(out, &report, &descriptors[..filled], 0)
        .map_err(|error| (Step::Start, error.raw_os_error().unwrap_or(libc::EIO)))
}

/// A program with file capabilities (`setcap`) may not be dumped, and then they are root's, in /proc (proc(5)). This child may: with
/// its user namespace it has given up those capabilities, and in its memory is nothing that the user must not see.
fn own_files_in_proc() -> Result<(), i32> {
    // SAFETY: Takes numbers only; it changes only the calling process, which is our own short-lived child.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) }).map(drop)
}

fn unshare(flags: libc::c_int) -> Result<(), i32> {
    // SAFETY: Takes no pointer; it changes only the calling process, which is our own short-lived child.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

fn open_read(path: &CStr) -> Result<RawFd, i32> {
    // SAFETY: `path` is a terminated string.
    check(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })
}

fn socket(domain: i32, kind: i32, protocol: i32) -> Result<RawFd, i32> {
    // SAFETY: Takes no pointer.
    check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })
}

fn write(path: &CStr, text: &[u8]) -> Result<(), i32> {
    // SAFETY: `path` is a terminated string and `text` is readable for its length; the descriptor is ours to close.
    unsafe {
        let fd = check(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = libc::write(fd, text.as_ptr().cast(), text.len());
        let outcome = if written < 0 { Err(errno()) } else { Ok(()) };
        libc::close(fd);
        outcome
    }
}

fn check(outcome: libc::c_int) -> Result<libc::c_int, i32> {
    if outcome < 0 { Err(errno()) } else { Ok(outcome) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn reap(child: libc::pid_t) {
    // SAFETY: `child` is our own child and nobody else waits for it; a null status is allowed.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0 && errno() == libc::EINTR {}
}
