//! The user's calls.
#![allow(unsafe_code)] // Lending memory by address is the caller's word against nobody's.

use std::ops::Range;
use std::ptr::NonNull;

use sidelane_nic::{Nic, TxSlot};

use super::key::{Op, PutHow, Region, RemoteKey, Rights, RmaError};
use super::memory::{Lent, Memory};
use super::one_sided::COPIED_MAX;
use super::outbox::Source;
use crate::wire::{Change, PUT_LEN, Target};
use crate::{Counters, Endpoint, PeerId};

/// One-sided operations.
///
/// A region is memory that the endpoint holds; its owner reaches it between two calls. Peers reach it by a key, which
/// [`Endpoint::publish`] makes and a message of the user's own brings to them; every frame of theirs is held against it.
///
/// What a put covers may be anything until it is done. Puts to one peer may be placed in any order, unless a [`Endpoint::fence`] is
/// between them. A signal, a get, an atomic or a message comes after every put before it is in place. A put may overtake messages
/// that were sent before.
impl<N: Nic> Endpoint<N> {
    /// Takes `memory` in as a region that no peer can reach yet.
    pub fn register(&mut self, memory: Vec<u8>) -> Region {
        self.router.turn.rma.regions.register(Memory::Owned(memory))
    }

    /// As [`Self::register`], of memory that stays its owner's.
    ///
    /// # Safety
    /// The `len` bytes at `start` stay readable and writable until [`crate::Event::Unregistered`] or the endpoint's end,
    /// and nobody reads or writes them while a method of the endpoint runs.
    pub unsafe fn register_raw(&mut self, start: NonNull<u8>, len: usize) -> Region {
        // SAFETY: Our caller promises just that; the value is dropped before `Unregistered` is told.
        let lent = unsafe { Lent::new(start, len) };
        self.router.turn.rma.regions.register(Memory::Lent(lent))
    }

    /// Lets peers, or only one of them, do with a region what `rights` say, by a new key. An earlier key is void.
    pub fn publish(&mut self, region: Region, rights: Rights, only_for: Option<PeerId>) -> Result<RemoteKey, RmaError> {
        let key = self.router.draw_token();
        self.router.turn.rma.regions.publish(region, key, rights, only_for).ok_or(RmaError::NoRegion)
    }

    /// As [`Self::publish`], for one put by `peer` of as many bytes as the region has, which nobody touches before it has ended: its bytes,
    /// first and last ones too, may be where they belong before their frame was checked, and so are touched once.
    /// Whatever else comes by the key is taken as by [`Rights::WRITE`].
    pub fn publish_to_fill(&mut self, region: Region, peer: PeerId) -> Result<RemoteKey, RmaError> {
        let key = self.router.draw_token();
        self.router.turn.rma.regions.publish_to_fill(region, key, peer).ok_or(RmaError::NoRegion)
    }

    /// Voids a region's key. What peers send by it from now on fails at them with [`crate::OpError::NoRegion`].
    pub fn unpublish(&mut self, region: Region) -> Result<(), RmaError> {
        if self.router.turn.rma.regions.unpublish(region) { Ok(()) } else { Err(RmaError::NoRegion) }
    }

    /// Ends a region. Its key is void at once; operations of ours and answers to peers that need its memory come to their
    /// end, and then [`crate::Event::Unregistered`] gives the memory back.
    pub fn unregister(&mut self, region: Region) -> Result<(), RmaError> {
        let router = &mut self.router;
        if router.turn.rma.regions.unregister(region, &mut router.turn.events) {
            Ok(())
        } else {
            Err(RmaError::NoRegion)
        }
    }

    /// As [`Self::unregister`], of a region that no operation needs, such as one whose only operation found no room: it ends at once, and no
    /// event tells of it. Its memory, if it was the endpoint's. Also `NoRegion`: an operation needs it, and nothing has changed.
    pub fn withdraw(&mut self, region: Region) -> Result<Option<Vec<u8>>, RmaError> {
        self.router.turn.rma.regions.withdraw(region).ok_or(RmaError::NoRegion)
    }

    /// A region's bytes. `None` once it is unregistered.
    #[inline]
    pub fn region(&self, region: Region) -> Option<&[u8]> {
        self.router.turn.rma.regions.memory(region)
    }

    /// As [`Self::region`], to be written. A put or get that is under way sends the bytes as they are when a frame is written.
    #[inline]
    pub fn region_mut(&mut self, region: Region) -> Option<&mut [u8]> {
        self.router.turn.rma.regions.memory_mut(region)
    }

    /// How many signals have arrived for a region. `None` once it is gone.
    #[inline]
    pub fn signals(&self, region: Region) -> Option<u64> {
        self.router.turn.rma.regions.signals(region)
    }

