//! One of the rings that an AF_XDP socket shares with the kernel (networking/af_xdp.rst, "Rings").
//!
//! A producer's and a consumer's index, both free-running and each written by one side, and a power of two of entries.
//! Entries from the consumer's index up to the producer's hold something; the others are the producer's to fill.
#![allow(unsafe_code)] // Memory shared with the kernel.

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::sys::{self, RingKind};
use crate::mapping::Mapping;

/// A mapped ring of entries `T`: descriptors ([`libc::xdp_desc`]) or addresses of chunks (`u64`), for which every bit
/// pattern is a value.
pub struct Ring<T: Copy> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    mask: u32,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `socket`, which was created with `count` entries.
    pub fn map(socket: BorrowedFd, kind: RingKind, count: u32) -> io::Result<Self> {
        let (layout, at) = sys::ring_layout(socket, kind)?;
        let len = layout.desc as usize + count as usize * size_of::<T>();
        let mapping = Mapping::of(socket, len, at)?;
        let [producer, consumer, flags, entries] =
            [layout.producer, layout.consumer, layout.flags, layout.desc].map(|offset| offset as usize);
        assert!(count.is_power_of_two(), "the kernel takes no other rings");
        for index in [producer, consumer, flags] {
            assert!(index + 4 <= entries && index.is_multiple_of(4), "the kernel lays indices out before entries");
        }
        assert!(entries.is_multiple_of(size_of::<u64>()), "entries are aligned");
        Ok(Self { mapping, producer, consumer, flags, entries, mask: count - 1, of: PhantomData })
    }

    /// Entries that it has room for.
    #[inline]
    pub fn len(&self) -> u32 {
        self.mask + 1
    }

    /// How far it is filled. Entries below may be read.
    #[inline]
    pub fn producer(&self) -> u32 {
        // Pairs with the producer's release: whoever sees the index sees the entries below it.
        self.word(self.producer).load(Ordering::Acquire)
    }

    /// How far it is emptied. Entries below may be written again.
    #[inline]
    pub fn consumer(&self) -> u32 {
        // Pairs with the consumer's release: whoever sees the index may overwrite what was read before it.
        self.word(self.consumer).load(Ordering::Acquire)
    }

    /// Entries that hold something. Never more than there are, whatever is in the memory.
    #[inline]
    pub fn filled(&self) -> u32 {
        self.producer().wrapping_sub(self.consumer()).min(self.len())
    }

    /// The entries that held something at the call: whose consumer goes on meanwhile may have taken some of them by now. Only its
    /// producer, who overwrites none while it reads, may ask.
    pub fn held(&self) -> impl Iterator<Item = T> + '_ {
        // Once: entries from a later index on, as many as from this one, would reach beyond the producer's.
        let at = self.consumer();
        let count = self.producer().wrapping_sub(at).min(self.len());
        (0..count).map(move |index| self.read(at.wrapping_add(index)))
    }

    /// Hands over everything written below `index`.
    #[inline]
    pub fn set_producer(&self, index: u32) {
        self.word(self.producer).store(index, Ordering::Release);
    }

    /// Gives back everything read below `index`.
    #[inline]
    pub fn set_consumer(&self, index: u32) {
        self.word(self.consumer).store(index, Ordering::Release);
    }

    /// True when the kernel sleeps until it is told of new entries.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// The entry at `index`. What it says is meaningful between the two indices only.
    #[inline]
    pub fn read(&self, index: u32) -> T {
        // SAFETY: the masked index is below the count that the mapping was made for, entries are aligned, and every bit
        // pattern is a `T`. The kernel writes no entry that it has handed over.
        unsafe { self.entry(index).read_volatile() }
    }

    /// Writes the entry at `index`, which takes effect by [`Ring::set_producer`].
    #[inline]
    pub fn write(&self, index: u32, entry: T) {
        // SAFETY: as in `read`; the kernel reads no entry before it is handed over.
        unsafe { self.entry(index).write_volatile(entry) };
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        debug_assert!(self.entries + (self.mask as usize + 1) * size_of::<T>() <= self.mapping.len());
        // SAFETY: stays within the mapping: the index is masked.
        unsafe { self.mapping.start().as_ptr().add(self.entries).cast::<T>().add((index & self.mask) as usize) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` is aligned and within the mapping (checked in `map`), and both sides access the word atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.start().as_ptr().add(at).cast()) }
    }
}

#[cfg(test)]
impl<T: Copy> Ring<T> {
    /// One of `count` entries that no kernel has, in that memory.
    pub fn within(memory: BorrowedFd, count: u32) -> Self {
        const ENTRIES: usize = 192;
        let mapping = Mapping::of(memory, ENTRIES + count as usize * size_of::<T>(), 0).unwrap();
        Self { mapping, producer: 0, consumer: 64, flags: 128, entries: ENTRIES, mask: count - 1, of: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const LEN: u32 = 8;

    fn ring() -> Ring<u64> {
        Ring::within(sys::shared_memory(4096).unwrap().as_fd(), LEN)
    }

    #[test]
    fn what_is_held_ends_at_the_producer_while_the_consumer_goes_on() {
        let ring = ring();
        // Indices wrap around too.
        let start = u32::MAX - 2;
        ring.set_consumer(start);
        for number in 0..6 {
            ring.write(start.wrapping_add(number), u64::from(number) + 1);
        }
        ring.set_producer(start.wrapping_add(6));
        let mut held = ring.held();
        assert_eq!(held.next(), Some(1));
        ring.set_consumer(start.wrapping_add(4));
        assert_eq!(held.collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
        assert_eq!(ring.held().collect::<Vec<_>>(), [5, 6]);
        ring.set_consumer(start.wrapping_add(6));
        assert_eq!(ring.held().count(), 0);
        // An index that cannot be.
        ring.set_consumer(start.wrapping_add(7));
        assert_eq!((ring.held().count(), ring.filled()), (LEN as usize, LEN));
    }
}
