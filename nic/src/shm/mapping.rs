//! Shared memory as the two ends of a connection see it.
//!
//! One memory per pair of endpoints, made by the one that dials:
//!
//! ```text
//!   0     control of the ring dialler -> answerer
//!   256   control of the ring answerer -> dialler
//!   4096  lines of the first ring, then lines of the second
//!         then the cells
//! ```
//!
//! And one page per endpoint with its doorbell, shared by all its peers.
#![allow(unsafe_code)] // Memory that another process writes too.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::draft;
use super::ring::{CELLS, Consumer, Control, Frame, HEADER_BYTES, LINE_BYTES, Memory, Place, Producer, Room};
use super::sync::{AtomicU32, Ordering};
use super::sys;
use crate::mapping::Mapping;
use crate::memfd;

/// Bytes of each of the two rings of a pair. Larger ones leave the second-level cache; see `mtu` for the largest frame.
pub(super) const RING_BYTES: usize = 256 << 10;

/// Bytes of each that are there from the beginning.
const BEGUN_BYTES: usize = 16 << 10;

/// Bytes of the memory that a pair shares.
pub(super) const PAIR_BYTES: usize = CELLS_AT + CELLS * CELL_BYTES;

/// Bytes of a cell: the longest frame.
pub(super) const CELL_BYTES: usize = (32 << 10) + 256;

const CELLS_AT: usize = CONTROL_BYTES + 2 * RING_BYTES;

/// Bytes of the memory that a doorbell lies in.
pub(super) const BELL_BYTES: usize = 4096;

/// One page of most machines, so that the rings start on a page there.
const CONTROL_BYTES: usize = 4096;

const RING_LINES: u32 = (RING_BYTES / LINE_BYTES) as u32;

const _: () = assert!(RING_LINES.is_power_of_two() && 2 * size_of::<Control>() <= CONTROL_BYTES);

/// What rings and doorbells lie in, mapped until the last of them is gone.
struct Mapped(Mapping);

// SAFETY: it hands out its address to rings and doorbells: all shared words there are atomics, and payload is touched in turns.
unsafe impl Sync for Mapped {}

/// One direction of a pair.
pub(super) struct Ring {
    control: NonNull<Control>,
    lines: NonNull<u8>,
    /// Of both directions.
    cells: NonNull<u8>,
    /// Keeps the memory that they point to.
    _mapping: Arc<Mapped>,
}

// SAFETY: all shared words are atomics, and payload is touched by the one producer and the one consumer only, in turns
// that the header words of the pair's rings give them.
unsafe impl Send for Ring {}

/// The word that an endpoint sleeps on.
#[derive(Clone)]
pub(super) struct Bell {
    mapping: Arc<Mapped>,
}

/// Maps the memory of a pair; returns the two rings in the order in which they lie there.
pub(super) fn map_pair(memory: &OwnedFd) -> io::Result<[Ring; 2]> {
    let mapping = map(memory, PAIR_BYTES)?;
    let start = mapping.0.start();
    // Not all of it: who has many peers says little to most of them.
    // SAFETY: all are within the PAIR_BYTES that were mapped.
    unsafe {
        sys::populate(start, CONTROL_BYTES + BEGUN_BYTES);
        sys::populate(start.add(CONTROL_BYTES + RING_BYTES), BEGUN_BYTES);
    }
    Ok([0, 1].map(|index| {
        // SAFETY: all are within the PAIR_BYTES that were mapped (asserted above for the control part).
        let (control, lines, cells) = unsafe {
            let lines = start.add(CONTROL_BYTES + index * RING_BYTES);
            (start.add(index * size_of::<Control>()), lines, start.add(CELLS_AT))
        };
        Ring { control: control.cast(), lines, cells, _mapping: Arc::clone(&mapping) }
    }))
}

impl Ring {
    /// Where the payload begins of a frame whose header is in `line`.
    #[inline]
    fn payload(&self, line: u32, place: Place) -> NonNull<u8> {
        debug_assert!(line < RING_LINES && place.cell().is_none_or(|cell| usize::from(cell) < CELLS));
        // SAFETY: the ring numbers its lines below RING_LINES, and each is LINE_BYTES long; cells are numbered below CELLS, and
        // each is CELL_BYTES long.
        unsafe {
            match place.cell() {
                None => self.lines.add(line as usize * LINE_BYTES + HEADER_BYTES),
                Some(cell) => self.cells.add(usize::from(cell) * CELL_BYTES),
            }
        }
    }
}

impl Ring {
    /// The same ring through the same mapping, for a second side in the same process.
    pub(super) fn twin(&self) -> Self {
        Self { control: self.control, lines: self.lines, cells: self.cells, _mapping: Arc::clone(&self._mapping) }
    }
}

impl Producer<Ring> {
    /// The payload of the frame that `room` was reserved for, with whatever the ring held there, or the draft.
    #[inline]
    pub(super) fn payload(&self, room: &Room) -> &[u8] {
        if room.is_drafted() {
            return self.draft().payload(room.len());
        }
        // SAFETY: as in `payload_mut`; the borrow of `self` keeps the room from being published.
        unsafe { slice::from_raw_parts(self.memory().payload(room.line(), room.place()).as_ptr(), room.len()) }
    }

