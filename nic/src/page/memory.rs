//! The memory of a page, seen as words.
#![allow(unsafe_code)] // Seals, mmap.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

use crate::memfd;

/// Mapped memory that keeps its size.
pub(super) struct Memory {
    start: NonNull<AtomicU64>,
    words: usize,
    /// By which others find our own memory.
    found_by: Option<OwnedFd>,
}

// SAFETY: a mapping is an address and a length, and all that is done through it is atomic.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory, zeroed, which nobody but this mapping can ever write.
    pub(super) fn new(words: usize) -> io::Result<Self> {
        let len = (words * 8).next_multiple_of(PAGE_BYTES);
        let file = OwnedFd::from(memfd::create(NAME, len)?);
        let mut memory = Self::map(&file, len, libc::PROT_READ | libc::PROT_WRITE)?;
        let fd = file.as_raw_fd();
        // SAFETY: plain calls on a descriptor that we own. Only writing by others needs Linux 5.1; without it a process of
        // the same user could write, which might as well use ptrace.
        unsafe {
            if libc::fcntl(fd, libc::F_ADD_SEALS, SIZE_SEALS | libc::F_SEAL_FUTURE_WRITE) < 0 {
                check(libc::fcntl(fd, libc::F_ADD_SEALS, SIZE_SEALS))?;
            }
        }
        memory.found_by = Some(file);
        Ok(memory)
    }

    /// Another process's memory, to be read. Refused unless its size is sealed: an access behind the end would kill us.
    pub(super) fn of(file: File) -> io::Result<Self> {
        // SAFETY: a plain call on a descriptor that we own; others than memfds answer with an error.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SIZE_SEALS != SIZE_SEALS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "memory whose size may change"));
        }
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(LEN_MAX) / 8 * 8;
        Self::map(&file, len, libc::PROT_READ)
    }

    fn map(file: &impl AsRawFd, len: usize, prot: libc::c_int) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let address = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { start, words: len / 8, found_by: None })
    }

    /// All of it. Of memory that [`Self::of`] has mapped, words are only to be loaded.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for as long as `self`, aligned to a page, of sealed size, and every content is a number.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: what `words` gave out has borrowed `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What `/proc/PID/fd` shows as `/memfd:sidelane-page (deleted)`.
const NAME: &std::ffi::CStr = c"sidelane-page";
/// Where a descriptor of such memory seems to lead.
pub(super) const LINK: &str = "/memfd:sidelane-page (deleted)";
const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
const PAGE_BYTES: usize = 4096;
/// Far more than any page has.
const LEN_MAX: usize = 1 << 20;
