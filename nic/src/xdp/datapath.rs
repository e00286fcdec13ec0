//! What a driver does: frames in, frames out, and sleep.
#![allow(unsafe_code)] // Frames are lent out of memory that the kernel shares.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::task::Waker;

use super::ring::Ring;
use super::shared::{BATCH, TX_CHUNKS};
use super::{Mode, Xdp, sys};
use crate::encap::{Reject, ether};
use crate::time::{Duration, Instant};
use crate::{Caps, Counters, Link, LinkAddr, LinkError, Nic, TxSlot, clock, socket};

/// Our place in the receive ring, whose consumer we are.
pub struct RxRing {
    ring: Ring<libc::xdp_desc>,
    /// The next descriptor to read.
    next: u32,
    /// Descriptors below this are known to be there.
    seen: u32,
}

/// Our place in the transmit ring, whose producer we are. It has as many entries as we have chunks, so a free chunk has
/// a free entry.
pub struct TxRing {
    ring: Ring<libc::xdp_desc>,
    /// The next descriptor to write.
    next: u32,
    /// Descriptors below this are the kernel's.
    published: u32,
    /// Payload bytes of those that are not.
    bytes: u64,
}

impl Nic for Xdp {
    const RELIABLE: bool = false;
    const NAME: &'static str = "xdp";

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn link(&mut self, to: LinkAddr) -> Result<Link, LinkError> {
        let LinkAddr::Ether { mac, endpoint } = to else { return Err(LinkError::WrongKind(to)) };
        let (src_mac, src) = (self.mac, self.endpoint);
        self.links.link(to, || Ok(ether::Header { dst_mac: mac, src_mac, dst: endpoint, src, len: 0 }.emit()))
    }

    fn unlink(&mut self, link: Link) {
        self.links.unlink(link);
    }

    /// Shows at most `budget` frames. Frames that are not ours count against it too, so that a flood of them cannot
    /// hold the caller.
    #[inline]
    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let Self { rx, chunks, counters, .. } = self;
        let count = rx.available(budget);
        if count == 0 {
            self.idle_turns += 1;
            if self.idle_turns == IDLE_TURNS {
                self.look_after_fill_ring();
            }
            return 0;
        }
        let mut shown = 0;
        for _ in 0..count {
            let desc = rx.ring.read(rx.next);
            // SAFETY: the kernel has handed this frame over, and its chunk is given back by `exchange` below at the
            // earliest.
            let frame = unsafe { chunks.shared().frame(desc.addr, desc.len) }.unwrap_or(&[]);
            match ether::Header::parse(frame) {
                Ok((header, payload)) => {
                    counters.rx_frames += 1;
                    counters.rx_bytes += payload.len() as u64;
                    each(payload, LinkAddr::Ether { mac: header.src_mac, endpoint: header.src });
                    shown += 1;
                }
                Err(Reject::Truncated | Reject::Foreign) => counters.rx_foreign += 1,
            }
            rx.next = rx.next.wrapping_add(1);
            chunks.hold(desc.addr);
        }
        rx.ring.set_consumer(rx.next);
        if chunks.holds_a_batch() {
            self.exchange();
        }
        shown
    }

    fn has_unread(&mut self) -> bool {
        self.has_frame()
    }

    #[inline]
    fn tx_slot(&mut self, link: Link, len: usize) -> Option<impl TxSlot + '_> {
        if len > self.caps.mtu {
            return None;
        }
        if self.chunks.next_free().is_none() {
            // A caller that commits more than we have chunks sends them here, before its flush.
            self.flush();
            self.exchange();
        }
        let header = self.links.get_mut(link)?;
        let Some(address) = self.chunks.next_free() else {
            self.counters.tx_full += 1;
            return None;
        };
        header[ether::LEN].copy_from_slice(&(len as u16).to_be_bytes());
        // SAFETY: a free chunk is ours and in no ring, and `&mut self` is borrowed for as long as the slice lives.
        let chunk = unsafe { self.chunks.shared().chunk_mut(address) };
        chunk[HEADER_AT..PAYLOAD_AT].copy_from_slice(header);
        // A slice of its own lifetime: the slot commits through the driver, which never touches a lent chunk.
        let payload = std::ptr::from_mut(&mut chunk[PAYLOAD_AT..PAYLOAD_AT + len]);
        // SAFETY: as above; the memory is not within `self`, but in a mapping that lives as long.
        Some(Slot { payload: unsafe { &mut *payload }, address, nic: self })
    }

    #[inline]
    fn flush(&mut self) {
        let tx = &mut self.tx;
        let fresh = tx.next.wrapping_sub(tx.published);
        if fresh > 0 {
            tx.ring.set_producer(tx.next);
            tx.published = tx.next;
            self.counters.tx_frames += u64::from(fresh);
            self.counters.tx_bytes += std::mem::take(&mut tx.bytes);
        } else if tx.ring.filled() == 0 {
            return;
        }
        self.kick();
        if self.chunks.is_short() {
            self.exchange();
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.flush();
        self.exchange();
        self.look_for_interface();
        let limit = deadline.map(|deadline| deadline.since(clock::monotonic()));
        if self.tell_gone() || self.has_frame() || limit.is_some_and(|limit| limit.as_nanos() == 0) {
            return Ok(());
        }
        self.counters.waits += 1;
        if self.gone {
            socket::poll(&[], self.alarm.event(), limit)?;
            return Ok(());
        }
        // Chunks that another endpoint kept us from giving back, or frames that the interface did not take, are tried
        // again before long.
        let stuck = self.chunks.is_dry() || self.tx.ring.filled() > 0;
        let turn = if stuck { STUCK_TURN } else { INTERFACE_TURN };
        let limit = limit.map_or(turn, |limit| limit.min(turn));
        socket::poll(&[self.socket.as_fd()], self.alarm.event(), Some(limit))?;
        self.look_for_interface();
        self.tell_gone();
        Ok(())
    }

    fn waker(&mut self) -> std::io::Result<Waker> {
        self.alarm.waker()
    }

    fn is_gone(&self, _link: Link) -> bool {
        self.gone
    }

    fn counters(&self) -> Counters {
        Counters { rx_dropped: sys::drops(self.socket.as_fd()), ..self.counted() }
    }

    fn now(&self) -> Instant {
        clock::monotonic()
    }
}

