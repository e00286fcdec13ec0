//! What the endpoints of one queue share beside the kernel's rings: one piece of memory with the chunks that frames live
//! in, and before them the account of whose they are.
//!
//! The kernel lets several sockets on one queue, but only on one UMEM with one fill ring and one completion ring. So the
//! processes take turns at those two, under a lock that outlives whoever dies with it (a robust mutex). Nobody waits for
//! it on the hot path: who does not get it comes again with the next burst.
//!
//! ```text
//! | account (one page set) | chunks for frames to come | chunks of member 0 to send | of member 1 | ...
//! ```
//!
//! Members trust each other as threads of one process would: whoever may open an AF_XDP socket on the interface already
//! sees and forges its frames.
#![allow(unsafe_code)] // Memory shared with other processes.

use std::io;
use std::mem::{offset_of, size_of};
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::sys;
use crate::mapping::Mapping;

/// The mapped memory.
pub struct Shared {
    mapping: Mapping,
    shape: Shape,
}

/// What is fixed when the memory is made.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes of a chunk; a power of two (`XDP_UMEM_REG` takes no other).
    pub chunk_len: u32,
    /// Bytes that the kernel leaves free before a received frame, beside its own [`XDP_PACKET_HEADROOM`].
    pub headroom: u32,
    /// Whether the program is attached by the interface's driver, or by the kernel after it.
    pub native: u32,
}

/// What is under the lock.
#[repr(C)]
pub struct Account {
    /// Chunks for frames to come that were ever given out: the first so many of them.
    pub given_out: u32,
    /// The place of the member that came last. The next one takes another, so that what the kernel still sends for the
    /// last owner of a place is over when the place is taken again.
    pub last_place: u32,
    /// Chunks of each member that others found in the completion ring.
    pub returned: [Returned; MEMBERS_MAX],
}

/// A stack of chunks by their number among their member's.
#[repr(C)]
pub struct Returned {
    len: u32,
    chunks: [u16; TX_CHUNKS],
}

#[repr(C)]
struct Header {
    layout: u64,
    shape: Shape,
    lock: libc::pthread_mutex_t,
    account: Account,
}

/// The lock, held.
pub struct Guard<'a> {
    header: *mut Header,
    of: std::marker::PhantomData<&'a Shared>,
}

impl Shape {
    /// Chunks for frames of up to `frame_len` bytes, as far as chunks go.
    pub fn new(frame_len: usize, native: bool) -> Self {
        // A driver sets its hardware up for what is left of a chunk, in units of its own: give it all.
        let headroom = if native { 0 } else { ALIGNING_HEADROOM };
        let fits = |chunk_len: &u32| frame_len + (headroom + XDP_PACKET_HEADROOM) as usize <= *chunk_len as usize;
        let chunk_len = [CHUNK_LEN_MIN, CHUNK_LEN_MAX].into_iter().find(fits).unwrap_or(CHUNK_LEN_MAX);
        Self { chunk_len, headroom, native: native.into() }
    }

    /// The longest frame that a chunk holds; and one of a peer, whose program may be attached in the other way.
    pub fn frame_len_max(&self) -> usize {
        let any_peers = CHUNK_LEN_MAX - ALIGNING_HEADROOM - XDP_PACKET_HEADROOM;
        (self.chunk_len - self.headroom - XDP_PACKET_HEADROOM).min(any_peers) as usize
    }

    /// Bytes of all chunks.
    pub fn umem_len(&self) -> usize {
        (RX_CHUNKS as usize + MEMBERS_MAX * TX_CHUNKS) * self.chunk_len as usize
    }

    /// Bytes of the memory.
    pub fn memory_len(&self) -> usize {
        UMEM_AT + self.umem_len()
    }
}

