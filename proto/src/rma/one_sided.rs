//! The one-sided operations of one connection: ours that are under way, and which of the peer's records is whose. Its operations are
//! [`Served`]'s.
//!
//! Both sides count the operations of one direction (puts, gets, atomics) in the order in which their last bytes are sent,
//! so that a put needs no number on the wire, and one count says that all before it are done.

use std::collections::VecDeque;

use super::key::{OpError, Rights};
use super::outbox::{Cut, Outbox, Source};
use super::precedence::Precedence;
use super::region::Regions;
use super::served::{Placed, Served};
use super::{Op, RmaError};
use crate::PeerId;
use crate::conn::TurnContext;
use crate::counters::Reject;
use crate::event::Event;
use crate::wire::{Operation, Operations, PUT_LEN, Target, put_flags};

/// One connection's operations in both directions. Exists from the first one on.
#[derive(Debug)]
pub(crate) struct OneSided {
    pub outbox: Outbox,
    pub precedence: Precedence,
    // Ours.
    /// Number of our next operation.
    issued: u64,
    /// The peer has taken in every operation before this number.
    done: u64,
    /// Every operation from this number on may be silent.
    wanted: u64,
    /// Gets and atomics that are not answered, in order.
    requests: VecDeque<Request>,
    /// Puts may not be placed before what was sent before the fence, until all of that is acknowledged.
    fenced: bool,
    /// The peer's.
    served: Served,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    number: u64,
    kind: RequestKind,
}

#[derive(Debug, Clone, Copy)]
enum RequestKind {
    Get { region: u32, at: usize, len: usize },
    Atomic,
}

impl OneSided {
    /// Nothing under way; room for `capacity` bytes of small operations, in frames of at most `longest`.
    pub const fn new(capacity: usize, longest: usize) -> Self {
        Self {
            outbox: Outbox::new(capacity, longest),
            precedence: Precedence::new(),
            issued: 0,
            done: 0,
            wanted: 0,
            requests: VecDeque::new(),
            fenced: false,
            served: Served::new(),
        }
    }

    // Ours.

    /// The flags of a put that is issued now.
    #[inline]
    pub fn flags(&mut self, signal: bool, silent: bool) -> u8 {
        let mut flags = 0;
        if signal {
            flags |= put_flags::SIGNAL;
        }
        // Now and then one has to be answered, or the numbers on the wire would be ambiguous.
        if !silent || self.issued - self.wanted >= SILENT_MAX {
            flags |= put_flags::DONE;
        }
        if self.fenced {
            if self.outbox.is_empty() {
                self.fenced = false;
            } else {
                flags |= put_flags::ORDERED;
            }
        }
        flags
    }

    /// A put that fits one record. `None` when there is no room.
    #[inline]
    pub fn put(&mut self, to: Target, flags: u8, bytes: &[u8]) -> Option<u64> {
        let pushed = self.outbox.push(&Operation::Put { to, flags: flags | put_flags::LAST, bytes });
        pushed.then(|| {
            self.outbox.note_own();
            self.issue_put(flags)
        })
    }

    /// A put that is sent from where its bytes are, in frames whose body takes `body_max` bytes. Hands its source back when
    /// there is no room.
    pub fn put_bulk(
        &mut self,
        (to, flags): (Target, u8),
        source: Source,
        (len, backwards): (usize, bool),
        body_max: usize,
        regions: &Regions,
    ) -> Result<u64, Source> {
        let part_max = body_max - PUT_LEN;
        let rest = len % part_max;
        let rest = if len > part_max && rest <= COPIED_MAX { rest } else { 0 };
        self.outbox.push_put((to, flags, self.issued), source, Cut { len, rest, backwards }, regions)?;
        self.outbox.note_own();
        Ok(self.issue_put(flags))
    }

    /// A put was handed over with these flags: its number.
    #[inline]
    pub fn issue_put(&mut self, flags: u8) -> u64 {
        let number = self.issued;
        self.issued += 1;
        if flags & put_flags::DONE != 0 {
            self.wanted = self.issued;
        }
        number
    }

