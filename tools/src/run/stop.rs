//! Ctrl-Z for this command itself.
#![allow(unsafe_code)] // sigaction(2), raise(3).

use std::mem;
use std::ptr;

/// Does what SIGTSTP does to a process that does not handle it, and returns when that is over: at once where the kernel
/// discards it, because nobody could let the process go on. That is so in an orphaned process group (`ssh -t`, which starts
/// the command without a shell that knows jobs; POSIX, 11.1.4) and for process 1 of a container (pid_namespaces(7)); SIGSTOP
/// would stop the former for ever. To be called on a thread that does not block SIGTSTP.
pub fn as_by_default() {
    // SAFETY: all zeroes is a valid sigaction: SIG_DFL, without flags. `ours` is a valid place for the former one, which is put
    // back as it was. raise(3) signals this thread, so the process has stopped and gone on before it returns.
    unsafe {
        let default: libc::sigaction = mem::zeroed();
        let mut ours: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut ours) == 0 {
            libc::raise(libc::SIGTSTP);
            libc::sigaction(libc::SIGTSTP, &raw const ours, ptr::null_mut());
        }
    }
}
