//! Commands that run inside a host of a lab.
#![allow(unsafe_code)] // What happens between fork and exec has no safe interface.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use sidelane_nic::affinity;

/// The namespaces of one host. They live as long as this, a process inside, or a command made from it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Entered first: it owns the other.
    pub user: Option<Arc<OwnedFd>>,
    /// The host's network namespace.
    pub net: Arc<OwnedFd>,
}

/// What becomes of a command when the thread that started it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// It is killed: nothing of a temporary lab survives whoever made it, not even a `kill -9`.
    Tied,
    /// It goes on.
    Free,
}

/// Ties `command` to the thread that spawns it, without moving it anywhere.
pub fn tie(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: The closure makes only async-signal-safe system calls, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || die_with(parent));
    }
}

/// Lets `command` run on one core only.
pub fn pin_to(command: &mut Command, core: usize) {
    // SAFETY: As above.
    unsafe {
        command.pre_exec(move || affinity::pin_to(core));
    }
}

/// Lets the process that `command` spawns keep `descriptors`, under their numbers here.
pub fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
    // SAFETY: As above; it owns the descriptors, so they are open whenever it runs.
    unsafe {
        command.pre_exec(move || descriptors.iter().try_for_each(keep_on_exec));
    }
}

fn keep_on_exec(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: F_SETFD takes a number and no pointer.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Entry {
    /// Makes `command` run inside, pinned to `core` if one is given.
    pub fn apply(&self, command: &mut Command, lifetime: Lifetime, core: Option<usize>) {
        let entry = self.clone();
        let parent = std::process::id();
        // SAFETY: The closure runs in the forked child and makes only async-signal-safe system calls; it allocates
        // nothing (its errors are plain errno values) and takes no lock.
        unsafe {
            command.pre_exec(move || {
                entry.enter()?;
                if lifetime == Lifetime::Tied {
                    die_with(parent)?;
                }
                core.map_or(Ok(()), affinity::pin_to)
            });
        }
    }

    /// Replaces this process's network namespace. It must have one thread when there is a user namespace to enter.
    fn enter(&self) -> io::Result<()> {
        if let Some(user) = &self.user {
            setns(user, libc::CLONE_NEWUSER)?;
        }
        setns(&self.net, libc::CLONE_NEWNET)
    }
}

fn setns(namespace: &OwnedFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: Takes no pointer; the descriptor is open for as long as the borrow lasts.
    check(unsafe { libc::setns(namespace.as_raw_fd(), kind) })
}

/// After entering the user namespace: a change of credentials takes the wish back (`commit_creds` in the kernel).
fn die_with(parent: u32) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    // SAFETY: Takes nothing and cannot fail.
    if unsafe { libc::getppid() } as u32 != parent {
        // The parent ended before the wish was known, so the signal would never come.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