    /// A get into a region that is held for it.
    pub fn get(&mut self, from: Target, region: u32, at: usize, len: u32) -> Result<u64, RmaError> {
        let kind = RequestKind::Get { region, at, len: len as usize };
        self.request(&Operation::Get { from, len }, kind)
    }

    /// Changes a word of the peer's.
    pub fn atomic(&mut self, at: Target, change: crate::wire::Change) -> Result<u64, RmaError> {
        self.request(&Operation::Atomic { at, change }, RequestKind::Atomic)
    }

    fn request(&mut self, operation: &Operation<'_>, kind: RequestKind) -> Result<u64, RmaError> {
        if self.requests.len() >= REQUESTS_MAX || !self.outbox.push(operation) {
            return Err(RmaError::Full);
        }
        self.outbox.note_own();
        let number = self.issued;
        self.issued += 1;
        self.requests.push_back(Request { number, kind });
        Ok(number)
    }

    /// What is put from now on is placed after everything that was put before.
    pub fn fence(&mut self) {
        self.fenced = !self.outbox.is_empty();
    }

    /// True when the operation is over: in place, answered, or refused.
    #[inline]
    pub fn is_done(&self, number: u64) -> bool {
        number < self.done && self.requests.iter().all(|request| request.number != number)
    }

    /// True when the peer has every operation of ours, and none waits for an answer.
    pub fn is_settled(&self) -> bool {
        self.requests.is_empty() && self.wanted <= self.done && !self.outbox.has_own()
    }

    /// Ends everything with an error, as far as somebody waits for it.
    pub fn fail_all(&mut self, peer: PeerId, turn: &mut TurnContext) {
        for number in self.done..self.wanted.max(self.requests.back().map_or(0, |last| last.number + 1)) {
            fail(turn, Op { peer, number }, OpError::PeerGone);
        }
        for request in self.requests.drain(..) {
            if request.number < self.done {
                fail(turn, Op { peer, number: request.number }, OpError::PeerGone);
            }
            request.end(&mut turn.rma.regions, &mut turn.events);
        }
        (self.done, self.wanted) = (self.issued, self.issued);
    }

    /// The connection ends: as [`Self::fail_all`], and no memory is needed any more.
    pub fn wind_up(&mut self, peer: PeerId, turn: &mut TurnContext) {
        self.fail_all(peer, turn);
        self.outbox.clear(&mut turn.rma.regions, &mut turn.spares, &mut turn.events);
        self.served.drop_replies(turn);
    }

    // The peer's.

    /// Takes in the body of a frame whose turn it is. On an error nothing of it was done. `serves`: answers can be sent.
    pub fn take_in(&mut self, turn: &mut TurnContext, from: PeerId, serves: bool, body: &[u8]) -> Result<(), Reject> {
        self.check(body)?;
        let mut refused = None;
        for operation in Operations::new(body).flatten() {
            let outcome = match operation {
                Operation::Put { to, flags, bytes } => self.served.on_put(turn, from, &to, flags, bytes),
                Operation::Get { from: target, len } => {
                    let allowed = self.served.on_get(turn, from, &target, len);
                    // At once, as far as that goes: the bytes are read in the operation's turn.
                    if serves && allowed.is_ok() {
                        self.serve(turn);
                    }
                    allowed
                }
                Operation::Atomic { at, change } => self.served.on_atomic(turn, from, &at, change),
                Operation::Answer { op, offset, last, bytes } => {
                    self.on_answer(turn, from, op, offset, last, bytes);
                    Ok(())
                }
                Operation::Fetched { op, value } => {
                    if let Some(request) = self.finish(op) {
                        turn.events.push_back(Event::Fetched { op: Op { peer: from, number: request.number }, value });
                        // Of a get too: memory that a peer shares may say something else than what was checked.
                        request.end(&mut turn.rma.regions, &mut turn.events);
                    }
                    Ok(())
                }
                Operation::Done { ops } => {
                    if let Some(ahead) = self.ahead(ops) {
                        self.done += ahead;
                    }
                    Ok(())
                }
                Operation::Refused { op, count, why } => {
                    self.on_refused(turn, from, op, count, why);
                    Ok(())
                }
            };
            if let Err(why) = outcome {
                refused = Some(why);
            }
        }
        if let Some(why) = refused {
            turn.counters.reject_after_all(why.into());
        }
        if !serves {
            self.served.drop_replies(turn);
        }
        Ok(())
    }

