#![allow(unsafe_code)]
//! A memory barrier in other threads, by who seldom needs one, so that who often would needs none: membarrier(2). Unsafe, for the call.

use std::sync::OnceLock;

/// Whether [`run`] reaches this process, from now on: Linux 4.16, unless a container's rules forbid it.
pub fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| call(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED))
}

/// A barrier in all threads of all processes that have registered: whatever they have written before, we see; and what we have
/// written, they see from now on. False if the system has none after all.
pub fn run() -> bool {
    call(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
}

fn call(command: libc::c_int) -> bool {
    let (flags, cpu) = (0u32, 0u32);
    // SAFETY: plain numbers; it touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) == 0 }
}