impl Shared {
    /// Maps memory that is all zeroes, and makes it what others can join.
    pub fn create(memory: BorrowedFd, shape: Shape) -> io::Result<Self> {
        let mapping = Mapping::of(memory, shape.memory_len(), 0)?;
        let header: *mut Header = mapping.start().as_ptr().cast();
        // SAFETY: the mapping is page-aligned and longer than the header; nobody else knows the memory yet. The mutex
        // is set up in the place where it stays.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            let set_up = [
                libc::pthread_mutexattr_init(&raw mut attributes),
                libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(&raw mut attributes, PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutex_init(&raw mut (*header).lock, &raw const attributes),
                libc::pthread_mutexattr_destroy(&raw mut attributes),
            ];
            if let Some(error) = set_up.into_iter().find(|error| *error != 0) {
                return Err(io::Error::from_raw_os_error(error));
            }
            (*header).shape = shape;
            (*header).account.last_place = MEMBERS_MAX as u32 - 1;
            (*header).layout = LAYOUT;
        }
        Ok(Self { mapping, shape })
    }

    /// Maps memory that another process made. `None`: it is none of ours, or of another version.
    pub fn join(memory: BorrowedFd) -> io::Result<Option<Self>> {
        let len = sys::file_len(memory)?;
        if len < UMEM_AT {
            return Ok(None);
        }
        let mapping = Mapping::of(memory, len, 0)?;
        let header: *const Header = mapping.start().as_ptr().cast();
        // SAFETY: the mapping is page-aligned and longer than the header; these fields no longer change.
        let (layout, shape) = unsafe { ((*header).layout, (*header).shape) };
        let ours = layout == LAYOUT
            && [CHUNK_LEN_MIN, CHUNK_LEN_MAX].contains(&shape.chunk_len)
            && shape.headroom <= ALIGNING_HEADROOM
            && shape.memory_len() == len;
        Ok(ours.then_some(Self { mapping, shape }))
    }

    /// What was fixed when it was made.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where the chunks begin, for `XDP_UMEM_REG`.
    pub fn umem(&self) -> *mut u8 {
        // SAFETY: the mapping is longer (checked when it was made).
        unsafe { self.mapping.start().as_ptr().add(UMEM_AT) }
    }

    /// The address of a chunk for frames to come, as rings say it.
    #[inline]
    pub fn rx_chunk(&self, number: u32) -> u64 {
        u64::from(number) * u64::from(self.shape.chunk_len)
    }

    /// The address of a member's chunk to send from.
    #[inline]
    pub fn tx_chunk(&self, place: u32, number: u16) -> u64 {
        self.rx_chunk(RX_CHUNKS + place * TX_CHUNKS as u32 + u32::from(number))
    }

    /// Whose chunk it is that lies at `address`, and which of its.
    #[inline]
    pub fn owner(&self, address: u64) -> Option<(u32, u16)> {
        let chunk = u32::try_from(address / u64::from(self.shape.chunk_len)).ok()?.checked_sub(RX_CHUNKS)?;
        let place = chunk / TX_CHUNKS as u32;
        (place < MEMBERS_MAX as u32).then_some((place, (chunk % TX_CHUNKS as u32) as u16))
    }

    /// A received frame. `None` when it would lie outside the chunks.
    ///
    /// # Safety
    /// The kernel has handed this frame over, and its chunk has not been given back while the slice lives.
    #[inline]
    pub unsafe fn frame(&self, address: u64, len: u32) -> Option<&[u8]> {
        let (at, len) = (usize::try_from(address).ok()?, len as usize);
        if at.checked_add(len)? > self.shape.umem_len() {
            return None;
        }
        // SAFETY: within the mapping (checked above); nobody writes a frame that the kernel has handed over, as the
        // caller promises for this one.
        Some(unsafe { std::slice::from_raw_parts(self.umem().add(at), len) })
    }

    /// Bytes of a chunk to send from.
    ///
    /// # Safety
    /// The chunk is the caller's own and not in the transmit ring, and no other slice of it lives.
    #[inline]
    #[allow(clippy::mut_from_ref)] // The memory is not `self`'s; whose it is, the caller says.
    pub unsafe fn chunk_mut(&self, address: u64) -> &mut [u8] {
        let at = address as usize;
        assert!(at + self.shape.chunk_len as usize <= self.shape.umem_len(), "made by `tx_chunk`");
        // SAFETY: within the mapping; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.umem().add(at), self.shape.chunk_len as usize) }
    }

    /// The lock, unless somebody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        let header: *mut Header = self.mapping.start().as_ptr().cast();
        // SAFETY: the mutex was set up by whoever made the memory, and lies still.
        let got = unsafe { libc::pthread_mutex_trylock(&raw mut (*header).lock) };
        match got {
            0 => {}
            // Its holder died. What it was doing is lost (chunks, at worst), but no index is half-written.
            libc::EOWNERDEAD => {
                // SAFETY: we hold the mutex.
                unsafe { libc::pthread_mutex_consistent(&raw mut (*header).lock) };
            }
            _ => return None,
        }
        Some(Guard { header, of: std::marker::PhantomData })
    }

    /// The lock, off the hot path. `None`: somebody who has it was stopped.
    pub fn lock(&self) -> Option<Guard<'_>> {
        for _ in 0..LOCK_TRIES {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        None
    }
}

