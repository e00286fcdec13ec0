//! Operations on a target's memory.
#![allow(unsafe_code)] // Buffers are the user's and are lent until an operation is over.

use std::ops::Range;

use crate::adi::{Device, Turns};
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;

use super::combine::is_swappable;
use super::lent::{Bytes, Lent, NOWHERE, Room, Target, part};
use super::members::tag;
use super::queue::{Answer, Operation, What};
use super::request::{Head, Kind};
use super::runs::{Run, each_part};
use super::window::State;
use super::{RmaError, Window};

/// What is done to a target's elements.
struct Action {
    kind: Kind,
    /// The operator's number on the wire.
    op: u8,
    element: Option<Predefined>,
    /// Bytes that belong together.
    grain: usize,
}

impl Window {
    /// Copies to the target (`MPI_Put`, `MPI_Rput`).
    ///
    /// # Safety
    /// The buffer can be read, and nobody writes it, until the operation is over: waited for, or flushed, or its epoch closed.
    pub unsafe fn put(&self, turns: &mut impl Turns, from: Lent<'_>, to: Target<'_>) -> Result<Operation, RmaError> {
        if to.rank == NOWHERE {
            return Ok(Operation::done(NOWHERE));
        }
        let size = from.size()?;
        let mut state = self.state();
        let operation = state.begin(to.rank, size, to.size()?)?;
        if let Some(done) = state.mapped.put(&from, &to, size) {
            self.serve_now_and_then(turns, state);
            return done.map(|()| Operation::done(operation.rank));
        }
        drop(state);
        let run = to.datatype.contiguous_run(to.count).filter(|_| size > SHORT);
        let Some((at, _)) = run else {
            let action = Action { kind: Kind::Put, op: 0, element: None, grain: 1 };
            return Ok(self.access(turns, operation, &action, Some(&from), None, &to, 0..size));
        };
        let run = Run { at: at as i64, len: size as u64 };
        let action = Action { kind: Kind::PutLong, op: 0, element: None, grain: 1 };
        let asker = (to.rank, operation.number);
        let (number, _) = self.ask(turns, asker, action.head(&to, size), &[run], &[], |_, _| None);
        let mut packed = Vec::new();
        let (data, packed) = match from.whole() {
            Some(whole) => (whole, Bytes::default()),
            None => {
                from.pack(0, size, &mut packed);
                let packed = Bytes::from(packed);
                (packed.outgoing(), packed)
            }
        };
        let sent = self.members.say(turns.device(), to.rank, tag::data(number), data);
        let queue = &mut self.state().queues[to.rank];
        queue.push(turns.device(), operation.number, action.kind, vec![(sent, packed)], None);
        Ok(Operation { end: queue.end().messages, ..operation })
    }

    /// Copies from the target (`MPI_Get`, `MPI_Rget`). There may be more room than it needs.
    ///
    /// # Safety
    /// The room can be written, and nobody else uses it, until the operation is over.
    pub unsafe fn get(&self, turns: &mut impl Turns, into: Room<'_>, from: Target<'_>) -> Result<Operation, RmaError> {
        if from.rank == NOWHERE {
            return Ok(Operation::done(NOWHERE));
        }
        let size = from.size()?;
        let mut state = self.state();
        let operation = state.begin(from.rank, size, into.size()?)?;
        if let Some(done) = state.mapped.get(&into, &from, size) {
            self.serve_now_and_then(turns, state);
            return done.map(|()| Operation::done(operation.rank));
        }
        drop(state);
        let action = Action { kind: Kind::Get, op: 0, element: None, grain: 1 };
        Ok(match from.datatype.contiguous_run(from.count) {
            Some(_) if size == 0 => operation,
            Some((at, len)) => {
                let run = Run { at: at as i64, len: len as u64 };
                self.access_part(turns, operation, &action, None, Some(&into), &from, &[run], (0, len))
            }
            None => self.access(turns, operation, &action, None, Some(&into), &from, 0..size),
        })
    }

    /// Combines the target's elements with ours, each atomically (`MPI_Accumulate`, `MPI_Raccumulate`). What is given is copied.
    ///
    /// # Safety
    /// The buffer can be read now.
    pub unsafe fn accumulate(
        &self,
        turns: &mut impl Turns,
        from: Lent<'_>,
        to: Target<'_>,
        op: &Op,
    ) -> Result<Operation, RmaError> {
        let action = Action::accumulate(Kind::Accumulate, op, &from, to.datatype)?;
        if to.rank == NOWHERE {
            return Ok(Operation::done(NOWHERE));
        }
        let size = from.size()?;
        let operation = self.state().begin(to.rank, size, to.size()?)?;
        Ok(self.access(turns, operation, &action, Some(&from), None, &to, 0..size))
    }