impl Xdp {
    /// True when a frame waits, ours or not.
    pub(super) fn has_frame(&mut self) -> bool {
        self.rx.available(1) > 0
    }

    fn enqueue(&mut self, address: u64, len: usize) {
        let tx = &mut self.tx;
        self.chunks.take();
        let desc =
            libc::xdp_desc { addr: address + HEADER_AT as u64, len: (ether::HEADER_LEN + len) as u32, options: 0 };
        tx.ring.write(tx.next, desc);
        tx.next = tx.next.wrapping_add(1);
        tx.bytes += len as u64;
    }

    /// Has the kernel send until the ring is empty: a kick sends 32 frames at most, and what is left would stay.
    #[inline]
    fn kick(&mut self) {
        if self.mode == Mode::ZeroCopy && !self.tx.ring.needs_wakeup() {
            return;
        }
        let mut left = self.tx.ring.filled();
        while left > 0 {
            let kicked = sys::kick(self.socket.as_fd());
            let still_left = self.tx.ring.filled();
            if let Err(error) = kicked
                && self.kick_failed(&error, left > still_left)
            {
                return;
            }
            // No progress: the interface's queue is full. Again at the next flush.
            if still_left == left {
                return;
            }
            left = still_left;
        }
    }

    /// True when there is no use in kicking on.
    #[cold]
    fn kick_failed(&mut self, error: &io::Error, moved: bool) -> bool {
        match error.raw_os_error() {
            // More is left than one kick sends.
            Some(libc::EAGAIN | libc::EINTR) => false,
            // The interface dropped the last frame that it took.
            Some(libc::EBUSY) => {
                if moved {
                    let last = self.tx.ring.read(self.tx.ring.consumer().wrapping_sub(1));
                    count_failed(&mut self.counters, last);
                }
                false
            }
            Some(libc::ENXIO) => {
                self.lose_interface();
                true
            }
            _ => true,
        }
    }

    /// True when the interface is gone and no sleep has ended by that yet. Only the first one does: nothing comes any more.
    fn tell_gone(&mut self) -> bool {
        self.gone && !std::mem::replace(&mut self.told_gone, true)
    }

    /// Gives chunks back and collects sent ones; wakes a card that waits for chunks.
    fn exchange(&mut self) {
        self.chunks.exchange();
        if self.mode == Mode::ZeroCopy && self.chunks.fill_needs_wakeup() {
            self.look_for_interface();
        }
    }

    /// A fill ring that others left dry is filled by whoever notices.
    #[cold]
    fn look_after_fill_ring(&mut self) {
        self.idle_turns = 0;
        if self.chunks.is_dry() {
            self.exchange();
        }
    }

    #[cold]
    fn look_for_interface(&mut self) {
        if let Err(error) = sys::wake_rx(self.socket.as_fd())
            && error.raw_os_error() == Some(libc::ENXIO)
        {
            self.lose_interface();
        }
    }

