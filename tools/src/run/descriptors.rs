//! How many descriptors there may be: each rank takes four of the launcher's.
#![allow(unsafe_code)] // getrlimit(2), setrlimit(2), and what happens between fork and exec.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The limit that this command was started with.
#[derive(Clone, Copy)]
pub struct Inherited(libc::rlimit);

/// From now on this process may have as many as the hard limit says.
pub fn raise_limit() -> io::Result<Inherited> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    set(libc::rlimit { rlim_cur: limit.rlim_max, ..limit })?;
    Ok(Inherited(limit))
}

impl Inherited {
    /// Lets `command` begin with it: programs that use select(2) rely on a low one.
    pub fn restore_in(self, command: &mut Command) {
        // SAFETY: The closure makes one async-signal-safe system call and allocates nothing.
        unsafe {
            command.pre_exec(move || set(self.0));
        }
    }
}

fn set(limit: libc::rlimit) -> io::Result<()> {
    // SAFETY: `limit` is alive during the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