    /// See [`Served::place`].
    pub fn place<'a>(
        &mut self,
        regions: &'a mut Regions,
        from: PeerId,
        front: &[u8],
        len: usize,
    ) -> Option<&'a mut [u8]> {
        self.served.place(regions, from, front, len)
    }

    /// See [`Served::on_placed_put`].
    pub fn on_placed_put(&mut self, turn: &mut TurnContext, from: PeerId) {
        self.served.on_placed_put(turn, from);
    }

    /// Places the bytes of a frame that came before its turn, if it is nothing but bytes that need not wait: whether it
    /// did, and then what is to be made up for in its turn.
    pub fn place_early(&mut self, turn: &mut TurnContext, from: PeerId, body: &[u8]) -> Option<Placed> {
        let mut placed = Placed { ops: 0, wants_done: false };
        for operation in Operations::new(body) {
            match operation {
                Ok(Operation::Put { to, flags, bytes })
                    if flags & (put_flags::SIGNAL | put_flags::ORDERED) == 0
                        && turn.rma.regions.allow(&to, bytes.len(), Rights::WRITE, from).is_ok() =>
                {
                    placed.ops += u32::from(flags & put_flags::LAST != 0);
                    placed.wants_done |= flags & put_flags::DONE != 0;
                }
                Ok(Operation::Answer { op, offset, last: false, bytes })
                    if self.lands(op, offset, bytes.len()).is_some() => {}
                _ => return None,
            }
        }
        for operation in Operations::new(body).flatten() {
            match operation {
                Operation::Put { to, bytes, .. } => {
                    turn.rma.regions.write(to.region, to.offset as usize, bytes);
                    turn.rma.regions.on_put(to.region, to.offset as usize, bytes.len(), false);
                }
                Operation::Answer { op, offset, bytes, .. } => self.land(turn, op, offset, bytes),
                _ => {}
            }
        }
        turn.counters.placed_early += 1;
        Some(placed)
    }

    /// It is the turn of a frame that was placed early.
    pub fn on_placed(&mut self, turn: &mut TurnContext, from: PeerId, placed: Placed) {
        self.served.on_placed(turn, from, placed);
    }

    /// Moves answers to the outbox as far as there is room.
    pub fn serve(&mut self, turn: &mut TurnContext) {
        self.served.serve(&mut self.outbox, turn);
    }

    /// The turn has come to say what is done. False when there is no room for that.
    pub fn push_done(&mut self) -> bool {
        self.served.push_done(&mut self.outbox)
    }

    /// See [`Served::is_crowded`].
    #[inline]
    pub fn is_crowded(&self, stalled: bool) -> bool {
        self.served.is_crowded(stalled)
    }

    /// True while answers wait for room in the outbox.
    #[inline]
    pub fn has_answers_waiting(&self) -> bool {
        self.served.has_replies()
    }

    /// True while the peer is to be told something that is not in the outbox: for want of room, or of a turn.
    pub fn owes_answers(&self) -> bool {
        self.has_answers_waiting() || self.served.owes_done()
    }

    /// True when there is something to transmit.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.outbox.has_unsent() || self.has_answers_waiting()
    }

    /// True when nothing waits here that would have to go first, or could go along.
    #[inline]
    pub fn has_nothing_to_say(&self) -> bool {
        !self.has_unsent() && !self.served.owes_done()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.outbox.memory()
            + self.requests.capacity() * size_of::<Request>()
            + self.served.memory()
    }

    /// Whether a peer that keeps to the rules could have sent this.
    pub fn check(&self, body: &[u8]) -> Result<(), Reject> {
        for operation in Operations::new(body) {
            let sound = match operation? {
                Operation::Put { .. } | Operation::Get { .. } | Operation::Atomic { .. } => true,
                Operation::Answer { op, offset, bytes, .. } => self.lands(op, offset, bytes.len()).is_some(),
                Operation::Fetched { op, .. } => {
                    self.find(op).is_some_and(|place| matches!(self.requests[place].kind, RequestKind::Atomic))
                }
                Operation::Done { ops } => self.ahead(ops).is_some(),
                Operation::Refused { op, count, .. } => {
                    self.ahead(op).is_some_and(|ahead| ahead + u64::from(count) <= self.issued - self.done)
                }
            };
            if !sound {
                return Err(Reject::Malformed);
            }
        }
        Ok(())
    }

    fn on_answer(&mut self, turn: &mut TurnContext, from: PeerId, op: u32, offset: u32, last: bool, bytes: &[u8]) {
        self.land(turn, op, offset, bytes);
        if last && let Some(request) = self.finish(op) {
            turn.events.push_back(Event::Got { op: Op { peer: from, number: request.number } });
            request.end(&mut turn.rma.regions, &mut turn.events);
        }
    }

    fn on_refused(&mut self, turn: &mut TurnContext, from: PeerId, op: u32, count: u32, why: OpError) {
        let Some(ahead) = self.ahead(op) else { return };
        let first = self.done + ahead;
        for number in first..(first + u64::from(count)).min(self.issued) {
            if let Some(request) = self.finish(number as u32) {
                request.end(&mut turn.rma.regions, &mut turn.events);
            }
            self.done = self.done.max(number + 1);
            fail(turn, Op { peer: from, number }, why);
        }
    }

    /// How far a count on the wire is ahead of what is done; `None` when we never issued so many.
    fn ahead(&self, ops: u32) -> Option<u64> {
        let ahead = u64::from(ops.wrapping_sub(self.done as u32));
        (ahead <= self.issued - self.done).then_some(ahead)
    }

    fn land(&mut self, turn: &mut TurnContext, op: u32, offset: u32, bytes: &[u8]) {
        if let Some((region, at)) = self.lands(op, offset, bytes.len()) {
            turn.rma.regions.write(region, at, bytes);
        }
    }

    /// Where `len` bytes of an answer belong.
    fn lands(&self, op: u32, offset: u32, len: usize) -> Option<(u32, usize)> {
        match self.requests[self.find(op)?].kind {
            RequestKind::Get { region, at, len: whole } if offset as usize + len <= whole => {
                Some((region, at + offset as usize))
            }
            _ => None,
        }
    }

    /// Answers come in the order of their requests, but for those that overtake each other on the way.
    #[inline]
    fn find(&self, op: u32) -> Option<usize> {
        self.requests.iter().position(|request| request.number as u32 == op)
    }

    /// Request `op` is answered, and so everything before it was taken in.
    fn finish(&mut self, op: u32) -> Option<Request> {
        let place = self.find(op)?;
        let request = self.requests.remove(place)?;
        self.done = self.done.max(request.number + 1);
        Some(request)
    }
}

/// An operation of ours has ended badly.
fn fail(turn: &mut TurnContext, op: Op, why: OpError) {
    turn.counters.operations_failed += 1;
    turn.events.push_back(Event::OpFailed { op, why });
}

impl Request {
    fn end(self, regions: &mut Regions, events: &mut VecDeque<Event>) {
        if let RequestKind::Get { region, .. } = self.kind {
            regions.release(region, events);
        }
    }
}

/// Bytes that are copied rather than sent from their place, which is a frame of its own: so long a copy takes some tens of nanoseconds,
/// a frame hundreds.
pub(super) const COPIED_MAX: usize = 4 << 10;
/// Gets and atomics under way to one peer at once.
const REQUESTS_MAX: usize = 64;
/// Silent puts in a row, far less than what 32 bits tell apart.
const SILENT_MAX: u64 = 1 << 16;
