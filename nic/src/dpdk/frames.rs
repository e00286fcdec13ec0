//! Frames of ours: those received and being shown, those to be written, and those written and not yet sent.
#![allow(unsafe_code)] // Slices of packet buffers, and their way to the device and back.

use sidelane_dpdk_sys::{SL_FLAGS_ATTACHED, SL_HEADROOM, sl_mbuf};

use super::port::Port;
use super::sys::{CacheNumber, Pool, Queue, Shim};
use crate::prefetch;

/// Most frames handed over at once: what DPDK's drivers are built around.
pub const BURST: usize = 32;
/// Bytes of large frames that wait for a flush, before they go without one: four frames of 9 KB. The other side copies them meanwhile
/// (bench/NOTES.md 24c).
const STAGED_MAX: usize = 32 << 10;
/// Room of a large frame. Those of a network's usual MTU go in whole bursts.
const LARGE_MIN: usize = 4 << 10;

const NO_FRAME: *mut sl_mbuf = std::ptr::null_mut();

/// A frame on its way from one owner to the next. Dropped, it is lost to its pool: only its owners hold it.
pub struct Frame(*mut sl_mbuf);

// SAFETY: an mbuf belongs to no thread, and this frame has one owner.
unsafe impl Send for Frame {}

/// Received frames, shown one after another.
///
/// Shown frames become the next ones to be written: who writes where it has just read needs no other lines of memory from its peer
/// (`bench/NOTES.md` 75). Others are given back when the next burst is fetched: their way back costs then, and not between a request and
/// its answer.
pub struct RxBatch {
    shim: Shim,
    /// Of whoever fetches.
    pub cache: CacheNumber,
    frames: [*mut sl_mbuf; BURST],
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

    /// Fetches what the device has, once everything was shown: nothing of a peer before which more than `life` have gone.
    ///
    /// # Safety
    /// The port is started, and no other thread receives at that queue, or uses the cache, meanwhile.
    #[inline]
    pub unsafe fn fetch(&mut self, from: &Queue, life: u32) {
        debug_assert!(self.is_empty());
        self.give_back();
        // SAFETY: as the caller promises.
        self.count = unsafe { self.shim.rx_burst(from, self.cache, &mut self.frames, life) };
    }

    /// The next frame's bytes.
    #[inline]
    pub fn show(&mut self) -> Option<&[u8]> {
        if self.is_empty() {
            return None;
        }
        self.next += 1;
        // SAFETY: it is ours until `give_back`, which needs this borrow to have ended.
        Some(unsafe { bytes(self.frames[self.next - 1]) })
    }

    /// The next frame's bytes, to be shown again.
    pub fn peek(&self) -> Option<&[u8]> {
        // SAFETY: as above.
        self.frames[..self.count].get(self.next).map(|frame| unsafe { bytes(*frame) })
    }

    /// The frame shown last, as an empty one of the pool, if everything was shown.
    #[inline]
    fn renew(&mut self, pool: &Pool) -> Option<*mut sl_mbuf> {
        let last = self.count.checked_sub(1).filter(|_| self.is_empty())?;
        let frame = self.frames[last];
        // SAFETY: it is ours, and nobody reads it any more: `show` lends each for one borrow of `self`.
        let mbuf = unsafe { &mut *frame };
        if !pool.is_of(mbuf) || !empty(mbuf) {
            return None;
        }
        (self.next, self.count) = (last, last);
        Some(frame)
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
            self.give_back_all();
        }
    }

    /// Out of line, since most looks at a device find nothing, and have nothing to give back.
    #[inline(never)]
    fn give_back_all(&mut self) {
        // SAFETY: these are ours, and nobody reads them any more: `show` lends them for one borrow of `self` each.
        unsafe { self.shim.free_frames(self.cache, &mut self.frames[..self.count]) };
        (self.next, self.count) = (0, 0);
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
        unsafe { bytes(self.0) }
    }

    /// Gives it back to its pool, at once.
    pub fn free(self, shim: Shim) {
        // SAFETY: it is ours, and with `self` it ends; without a cache.
        unsafe { shim.free_frames(CacheNumber::NONE, &mut [self.0]) };
    }
}

