//! Ctrl-Z for this command itself.
#![allow(unsafe_code)] // sigaction(2), raise(3), and what happens in a signal handler.

use std::io;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGCONT, SIGTSTP};

use crate::interrupt::is_ignored;

/// Whether the last that came of SIGTSTP and SIGCONT was a stop: one that is over before it was obeyed must not be obeyed any more,
/// since nobody would end it.
#[derive(Debug)]
pub struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// Watches from now on. To be called before the signals are handed on, so that it knows of each before those do.
    pub fn watch() -> io::Result<Self> {
        let wanted = Arc::new(AtomicBool::new(false));
        if !is_ignored(SIGTSTP) {
            signal_hook::flag::register(SIGTSTP, Arc::clone(&wanted))?;
            let over = Arc::clone(&wanted);
            // SAFETY: A store to an atomic is async-signal-safe.
            unsafe { signal_hook::low_level::register(SIGCONT, move || over.store(false, Ordering::SeqCst))? };
        }
        Ok(Self(wanted))
    }

    /// Whether it is still to be obeyed.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Does what SIGTSTP does to a process that does not handle it, and returns when that is over: at once where the kernel
/// discards it, because nobody could let the process go on. That is so in an orphaned process group (`ssh -t`, which starts
/// the command without a shell that knows jobs; POSIX, 11.1.4) and for process 1 of a container (pid_namespaces(7)); SIGSTOP
/// would stop the former for ever. To be called on a thread that does not block SIGTSTP.
pub fn as_by_default(wanted: &Wanted) {
    // SAFETY: all zeroes is a valid sigaction: SIG_DFL, without flags. `ours` is a valid place for the former one, which is put
    // back as it was. raise(3) signals this thread, so the process has stopped and gone on before it returns.
    unsafe {
        let default: libc::sigaction = mem::zeroed();
        let mut ours: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut ours) == 0 {
            if wanted.is_set() {
                libc::raise(libc::SIGTSTP);
            }
            libc::sigaction(libc::SIGTSTP, &raw const ours, ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_is_over_is_not_wanted() {
        // SAFETY: The default is no handler of ours. Whoever runs the tests may have it ignored.
        unsafe { libc::signal(SIGTSTP, libc::SIG_DFL) };
        let wanted = Wanted::watch().unwrap();
        assert!(!wanted.is_set());
        for (signal, is_set) in [(SIGTSTP, true), (SIGCONT, false), (SIGTSTP, true), (SIGTSTP, true), (SIGCONT, false)]
        {
            // SAFETY: Takes no pointer. Both signals are handled.
            unsafe { libc::raise(signal) };
            assert_eq!(wanted.is_set(), is_set);
        }
        as_by_default(&wanted);
    }
}
