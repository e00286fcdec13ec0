//! The memory, and how it is mapped.
#![allow(unsafe_code)] // sysinfo, and copies to and from what another process may write meanwhile.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use super::Ticket;
use crate::copy::copy_raw;
use crate::mapping::Mapping;
use crate::memfd;

/// Shared memory of a size that cannot change. Bytes are copied in and out, never borrowed: another process may write any
/// time, so what is read means something only after the other side has said so, by a message or a signal.
///
/// Nor may another thread, while one uses it:
///
/// ```compile_fail,E0277
/// fn used_by_several<T: Sync>() {}
/// used_by_several::<sidelane_nic::share::Shared>();
/// ```
#[derive(Debug)]
pub struct Shared {
    mapping: Mapping,
    /// `None` once nobody else will map it.
    file: Option<File>,
}

impl Shared {
    /// New memory of zeros, all of it taken from the system at once. More than the machine has is refused.
    pub fn new(len: usize) -> io::Result<Self> {
        // The kernel would give what there is, and then end processes.
        if !Self::could_be(len) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Self::create(len, Pages::All)
    }

    /// Whether the machine has as much, with what may be swapped out: in use or not, and whatever a container is limited to.
    pub fn could_be(len: usize) -> bool {
        len as u64 <= memory_of_machine()
    }

    /// New memory of zeros, taken from the system page by page when it is first used.
    pub fn lazy(len: usize) -> io::Result<Self> {
        Self::create(len, Pages::WhenUsed)
    }

    fn create(len: usize, pages: Pages) -> io::Result<Self> {
        let file = memfd::create(c"sidelane-share", len)?;
        memfd::seal(&file, 0)?;
        Self::map(file, len, pages)
    }

    /// Memory that another process has made. Needs the right to look into that process (ptrace(2), access mode checks).
    pub fn of(ticket: Ticket) -> io::Result<Self> {
        Self::open(ticket, Pages::All)
    }

    /// As [`Self::of`], without taking from the system what nobody has used yet.
    pub fn of_lazy(ticket: Ticket) -> io::Result<Self> {
        Self::open(ticket, Pages::WhenUsed)
    }

    /// Gives up its descriptor: who has not mapped it by now cannot any more, and its ticket leads nowhere.
    pub fn close(&mut self) {
        self.file = None;
    }

    fn open(ticket: Ticket, pages: Pages) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", ticket.process, ticket.descriptor);
        let other = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        // Looked at before it is opened, since opening some things does something.
        let seen = std::fs::metadata(&path)?;
        if seen.ino() != ticket.inode || !seen.is_file() {
            return other("the ticket leads to something else");
        }
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        match memfd::sealed_len(&file) {
            None => return other("the memory's size may change"),
            Some(len) if len != ticket.len || file.metadata()?.ino() != ticket.inode => {
                return other("the memory is another one");
            }
            Some(_) => {}
        }
        let len = usize::try_from(ticket.len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Self::map(file, len, pages)
    }

    /// For the other process.
    pub fn ticket(&self) -> Ticket {
        let file = self.file.as_ref();
        Ticket {
            process: std::process::id(),
            descriptor: file.map_or(u32::MAX, |file| file.as_raw_fd() as u32),
            inode: file.and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.ino()),
            len: self.len() as u64,
        }
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// True of no bytes at all, which there never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its first byte, for who gives it out by address. It is mapped as long as this lives, and what stands there may change
    /// any time.
    pub fn start(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    /// Copies `bytes` to `at`. What is sent afterwards through a driver arrives after them.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.assert_within(at, bytes.len());
        // SAFETY: The mapping has `len` bytes, and the range is within it. No reference to it exists in this process, so
        // it overlaps none; what another process does there at the same time changes bytes and nothing else.
        unsafe { copy_raw(bytes.as_ptr(), self.start().as_ptr().add(at), bytes.len()) };
    }

    /// Copies what is at `at` out.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.assert_within(at, into.len());
        // SAFETY: As in `write`.
        unsafe { copy_raw(self.start().as_ptr().add(at), into.as_mut_ptr(), into.len()) };
    }

    /// The four bytes at `at`, a multiple of four, as a number that both sides change and look at in turns of their own. What
    /// is written before it is stored with `Release` is there for who loads it with `Acquire`.
    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU32 {
        self.assert_within(at, 4);
        assert!(at.is_multiple_of(4), "a word is aligned");
        // SAFETY: Four bytes within the mapping, which is aligned to a page and lives as long as `self`. Every change of an
        // atomic by another process is one of the values that it may have.
        unsafe { AtomicU32::from_ptr(self.start().as_ptr().add(at).cast()) }
    }

    #[inline]
    fn assert_within(&self, at: usize, len: usize) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len()), "within the memory");
    }

    fn map(file: File, len: usize, pages: Pages) -> io::Result<Self> {
        let mapping = match pages {
            Pages::All => Mapping::of(file.as_fd(), len, 0)?,
            Pages::WhenUsed => Mapping::lazy(file.as_fd(), len)?,
        };
        Ok(Self { mapping, file: Some(file) })
    }
}

/// What is taken from the system at once.
enum Pages {
    All,
    WhenUsed,
}

/// Bytes, with what may be swapped out. As much as there can be where the system does not tell.
fn memory_of_machine() -> u64 {
    // SAFETY: all zeroes are a value of it.
    let mut known: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: `known` is a valid place for the answer.
    if unsafe { libc::sysinfo(&raw mut known) } < 0 {
        return u64::MAX;
    }
    known.totalram.saturating_add(known.totalswap).saturating_mul(known.mem_unit.into())
}