/// What a received frame holds. Nothing, if it is not as we would ever send it: mbufs hold the longest frame, so only one that breaks the MTU
/// is in several. And some drivers (memif without a copy, virtio-user) take a frame's length from the other side as it is.
///
/// # Safety
/// The frame is the caller's while the slice lives.
#[inline]
unsafe fn bytes<'a>(frame: *mut sl_mbuf) -> &'a [u8] {
    // SAFETY: an mbuf of the pool, which nobody else changes; its buffer is readable for its length.
    unsafe {
        let mbuf = &*frame;
        let (from, len) = (usize::from(mbuf.data_offset), usize::from(mbuf.data_len));
        if mbuf.segments != 1 || from + len > usize::from(mbuf.buffer_len) {
            return &[];
        }
        std::slice::from_raw_parts(mbuf.buffer.add(from), len)
    }
}

/// Makes a received frame one to be written, as `alloc_frames` gives them, in what the device looks at: without flags it asks nothing else of
/// it. False: it can't be, since it is in pieces, or its buffer is another's too.
#[inline]
const fn empty(mbuf: &mut sl_mbuf) -> bool {
    if mbuf.segments != 1 || mbuf.references != 1 || mbuf.flags & SL_FLAGS_ATTACHED != 0 {
        return false;
    }
    (mbuf.flags, mbuf.data_offset) = (0, SL_HEADROOM as u16);
    true
}

/// Tells the processor that another core will read the line next, which then finds it in the cache of both: some 20 ns of 400 on an Intel
/// Xeon (`bench/NOTES.md` 75). A hint (Intel's manual, volume 2, CLDEMOTE): nothing happens where the processor has none.
#[inline]
fn demote(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads and writes nothing, and no address is wrong.
    unsafe {
        std::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
    }
}

/// Not at once after the device has left `kept` bytes here: its ring is full.
const fn due_at(room: usize, kept: usize) -> usize {
    if room < LARGE_MIN { usize::MAX } else { kept + STAGED_MAX }
}

/// Where a frame begins.
///
/// # Safety
/// It is the caller's.
#[inline]
unsafe fn data(frame: *mut sl_mbuf) -> *mut u8 {
    // SAFETY: an mbuf, of which nobody else changes anything; frames begin within their buffers.
    unsafe { (*frame).buffer.add(usize::from((*frame).data_offset)) }
}

/// Frames to be written, and frames written. A frame that the device does not take stays here.
pub struct TxBatch {
    shim: Shim,
    cache: CacheNumber,
    /// Written and sent one after another: sent, then staged, then empty ones.
    frames: [*mut sl_mbuf; BURST],
    /// Frames before this one are the device's.
    sent: usize,
    /// Frames before this one were written. The next one is lent.
    written: usize,
    /// Frames before this one are there.
    count: usize,
    /// So many went the last time.
    usual: usize,
    /// Of all that is staged.
    staged_bytes: usize,
    /// Bytes from which on they go without a flush.
    due_at: usize,
    /// As much, where the device took everything.
    due_usually: usize,
    room: usize,
    /// The peer reads a frame where we wrote it.
    read_in_place: bool,
}

// SAFETY: an mbuf belongs to no thread, and these frames have one owner.
unsafe impl Send for TxBatch {}

impl TxBatch {
    /// Frames of the port's pool. They start on a cache line, header first: a small frame is one line, and no more than that moves
    /// to the other core.
    pub fn new(port: &Port, cache: CacheNumber) -> Self {
        Self::with_room(port.shim, cache, port.pool().room(), port.device.lends_frames())
    }

    fn with_room(shim: Shim, cache: CacheNumber, room: usize, read_in_place: bool) -> Self {
        Self {
            shim,
            cache,
            frames: [NO_FRAME; BURST],
            sent: 0,
            written: 0,
            count: 0,
            usual: 1,
            staged_bytes: 0,
            due_at: due_at(room, 0),
            due_usually: due_at(room, 0),
            room,
            read_in_place,
        }
    }

