//! What MPICH's launcher sends its ranks when one has ended and it goes on without that one (`mpiexec.hydra -disable-auto-cleanup`): SIGUSR1,
//! of which they would die as well.
#![allow(unsafe_code)] // sigaction(2).

/// From now on the signal does nothing, unless the program has made something of it, or will.
pub fn outlive() {
    // SAFETY: all zeroes is a valid sigaction, both are valid places, and what is called does nothing.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let is_known = libc::sigaction(libc::SIGUSR1, std::ptr::null(), &raw mut now) == 0;
        if !is_known || now.sa_sigaction != libc::SIG_DFL {
            return;
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        // Not ignored: that would go on in programs that this one becomes or starts.
        ours.sa_sigaction = nothing as extern "C" fn(i32) as libc::sighandler_t;
        ours.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &raw const ours, std::ptr::null_mut());
    }
}

extern "C" fn nothing(_: i32) {}
