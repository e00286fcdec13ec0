//! Memory of the user's that messages are sent from and received into.
#![allow(unsafe_code)] // Who calls gives addresses: the lent memory outlives the call.

use std::ptr::NonNull;

use sidelane_nic::Nic;
use sidelane_nic::copy::copy;
use sidelane_proto::{Endpoint, Region};

/// Bytes to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    start: NonNull<u8>,
    len: usize,
}

/// Room for bytes that are received.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: whoever made it has promised that the memory may be read, on whatever thread the device is used.
unsafe impl Send for Outgoing {}
// SAFETY: as for `Outgoing`, and that nobody else touches it.
unsafe impl Send for Incoming {}

impl Outgoing {
    /// No bytes.
    pub const EMPTY: Self = Self { start: NonNull::dangling(), len: 0 };

    /// Lends `bytes` to one send.
    ///
    /// # Safety
    /// The bytes stay where they are, and nobody writes them, until the send is complete (or, for one that is
    /// freed before, until the device is closed).
    pub const unsafe fn lend(bytes: *const [u8]) -> Self {
        match NonNull::new(bytes.cast::<u8>().cast_mut()) {
            Some(start) => Self { start, len: bytes.len() },
            None => Self::EMPTY,
        }
    }

    /// How many bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True without bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes are, for another process.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    #[inline]
    pub(super) const fn bytes(&self) -> &[u8] {
        // SAFETY: `lend`'s caller promised that the bytes are there and are not written until the send is complete, and
        // a request drops its memory when it completes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes from `at` on, as a region that is only read.
    pub(super) fn register<N: Nic>(&self, at: usize, endpoint: &mut Endpoint<N>) -> Region {
        debug_assert!(at <= self.len);
        // SAFETY: as in `bytes`. No key of the region is ever published, so nobody writes it.
        unsafe { endpoint.register_raw(self.start.add(at), self.len - at) }
    }
}

impl Incoming {
    /// No room.
    pub const EMPTY: Self = Self { start: NonNull::dangling(), len: 0 };

    /// Lends `room` to one receive.
    ///
    /// # Safety
    /// The room stays where it is, and nobody else reads or writes it, until the receive is complete (or, for
    /// one that is freed before, until the device is closed).
    pub const unsafe fn lend(room: *mut [u8]) -> Self {
        match NonNull::new(room.cast::<u8>()) {
            Some(start) => Self { start, len: room.len() },
            None => Self::EMPTY,
        }
    }

    /// How many bytes find room.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True without room.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the room is, for another process.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// The room.
    #[inline]
    pub(super) const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `lend`'s caller promised that the room is there for us alone until the receive is complete, and a
        // request drops its memory when it completes. The value is copied only from the request that owns it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Copies as many of `bytes` into the room as it takes, and returns how many.
    #[inline]
    pub(super) fn fill(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.len);
        let (room, bytes) = (&mut self.bytes_mut()[..taken], &bytes[..taken]);
        // The first eight and the last eight, which may be the same: a call would take longer than they do.
        if taken <= 16
            && let (Some(&first), Some(&last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>())
            && let Some(place) = room.first_chunk_mut()
        {
            *place = first;
            if let Some(place) = room.last_chunk_mut() {
                *place = last;
            }
        } else {
            copy(room, bytes);
        }
        taken
    }

    /// Copies as many of `bytes` to `at` as find room there.
    pub(super) fn fill_at(&mut self, at: usize, bytes: &[u8]) {
        let end = (at + bytes.len()).min(self.len);
        if at < end {
            copy(&mut self.bytes_mut()[at..end], &bytes[..end - at]);
        }
    }

    /// The bytes of `range` as a region that its peer may write.
    pub(super) fn register<N: Nic>(&self, range: std::ops::Range<usize>, endpoint: &mut Endpoint<N>) -> Region {
        debug_assert!(range.end <= self.len);
        // SAFETY: as in `bytes_mut`; the device does not touch the room while the region is registered.
        unsafe { endpoint.register_raw(self.start.add(range.start), range.len()) }
    }
}
