//! What a process may have of the system's memory.
#![allow(unsafe_code)] // Plain system calls.

use sidelane_nic::xdp::{Config, OpenError, Xdp};

use crate::namespace::veth;

/// Takes capabilities from this thread, by their numbers in linux/capability.h.
fn give_up(capabilities: &[u32]) {
    // `struct __user_cap_header_struct`, of version 3 and this thread; and per 32 capabilities effective, permitted and inheritable ones.
    let (header, mut sets) = ([0x2008_0522_u32, 0], [0u32; 6]);
    // SAFETY: both are of the size that the version has, and live through the call.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) }, 0);
    for number in capabilities {
        sets[0] &= !(1 << number);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }, 0);
}

fn limit_locked_memory(soft: libc::rlim_t, hard: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` is readable through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
}

pub fn a_limit_of_locked_memory_is_raised_where_that_is_allowed() {
    veth("vA", "vB");
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable through the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) }, 0);
    if limit.rlim_max < FRAMES_LEN {
        return println!("skipped: the hard limit of locked memory is {} bytes", limit.rlim_max);
    }
    limit_locked_memory(64 << 10, limit.rlim_max);
    give_up(&[IPC_LOCK, SYS_RESOURCE]);
    Xdp::open(&Config::new("vA", 1)).unwrap();
}

pub fn whoever_may_lock_too_little_memory_is_told_how_much_it_takes() {
    veth("vA", "vB");
    limit_locked_memory(64 << 10, 64 << 10);
    give_up(&[IPC_LOCK, SYS_RESOURCE]);
    let error = Xdp::open(&Config::new("vA", 1)).err().expect("a refusal");
    assert!(matches!(error, OpenError::LockedMemory { needed_kib: 16_000..40_000, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("ulimit -l unlimited") && text.contains("LimitMEMLOCK"), "{text}");
}

/// Above an MTU of 1,736 it would be twice as much.
const FRAMES_LEN: u64 = 17 << 20;
const IPC_LOCK: u32 = 14;
const SYS_RESOURCE: u32 = 24;
