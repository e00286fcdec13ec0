//! Memory of a file, or of a socket: what drivers share with the kernel or with other processes.
#![allow(unsafe_code)] // mmap.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_void;

/// Memory that is shared with the kernel or with other processes. Unmapped when dropped.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and this is its only handle.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on, every page present.
    pub fn of(file: BorrowedFd, len: usize, offset: libc::off_t) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { start: start.cast(), len }) }
    }

    /// Its first byte; page-aligned.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `of` made, and slices of it borrow `self`.
        unsafe { libc::munmap(self.start.cast::<c_void>(), self.len) };
    }
}
