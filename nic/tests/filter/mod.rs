//! A filter of system calls, as sandboxes have one.
#![allow(unsafe_code)] // prctl(2), seccomp(2), and what happens between fork and exec.
#![allow(dead_code, reason = "no test has all kinds of others")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_int, c_long, sock_filter};

/// `command`, and what it starts, gets `errno` for each such system call; where one is given, only with that first argument.
pub fn refuse(command: &mut Command, call: c_long, first_argument: Option<u32>, errno: c_int) {
    // SAFETY: `install` makes async-signal-safe system calls only.
    unsafe { command.pre_exec(move || install(call as u32, first_argument, errno as u32)) };
}

/// From now on it is so for this thread, and those that it starts, and what this process becomes (seccomp(2), seccomp_data).
pub fn install(call: u32, first_argument: Option<u32>, errno: u32) -> io::Result<()> {
    let load = |at: u32| sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: at };
    let skip_unless = |k: u32, jf: u8| sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt: 0, jf, k };
    let end = |k: u32| sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k };
    let argument = match first_argument {
        Some(argument) => skip_unless(argument, 1),
        // Goes on in any case.
        None => skip_unless(0, 0),
    };
    let mut filter = [
        load(NUMBER),
        skip_unless(call, 3),
        load(FIRST_ARGUMENT),
        argument,
        end(libc::SECCOMP_RET_ERRNO | errno),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter is there until the kernel has copied it, in the second call; the first takes numbers.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where seccomp_data has what the filter looks at: the call's number, and the low half of its first argument.
const NUMBER: u32 = 0;
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };
