//! Frames on the fabric, and the pool that they are taken from.

use std::ops::{Deref, DerefMut};

/// One frame. A single pointer, since it is moved from queue to queue: four words, written in parts and read as a whole,
/// stalled the processor at each move, which was half of a frame's way (perf on two endpoints of one thread).
pub(super) struct Frame(Box<Buffer>);

/// A buffer that is kept for the next frame, and how much of it this one takes.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

/// Buffers between two frames. What is on the fabric at once decides how many there are.
#[derive(Default)]
pub(super) struct Pool {
    spare: Vec<Frame>,
}

impl Frame {
    pub(super) fn truncate(&mut self, len: usize) {
        self.0.len = self.0.len.min(len);
    }
}

impl Pool {
    /// A frame of `len` bytes with whatever its buffer held before.
    pub(super) fn take(&mut self, len: usize) -> Frame {
        let mut frame = self.spare.pop().unwrap_or_else(|| Frame(Box::default()));
        if frame.0.bytes.len() < len {
            frame.0.bytes.resize(len.next_power_of_two(), 0);
        }
        frame.0.len = len;
        frame
    }

    pub(super) fn give_back(&mut self, frame: Frame) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(frame);
        }
    }

    pub(super) fn copy(&mut self, original: &Frame) -> Frame {
        let mut copy = self.take(original.len());
        copy.copy_from_slice(original);
        copy
    }
}

impl Deref for Frame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes[..self.0.len]
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0.bytes[..self.0.len]
    }
}

/// Spare buffers kept at most, so that a burst of thousands of frames is not held for ever.
const SPARE_MAX: usize = 1024;