    /// As [`Self::accumulate`], and fetches all of what was there before, also where less is given (`MPI_Get_accumulate`,
    /// `MPI_Rget_accumulate`). With [`Op::NoOp`] `from` means nothing.
    ///
    /// # Safety
    /// What is given can be read now, and the room is lent as for [`Self::get`].
    pub unsafe fn get_accumulate(
        &self,
        turns: &mut impl Turns,
        from: Lent<'_>,
        into: Room<'_>,
        to: Target<'_>,
        op: &Op,
    ) -> Result<Operation, RmaError> {
        let action = Action::accumulate(Kind::GetAccumulate, op, &from, to.datatype)?;
        if to.rank == NOWHERE {
            return Ok(Operation::done(NOWHERE));
        }
        let size = to.size()?;
        let given = if *op == Op::NoOp { 0 } else { from.size()? };
        if given > size {
            return Err(RmaError::Truncated);
        }
        let fetching = || Action::accumulate(Kind::GetAccumulate, &Op::NoOp, &from, to.datatype);
        let only_fetched = (given < size).then(fetching).transpose()?;
        let operation = self.state().begin(to.rank, size, into.size()?)?;
        let operation = self.access(turns, operation, &action, Some(&from), Some(&into), &to, 0..given);
        Ok(match only_fetched {
            Some(action) => self.access(turns, operation, &action, None, Some(&into), &to, given..size),
            None => operation,
        })
    }

    /// [`Self::get_accumulate`] of one element (`MPI_Fetch_and_op`).
    ///
    /// # Safety
    /// `value` and `result` are such elements, and are lent as for [`Self::get_accumulate`].
    #[allow(clippy::too_many_arguments, reason = "they are the standard's")]
    pub unsafe fn fetch_and_op(
        &self,
        turns: &mut impl Turns,
        value: *const u8,
        result: *mut u8,
        element: Predefined,
        rank: usize,
        displacement: i64,
        op: &Op,
    ) -> Result<Operation, RmaError> {
        let datatype = &Datatype::from(element);
        let from = Lent { address: value, count: 1, datatype };
        let into = Room { address: result, count: 1, datatype };
        let to = Target { rank, displacement, count: 1, datatype };
        // SAFETY: passed on.
        unsafe { self.get_accumulate(turns, from, into, to, op) }
    }

    /// Fetches one element, which is one number, and puts `new` there if it is equal to `compare`, atomically (`MPI_Compare_and_swap`).
    ///
    /// # Safety
    /// `new` and `compare` are such elements and can be read now; `result` is lent as for [`Self::get`].
    #[allow(clippy::too_many_arguments, reason = "they are the standard's")]
    pub unsafe fn compare_and_swap(
        &self,
        turns: &mut impl Turns,
        new: *const u8,
        compare: *const u8,
        result: *mut u8,
        datatype: &Datatype,
        rank: usize,
        displacement: i64,
    ) -> Result<Operation, RmaError> {
        let element = datatype.element_kind().filter(|element| datatype.element_count() == 1 && is_swappable(*element));
        let element = element.ok_or(RmaError::Op)?;
        if rank == NOWHERE {
            return Ok(Operation::done(NOWHERE));
        }
        let to = Target { rank, displacement, count: 1, datatype };
        let size = element.size();
        let operation = self.state().begin(rank, size, to.size()?)?;
        let mut both = Vec::new();
        for address in [compare, new] {
            Lent { address, count: 1, datatype }.pack(0, size, &mut both);
        }
        let action = Action { kind: Kind::CompareSwap, op: 0, element: Some(element), grain: size };
        let room = Room { address: result, count: 1, datatype };
        let run = Run { at: datatype.true_lower_bound() as i64, len: size as u64 };
        let asker = (rank, operation.number);
        let (_, end) = self.ask(turns, asker, action.head(&to, size), &[run], &[&both], |device, number| {
            Some(self.await_answer(device, rank, number, &room, (0, size)))
        });
        Ok(Operation { end: end.messages, ..operation })
    }

    /// Copies from this process's own part, of a window that has memory of its own: in an epoch or out of any.
    ///
    /// # Safety
    /// The room can be written now, and nobody else uses it.
    pub unsafe fn load(&self, into: Room<'_>, displacement: i64) -> Result<(), RmaError> {
        let own = Target { rank: self.rank(), displacement, count: into.count, datatype: into.datatype };
        let size = own.size()?;
        self.sync();
        self.state().mapped.get(&into, &own, size).unwrap_or(Err(RmaError::Flavor))
    }

