//! A packet socket's receive ring (TPACKET_V2, networking/packet_mmap.rst), polled in shared memory.
//!
//! The kernel owns the slots whose status is `TP_STATUS_KERNEL` and fills them in order; a slot with `TP_STATUS_USER` is
//! ours until we write `TP_STATUS_KERNEL` back. A frame arrives without a system call on this side: on a veth pair all
//! of its work is done on the sender's core. A short frame is seen before its slot is handed over (`early.rs`).
#![allow(unsafe_code)] // Memory shared with the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::tpacket2_hdr;

use super::early::{FIRST, Glance, POISON, TELLTALE, WORDS};
use super::sys;
use crate::encap::gso::VNET_LEN;
use crate::mapping::Mapping;

/// One socket's ring and our place in it.
pub struct RxRing {
    mapping: Mapping,
    slot_len: usize,
    slots: usize,
    /// The slot that the next frame appears in; below `slots`.
    head: usize,
    /// Slots from there on that were given back with poison; at first none.
    poisoned: usize,
    /// The frame in it was shown before the kernel had handed it over.
    is_shown: bool,
    /// After the mapping, which has to go first.
    socket: OwnedFd,
}

impl RxRing {
    /// Gives `socket` a ring of at least `slots` frames of up to `frame_len` bytes from the Ethernet header on.
    pub fn new(socket: OwnedFd, frame_len: usize, slots: usize) -> io::Result<Self> {
        let slot_len = slot_len(frame_len, sys::page_len());
        let block_len = block_len(slot_len);
        let blocks = (slots * slot_len).div_ceil(block_len);
        let slots = blocks * (block_len / slot_len);
        sys::set_rx_ring(
            socket.as_fd(),
            &libc::tpacket_req {
                tp_block_size: block_len as u32,
                tp_block_nr: blocks as u32,
                tp_frame_size: slot_len as u32,
                tp_frame_nr: slots as u32,
            },
        )?;
        let mapping = Mapping::of(socket.as_fd(), blocks * block_len, 0)?;
        // Slots tile the mapping without gaps, since a block is a whole number of slots.
        assert_eq!(mapping.len(), slots * slot_len);
        Ok(Self { mapping, slot_len, slots, head: 0, poisoned: 0, is_shown: false, socket })
    }

    /// Frames that it holds.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The socket that it belongs to.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True when a frame waits.
    #[inline]
    pub fn has_frame(&self) -> bool {
        !self.is_shown && self.is_handed_over()
    }

    #[inline]
    fn is_handed_over(&self) -> bool {
        // Pairs with the kernel's write barrier before it hands a slot over (`__packet_set_status`).
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The frame that waits, if one does. It stays until `release`.
    #[inline]
    pub fn frame(&self) -> Option<Frame<'_>> {
        if !self.has_frame() {
            return None;
        }
        // SAFETY: the status says that the slot is ours, and it stays ours until `release`, which needs `&mut self`:
        // the kernel writes nothing here while the slice lives. The slot is within the mapping (see `status`).
        let slot = unsafe { std::slice::from_raw_parts(self.slot(), self.slot_len) };
        Some(Frame { slot })
    }

