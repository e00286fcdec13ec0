//! A byte ring whose entries are contiguous.
//!
//! Behind the `capacity` stands room for one more entry of the largest size, so an entry never has to be split at the end:
//! it may run over, and the next one starts again at the front. Why nothing is ever overwritten: with `used` bytes held and
//! `lap_end >= capacity` as the point where the writer turned round, `used = (lap_end - head) + tail`, hence
//! `used + len <= capacity` gives `tail + len <= head`.

use std::fmt;

/// FIFO of contiguous byte runs. Its memory is taken from the system at the first push.
pub(crate) struct ByteRing {
    bytes: Vec<u8>,
    capacity: usize,
    longest: usize,
    /// Where the oldest byte stands.
    head: usize,
    /// Where the next entry goes, if it still starts below `capacity`.
    tail: usize,
    /// Where the writer last turned round; `usize::MAX` while head and tail are on the same lap.
    lap_end: usize,
    used: usize,
}

/// Where things stand, without the bytes.
impl fmt::Debug for ByteRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, tail, lap_end, used, .. } = self;
        write!(f, "{used} at {head}..{tail}, turned at {lap_end}")
    }
}

impl ByteRing {
    /// An empty ring of `capacity` bytes for entries of at most `longest`.
    pub const fn new(capacity: usize, longest: usize) -> Self {
        Self { bytes: Vec::new(), capacity, longest, head: 0, tail: 0, lap_end: usize::MAX, used: 0 }
    }

    /// Bytes that may be held.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Longest entry.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Bytes held.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Takes room for `len` bytes at the end; `None` when the ring is that full. Returns where they stand.
    #[inline]
    pub fn push(&mut self, len: usize) -> Option<usize> {
        let at = self.spot(len)?;
        self.take_spot(at, len);
        Some(at)
    }

    /// Takes the room for `len` bytes that [`Self::spot`] has named, or room for fewer.
    #[inline]
    pub fn take_spot(&mut self, at: usize, len: usize) {
        if at != self.tail {
            self.lap_end = self.tail;
        }
        self.tail = at + len;
        self.used += len;
    }

    /// Where [`Self::push`] would put `len` bytes, to be written before it is called. Nothing is taken yet.
    #[inline]
    pub fn spot(&mut self, len: usize) -> Option<usize> {
        debug_assert!(len <= self.longest);
        if self.used + len > self.capacity {
            return None;
        }
        if self.bytes.is_empty() {
            self.allocate();
        }
        Some(if self.tail >= self.capacity { 0 } else { self.tail })
    }

    /// Releases the oldest `len` bytes, which must be a whole entry or several.
    #[inline]
    pub fn pop(&mut self, len: usize) {
        debug_assert!(len <= self.used);
        self.used -= len;
        if self.used == 0 {
            // Starts over at the front, so that a ring that is seldom full stays in the first cache lines.
            self.head = 0;
            self.tail = 0;
            self.lap_end = usize::MAX;
            return;
        }
        self.head = self.after(self.head, len);
        if self.head < self.tail {
            self.lap_end = usize::MAX;
        }
    }

    /// Where the oldest byte stands.
    #[inline]
    pub const fn head(&self) -> usize {
        if self.head == self.lap_end { 0 } else { self.head }
    }

    /// Where the entry behind the `len` bytes at `at` stands.
    #[inline]
    pub const fn after(&self, at: usize, len: usize) -> usize {
        let next = at + len;
        if next == self.lap_end { 0 } else { next }
    }

    /// Bytes from `at` on that are contiguous and held.
    #[inline]
    pub const fn contiguous(&self, at: usize) -> usize {
        if at < self.tail && (self.lap_end == usize::MAX || at < self.head || self.head == self.lap_end) {
            self.tail - at
        } else if self.lap_end == usize::MAX {
            0
        } else {
            self.lap_end - at
        }
    }

    #[inline]
    pub fn slice(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[at..at + len]
    }

    #[inline]
    pub fn slice_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        &mut self.bytes[at..at + len]
    }

    /// Gives the memory back if nothing is held.
    pub fn shrink(&mut self) {
        if self.used == 0 {
            self.bytes = Vec::new();
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    #[cold]
    fn allocate(&mut self) {
        self.bytes = vec![0; self.capacity + self.longest];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against the simple model: a queue of vectors.
        #[test]
        fn entries_come_out_as_they_went_in(steps in proptest::collection::vec((any::<bool>(), 1usize..40), 1..400)) {
            let mut ring = ByteRing::new(100, 40);
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            let mut stamp = 0u8;
            for (push, len) in steps {
                if push {
                    let fits = model.iter().map(Vec::len).sum::<usize>() + len <= 100;
                    let at = ring.push(len);
                    prop_assert_eq!(at.is_some(), fits);
                    if let Some(at) = at {
                        stamp = stamp.wrapping_add(1);
                        ring.slice_mut(at, len).fill(stamp);
                        model.push_back(vec![stamp; len]);
                    }
                } else if let Some(expected) = model.pop_front() {
                    prop_assert!(ring.contiguous(ring.head()) >= expected.len());
                    prop_assert_eq!(ring.slice(ring.head(), expected.len()), &expected[..]);
                    ring.pop(expected.len());
                }
                prop_assert_eq!(ring.used(), model.iter().map(Vec::len).sum::<usize>());
                let mut at = ring.head();
                for entry in &model {
                    prop_assert_eq!(ring.slice(at, entry.len()), &entry[..]);
                    at = ring.after(at, entry.len());
                }
            }
        }
    }
}
