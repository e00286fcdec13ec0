//! Sleeping on a word that processes share (futex(2)).
#![allow(unsafe_code)] // The system call.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `value`, until [`wake_all`] or for as long as `limit`; may end early.
pub(super) fn wait(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: The kernel reads the word and the time, which both live until the call returns.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit) };
}

/// Wakes whoever sleeps on `word`.
pub(super) fn wake_all(word: &AtomicU32) {
    let none = ptr::null::<libc::timespec>();
    // SAFETY: The kernel takes the word's address as a name.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, none) };
}