    /// Gives the slot of the frame that waits back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        for at in FIRST..FIRST + WORDS {
            self.word(at).store(POISON, Ordering::Relaxed);
        }
        // Pairs with the kernel's read of the status: our accesses to the frame are over before it may write again.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.head += 1;
        if self.head == self.slots {
            self.head = 0;
        }
        // All, once each was given back once.
        self.poisoned = self.slots.min(self.poisoned + 1);
    }

    /// A short frame that is there although the kernel has not said so. Still to be told that it is shown: [`Self::on_shown_early`].
    #[inline]
    pub fn glance(&self) -> Option<Glance> {
        // Before any look at another ring.
        let word = |at| self.word(at).load(Ordering::Acquire);
        if self.is_shown || self.poisoned < self.slots || word(TELLTALE) == POISON {
            return None;
        }
        Glance::of(word)
    }

    /// The frame that [`Self::glance`] has seen was shown.
    #[inline]
    pub fn on_shown_early(&mut self) {
        self.is_shown = true;
    }

    /// Gives the slot of a frame that was shown early back, once the kernel has handed it over. False while it has not.
    #[inline]
    pub fn settle(&mut self) -> bool {
        if self.is_shown && self.is_handed_over() {
            self.is_shown = false;
            self.release();
        }
        !self.is_shown
    }

    /// Word `at` of the slot that the next frame appears in.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < SLOT_LEN_MIN / size_of::<u64>());
        // SAFETY: within the slot, which is at least as long and 16-byte aligned; the kernel may write there, and each access is one of a
        // whole word.
        unsafe { AtomicU64::from_ptr(self.slot().cast::<u64>().add(at)) }
    }

    #[inline]
    fn status(&self) -> &AtomicU32 {
        const { assert!(std::mem::offset_of!(tpacket2_hdr, tp_status) == 0) };
        // SAFETY: the status is the first word of a slot, slots are 16-byte aligned (TPACKET_ALIGNMENT) and lie within
        // the mapping, and both sides access the word atomically.
        unsafe { AtomicU32::from_ptr(self.slot().cast()) }
    }

    #[inline]
    fn slot(&self) -> *mut u8 {
        debug_assert!(self.head < self.slots);
        // SAFETY: `head < slots`, and `slots * slot_len` is the mapping's length.
        unsafe { self.mapping.start().as_ptr().add(self.head * self.slot_len) }
    }
}

/// A received frame in its slot.
pub struct Frame<'a> {
    slot: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame from its Ethernet header on; as much as the slot could hold.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        let header = self.header();
        let start = usize::from(header.tp_mac);
        self.slot.get(start..start + header.tp_snaplen as usize).unwrap_or(&[])
    }

    /// The virtio-net header, on a socket with `PACKET_VNET_HDR`: the kernel puts it right before the frame.
    #[inline]
    pub fn vnet_header(&self) -> Option<&'a [u8; VNET_LEN]> {
        let end = usize::from(self.header().tp_mac);
        self.slot.get(end.checked_sub(VNET_LEN)?..end)?.try_into().ok()
    }

    /// True when it was too long for the slot, and waits whole in the socket's queue.
    #[inline]
    pub fn waits_in_queue(&self) -> bool {
        self.header().tp_status & libc::TP_STATUS_COPY != 0
    }

    /// When the kernel put it here; comparable between the rings of one interface.
    pub fn arrived_at(&self) -> (u32, u32) {
        let header = self.header();
        (header.tp_sec, header.tp_nsec)
    }

    #[inline]
    fn header(&self) -> &tpacket2_hdr {
        const { assert!(size_of::<tpacket2_hdr>() <= SLOT_LEN_MIN) };
        // SAFETY: a slot begins with this header, is longer and aligned (TPACKET_ALIGNMENT); every content is valid.
        unsafe { &*self.slot.as_ptr().cast() }
    }
}

/// Where in a slot a frame with an Ethernet header begins: as `tpacket_rcv` reckons it, without a virtio-net header.
pub const FRAME_AT: usize = (libc::TPACKET2_HDRLEN + 16).next_multiple_of(16) - 14;

/// Room for a frame behind the slot's own header: the kernel puts the frame `TPACKET2_HDRLEN` and the longest link-level
/// header (16) on, and the virtio-net header between (`tpacket_rcv`). A power of two while that wastes little, so that
/// slots tile blocks; whole pages above.
fn slot_len(frame_len: usize, page_len: usize) -> usize {
    let needed = libc::TPACKET2_HDRLEN + 16 + VNET_LEN + frame_len;
    if needed <= 16 * 1024 { needed.next_power_of_two().max(SLOT_LEN_MIN) } else { needed.next_multiple_of(page_len) }
}