    /// Copies `bytes`, to be written at `offset` of the peer's region. They are on the wire with the next `flush` or `poll`.
    #[inline]
    pub fn put(
        &mut self,
        peer: PeerId,
        to: &RemoteKey,
        offset: u64,
        bytes: &[u8],
        how: PutHow,
    ) -> Result<Op, RmaError> {
        let target = target(to, offset, bytes.len() as u64)?;
        let router = &mut self.router;
        let conn = router.peers.taking(peer).ok_or(RmaError::NoPeer)?;
        let small = PUT_LEN + bytes.len() <= conn.body_max();
        if N::RELIABLE
            && small
            && let Some(len) = conn.lone_operation_len(PUT_LEN + bytes.len())
            && let Some(mut slot) = self.nic.tx_slot(conn.link, len)
        {
            let (conn, turn) = router.conn_turn(peer.index).expect("found above");
            let number = conn.emit_lone_put(turn, target, bytes, how, &mut slot);
            slot.commit();
            self.committed = true;
            router.turn.counters.puts += 1;
            router.activate(peer.index);
            return Ok(Op { peer, number });
        }
        if small {
            let one_sided = conn.one_sided(&router.turn.config);
            let flags = one_sided.flags(how.signal, how.silent);
            let taken = one_sided.put(target, flags, bytes).ok_or(RmaError::Full);
            return self.begin(peer, taken, |counters| counters.puts += 1);
        }
        let Some(mut buffer) = router.turn.spares.take(bytes.len()) else {
            return self.begin(peer, Err(RmaError::Full), |_| {});
        };
        buffer.extend_from_slice(bytes);
        self.put_buffer(peer, to, offset, buffer, how).or_else(|(error, buffer)| {
            self.router.turn.spares.give(buffer);
            self.begin(peer, Err(error), |_| {})
        })
    }

    /// As [`Self::put`], of a buffer from the endpoint's stock, without a copy of what is longer than a frame. Hands it back when
    /// it was not taken, which is not counted: it may be tried again each turn.
    pub(crate) fn put_buffer(
        &mut self,
        peer: PeerId,
        to: &RemoteKey,
        offset: u64,
        buffer: Vec<u8>,
        how: PutHow,
    ) -> Result<Op, (RmaError, Vec<u8>)> {
        let len = buffer.len();
        let router = &mut self.router;
        let conn = router.peers.taking(peer).ok_or(RmaError::NoPeer);
        let (target, conn) = match target(to, offset, len as u64).and_then(|target| Ok((target, conn?))) {
            Ok(found) => found,
            Err(error) => return Err((error, buffer)),
        };
        let body_max = conn.body_max();
        let one_sided = conn.one_sided(&router.turn.config);
        let flags = one_sided.flags(how.signal, how.silent);
        let taken = if PUT_LEN + len > body_max {
            one_sided
                .put_bulk(
                    (target, flags),
                    Source::Buffer(buffer),
                    (len, how.backwards),
                    body_max,
                    &router.turn.rma.regions,
                )
                .map_err(Source::into_buffer)
        } else if let Some(number) = one_sided.put(target, flags, &buffer) {
            router.turn.spares.give(buffer);
            Ok(number)
        } else {
            Err(buffer)
        };
        match taken {
            Ok(number) => Ok(self.begun(peer, number, |counters| counters.puts += 1)),
            Err(buffer) => Err((RmaError::Full, buffer)),
        }
    }

    /// As [`Self::put`], straight from a region of ours, without a copy where the driver can; few bytes are copied now.
    pub fn put_from(
        &mut self,
        peer: PeerId,
        to: &RemoteKey,
        offset: u64,
        from: Region,
        range: Range<usize>,
        how: PutHow,
    ) -> Result<Op, RmaError> {
        let len = range.end.checked_sub(range.start).ok_or(RmaError::Bounds)?;
        let target = target(to, offset, len as u64)?;
        let router = &mut self.router;
        let conn = router.peers.taking(peer).ok_or(RmaError::NoPeer)?;
        let index = router.turn.rma.regions.hold(from, range.start, len)?;
        let body_max = conn.body_max();
        let one_sided = conn.one_sided(&router.turn.config);
        let flags = one_sided.flags(how.signal, how.silent);
        let taken = if len <= COPIED_MAX && PUT_LEN + len <= body_max {
            let put = one_sided.put(target, flags, router.turn.rma.regions.read(index, range.start, len));
            router.turn.rma.regions.release(index, &mut router.turn.events);
            put.ok_or(RmaError::Full)
        } else {
            let source = Source::Region { index, at: range.start };
            one_sided
                .put_bulk((target, flags), source, (len, how.backwards), body_max, &router.turn.rma.regions)
                .map_err(|_| {
                    router.turn.rma.regions.release(index, &mut router.turn.events);
                    RmaError::Full
                })
        };
        self.begin(peer, taken, |counters| counters.puts += 1)
    }

