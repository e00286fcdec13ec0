//! Memory of a file, or of a socket: what drivers share with the kernel or with other processes.
#![allow(unsafe_code)] // mmap.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use libc::c_int;

/// Memory that is shared with the kernel or with other processes. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and this is its only handle. Whether several threads may use it at once is for
// who reads and writes there.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on, every page present.
    pub fn of(file: BorrowedFd, len: usize, offset: libc::off_t) -> io::Result<Self> {
        Self::with(file, (len, offset), libc::PROT_READ | libc::PROT_WRITE, libc::MAP_POPULATE)
    }

    /// Maps the first `len` bytes of `file`, of which a page is taken from the system when it is first used.
    pub fn lazy(file: BorrowedFd, len: usize) -> io::Result<Self> {
        Self::with(file, (len, 0), libc::PROT_READ | libc::PROT_WRITE, 0)
    }

    /// Maps the first `len` bytes of `file`, every page present. To write there is an error (SIGSEGV).
    pub fn read_only(file: BorrowedFd, len: usize) -> io::Result<Self> {
        Self::with(file, (len, 0), libc::PROT_READ, libc::MAP_POPULATE)
    }

    fn with(file: BorrowedFd, (len, offset): (usize, libc::off_t), prot: c_int, flags: c_int) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | flags;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, file.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Its first byte; page-aligned.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
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
        // SAFETY: this is the mapping that `with` made, and what points into it lives no longer than `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
