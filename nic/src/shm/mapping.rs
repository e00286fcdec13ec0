//! Shared memory as the two ends of a connection see it.
//!
//! One memory per pair of endpoints, made by the one that dials:
//!
//! ```text
//!   0     control of the ring dialler -> answerer
//!   256   control of the ring answerer -> dialler
//!   4096  lines of the first ring, then lines of the second
//! ```
//!
//! And one page per endpoint with its doorbell, shared by all its peers.
#![allow(unsafe_code)] // Memory that another process writes too.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::ring::{Consumer, Control, HEADER_BYTES, LINE_BYTES, Memory, Producer, Room};
use super::sync::AtomicU32;
use super::sys;

/// Bytes of each of the two rings of a pair. Larger ones leave the second-level cache; see `mtu` for the largest frame.
pub(super) const RING_BYTES: usize = 256 << 10;

/// Bytes of the memory that a pair shares.
pub(super) const PAIR_BYTES: usize = CONTROL_BYTES + 2 * RING_BYTES;

/// Bytes of the memory that a doorbell lies in.
pub(super) const BELL_BYTES: usize = 4096;

/// One page, so that the rings start on a page.
const CONTROL_BYTES: usize = 4096;

const RING_LINES: u32 = (RING_BYTES / LINE_BYTES) as u32;

const _: () = assert!(RING_LINES.is_power_of_two() && 2 * size_of::<Control>() <= CONTROL_BYTES);

/// Shared memory, mapped until the last reference is gone.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address and a length; who reads and writes there is the business of rings and doorbells.
unsafe impl Send for Mapping {}
// SAFETY: as for Send: it has no operation but to hand out its address.
unsafe impl Sync for Mapping {}

/// One direction of a pair.
pub(super) struct Ring {
    control: NonNull<Control>,
    lines: NonNull<u8>,
    /// Keeps the memory that both point to.
    _mapping: Arc<Mapping>,
}

// SAFETY: all shared words are atomics, and payload is touched by the one producer and the one consumer only, in turns
// that the ring's header words give them.
unsafe impl Send for Ring {}

/// The word that an endpoint sleeps on.
#[derive(Clone)]
pub(super) struct Bell {
    mapping: Arc<Mapping>,
}

/// Maps the memory of a pair; returns the two rings in the order in which they lie there.
pub(super) fn map_pair(memory: &OwnedFd) -> io::Result<[Ring; 2]> {
    let mapping = Arc::new(Mapping::new(memory, PAIR_BYTES)?);
    let start = mapping.start;
    Ok([0, 1].map(|index| {
        // SAFETY: both are within the PAIR_BYTES that were mapped (asserted above for the control part).
        let (control, lines) =
            unsafe { (start.add(index * size_of::<Control>()), start.add(CONTROL_BYTES + index * RING_BYTES)) };
        Ring { control: control.cast(), lines, _mapping: Arc::clone(&mapping) }
    }))
}

impl Ring {
    /// Where a frame's payload begins.
    fn payload(&self, line: u32) -> NonNull<u8> {
        debug_assert!(line < RING_LINES);
        // SAFETY: the ring numbers its lines below RING_LINES, and each is LINE_BYTES long.
        unsafe { self.lines.add(line as usize * LINE_BYTES + HEADER_BYTES) }
    }
}

impl Ring {
    /// The same ring through the same mapping, for a second side in the same process.
    pub(super) fn twin(&self) -> Self {
        Self { control: self.control, lines: self.lines, _mapping: Arc::clone(&self._mapping) }
    }
}

impl Producer<Ring> {
    /// The payload of the frame that `room` was reserved for, with whatever the ring held there.
    #[inline]
    pub(super) fn payload(&self, room: &Room) -> &[u8] {
        // SAFETY: as in `payload_mut`; the borrow of `self` keeps the room from being published.
        unsafe { slice::from_raw_parts(self.memory().payload(room.line()).as_ptr(), room.len()) }
    }

    /// The same, to be written.
    #[inline]
    pub(super) fn payload_mut(&mut self, room: &mut Room) -> &mut [u8] {
        // SAFETY: room is made by `reserve` only, within the ring, and both rings of every pair are of one size. The
        // consumer has given its lines back, and all other slices of them borrow `self` too.
        unsafe { slice::from_raw_parts_mut(self.memory().payload(room.line()).as_ptr(), room.len()) }
    }
}

impl Consumer<Ring> {
    /// Shows the next frame to `each` and gives it back. `None`: there is none. `Some(true)`: the producer waits for room.
    #[inline]
    pub(super) fn take(&mut self, each: impl FnOnce(&[u8])) -> Option<bool> {
        let frame = self.peek()?;
        // SAFETY: `peek` checked that the frame's lines lie within the ring, and a producer that follows the rules does
        // not write them until they are given back, below. One that does not (a process of the same user, which might
        // as well use ptrace) can change the bytes under the reader, but no address or length.
        each(unsafe { slice::from_raw_parts(self.memory().payload(frame.line()).as_ptr(), frame.len()) });
        Some(self.release(frame))
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
    fn control(&self) -> &Control {
        // SAFETY: within the mapping, which starts on a page, and nothing but atomics.
        unsafe { self.control.as_ref() }
    }
}

impl Bell {
    /// Maps the doorbell of an endpoint.
    pub(super) fn map(memory: &OwnedFd) -> io::Result<Self> {
        Ok(Self { mapping: Arc::new(Mapping::new(memory, BELL_BYTES)?) })
    }

    /// The word.
    #[inline]
    pub(super) fn word(&self) -> &AtomicU32 {
        // SAFETY: the start of a mapped page, alive as long as `self`, and only ever used as an atomic.
        unsafe { self.mapping.start.cast().as_ref() }
    }
}

impl Mapping {
    fn new(memory: &OwnedFd, len: usize) -> io::Result<Self> {
        if !sys::is_sealed_memory(memory, len) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "memory of another size than agreed, or not sealed",
            ));
        }
        Ok(Self { start: sys::map(memory, len)?, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: rings and bells hold a reference as long as they hold an address within.
        unsafe { sys::unmap(self.start, self.len) };
    }
}