    /// Takes back what the kernel will never send.
    #[cold]
    fn lose_interface(&mut self) {
        self.gone = true;
        let tx = &mut self.tx;
        for desc in tx.ring.held() {
            self.chunks.put_back(desc.addr);
            count_failed(&mut self.counters, desc);
        }
        // The kernel has let go of the socket and reads its rings no more.
        tx.ring.set_consumer(tx.published);
    }

    /// What was counted so far, without what is in the ring: that the kernel has not taken yet.
    pub(super) fn counted(&self) -> Counters {
        let (tx, mut counters) = (&self.tx, self.counters);
        // With zero copy the kernel takes frames meanwhile: they count as sent at the next look.
        tx.ring.held().for_each(|desc| uncount(&mut counters, desc));
        counters
    }

    /// Empties the receive ring, so that the chunks in it go back to the other endpoints.
    pub(super) fn discard(&mut self) {
        let Self { rx, chunks, .. } = self;
        while rx.available(BATCH as usize) > 0 {
            for _ in 0..rx.available(BATCH as usize) {
                chunks.hold(rx.ring.read(rx.next).addr);
                rx.next = rx.next.wrapping_add(1);
            }
            rx.ring.set_consumer(rx.next);
        }
        for _ in 0..DISCARD_TRIES {
            chunks.exchange();
            if chunks.holds_nothing() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl RxRing {
    /// At the ring's beginning.
    pub fn new(ring: Ring<libc::xdp_desc>) -> Self {
        Self { ring, next: 0, seen: 0 }
    }

    /// Frames that wait, at most `budget`.
    #[inline]
    fn available(&mut self, budget: usize) -> u32 {
        if self.seen == self.next {
            // Only now is the kernel's cache line touched.
            self.seen = self.ring.producer();
        }
        let budget = u32::try_from(budget).unwrap_or(u32::MAX);
        self.seen.wrapping_sub(self.next).min(self.ring.len()).min(budget)
    }
}

impl TxRing {
    /// At the ring's beginning.
    pub fn new(ring: Ring<libc::xdp_desc>) -> Self {
        assert!(ring.len() as usize >= TX_CHUNKS, "a free chunk has a free entry");
        Self { ring, next: 0, published: 0, bytes: 0 }
    }
}

/// A frame that was to be sent was not.
#[cold]
fn count_failed(counters: &mut Counters, desc: libc::xdp_desc) {
    uncount(counters, desc);
    counters.tx_failed += 1;
}

/// Takes a frame back that counts as sent since it was put into the ring. What the ring says is in memory that others write: never below 0.
fn uncount(counters: &mut Counters, desc: libc::xdp_desc) {
    let len = u64::from(desc.len).saturating_sub(ether::HEADER_LEN as u64);
    counters.tx_frames = counters.tx_frames.saturating_sub(1);
    counters.tx_bytes = counters.tx_bytes.saturating_sub(len);
}

/// A lent chunk. Dropped without `commit`, it was never taken.
pub(super) struct Slot<'a> {
    payload: &'a mut [u8],
    address: u64,
    nic: &'a mut Xdp,
}

impl Deref for Slot<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.payload
    }
}

impl DerefMut for Slot<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.payload
    }
}

impl TxSlot for Slot<'_> {
    #[inline]
    fn commit(self) {
        self.nic.enqueue(self.address, self.payload.len());
    }
}

/// Where a payload to send begins in its chunk: on a cache line.
const PAYLOAD_AT: usize = 64;
const HEADER_AT: usize = PAYLOAD_AT - ether::HEADER_LEN;

/// Empty polls between two looks at the fill ring: some 10 µs.
const IDLE_TURNS: u32 = 256;
/// How soon what is stuck is tried again.
const STUCK_TURN: Duration = Duration::from_millis(1);
/// How soon the end of the interface is seen by a sleeper: `xsk_poll` tells nobody of it (Linux 6.18).
const INTERFACE_TURN: Duration = Duration::from_millis(100);
/// Other endpoints hold the lock for a microsecond at most.
const DISCARD_TRIES: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_frames_wait_than_the_ring_has_whatever_it_says() {
        let memory = sys::shared_memory(4096).unwrap();
        let mut rx = RxRing::new(Ring::within(memory.as_fd(), 8));
        assert_eq!(rx.available(64), 0);
        rx.ring.set_producer(5);
        assert_eq!((rx.available(3), rx.available(64)), (3, 5));
        (rx.next, rx.seen) = (5, 5);
        rx.ring.set_producer(100);
        assert_eq!(rx.available(64), 8);
    }
}