    /// Signals the peer's region once every put before is in place.
    pub fn signal(&mut self, peer: PeerId, to: &RemoteKey) -> Result<Op, RmaError> {
        self.put(peer, to, 0, &[], PutHow::SILENT_SIGNAL)
    }

    /// Fetches bytes of the peer's region into one of ours; [`crate::Event::Got`] follows.
    pub fn get(
        &mut self,
        peer: PeerId,
        from: &RemoteKey,
        offset: u64,
        into: Region,
        range: Range<usize>,
    ) -> Result<Op, RmaError> {
        let len = range.end.checked_sub(range.start).ok_or(RmaError::Bounds)?;
        let target = target(from, offset, len as u64)?;
        let len = u32::try_from(len).map_err(|_| RmaError::Bounds)?;
        let router = &mut self.router;
        let conn = router.peers.taking(peer).ok_or(RmaError::NoPeer)?;
        let index = router.turn.rma.regions.hold(into, range.start, len as usize)?;
        let taken = conn
            .one_sided(&router.turn.config)
            .get(target, index, range.start, len)
            .inspect_err(|_| router.turn.rma.regions.release(index, &mut router.turn.events));
        self.begin(peer, taken, |counters| counters.gets += 1)
    }

    /// Adds to a 64-bit word of the peer's region, little-endian, wrapping; [`crate::Event::Fetched`] tells what it was. Exactly once, and atomic
    /// against whatever other peers do by operations.
    pub fn fetch_add(&mut self, peer: PeerId, to: &RemoteKey, offset: u64, value: u64) -> Result<Op, RmaError> {
        self.atomic(peer, to, offset, Change::Add(value))
    }

    /// As [`Self::fetch_add`]: writes `new` if the word is `expected`.
    pub fn compare_swap(
        &mut self,
        peer: PeerId,
        to: &RemoteKey,
        offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<Op, RmaError> {
        self.atomic(peer, to, offset, Change::Swap { expected, new })
    }

    pub(crate) fn atomic(&mut self, peer: PeerId, to: &RemoteKey, offset: u64, change: Change) -> Result<Op, RmaError> {
        if !offset.is_multiple_of(8) {
            return Err(RmaError::Misaligned);
        }
        let at = target(to, offset, 8)?;
        let router = &mut self.router;
        let conn = router.peers.taking(peer).ok_or(RmaError::NoPeer)?;
        let taken = conn.one_sided(&router.turn.config).atomic(at, change);
        self.begin(peer, taken, |counters| counters.atomics += 1)
    }

    /// What is put to `peer` from now on is placed after everything that was put before. Orders no gets: wait for theirs.
    pub fn fence(&mut self, peer: PeerId) {
        if let Some(conn) = self.router.peers.get(peer) {
            conn.fence();
        }
    }

    /// True when an operation is over: a put is in place, a get or atomic had its event. Also when it has failed, which is
    /// told by [`crate::Event::OpFailed`]. Of a silent put only known once a later one was asked for.
    #[inline]
    pub fn is_done(&mut self, op: Op) -> bool {
        self.router.peers.get(op.peer).is_none_or(|conn| conn.is_op_done(op.number))
    }

    /// True when the bytes of [`Self::put_from`] are not needed in their region any more.
    pub fn is_source_free(&mut self, op: Op) -> bool {
        self.router.peers.get(op.peer).is_none_or(|conn| !conn.needs_source_of(op.number))
    }

    /// An operation was taken, by this number, or had no room.
    #[inline]
    fn begin(
        &mut self,
        peer: PeerId,
        taken: Result<u64, RmaError>,
        count: impl FnOnce(&mut Counters),
    ) -> Result<Op, RmaError> {
        let number = taken.inspect_err(|_| self.router.turn.counters.operations_refused += 1)?;
        Ok(self.begun(peer, number, count))
    }

    #[inline]
    fn begun(&mut self, peer: PeerId, number: u64, count: impl FnOnce(&mut Counters)) -> Op {
        let router = &mut self.router;
        count(&mut router.turn.counters);
        if let Some(conn) = router.peers.get(peer) {
            conn.note_operations();
        }
        router.activate(peer.index);
        Op { peer, number }
    }
}

/// What `key` opens, if it is long enough.
#[inline]
pub(crate) fn target(key: &RemoteKey, offset: u64, len: u64) -> Result<Target, RmaError> {
    let end = offset.checked_add(len).ok_or(RmaError::Bounds)?;
    if end > key.len {
        return Err(RmaError::Bounds);
    }
    Ok(Target { region: key.region, key: key.key, offset })
}