    /// Copies to this process's own part, as [`Self::load`] does from there.
    ///
    /// # Safety
    /// The buffer can be read now.
    pub unsafe fn store(&self, from: Lent<'_>, displacement: i64) -> Result<(), RmaError> {
        let own = Target { rank: self.rank(), displacement, count: from.count, datatype: from.datatype };
        let size = own.size()?;
        let stored = self.state().mapped.put(&from, &own, size).unwrap_or(Err(RmaError::Flavor));
        self.sync();
        stored
    }

    /// Asks for all parts of these bytes of the target's.
    #[allow(clippy::too_many_arguments, reason = "both sides, and how much of them")]
    fn access(
        &self,
        turns: &mut impl Turns,
        mut operation: Operation,
        action: &Action,
        from: Option<&Lent<'_>>,
        into: Option<&Room<'_>>,
        target: &Target<'_>,
        bytes: Range<usize>,
    ) -> Operation {
        each_part(target.datatype, bytes, action.grain, |part| {
            operation = self.access_part(turns, operation, action, from, into, target, &part.runs, (part.at, part.len));
        });
        operation
    }

    /// One request, for bytes `at..at + len` of what an operation accesses. The operation is over when this is, and what was before.
    #[allow(clippy::too_many_arguments, reason = "both sides, and what part of them")]
    fn access_part(
        &self,
        turns: &mut impl Turns,
        operation: Operation,
        action: &Action,
        from: Option<&Lent<'_>>,
        into: Option<&Room<'_>>,
        target: &Target<'_>,
        runs: &[Run],
        (at, len): (usize, usize),
    ) -> Operation {
        let mut data = Vec::new();
        if let Some(from) = from {
            from.pack(at, len, &mut data);
        }
        let asker = (target.rank, operation.number);
        let (_, end) = self.ask(turns, asker, action.head(target, len), runs, &[&data], |device, number| {
            into.map(|into| self.await_answer(device, target.rank, number, into, (at, len)))
        });
        Operation { end: end.messages, ..operation }
    }

    fn await_answer(
        &self,
        device: &mut Device,
        rank: usize,
        number: i32,
        into: &Room<'_>,
        (at, len): (usize, usize),
    ) -> Answer {
        if let Some(whole) = into.whole() {
            let request = self.members.hear(device, rank, number, part(whole, at, len));
            return Answer { request, len, what: What::InPlace };
        }
        let mut room = Bytes::zeros(len);
        let request = self.members.hear(device, rank, number, room.incoming());
        Answer { request, len, what: What::Packed { room, unpacking: into.unpacking(at) } }
    }
}

impl State {
    /// Checks what can be checked here: rank, epoch, and whether `len` bytes fit into `room`, as a message's into a receive's
    /// (MPI-4.1 12.3.1). Bounds are checked where the memory is.
    fn begin(&mut self, rank: usize, len: usize, room: usize) -> Result<Operation, RmaError> {
        let queue = self.queues.get_mut(rank).ok_or(RmaError::Rank)?;
        if !self.epoch.allows(rank) {
            return Err(RmaError::Sync);
        }
        if len > room {
            return Err(RmaError::Truncated);
        }
        Ok(Operation { rank, number: queue.begin(), end: 0 })
    }
}

impl Action {
    fn accumulate(kind: Kind, op: &Op, from: &Lent<'_>, target: &Datatype) -> Result<Self, RmaError> {
        let op_at = Op::PREDEFINED.iter().position(|other| other == op).ok_or(RmaError::Op)?;
        // It is for what fetches (MPI-5.0 12.3.4), which takes nothing then, whatever it is given.
        if *op == Op::NoOp && kind == Kind::Accumulate {
            return Err(RmaError::Op);
        }
        let element = target.element_kind();
        let takes_nothing = *op == Op::NoOp || from.is_empty();
        let fits = match element {
            Some(_) => takes_nothing || from.datatype.element_kind() == element,
            // A type without elements is no type's that the operator is not defined for.
            None => target.size() == 0,
        };
        if !fits || element.is_some_and(|element| !op.is_defined_on(element)) {
            return Err(RmaError::Op);
        }
        Ok(Self { kind, op: op_at as u8, element, grain: element.map_or(1, Predefined::size) })
    }

    fn head(&self, target: &Target<'_>, len: usize) -> Head {
        let Self { kind, op, element, .. } = *self;
        Head { kind, detail: op, element, number: 0, displacement: target.displacement, bytes: len as u64 }
    }
}

/// Puts up to here carry their bytes in the request. Longer ones go as the device sends messages of their length: from here on
/// that is by one copy on a host (`adi::Limits::pull_min`).
const SHORT: usize = 4 << 10;
