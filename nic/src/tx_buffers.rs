//! Transmit buffers of a driver that copies frames into the kernel: fixed in number and size, there from the start.
//!
//! A buffer is free again as soon as the kernel has copied its frame, and the next frame gets the buffer that is hottest
//! in the cache (the free list is a stack).

use std::ops::{Deref, DerefMut};

use crate::TxSlot;

/// Buffers of one size.
pub(crate) struct TxBuffers {
    area: Box<[u8]>,
    buffer_len: usize,
    /// Buffers neither queued nor being sent; the last one is lent next.
    free: Vec<u16>,
}

/// A frame in a buffer: which one, and where its bytes are.
#[derive(Clone, Copy)]
pub(crate) struct Filled {
    buffer: u16,
    start: u16,
    end: u32,
}

/// A free buffer that may become a frame. Dropped without [`Lease::take`], it was never taken.
pub(crate) struct Lease<'a> {
    /// What stands before the payload.
    pub header: &'a [u8],
    /// To be written by the layer above.
    pub payload: &'a mut [u8],
    filled: Filled,
    free: &'a mut Vec<u16>,
}

/// A frame in its driver's queue.
pub(crate) trait Queued {
    /// What the driver has to know of a frame besides its bytes.
    type Destination: Copy;

    fn new(to: Self::Destination, frame: Filled) -> Self;
}

/// A free buffer whose frame is put at the end of a queue. Dropped without `commit`, it was never taken.
pub(crate) struct Lent<'a, Q: Queued> {
    pub lease: Lease<'a>,
    pub to: Q::Destination,
    pub queue: &'a mut Vec<Q>,
}

impl TxBuffers {
    /// `count` buffers for payloads of up to `payload_max` bytes, with room for a header before each.
    pub fn new(count: u16, payload_max: usize) -> Self {
        let buffer_len = (PAYLOAD_AT + payload_max).next_multiple_of(PAYLOAD_AT);
        // Written, not just zero-allocated, so that every page is there before the first frame needs it
        // (a first touch costs microseconds).
        let mut area = Vec::with_capacity(usize::from(count) * buffer_len);
        area.resize(usize::from(count) * buffer_len, 0xff);
        Self { area: area.into_boxed_slice(), buffer_len, free: (0..count).rev().collect() }
    }

    /// Lends a buffer with `header` in it and `payload_len` bytes behind; `None` when all are taken.
    #[inline]
    pub fn lend(&mut self, header: &[u8], payload_len: usize) -> Option<Lease<'_>> {
        let buffer = *self.free.last()?;
        let start = PAYLOAD_AT - header.len();
        let at = usize::from(buffer) * self.buffer_len;
        // The payload starts on a cache line, whatever stands before it.
        let (front, back) = self.area[at..at + self.buffer_len].split_at_mut(PAYLOAD_AT);
        front[start..].copy_from_slice(header);
        Some(Lease {
            header: &front[start..],
            payload: &mut back[..payload_len],
            filled: Filled { buffer, start: start as u16, end: (PAYLOAD_AT + payload_len) as u32 },
            free: &mut self.free,
        })
    }

    /// A frame's bytes, header and payload.
    #[inline]
    pub fn bytes(&self, filled: Filled) -> &[u8] {
        let at = usize::from(filled.buffer) * self.buffer_len;
        &self.area[at..at + self.buffer_len][usize::from(filled.start)..filled.end as usize]
    }

    /// A frame's payload.
    #[inline]
    pub fn payload(&self, filled: Filled) -> &[u8] {
        &self.bytes(filled)[PAYLOAD_AT - usize::from(filled.start)..]
    }

    /// Takes a frame's buffer back.
    #[inline]
    pub fn free(&mut self, filled: Filled) {
        self.free.push(filled.buffer);
    }
}

impl Filled {
    /// Bytes of the payload.
    #[inline]
    pub fn payload_len(self) -> usize {
        self.end as usize - PAYLOAD_AT
    }
}

impl Lease<'_> {
    /// Makes the buffer a frame of its taker's, until [`TxBuffers::free`].
    #[inline]
    pub fn take(self) -> Filled {
        self.free.pop();
        self.filled
    }
}

impl<Q: Queued> Deref for Lent<'_, Q> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.lease.payload
    }
}

impl<Q: Queued> DerefMut for Lent<'_, Q> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.lease.payload
    }
}

impl<Q: Queued> TxSlot for Lent<'_, Q> {
    #[inline]
    fn commit(self) {
        let frame = self.lease.take();
        self.queue.push(Q::new(self.to, frame));
    }
}

/// Headers end and payloads start here in a buffer: one cache line.
const PAYLOAD_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_lease_leaves_the_buffer_free() {
        let mut buffers = TxBuffers::new(1, 100);
        let _ = buffers.lend(b"head", 10);
        let taken = buffers.lend(b"head", 10).unwrap().take();
        assert!(buffers.lend(b"head", 10).is_none(), "there is one buffer");
        buffers.free(taken);
        assert!(buffers.lend(b"head", 10).is_some());
    }

    #[test]
    fn frames_of_all_lengths_stay_apart() {
        let mut buffers = TxBuffers::new(8, 200);
        let lengths = [0, 1, 63, 64, 65, 128, 199, 200];
        let frames: Vec<Filled> = (1u8..)
            .zip(lengths)
            .map(|(number, len)| {
                let lease = buffers.lend(&[number; 20], len).unwrap();
                lease.payload.fill(number);
                lease.take()
            })
            .collect();
        for ((number, len), frame) in (1u8..).zip(lengths).zip(&frames) {
            assert_eq!(buffers.bytes(*frame), vec![number; 20 + len]);
            assert_eq!(frame.payload_len(), len);
        }
    }
}