    /// The same, to be written.
    #[inline]
    pub(super) fn payload_mut(&mut self, room: &mut Room) -> &mut [u8] {
        if room.is_drafted() {
            return self.draft_mut().payload_mut(room.len());
        }
        self.write();
        // SAFETY: room is made by `reserve` only, within the ring, and both rings of every pair are of one size; or by
        // `reserve_in`, for a cell that is ours and no shorter than any frame. The consumer has given its lines back, or the
        // cell, and all other slices of them borrow `self` too.
        unsafe { slice::from_raw_parts_mut(self.memory().payload(room.line(), room.place()).as_ptr(), room.len()) }
    }
}

impl Consumer<Ring> {
    /// Shows the next frame to `each` and gives it back. `None`: there is none. `Some(true)`: the producer waits for room.
    #[inline]
    pub(super) fn take(&mut self, each: impl FnOnce(&[u8])) -> Option<bool> {
        let frame = self.peek()?;
        each(self.payload(&frame));
        Some(self.release(frame))
    }

    /// The payload of a frame that is not released yet.
    #[inline]
    pub(super) fn payload(&self, frame: &Frame) -> &[u8] {
        // SAFETY: `peek` checked that the frame lies within the ring's lines or one cell, and a producer that follows the rules
        // does not write there until it is given back: a line by `release`, which takes the frame, a cell by a frame of ours.
        // One that does not (a process of the same user, which might as well use ptrace) can change the bytes under the
        // reader, but no address or length.
        unsafe { slice::from_raw_parts(self.memory().payload(frame.line(), frame.place()).as_ptr(), frame.len()) }
    }
}

impl Memory for Ring {
    #[inline]
    fn lines(&self) -> u32 {
        RING_LINES
    }

    #[inline]
    fn header(&self, line: u32) -> &AtomicU32 {
        debug_assert!(line < RING_LINES);
        // SAFETY: within the ring, aligned to a line, alive as long as `self`, and zeroed or written as an atomic or as
        // payload: every content is a number.
        unsafe { self.lines.add(line as usize * LINE_BYTES).cast().as_ref() }
    }

    #[inline]
    fn write(&self, line: u32, words: &[[u8; draft::WORD]]) {
        debug_assert!((HEADER_BYTES + words.len() * draft::WORD).div_ceil(LINE_BYTES) <= (RING_LINES - line) as usize);
        let payload = self.payload(line, Place::HERE).cast();
        for (at, word) in words.iter().enumerate().rev() {
            // SAFETY: within the lines that the ring has given to a room, which the consumer does not touch; 8 bytes behind the start
            // of a line, and whole words from there.
            unsafe { AtomicU64::from_ptr(payload.add(at).as_ptr()) }
                .store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    #[inline]
    fn control(&self) -> &Control {
        // SAFETY: within the mapping, which starts on a page, and nothing but atomics.
        unsafe { self.control.as_ref() }
    }
}

impl Bell {
    /// Maps the doorbell of an endpoint.
    pub(super) fn map(memory: &OwnedFd) -> io::Result<Self> {
        Ok(Self { mapping: map(memory, BELL_BYTES)? })
    }

    /// The word.
    #[inline]
    pub(super) fn word(&self) -> &AtomicU32 {
        // SAFETY: the start of a mapped page, alive as long as `self`, and only ever used as an atomic.
        unsafe { self.mapping.0.start().cast().as_ref() }
    }
}

/// New memory to be shared, all zeroes, whose size nobody can change any more.
pub(super) fn sealed_memory(len: usize) -> io::Result<OwnedFd> {
    let memory = memfd::create(c"sidelane-shm", len)?;
    memfd::seal(&memory, libc::F_SEAL_SEAL)?;
    Ok(memory.into())
}

/// Maps memory that has exactly `len` bytes, and will keep them.
fn map(memory: &OwnedFd, len: usize) -> io::Result<Arc<Mapped>> {
    if memfd::sealed_len(memory) != Some(len as u64) {
        let why = "memory of another size than agreed, or not sealed";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Mapping::lazy(memory.as_fd(), len).map(Mapped).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// An endpoint may have thousands of peers, and says little to most.
    #[test]
    fn a_pair_takes_the_memory_that_it_uses() {
        let memory = sealed_memory(PAIR_BYTES).unwrap();
        let taken = || File::from(memory.try_clone().unwrap()).metadata().unwrap().blocks() as usize * 512;
        let [mut there, back] = map_pair(&memory).unwrap().map(Producer::new);
        let at_first = taken();
        if at_first >= PAIR_BYTES {
            println!("skipped: this machine takes shared memory in huge pages");
            return;
        }
        assert!(at_first <= PAIR_BYTES / 8, "{at_first}");
        let mut room = there.reserve_in(3, CELL_BYTES).unwrap();
        there.payload_mut(&mut room).fill(1);
        there.publish(room);
        assert!(taken() >= at_first + CELL_BYTES / 4096 * 4096);
        drop(back);
    }
}
