//! Frames of ours: those received and being shown, those to be written, and those written and not yet sent.
#![allow(unsafe_code)] // Slices of packet buffers, and their way to the device and back.

use sidelane_dpdk_sys::sl_frame;

use super::sys::{CacheNumber, Pool, Queue, Shim};

/// Most frames handed over at once: what DPDK's drivers are built around.
pub const BURST: usize = 32;
/// Bytes of large frames that wait for a flush, before they go without one: four frames of 9 KB. The other side copies them meanwhile
/// (bench/NOTES.md 24c).
const STAGED_MAX: usize = 32 << 10;
/// Room of a large frame. Those of a network's usual MTU go in whole bursts.
const LARGE_MIN: usize = 4 << 10;

const NO_FRAME: sl_frame = sl_frame { data: std::ptr::null_mut(), mbuf: std::ptr::null_mut(), len: 0 };

/// A frame on its way from one owner to the next. Dropped, it is lost to its pool: only its owners hold it.
pub struct Frame(sl_frame);

// SAFETY: an mbuf belongs to no thread, and this frame has one owner.
unsafe impl Send for Frame {}

/// Received frames, shown one after another.
///
/// Shown frames are given back when the next burst is fetched: their way back costs then, and not between a request and
/// its answer.
pub struct RxBatch {
    shim: Shim,
    /// Of whoever fetches.
    pub cache: CacheNumber,
    frames: [sl_frame; BURST],
    /// Frames before this one were shown.
    next: usize,
    /// Frames before this one are ours.
    count: usize,
}

// SAFETY: an mbuf belongs to no thread, and these frames have one owner.
unsafe impl Send for RxBatch {}

impl RxBatch {
    pub fn new(shim: Shim, cache: CacheNumber) -> Self {
        Self { shim, cache, frames: [NO_FRAME; BURST], next: 0, count: 0 }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.next == self.count
    }

    /// There may have been more than it has places for.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.count == BURST
    }

    /// Fetches what the device has, once everything was shown. Frames in several mbufs, or longer than theirs, are counted in `misshapen`.
    ///
    /// # Safety
    /// The port is started, and no other thread receives at that queue, or uses the cache, meanwhile.
    #[inline]
    pub unsafe fn fetch(&mut self, from: Queue, misshapen: &mut u64) {
        debug_assert!(self.is_empty());
        self.give_back();
        // SAFETY: as the caller promises.
        self.count = unsafe { self.shim.rx_burst(from, self.cache, &mut self.frames, misshapen) };
    }

    /// The next frame's bytes.
    #[inline]
    pub fn show(&mut self) -> Option<&[u8]> {
        if self.is_empty() {
            return None;
        }
        self.next += 1;
        // SAFETY: it is ours until `give_back`, which needs this borrow to have ended.
        Some(unsafe { bytes(&self.frames[self.next - 1]) })
    }

    /// The next frame's bytes, to be shown again.
    pub fn peek(&self) -> Option<&[u8]> {
        // SAFETY: as above.
        self.frames[..self.count].get(self.next).map(|frame| unsafe { bytes(frame) })
    }

    /// Takes all out of a batch of which nothing was shown.
    pub fn drain(&mut self) -> impl Iterator<Item = Frame> {
        debug_assert_eq!(self.next, 0);
        let count = std::mem::take(&mut self.count);
        self.frames[..count].iter().map(|frame| Frame(*frame))
    }

    /// Takes a frame in, where one has a place.
    pub fn put(&mut self, frame: Frame) {
        debug_assert!(self.count < BURST);
        self.frames[self.count] = frame.0;
        self.count += 1;
    }

    /// Gives back what was shown, when everything was.
    #[inline]
    pub fn give_back(&mut self) {
        if self.count > 0 && self.is_empty() {
            // SAFETY: these are ours, and nobody reads them any more: `show` lends them for one borrow of `self` each.
            unsafe { self.shim.free_frames(self.cache, &mut self.frames[..self.count]) };
            (self.next, self.count) = (0, 0);
        }
    }
}

impl Drop for RxBatch {
    fn drop(&mut self) {
        self.next = self.count;
        self.give_back();
    }
}

impl Frame {
    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it has one owner, which is borrowed.
        unsafe { bytes(&self.0) }
    }

    /// Gives it back to its pool, at once.
    pub fn free(self, shim: Shim) {
        // SAFETY: it is ours, and with `self` it ends; without a cache.
        unsafe { shim.free_frames(CacheNumber::NONE, &mut [self.0]) };
    }
}

/// What a received frame holds.
///
/// # Safety
/// The frame is the caller's while the slice lives.
#[inline]
unsafe fn bytes(frame: &sl_frame) -> &[u8] {
    // SAFETY: the shim's frames are readable for their length; the rest as the caller promises.
    unsafe { std::slice::from_raw_parts(frame.data, frame.len as usize) }
}

/// Frames to be written, and frames written. A frame that the device does not take stays here.
pub struct TxBatch {
    shim: Shim,
    cache: CacheNumber,
    /// Empty frames, taken from the pool a burst at a time. The last one is lent next.
    spare: [sl_frame; BURST],
    spare_count: usize,
    staged: [sl_frame; BURST],
    staged_count: usize,
    /// Of all that is staged.
    staged_bytes: usize,
    /// Bytes from which on they go without a flush.
    due_at: usize,
    room: usize,
}

