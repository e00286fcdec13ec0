//! How often this thread asks the system about descriptors: the C library's two calls for it, counted and passed on.
#![allow(unsafe_code)] // Stands in for functions of the C library.

use std::cell::Cell;
use std::ptr;

use libc::{c_int, c_long, nfds_t, pollfd, sigset_t, timespec};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Calls so far.
pub fn calls() -> u64 {
    CALLS.get()
}

/// # Safety
/// As for poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let limit = timespec { tv_sec: (timeout_ms / 1_000).into(), tv_nsec: c_long::from(timeout_ms % 1_000) * 1_000_000 };
    // SAFETY: as the caller promises.
    unsafe { ppoll(fds, count, if timeout_ms < 0 { ptr::null() } else { &raw const limit }, ptr::null()) }
}

/// # Safety
/// As for ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    CALLS.set(CALLS.get() + 1);
    // The system writes to it what was left.
    // SAFETY: as the caller promises.
    let mut limit = unsafe { limit.as_ref() }.copied();
    let limit = limit.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: as the caller promises; `limit` is null or points to a timespec that lives on.
    unsafe { libc::syscall(libc::SYS_ppoll, fds, count, limit, mask, KERNEL_SIGSET_LEN) as c_int }
}

/// Bytes of a signal set as the kernel has it.
const KERNEL_SIGSET_LEN: usize = 8;
