//! Operations on a target's memory.
#![allow(unsafe_code)] // Buffers are the user's and are lent until an operation is over.

use crate::adi::{Device, Turns};
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;

use super::combine::is_swappable;
use super::lent::{Bytes, Lent, Room, Target, part};
use super::members::tag;
use super::queue::{Answer, Operation, What};
use super::request::{Head, Kind, OPS};
use super::runs::{Run, parts};
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
    pub unsafe fn put(
        &mut self,
        turns: &mut impl Turns,
        from: Lent<'_>,
        to: Target<'_>,
    ) -> Result<Operation, RmaError> {
        let (operation, size) = self.begin(&to, from.size()?)?;
        if let Some(done) = self.mapped.put(&from, &to) {
            return done.map(|()| operation);
        }
        let run = to.datatype.contiguous_run(to.count).filter(|_| size > SHORT);
        let Some((at, _)) = run else {
            let action = Action { kind: Kind::Put, op: 0, element: None, grain: 1 };
            self.access(turns, &action, Some(&from), None, &to);
            return Ok(operation);
        };
        let number = self.next_number();
        let run = Run { at: at as i64, len: size as u64 };
        let action = Action { kind: Kind::PutLong, op: 0, element: None, grain: 1 };
        self.ask(turns, to.rank, action.head(number, &to, size), &[run], &[], None);
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
        self.queues[to.rank].push(turns.device(), vec![(sent, packed)], None);
        self.queues[to.rank].dirty = true;
        Ok(operation)
    }

    /// Copies from the target (`MPI_Get`, `MPI_Rget`).
    ///
    /// # Safety
    /// The room can be written, and nobody else uses it, until the operation is over.
    pub unsafe fn get(
        &mut self,
        turns: &mut impl Turns,
        into: Room<'_>,
        from: Target<'_>,
    ) -> Result<Operation, RmaError> {
        let (operation, size) = self.begin(&from, into.size()?)?;
        if let Some(done) = self.mapped.get(&into, &from) {
            return done.map(|()| operation);
        }
        let action = Action { kind: Kind::Get, op: 0, element: None, grain: 1 };
        match from.datatype.contiguous_run(from.count) {
            Some(_) if size == 0 => {}
            Some((at, len)) => {
                let run = Run { at: at as i64, len: len as u64 };
                self.access_part(turns, &action, None, Some(&into), &from, &[run], (0, len));
            }
            None => self.access(turns, &action, None, Some(&into), &from),
        }
        Ok(operation)
    }

    /// Combines the target's elements with ours, each atomically (`MPI_Accumulate`, `MPI_Raccumulate`). What is given is copied.
    ///
    /// # Safety
    /// The buffer can be read now.
    pub unsafe fn accumulate(
        &mut self,
        turns: &mut impl Turns,
        from: Lent<'_>,
        to: Target<'_>,
        op: &Op,
    ) -> Result<Operation, RmaError> {
        let action = Action::accumulate(Kind::Accumulate, op, &from, to.datatype)?;
        let (operation, _) = self.begin(&to, from.size()?)?;
        self.access(turns, &action, Some(&from), None, &to);
        Ok(operation)
    }

    /// As [`Self::accumulate`], and fetches what was there before (`MPI_Get_accumulate`, `MPI_Rget_accumulate`). With
    /// [`Op::NoOp`] `from` may be empty.
    ///
    /// # Safety
    /// What is given can be read now, and the room is lent as for [`Self::get`].
    pub unsafe fn get_accumulate(
        &mut self,
        turns: &mut impl Turns,
        from: Lent<'_>,
        into: Room<'_>,
        to: Target<'_>,
        op: &Op,
    ) -> Result<Operation, RmaError> {
        let action = Action::accumulate(Kind::GetAccumulate, op, &from, to.datatype)?;
        let (operation, size) = self.begin(&to, into.size()?)?;
        let given = Some(&from).filter(|_| *op != Op::NoOp);
        if given.is_some() && from.size()? != size {
            return Err(RmaError::Mismatch);
        }
        self.access(turns, &action, given, Some(&into), &to);
        Ok(operation)
    }

    /// [`Self::get_accumulate`] of one element (`MPI_Fetch_and_op`).
    ///
    /// # Safety
    /// `value` and `result` are such elements, and are lent as for [`Self::get_accumulate`].
    #[allow(clippy::too_many_arguments, reason = "they are the standard's")]
    pub unsafe fn fetch_and_op(
        &mut self,
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

    /// Fetches one element, and puts `new` there if it is equal to `compare`, atomically (`MPI_Compare_and_swap`).
    ///
    /// # Safety
    /// `new` and `compare` are such elements and can be read now; `result` is lent as for [`Self::get`].
    #[allow(clippy::too_many_arguments, reason = "they are the standard's")]
    pub unsafe fn compare_and_swap(
        &mut self,
        turns: &mut impl Turns,
        new: *const u8,
        compare: *const u8,
        result: *mut u8,
        element: Predefined,
        rank: usize,
        displacement: i64,
    ) -> Result<Operation, RmaError> {
        if !is_swappable(element) {
            return Err(RmaError::Op);
        }
        let datatype = &Datatype::from(element);
        let to = Target { rank, displacement, count: 1, datatype };
        let (operation, size) = self.begin(&to, element.size())?;
        let mut both = Vec::new();
        for address in [compare, new] {
            Lent { address, count: 1, datatype }.pack(0, size, &mut both);
        }
        let number = self.next_number();
        let action = Action { kind: Kind::CompareSwap, op: 0, element: Some(element), grain: size };
        let room = Room { address: result, count: 1, datatype };
        let answer = self.await_answer(turns.device(), rank, number, &room, (0, size));
        let run = Run { at: 0, len: size as u64 };
        self.ask(turns, rank, action.head(number, &to, size), &[run], &[&both], Some(answer));
        Ok(operation)
    }

    /// Copies from this process's own part, of a window that has memory of its own: in an epoch or out of any.
    ///
    /// # Safety
    /// The room can be written now, and nobody else uses it.
    pub unsafe fn load(&mut self, into: Room<'_>, displacement: i64) -> Result<(), RmaError> {
        let own = Target { rank: self.rank(), displacement, count: into.count, datatype: into.datatype };
        own.size()?;
        self.sync();
        self.mapped.get(&into, &own).unwrap_or(Err(RmaError::Flavor))
    }

    /// Copies to this process's own part, as [`Self::load`] does from there.
    ///
    /// # Safety
    /// The buffer can be read now.
    pub unsafe fn store(&mut self, from: Lent<'_>, displacement: i64) -> Result<(), RmaError> {
        let own = Target { rank: self.rank(), displacement, count: from.count, datatype: from.datatype };
        own.size()?;
        let stored = self.mapped.put(&from, &own).unwrap_or(Err(RmaError::Flavor));
        self.sync();
        stored
    }

    /// Checks what can be checked here: rank, epoch, sizes. Bounds are checked where the memory is.
    fn begin(&mut self, target: &Target<'_>, size: usize) -> Result<(Operation, usize), RmaError> {
        let rank = target.rank;
        if rank >= self.size() {
            return Err(RmaError::Rank);
        }
        if !self.epoch.allows(rank) {
            return Err(RmaError::Sync);
        }
        if target.size()? != size {
            return Err(RmaError::Mismatch);
        }
        Ok((Operation { rank, number: self.queues[rank].begin() }, size))
    }

    fn access(
        &mut self,
        turns: &mut impl Turns,
        action: &Action,
        from: Option<&Lent<'_>>,
        into: Option<&Room<'_>>,
        target: &Target<'_>,
    ) {
        for part in parts(target.datatype, target.count, action.grain) {
            self.access_part(turns, action, from, into, target, &part.runs, (part.at, part.len));
        }
    }

    /// One request, for bytes `at..at + len` of what an operation accesses.
    #[allow(clippy::too_many_arguments, reason = "both sides, and what part of them")]
    fn access_part(
        &mut self,
        turns: &mut impl Turns,
        action: &Action,
        from: Option<&Lent<'_>>,
        into: Option<&Room<'_>>,
        target: &Target<'_>,
        runs: &[Run],
        (at, len): (usize, usize),
    ) {
        let number = self.next_number();
        let mut data = Vec::new();
        if let Some(from) = from {
            from.pack(at, len, &mut data);
        }
        let answer = into.map(|into| self.await_answer(turns.device(), target.rank, number, into, (at, len)));
        self.queues[target.rank].dirty |= answer.is_none();
        self.ask(turns, target.rank, action.head(number, target, len), runs, &[&data], answer);
    }

    fn await_answer(
        &mut self,
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

impl Action {
    fn accumulate(kind: Kind, op: &Op, from: &Lent<'_>, target: &Datatype) -> Result<Self, RmaError> {
        let element = target.element_kind().ok_or(RmaError::Op)?;
        let same = from.is_empty() || from.datatype.element_kind() == Some(element);
        let code = OPS.iter().position(|other| other == op).filter(|_| same && op.is_defined_on(element));
        let op = code.ok_or(RmaError::Op)? as u8;
        Ok(Self { kind, op, element: Some(element), grain: element.size() })
    }

    fn head(&self, number: i32, target: &Target<'_>, len: usize) -> Head {
        let Self { kind, op, element, .. } = *self;
        Head { kind, detail: op, element, number, displacement: target.displacement, bytes: len as u64 }
    }
}

/// Puts up to here carry their bytes in the request. Longer ones go as the device sends messages of their length: from here on
/// that is by one copy on a host (`adi::Limits::pull_min`).
const SHORT: usize = 4 << 10;