impl Deref for Guard<'_> {
    type Target = Account;

    #[inline]
    fn deref(&self) -> &Account {
        // SAFETY: the lock is held, so nobody writes; every bit pattern is an account.
        unsafe { &(*self.header).account }
    }
}

impl DerefMut for Guard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Account {
        // SAFETY: the lock is held, so nobody else reads or writes; every bit pattern is an account.
        unsafe { &mut (*self.header).account }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this thread holds the mutex: a guard is not `Send`.
        unsafe { libc::pthread_mutex_unlock(&raw mut (*self.header).lock) };
    }
}

impl Returned {
    /// Adds a chunk. One more than a member has is dropped: it was there already.
    #[inline]
    pub fn push(&mut self, chunk: u16) {
        if let Some(top) = self.chunks.get_mut(self.len as usize) {
            *top = chunk;
            self.len += 1;
        }
    }

    /// Takes them all.
    #[inline]
    pub fn take(&mut self) -> &[u16] {
        let len = std::mem::take(&mut self.len) as usize;
        &self.chunks[..len.min(TX_CHUNKS)]
    }
}

/// Endpoints that can share a queue.
pub const MEMBERS_MAX: usize = 16;
/// Chunks that each of them sends from: four bursts.
pub const TX_CHUNKS: usize = 128;
/// Frames that each endpoint's receive ring holds: as many as those of `uring`.
pub const RX_SLOTS: u32 = 256;
/// Chunks that are given back, or taken, at a time: enough to make the lock's cost vanish (20 ns), few enough to stay in
/// the first-level cache.
pub const BATCH: u32 = 32;
/// Chunks for frames to come that an endpoint can keep from the others: a full ring, and what waits to be given back.
/// As many more keep the fill ring from running dry meanwhile.
pub const RX_SHARE: u32 = RX_SLOTS + 2 * BATCH;
/// What the queue of a network card keeps for itself where it writes into our memory.
pub const HARDWARE_SHARE: u32 = 512;
/// Takes the place of what endpoints that were killed had in their rings: the kernel does not give it back.
const SPARE: u32 = 512;
/// All chunks for frames to come.
pub const RX_CHUNKS: u32 = MEMBERS_MAX as u32 * RX_SHARE + HARDWARE_SHARE + SPARE;

/// Where the chunks begin; a page of every architecture.
const UMEM_AT: usize = 64 << 10;
/// The kernel's smallest chunk (networking/af_xdp.rst), and right for an MTU of 1500.
const CHUNK_LEN_MIN: u32 = 2048;
/// The largest without huge pages.
const CHUNK_LEN_MAX: u32 = 4096;
/// What the kernel itself keeps free before each received frame (linux/bpf.h).
const XDP_PACKET_HEADROOM: u32 = 256;
/// Puts the payload of a received frame, which begins 22 bytes behind, on a cache line.
const ALIGNING_HEADROOM: u32 = 42;
/// pthread.h; the `libc` crate has it for other systems only.
const PTHREAD_MUTEX_ROBUST: libc::c_int = 1;
/// Half a second, at a hundred microseconds each.
const LOCK_TRIES: u32 = 5_000;

/// Changes with everything that two processes must agree on: the version, and the size of what libc puts here.
const LAYOUT: u64 = u64::from_be_bytes(*b"SLXDP\0\0\x01") | (size_of::<libc::pthread_mutex_t>() as u64) << 8;

