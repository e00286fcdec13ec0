//! One-sided operations from the application's thread.

use std::ops::Range;

use sidelane_nic::shm::lane::RECORD_MAX;

use super::Ended;
use super::driven::Driven;
use super::gauge::cost;
use super::operation::{Operation, What};
use super::order::{HEAD_LEN, Order};
use super::port::Port;
use super::underway::{of_port, port_number};
use crate::rma::target;
use crate::wire::Change;
use crate::{Op, PeerId, PutHow, Region, RemoteKey, RmaError};

/// What the port has ordered of one place in the table of peers.
#[derive(Clone, Default)]
pub(super) struct Ordered {
    /// Bytes, of which the gauge says how many were begun.
    pub cost: u64,
    /// Operations.
    count: u64,
    /// Of the next operation.
    is_fenced: bool,
}

/// One-sided operations, as those of [`crate::Endpoint`], begun in the order of these calls. A message that is sent here comes after every
/// put before it is in place. An operation may overtake messages that were sent before, and needs none of their room: it reaches a peer that
/// takes no messages.
///
/// `Full`: too much is on its way to this peer, or in the engine's ring; nothing was ordered. The end of what was ordered is told once: of a get by
/// [`crate::Event::Got`], of an atomic by [`crate::Event::Fetched`], of a put that is in place by [`Port::is_done`], and of what failed by
/// [`crate::Event::OpFailed`] - also where the endpoint would have refused the call: the peer was gone by then (told of silent puts too), or our
/// region is not registered, or is too short. Regions are registered, published and read by [`Port::call`]; an operation holds its region once it has
/// found room. What peers put and signal here wakes no port; a message that they send behind it does.
impl<D: Driven> Port<D> {
    /// As [`crate::Endpoint::put`]; without an allocation up to 32 KiB.
    pub fn put(
        &mut self,
        peer: PeerId,
        to: &RemoteKey,
        offset: u64,
        bytes: &[u8],
        how: PutHow,
    ) -> Result<Op, RmaError> {
        target(to, offset, bytes.len() as u64)?;
        let cost = cost(bytes.len());
        if bytes.len() > RECORD_MAX - HEAD_LEN {
            return self.order_operation(peer, to, offset, cost, &[], || What::Put { kept: bytes.to_vec(), how });
        }
        self.order_operation(peer, to, offset, cost, bytes, || What::Put { kept: Vec::new(), how })
    }

    /// As [`crate::Endpoint::put_from`]: the bytes are read when the engine sends them.
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
        target(to, offset, len as u64)?;
        self.order_operation(peer, to, offset, cost(0), &[], || What::PutFrom { region: from, range, how })
    }

    /// As [`crate::Endpoint::signal`].
    pub fn signal(&mut self, peer: PeerId, to: &RemoteKey) -> Result<Op, RmaError> {
        self.put(peer, to, 0, &[], PutHow::SILENT_SIGNAL)
    }

    /// As [`crate::Endpoint::get`].
    pub fn get(
        &mut self,
        peer: PeerId,
        from: &RemoteKey,
        offset: u64,
        into: Region,
        range: Range<usize>,
    ) -> Result<Op, RmaError> {
        let len = range.end.checked_sub(range.start).ok_or(RmaError::Bounds)?;
        target(from, offset, len as u64)?;
        self.order_operation(peer, from, offset, cost(0), &[], || What::Get { region: into, range })
    }

    /// As [`crate::Endpoint::fetch_add`].
    pub fn fetch_add(&mut self, peer: PeerId, to: &RemoteKey, offset: u64, value: u64) -> Result<Op, RmaError> {
        self.atomic(peer, to, offset, Change::Add(value))
    }

    /// As [`crate::Endpoint::compare_swap`].
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

    fn atomic(&mut self, peer: PeerId, to: &RemoteKey, offset: u64, change: Change) -> Result<Op, RmaError> {
        if !offset.is_multiple_of(8) {
            return Err(RmaError::Misaligned);
        }
        target(to, offset, 8)?;
        self.order_operation(peer, to, offset, cost(0), &[], || What::Atomic(change))
    }

    /// As [`crate::Endpoint::fence`], of what is put here.
    pub fn fence(&mut self, peer: PeerId) {
        if let Some(ordered) = self.operations.get_mut(peer.index()) {
            ordered.is_fenced = true;
        }
    }

    /// As [`crate::Endpoint::is_done`], without asking the engine; [`Port::wait`] ends when more is done. True only once every operation that was
    /// ordered here before it, to the same peer, is done too; of what an event tells, a moment after that at the earliest. An operation that a
    /// closure began on the endpoint is asked for there: that waits for a turn.
    pub fn is_done(&mut self, op: Op) -> Result<bool, Ended> {
        let Some(number) = port_number(op) else {
            return self.call(move |driven| driven.endpoint().is_done(op));
        };
        if self.shared.is_done(op.peer, number) { Ok(true) } else { self.alive().map(|()| false) }
    }

    /// Orders an operation, with bytes that go through the ring. `what` is asked once there is room.
    fn order_operation(
        &mut self,
        peer: PeerId,
        key: &RemoteKey,
        offset: u64,
        cost: u64,
        bytes: &[u8],
        what: impl FnOnce() -> What,
    ) -> Result<Op, RmaError> {
        self.admit_operation(peer, cost)?;
        if !self.has_room_beside(bytes.len()) {
            return Err(RmaError::Full);
        }
        let ordered = &mut self.operations[peer.index()];
        let number = ordered.count;
        ordered.cost += cost;
        ordered.count += 1;
        let is_fenced = std::mem::take(&mut ordered.is_fenced);
        let operation = Operation { peer, number, cost, is_fenced, key: *key, offset, what: what() };
        self.order(Order::Operation(operation), bytes);
        Ok(of_port(peer, number))
    }
}