/// Blocks are whole pages, and a whole number of slots.
fn block_len(slot_len: usize) -> usize {
    if BLOCK_LEN.is_multiple_of(slot_len) { BLOCK_LEN } else { slot_len }
}

const SLOT_LEN_MIN: usize = 2048;
/// Few allocations for the kernel, each of an order that it still finds when memory is fragmented; and the largest page that there is on
/// what we run on (x86's is 4 KiB, arm64's 4, 16 or 64, ppc64's 64).
const BLOCK_LEN: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::encap::ether;
    use crate::memfd;

    /// A ring whose kernel is the test: what it writes into the file is in the slots.
    fn ring() -> (RxRing, File) {
        let file = memfd::create(c"ring", BLOCK_LEN).unwrap();
        let mapping = Mapping::of(file.as_fd(), BLOCK_LEN, 0).unwrap();
        let (slot_len, socket) = (SLOT_LEN_MIN, file.try_clone().unwrap().into());
        let slots = BLOCK_LEN / slot_len;
        (RxRing { mapping, slot_len, slots, head: 0, poisoned: 0, is_shown: false, socket }, file)
    }

    fn write(ring: &RxRing, file: &File, at: usize, bytes: &[u8]) {
        file.write_all_at(bytes, (ring.head * ring.slot_len + at) as u64).unwrap();
    }

    fn copy_frame(ring: &RxRing, file: &File) {
        let header = ether::Header { dst_mac: [2; 6], src_mac: [4; 6], dst: 1, src: 2, len: 3 }.emit();
        write(ring, file, FRAME_AT, &[&header[..], b"abc"].concat());
    }

    fn hand_over(ring: &RxRing, file: &File) {
        write(ring, file, 0, &libc::TP_STATUS_USER.to_ne_bytes());
    }

    #[test]
    fn a_frame_is_seen_early_in_slots_that_were_given_back_only_and_shown_once() {
        let (mut ring, file) = ring();
        // What lies in a slot at first is anything.
        for _ in 0..ring.slots {
            copy_frame(&ring, &file);
            assert!(ring.glance().is_none() && !ring.has_frame());
            hand_over(&ring, &file);
            assert!(ring.has_frame());
            ring.release();
        }
        for slot in 0..2 * ring.slots {
            assert!(ring.glance().is_none() && !ring.has_frame() && ring.settle(), "{slot}: what was there before");
            copy_frame(&ring, &file);
            assert!(ring.glance().is_some_and(|glance| glance.frame().starts_with(&[2; 6])));
            ring.on_shown_early();
            assert!(ring.glance().is_none() && !ring.has_frame());
            assert!(!ring.settle() && ring.head == slot % ring.slots, "the slot is the kernel's");
            hand_over(&ring, &file);
            assert!(ring.glance().is_none() && !ring.has_frame() && ring.settle());
            assert_eq!(ring.head, (slot + 1) % ring.slots);
        }
    }

    #[test]
    fn slots_hold_their_frames_and_tile_blocks_of_whole_pages() {
        for page_len in [4 << 10, 16 << 10, 64 << 10] {
            for frame_len in [60, 1514, 1978, 9014, 15_000, 20_000, 40_000, 61_500, 65_549] {
                let len = slot_len(frame_len, page_len);
                assert!(len >= frame_len + 66 + VNET_LEN);
                assert_eq!(len % 16, 0, "TPACKET_ALIGNMENT");
                assert!(block_len(len).is_multiple_of(len), "{frame_len}");
                assert_eq!(block_len(len) % page_len, 0, "{frame_len}, pages of {page_len}");
            }
        }
    }

    #[test]
    fn ordinary_ethernet_frames_take_two_kibibytes() {
        assert_eq!(slot_len(1514, 4096), 2048);
    }
}