const _: () = assert!(size_of::<Header>() <= UMEM_AT);
const _: () = assert!(offset_of!(Header, lock).is_multiple_of(align_of::<libc::pthread_mutex_t>()));
const _: () = assert!(
    (XDP_PACKET_HEADROOM + ALIGNING_HEADROOM) as usize + crate::encap::ether::HEADER_LEN == 5 * 64,
    "the payload of a received frame starts on a cache line"
);

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn shared() -> (std::os::fd::OwnedFd, Shared) {
        let shape = Shape::new(1514, false);
        let memory = sys::shared_memory(shape.memory_len()).unwrap();
        let shared = Shared::create(memory.as_fd(), shape).unwrap();
        (memory, shared)
    }

    #[test]
    fn ordinary_frames_take_two_kibibytes_and_jumbo_frames_what_a_page_holds() {
        assert_eq!(Shape::new(1514, false).chunk_len, 2048);
        assert_eq!(Shape::new(1514, true).chunk_len, 2048);
        assert_eq!(Shape::new(9014, true).chunk_len, 4096);
        assert!(Shape::new(9014, true).frame_len_max() < 9014);
    }

    #[test]
    fn the_longest_frame_does_not_depend_on_where_the_program_runs() {
        for frame_len in [3_798, 3_799, 9_014] {
            let max = [false, true].map(|native| Shape::new(frame_len, native).frame_len_max());
            assert_eq!(max, [3_798; 2], "{frame_len}");
        }
        for frame_len in 150..3_798 {
            let max = [false, true].map(|native| Shape::new(frame_len, native).frame_len_max());
            assert!(max.iter().all(|max| *max >= frame_len), "{frame_len}: {max:?}");
        }
    }

    #[test]
    fn a_second_mapping_sees_the_same_account_under_the_same_lock() {
        let (memory, first) = shared();
        let second = Shared::join(memory.as_fd()).unwrap().expect("it is ours");
        let mut guard = first.lock().unwrap();
        guard.given_out = 7;
        assert!(second.try_lock().is_none());
        drop(guard);
        assert_eq!(second.try_lock().unwrap().given_out, 7);
    }

    #[test]
    fn a_lock_whose_holder_died_is_free_again() {
        let (_memory, shared) = shared();
        struct Here<'a>(&'a Shared);
        // SAFETY: the mutex is made for several threads, and nothing but it is used.
        unsafe impl Send for Here<'_> {}
        // A thread that ends with the lock held is to the kernel what a killed process is.
        let here = Here(&shared);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let here = here;
                std::mem::forget(here.0.try_lock().unwrap());
            });
        });
        assert!(shared.lock().is_some());
        assert!(shared.try_lock().is_some(), "and free for good");
    }

    #[test]
    fn memory_of_others_is_not_joined() {
        let (memory, shared) = shared();
        // SAFETY: nobody else uses this memory.
        unsafe { *shared.mapping.start().as_ptr() ^= 1 };
        assert!(Shared::join(memory.as_fd()).unwrap().is_none());
        let short = sys::shared_memory(100).unwrap();
        assert!(Shared::join(short.as_fd()).unwrap().is_none());
    }

    #[test]
    fn every_chunk_to_send_from_has_one_owner() {
        let (_memory, shared) = shared();
        for (place, number) in [(0, 0), (0, TX_CHUNKS as u16 - 1), (MEMBERS_MAX as u32 - 1, 5)] {
            let address = shared.tx_chunk(place, number);
            assert_eq!(shared.owner(address + 42), Some((place, number)));
        }
        for nobodys in [0, shared.rx_chunk(RX_CHUNKS) - 1, shared.shape.umem_len() as u64, u64::MAX] {
            assert_eq!(shared.owner(nobodys), None, "{nobodys}");
        }
    }

    #[test]
    fn frames_outside_the_chunks_are_not_shown() {
        let (_memory, shared) = shared();
        let end = shared.shape.umem_len() as u64;
        // SAFETY: no kernel has this memory.
        unsafe {
            assert!(shared.frame(end - 8, 8).is_some());
            for (address, len) in [(end - 8, 9), (end, 1), (u64::MAX, 1), (u64::MAX - 3, u32::MAX)] {
                assert!(shared.frame(address, len).is_none());
            }
        }
    }

    #[test]
    fn memory_of_a_shape_that_cannot_be_is_not_joined() {
        let shape = Shape::new(1514, false);
        let joins = |chunk_len: u32, headroom: u32, more: usize| {
            let (memory, _shared) = shared();
            let file = File::from(memory);
            let fields = [chunk_len, headroom].map(u32::to_ne_bytes).concat();
            file.write_all_at(&fields, offset_of!(Header, shape) as u64).unwrap();
            let len = Shape { chunk_len, ..shape }.memory_len() + more;
            file.set_len(len as u64).unwrap();
            Shared::join(file.as_fd()).unwrap().is_some()
        };
        assert!(joins(shape.chunk_len, shape.headroom, 0));
        assert!(!joins(shape.chunk_len, shape.headroom, 4096), "of another length");
        assert!(!joins(shape.chunk_len, ALIGNING_HEADROOM + 1, 0), "more headroom");
        assert!(!joins(CHUNK_LEN_MIN / 2, shape.headroom, 0), "shorter chunks");
    }

    #[test]
    fn no_more_chunks_come_back_than_a_member_has() {
        let (_memory, shared) = shared();
        let returned = &mut shared.lock().unwrap().returned[0];
        (0..=TX_CHUNKS as u16).for_each(|chunk| returned.push(chunk));
        assert_eq!((returned.take().len(), returned.take().len()), (TX_CHUNKS, 0));
        returned.len = u32::MAX;
        assert_eq!(returned.take().len(), TX_CHUNKS);
    }
}
