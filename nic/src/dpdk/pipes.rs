//! No signals of pipes: some of DPDK's drivers write to sockets whose other end may be gone (22.11: vhost_user_write, memif_msg_send), and a
//! program in C that has not heard of SIGPIPE would end.
#![allow(unsafe_code)] // Masks of signals.

use std::mem::{MaybeUninit, zeroed};

/// While this is there, this thread has none.
pub struct Quiet {
    /// It had the signal blocked, or waiting, before.
    was_quiet: bool,
}

impl Quiet {
    pub fn begin() -> Self {
        let mut before = MaybeUninit::uninit();
        let pipe = pipe();
        // SAFETY: a set of signals, and a place for one, which the call fills.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, before.as_mut_ptr());
            before.assume_init()
        };
        // SAFETY: a set that is filled.
        Self { was_quiet: unsafe { libc::sigismember(&raw const before, libc::SIGPIPE) == 1 } }
    }

    /// For as long as this thread and those that it starts live.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.was_quiet {
            return;
        }
        let pipe = pipe();
        // SAFETY: sets of signals, and a time, alive through the calls. One that waits for the whole process is taken too, which had
        // none before, or one that nobody has blocked.
        unsafe {
            let at_once: libc::timespec = zeroed();
            libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const at_once);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const pipe, std::ptr::null_mut());
        }
    }
}

/// The set of that one signal.
fn pipe() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}
