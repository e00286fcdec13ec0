//! Requests: what is under way, by a handle that is never mistaken for an earlier one's.

use sidelane_proto::Region;

use super::envelope::Envelope;
use super::lists::Class;
use super::memory::{Incoming, Outgoing};

/// A send or receive under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Request {
    /// A send that was complete when it was begun, and has no slot.
    pub(super) const SENT: Self = Self { index: u32::MAX, generation: 0 };

    /// On the wire.
    #[inline]
    pub(super) const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    #[inline]
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// How an operation has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Rank of the sender in its communicator. 0 for sends.
    pub source: u32,
    /// Tag of the message. 0 for sends.
    pub tag: i32,
    /// Bytes of the message that were received, or, of a probe, that it has. 0 for sends.
    pub bytes: usize,
    /// It was cancelled, and nothing was sent or received.
    pub cancelled: bool,
    /// Why it failed.
    pub error: Option<Error>,
}

impl Status {
    pub(super) const SENT: Self = Self { source: 0, tag: 0, bytes: 0, cancelled: false, error: None };

    /// Of a message of `len` bytes that is received into `room`.
    #[inline]
    pub(super) fn of_message(key: Envelope, len: usize, room: usize) -> Self {
        let error = (room < len).then_some(Error::Truncated);
        Self { source: key.source(), tag: key.tag(), bytes: len.min(room), cancelled: false, error }
    }

    pub(super) const fn failed(error: Error) -> Self {
        Self { error: Some(error), ..Self::SENT }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The message was longer than the room for it, which holds its first bytes.
    #[error("the message is longer than the room for it")]
    Truncated,
    /// The other process is gone.
    #[error("the other process is gone")]
    ProcFailed,
    /// The key does not open that memory of the other process, or not for this.
    #[error("the other process does not have that memory, or not for this")]
    NoAccess,
    /// The context was revoked.
    #[error("the context was revoked")]
    Revoked,
}

/// What a request is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Nobody's.
    Free,
    /// A receive in the posted queue.
    Posted { class: Class },
    /// A receive whose sender was asked for `missing` bytes more; `region` if they are put.
    Receiving { missing: usize, region: Option<Region> },
    /// A receive whose bytes are copied by both ends ([`super::shared_copy`]).
    Copying,
    /// A receive whose message comes in parts, and has begun.
    Filling,
    /// A send that waits until it can go out.
    Queued { sync: bool },
    /// A send of which the receiver knows; `cancelling` once it was asked to forget it.
    Announced { cancelling: bool },
    /// A send whose receiver wants bytes up to `end`; those before `at` were handed over.
    Streaming { at: usize, end: usize, to: u64 },
    /// A send in parts; those before `at` were handed over.
    Parting { at: usize },
    /// A send whose bytes are being put out of `region`.
    Putting { region: Region },
    /// To oneself, and not matched.
    Own,
    /// Over.
    Complete,
}

/// All that is known of a request.
#[derive(Debug)]
pub(super) struct Slot {
    pub generation: u32,
    pub state: State,
    /// The user has no interest any more: the slot is free once it is complete.
    pub orphan: bool,
    /// The other process; `NOBODY` while a receive from anybody is not matched.
    pub process: u32,
    pub key: Envelope,
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    pub status: Status,
}

/// Of receives from anybody.
pub(super) const NOBODY: u32 = u32::MAX;

/// All requests of a device.
#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Requests {
    /// A free slot, in state [`State::Complete`]: its user sets another.
    #[inline]
    pub fn begin(&mut self, process: u32, key: Envelope, outgoing: Outgoing, incoming: Incoming) -> Request {
        if self.free.is_empty() {
            self.grow();
        }
        let Some(index) = self.free.pop() else { unreachable!("it has just grown") };
        let slot = &mut self.slots[index as usize];
        slot.state = State::Complete;
        slot.orphan = false;
        slot.process = process;
        slot.key = key;
        slot.outgoing = outgoing;
        slot.incoming = incoming;
        slot.status = Status::SENT;
        Request { index, generation: slot.generation }
    }

    /// The slot of a request that is not over and freed.
    #[inline]
    pub fn get(&mut self, request: Request) -> Option<&mut Slot> {
        self.slots
            .get_mut(request.index as usize)
            .filter(|slot| slot.generation == request.generation && slot.state != State::Free)
    }

    /// The slot at an index that some queue holds.
    #[inline]
    pub fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// The handle of the slot at `index`.
    #[inline]
    pub fn handle(&self, index: u32) -> Request {
        Request { index, generation: self.slots[index as usize].generation }
    }

    /// Ends a request. Its memory is the user's again.
    #[inline]
    pub fn complete(&mut self, index: u32, status: Status) {
        let slot = &mut self.slots[index as usize];
        slot.state = State::Complete;
        slot.status = status;
        slot.outgoing = Outgoing::EMPTY;
        slot.incoming = Incoming::EMPTY;
        if slot.orphan {
            self.release(index);
        }
    }

    /// Frees the slot of a request that is complete.
    #[inline]
    pub fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Requests under way that `which` picks. For what seldom happens: looks at each.
    pub fn filter(&self, mut which: impl FnMut(&Slot) -> bool) -> Vec<u32> {
        let numbered = self.slots.iter().zip(0u32..);
        let under_way = numbered.filter(|(slot, _)| !matches!(slot.state, State::Free | State::Complete));
        under_way.filter(|(slot, _)| which(slot)).map(|(_, index)| index).collect()
    }

    #[cold]
    fn grow(&mut self) {
        let first = u32::try_from(self.slots.len()).expect("fewer requests than fit into memory");
        self.slots.resize_with(self.slots.len() + GROWTH, || Slot {
            generation: 0,
            state: State::Free,
            orphan: false,
            process: NOBODY,
            key: Envelope::of_receive(0, None, None).0,
            outgoing: Outgoing::EMPTY,
            incoming: Incoming::EMPTY,
            status: Status::SENT,
        });
        self.free.extend((first..first + GROWTH as u32).rev());
    }
}

/// Slots that are added at once.
const GROWTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(requests: &mut Requests) -> Request {
        requests.begin(0, Envelope::new(0, 0, 0), Outgoing::EMPTY, Incoming::EMPTY)
    }

    #[test]
    fn a_handle_is_not_mistaken_for_a_later_one() {
        let mut requests = Requests::default();
        let first = begin(&mut requests);
        requests.complete(first.index, Status::SENT);
        requests.release(first.index);
        assert!(requests.get(first).is_none());
        let second = begin(&mut requests);
        assert_eq!(second.index, first.index);
        assert!(requests.get(first).is_none() && requests.get(second).is_some());
        assert_eq!(Request::from_bits(second.to_bits()), second);
    }

    #[test]
    fn an_orphan_frees_itself() {
        let mut requests = Requests::default();
        let request = begin(&mut requests);
        requests.at(request.index).orphan = true;
        requests.complete(request.index, Status::SENT);
        assert!(requests.get(request).is_none());
    }
}