// SAFETY: an mbuf belongs to no thread, and these frames have one owner.
unsafe impl Send for TxBatch {}

impl TxBatch {
    /// Frames of `pool`. They start on a cache line, header first: a small frame is one line, and no more than that moves
    /// to the other core.
    pub fn new(shim: Shim, pool: &Pool, cache: CacheNumber) -> Self {
        let room = pool.room();
        Self {
            shim,
            cache,
            spare: [NO_FRAME; BURST],
            spare_count: 0,
            staged: [NO_FRAME; BURST],
            staged_count: 0,
            staged_bytes: 0,
            due_at: Self::due_at(room, 0),
            room,
        }
    }

    /// Not at once after the device has left `kept` bytes here: its ring is full.
    const fn due_at(room: usize, kept: usize) -> usize {
        if room < LARGE_MIN { usize::MAX } else { kept + STAGED_MAX }
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.staged_count == BURST
    }

    /// True when what waits is to go before more is written.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.is_full() || self.staged_bytes >= self.due_at
    }

    /// True when nothing waits to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.staged_count == 0
    }

    /// The room of an empty frame of `len` bytes; `None` when the pool has none.
    #[inline]
    pub fn lend(&mut self, pool: &Pool, len: usize) -> Option<&mut [u8]> {
        assert!(len <= self.room, "the driver lends no frame above its MTU");
        if self.spare_count == 0 && !self.restock(pool) {
            return None;
        }
        Some(self.lent_mut(len))
    }

    /// Once in so many frames. False: the pool is empty.
    #[cold]
    fn restock(&mut self, pool: &Pool) -> bool {
        // SAFETY: the cache is that of the endpoint that is borrowed.
        let is_there = unsafe { self.shim.alloc_frames(pool, self.cache, &mut self.spare) };
        self.spare_count = if is_there { BURST } else { 0 };
        is_there
    }

    /// The frame that was lent last.
    #[inline]
    pub fn lent(&self, len: usize) -> &[u8] {
        let frame = &self.spare[self.spare_count - 1];
        // SAFETY: as below. What was not written yet has the content that the frame had before.
        unsafe { std::slice::from_raw_parts(frame.data, len) }
    }

    /// The frame that was lent last, to be written.
    #[inline]
    pub fn lent_mut(&mut self, len: usize) -> &mut [u8] {
        let frame = &self.spare[self.spare_count - 1];
        // SAFETY: an empty frame of the pool has its room, from `data` on; `len` was compared
        // with it by `lend`. It is ours until it is staged, which needs this borrow to have ended.
        unsafe { std::slice::from_raw_parts_mut(frame.data, len) }
    }

    /// Makes the lent frame one to be sent, with `len` bytes. There has to be a place.
    #[inline]
    pub fn stage(&mut self, len: usize) {
        self.spare_count -= 1;
        let mut frame = self.spare[self.spare_count];
        frame.len = len as u32;
        self.staged[self.staged_count] = frame;
        self.staged_count += 1;
        self.staged_bytes += len;
    }

    /// Drops what was to be sent, so many frames: whom it was for is gone.
    #[cold]
    pub fn forget_staged(&mut self) -> usize {
        // SAFETY: what was handed over is no longer in `staged`.
        unsafe { self.shim.free_frames(self.cache, &mut self.staged[..self.staged_count]) };
        self.staged_bytes = 0;
        std::mem::take(&mut self.staged_count)
    }

    /// Hands to the device what it takes, for the peer before which so many have gone; frames and their bytes.
    ///
    /// # Safety
    /// The port is started, and no other thread sends at that queue, or uses the cache, meanwhile.
    #[inline]
    pub unsafe fn send(&mut self, to: Queue, life: u32) -> (usize, usize) {
        // SAFETY: the staged frames are ours; the rest as the caller promises.
        let sent = unsafe { self.shim.tx_burst(to, self.cache, &mut self.staged[..self.staged_count], life) };
        if sent < self.staged_count {
            return self.keep_after(sent);
        }
        self.staged_count = 0;
        self.due_at = Self::due_at(self.room, 0);
        (sent, std::mem::take(&mut self.staged_bytes))
    }

    /// Keeps what the device did not take; the frames that it did, and their bytes.
    #[cold]
    fn keep_after(&mut self, sent: usize) -> (usize, usize) {
        // The device owns, and may have freed, what it took: lengths are read from our own list.
        let bytes = self.staged[..sent].iter().map(|frame| frame.len as usize).sum();
        self.staged.copy_within(sent..self.staged_count, 0);
        self.staged_count -= sent;
        self.staged_bytes -= bytes;
        self.due_at = Self::due_at(self.room, self.staged_bytes);
        (sent, bytes)
    }
}

impl Drop for TxBatch {
    fn drop(&mut self) {
        // SAFETY: both are ours: what was handed over is no longer in `staged`.
        unsafe {
            self.shim.free_frames(self.cache, &mut self.spare[..self.spare_count]);
            self.shim.free_frames(self.cache, &mut self.staged[..self.staged_count]);
        }
    }
}
