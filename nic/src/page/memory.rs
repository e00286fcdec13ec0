//! The memory of a page, seen as words.
#![allow(unsafe_code)] // Words of mapped memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::sync::atomic::AtomicU64;

use crate::mapping::Mapping;
use crate::memfd;

/// Mapped memory that keeps its size.
pub(super) struct Memory {
    mapping: Mapping,
    /// By which others find our own memory.
    _found_by: Option<OwnedFd>,
}

// SAFETY: all that is done through it is atomic.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory, zeroed, which nobody but this mapping can ever write.
    pub(super) fn new(words: usize) -> io::Result<Self> {
        let len = (words * 8).next_multiple_of(PAGE_BYTES);
        let file = memfd::create(NAME, len)?;
        let mapping = Mapping::of(file.as_fd(), len, 0)?;
        // Only writing by others needs Linux 5.1; without it a process of the same user could write, which might as well use ptrace.
        memfd::seal(&file, libc::F_SEAL_FUTURE_WRITE).or_else(|_| memfd::seal(&file, 0))?;
        Ok(Self { mapping, _found_by: Some(file.into()) })
    }

    /// Another process's memory, to be read.
    pub(super) fn of(file: File) -> io::Result<Self> {
        let len = memfd::sealed_len(&file);
        let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "memory whose size may change"))?;
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(LEN_MAX) / 8 * 8;
        Ok(Self { mapping: Mapping::read_only(file.as_fd(), len)?, _found_by: None })
    }

    /// All of it. Of memory that [`Self::of`] has mapped, words are only to be loaded.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for as long as `self`, aligned to a page, of sealed size, and every content is a number.
        unsafe { slice::from_raw_parts(self.mapping.start().as_ptr().cast(), self.mapping.len() / 8) }
    }
}

/// What `/proc/PID/fd` shows as `/memfd:sidelane-page (deleted)`.
const NAME: &std::ffi::CStr = c"sidelane-page";
/// Where a descriptor of such memory seems to lead.
pub(super) const LINK: &str = "/memfd:sidelane-page (deleted)";
const PAGE_BYTES: usize = 4096;
/// Far more than any page has.
const LEN_MAX: usize = 1 << 20;