    /// True when what waits is to go before more is written.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.written - self.sent == BURST || self.staged_bytes >= self.due_at
    }

    /// True when nothing waits to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.written == self.sent
    }

    /// The room of an empty frame of `len` bytes; `None` when a burst waits already, or there is none, neither among those shown nor in
    /// the pool.
    #[inline]
    pub fn lend(&mut self, port: &Port, shown: &mut RxBatch, len: usize) -> Option<&mut [u8]> {
        assert!(len <= self.room, "the driver lends no frame above its MTU");
        if self.written == self.count && !self.take_one_shown(port.pool(), shown) && !self.restock(port.pool()) {
            return None;
        }
        Some(self.lent_mut(len))
    }

    /// False: there is none, or no place for it.
    #[inline]
    fn take_one_shown(&mut self, pool: &Pool, shown: &mut RxBatch) -> bool {
        if self.is_empty() {
            (self.sent, self.written, self.count) = (0, 0, 0);
        }
        let Some(place) = self.frames.get_mut(self.count) else { return false };
        let Some(frame) = shown.renew(pool) else { return false };
        *place = frame;
        self.count += 1;
        true
    }

    /// From the pool. False: all places have frames that wait, or it is empty.
    #[cold]
    fn restock(&mut self, pool: &Pool) -> bool {
        self.frames.copy_within(self.sent..self.written, 0);
        self.written -= self.sent;
        (self.sent, self.count) = (0, self.written);
        // No more than will go soon, or the next answers would be in these.
        let soon = self.usual.max(self.written).min(BURST - self.written);
        let places = &mut self.frames[self.written..][..soon];
        // SAFETY: the cache is that of the endpoint that is borrowed.
        if soon == 0 || !unsafe { self.shim.alloc_frames(pool, self.cache, places) } {
            return false;
        }
        if soon > 1 {
            // Who reads a frame where we wrote it may have its line from the time before. All come at once, where each would wait for the one
            // before it (bench/NOTES.md 77).
            for frame in &self.frames[self.written..][..soon] {
                // SAFETY: as above, it is ours.
                prefetch::to_write(unsafe { data(*frame) });
            }
        }
        self.count += soon;
        true
    }

    /// The frame that was lent last.
    #[inline]
    pub fn lent(&self, len: usize) -> &[u8] {
        // SAFETY: as below. What was not written yet has the content that the frame had before.
        unsafe { std::slice::from_raw_parts(data(self.frames[self.written]), len) }
    }

    /// The frame that was lent last, to be written.
    #[inline]
    pub fn lent_mut(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: an empty frame of the pool has its room, from `data` on; `len` was compared
        // with it by `lend`. It is ours until it is staged, which needs this borrow to have ended.
        unsafe { std::slice::from_raw_parts_mut(data(self.frames[self.written]), len) }
    }

    /// Makes the lent frame one to be sent, with `len` bytes.
    #[inline]
    pub fn stage(&mut self, len: usize) {
        // SAFETY: it was lent, so it is ours and there.
        let mbuf = unsafe { &mut *self.frames[self.written] };
        (mbuf.data_len, mbuf.frame_len) = (len as u16, len as u32);
        self.written += 1;
        self.staged_bytes += len;
    }

    /// Drops what was to be sent, so many frames: whom it was for is gone.
    #[cold]
    pub fn forget_staged(&mut self) -> usize {
        // SAFETY: these are ours: the device has those before them.
        unsafe { self.shim.free_frames(self.cache, &mut self.frames[self.sent..self.written]) };
        (self.staged_bytes, self.due_at) = (0, self.due_usually);
        let forgotten = self.written - self.sent;
        self.sent = self.written;
        forgotten
    }

    /// Hands to the device what it takes, for the peer before which so many have gone; frames and their bytes.
    ///
    /// # Safety
    /// The port is started, and no other thread sends at that queue, or uses the cache, meanwhile.
    #[inline]
    pub unsafe fn send(&mut self, to: &Queue, life: u32) -> (usize, usize) {
        let staged = &mut self.frames[self.sent..self.written];
        let lone = match staged {
            // SAFETY: it is ours.
            [frame] if self.read_in_place => Some(unsafe { data(*frame) }),
            _ => None,
        };
        // SAFETY: the staged frames are ours; the rest as the caller promises.
        let taken = unsafe { self.shim.tx_burst(to, self.cache, staged, life) };
        if let Some(line) = lone {
            demote(line);
        }
        if taken < staged.len() {
            return self.keep_after(taken);
        }
        self.sent = self.written;
        self.usual = taken;
        self.due_at = self.due_usually;
        (taken, std::mem::take(&mut self.staged_bytes))
    }

    /// Keeps what the device did not take; the frames that it did, and their bytes.
    #[cold]
    fn keep_after(&mut self, taken: usize) -> (usize, usize) {
        self.sent += taken;
        // SAFETY: these are still ours. What the device took it may have freed.
        let kept =
            self.frames[self.sent..self.written].iter().map(|frame| unsafe { (**frame).frame_len as usize }).sum();
        self.due_at = due_at(self.room, kept);
        (taken, std::mem::replace(&mut self.staged_bytes, kept) - kept)
    }
}

impl Drop for TxBatch {
    fn drop(&mut self) {
        // SAFETY: these are ours: the device has those before them.
        unsafe { self.shim.free_frames(self.cache, &mut self.frames[self.sent..self.count]) };
    }
}

#[cfg(test)]
mod tests;
