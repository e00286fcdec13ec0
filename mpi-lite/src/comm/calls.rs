#![allow(unsafe_code)]
//! Collective calls on raw memory: what the typed ones and the C interface stand on. Unsafe, since the memory is lent.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use crate::adi::{self, Device, Error};
use crate::biased::Biased;
use crate::coll::{Buffers, Call};
use crate::host::FEW;
use crate::op::Function;

use super::collective::{Course, Execution, KeptCombine, Look, Queue, Queued, Ranks};
use super::context::ContextIds;
use super::elements::Elements;
use super::failure::{Failures, Name};
use super::local::State;
use super::operand::{Operator, combine, predefined};
use super::operator::lock_outside_operators;
use super::pending::Pending;
use super::running::Run;
use super::side::{Side, buffers, lend};
use super::{Communicator, ErrorClass, Status};

impl Communicator {
    /// A collective call: what this rank gives, or `None` for what is in `room` already; what it gets; and the operator.
    /// Lengths in `call` are those of the elements' packed bytes, or of their extents where there is an operator.
    ///
    /// # Safety
    ///
    /// All data of `given` can be read, and of `room` be written; nobody else uses them.
    // Within the caller, who knows what is given: a few numbers that were written to memory would be read from it in other pieces, which
    // waits for all that was written before (`bench/NOTES.md` 90).
    #[inline(always)]
    pub unsafe fn call_raw(
        &self,
        call: Call,
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
    ) -> Result<(), ErrorClass> {
        if let Some(few) = Few::of(given.as_ref(), &room, operator)
            // SAFETY: as the caller says.
            && let Some(done) = unsafe { self.call_few(&call, few.send, few.receive, few.function) }
        {
            Few::end(given, room);
            return done;
        }
        // SAFETY: passed on.
        unsafe { self.call_many(call, given, room, operator) }
    }

    /// Of few numbers in memory that the ranks share, as most calls are. `None`: it is none of those, and was not made.
    ///
    /// # Safety
    ///
    /// As for [`Self::call_raw`].
    #[inline(never)] // With arguments in registers.
    unsafe fn call_few(
        &self,
        call: &Call,
        send: Option<NonNull<[u8]>>,
        mut receive: NonNull<[u8]>,
        function: Option<Function>,
    ) -> Option<Result<(), ErrorClass>> {
        if self.0.local.has_threads() {
            return None;
        }
        let mut held = self.0.local.hold();
        // SAFETY: the caller's elements, lent for the call, which is over when this returns.
        let (send, receive) = unsafe { (send.map(|send| send.as_ref()), receive.as_mut()) };
        let done = lock_outside_operators(&self.0.ranks).call_few(&mut held, call, send, receive, function)?;
        drop(held);
        Some(done.map_err(|error| self.fail(error.into())))
    }

    /// # Safety
    ///
    /// As for [`Self::call_raw`].
    unsafe fn call_many(
        &self,
        call: Call,
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
    ) -> Result<(), ErrorClass> {
        let result = if self.0.local.has_threads() {
            // SAFETY: as the caller says, and this waits until it is over.
            unsafe { self.start_call(call, given, room, operator) }
                .and_then(|mut pending| self.0.local.wait(&mut pending).ok().map(drop))
        } else {
            // SAFETY: as the caller says.
            unsafe { self.call_at_once(call, given, room, operator) }
        };
        result.map_err(|class| self.fail(class))
    }

    /// As [`Self::call_raw`], but only begins the call.
    ///
    /// # Safety
    ///
    /// As for [`Self::call_raw`], until the call is over.
    pub unsafe fn start_call_raw(
        &self,
        call: Call,
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
    ) -> Result<Pending, ErrorClass> {
        if let Some(few) = Few::of(given.as_ref(), &room, operator)
            // SAFETY: as the caller says.
            && let Some(done) = unsafe { self.start_few(&call, few) }
        {
            Few::end(given, room);
            return Ok(done);
        }
        // SAFETY: passed on.
        unsafe { self.start_call(call, given, room, operator) }.map_err(|class| self.fail(class))
    }

    /// Begins a call of few numbers that is over at once, in memory that the ranks share. `None`: it is to be begun as others.
    ///
    /// # Safety
    ///
    /// As for [`Self::call_raw`], until the call is over.
    unsafe fn start_few(&self, call: &Call, few: Few) -> Option<Pending> {
        // SAFETY: the caller's elements, lent for the call, which is over when this returns, or has not kept them.
        let (send, receive) = unsafe { (few.send.map(|send| send.as_ref()), &mut *few.receive.as_ptr()) };
        let ranks = lock_outside_operators(&self.0.ranks);
        let (queue, call) = ranks.queue_for(*call, Buffers::of(send, receive))?;
        let mut state = self.0.local.lock();
        let look = queue.call_now(&mut state.device, &call, (send, receive), few.function);
        let Look::Made(done) = look else { return None };
        drop(ranks);
        state.serve_now_and_then();
        Some(Pending::Done(Status { error: done.err().map(ErrorClass::from), ..Status::EMPTY }))
    }

    /// # Safety
    ///
    /// As for [`Self::call_raw`].
    unsafe fn call_at_once(
        &self,
        call: Call,
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
    ) -> Result<(), ErrorClass> {
        if let Some((kind, op)) = predefined(operator) {
            if !op.reduces(kind) {
                return Err(ErrorClass::Op);
            }
            let mut combine =
                |into: &mut [u8], from: &[u8]| op.combine(kind, into, from).expect("it is defined, as checked");
            // SAFETY: passed on.
            return unsafe { self.call_with(call, given, room, operator, &mut combine) };
        }
        // SAFETY: passed on.
        unsafe { self.call_with(call, given, room, operator, combine(operator)?.as_dyn()) }
    }

    /// # Safety
    ///
    /// As for [`Self::call_raw`].
    unsafe fn call_with(
        &self,
        call: Call,
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
        combine: &mut dyn FnMut(&mut [u8], &[u8]),
    ) -> Result<(), ErrorClass> {
        let ranks = self.ranks(&call)?;
        // What most calls are of. Nothing is copied or given back.
        if let Some(receive) = room.numbers()
            && let Some(send) = given.as_ref().map_or(Some(None), |given| given.numbers().map(Some))
        {
            // SAFETY: the caller's elements, lent for the call, which is over when this returns.
            let (send, receive) = unsafe { (send.map(|send| &*send), &mut *receive) };
            return Ok(self.call_by(ranks, call, send, receive, combine)?);
        }
        let access = lock_outside_operators(ranks).access(&call, room.len()?, given.is_none());
        // SAFETY: the caller's elements.
        let (send, receive) = unsafe { Side::both(given, (room, access), operator) }?;
        let done = {
            // SAFETY: lent for the call, which is over when this returns.
            let (send, receive) = unsafe { (send.as_ref().map(|side| &*side.bytes), &mut *receive.bytes) };
            self.call_by(ranks, call, send, receive, combine)
        };
        // SAFETY: the call is over, and the room is the caller's.
        unsafe { Side::end(send, receive, done.map_err(ErrorClass::from)) }
    }

    /// Makes a call that waits. Others who may wait for us in one that has failed, as by lengths that do not fit, or by an operator
    /// that panics where not all see it, are told by a revocation.
    ///
    /// # Panics
    ///
    /// Goes on with the panic of its operator.
    fn call_by(
        &self,
        ranks: &Biased<Ranks>,
        call: Call,
        send: Option<&[u8]>,
        receive: &mut [u8],
        combine: &mut dyn FnMut(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        let (done, untold) = {
            let (mut held, mut ranks) = (self.0.local.hold(), lock_outside_operators(ranks));
            let done = catch_unwind(AssertUnwindSafe(|| ranks.call(&mut held, call, send, receive, combine)));
            let untold = match &done {
                Ok(Ok(())) => false,
                Ok(Err(_)) => ranks.has_left_others(),
                Err(_) => !ranks.have_failed_together(),
            };
            (done, untold)
        };
        if untold && !self.is_revoked() {
            self.revoke();
        }
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// # Safety
    ///
    /// As for [`Self::call_raw`], until the call is over.
    unsafe fn start_call(
        &self,
        call: Call,
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
    ) -> Result<Pending, ErrorClass> {
        let (combine, ranks) = (combine(operator)?, self.ranks(&call)?);
        let mut ranks = lock_outside_operators(ranks);
        let access = ranks.access(&call, room.len()?, given.is_none());
        // SAFETY: the caller's elements.
        let (send, receive) = unsafe { Side::both(given, (room, access), operator) }?;
        let buffers = buffers(send.as_ref(), &receive);
        if let Some((queue, call)) = ranks.queue_for(call, buffers) {
            // SAFETY: as the caller says.
            return Ok(unsafe { self.begin_in(queue, call, combine, send, receive) });
        }
        if !ranks.fits(&call, buffers) {
            drop(ranks);
            self.revoke();
            // SAFETY: no call was begun.
            return Ok(unsafe { ended(send, receive, Err(ErrorClass::Truncate)) });
        }
        let mut execution = Execution::default();
        ranks.build(&mut execution, call, buffers);
        let steps = Arc::new(Mutex::new(Steps { execution, combine }));
        let tag = ranks.next_tag();
        // SAFETY: as the caller says.
        Ok(unsafe { self.begin_steps(ranks.course(), steps, tag, send, receive) })
    }

    /// Begins what was built.
    ///
    /// # Safety
    ///
    /// The bytes of both sides that are the caller's are lent until the run is over.
    pub(super) unsafe fn begin_steps(
        &self,
        course: Course,
        steps: Arc<Mutex<Steps>>,
        tag: i32,
        send: Option<Side>,
        receive: Side,
    ) -> Pending {
        // SAFETY: both stay until the run is over: the caller's, as it says, and copies, as the run keeps them.
        let lent = unsafe { lend(send.as_ref(), &receive) };
        let mut state = self.0.local.lock();
        course.start(&mut state.device, &mut adi::lock(&steps).execution, lent, tag);
        state.device.flush();
        let others = Others { failures: Arc::clone(self.0.local.failures()), name: self.0.in_failures };
        let way = Way::Messages(course, steps, others);
        let run = CollectiveRun { way, send, receive: Some(receive) };
        Pending::Running(state.runs.add(Box::new(run)))
    }

    /// Begins a call that does not wait in memory that the ranks share.
    ///
    /// # Safety
    ///
    /// The bytes of both sides that are the caller's are lent until the run is over.
    pub(super) unsafe fn begin_in(
        &self,
        queue: &Arc<Queue>,
        call: Call<'static>,
        combine: KeptCombine,
        send: Option<Side>,
        receive: Side,
    ) -> Pending {
        // SAFETY: both stay until the run is over: the caller's, as it says, and copies, as the run keeps them.
        let lent = unsafe { lend(send.as_ref(), &receive) };
        let in_place = send.is_none();
        let mut state = self.0.local.lock();
        let State { device, contexts, runs, .. } = &mut *state;
        // SAFETY: as above, and nobody else has them yet.
        let (given, room) = unsafe { lent.slices() };
        let look = queue.call_now(device, &call, ((!in_place).then_some(given), room), combine.function());
        if let Look::Made(done) = look {
            state.serve_now_and_then();
            // SAFETY: the call is over, and its memory is the caller's.
            return unsafe { ended(send, receive, done.map_err(ErrorClass::from)) };
        }
        let way = Way::Memory(queue.begin(call, in_place, lent, combine));
        let mut run = CollectiveRun { way, send, receive: Some(receive) };
        // Others may wait for what we give; and who only gives may be through.
        let over = if matches!(look, Look::NotYet) { None } else { run.turn(device, contexts) };
        match over {
            Some(status) => Pending::Done(status),
            None => Pending::Running(runs.add(Box::new(run))),
        }
    }

    pub(super) fn ranks(&self, call: &Call) -> Result<&Arc<Biased<Ranks>>, ErrorClass> {
        let within_one_group = matches!(
            call,
            Call::Scan { .. } | Call::Exscan { .. } | Call::NeighborAllgather { .. } | Call::NeighborAlltoall { .. }
        );
        // These are not defined between two groups.
        if within_one_group && self.0.remote.is_some() { Err(ErrorClass::Comm) } else { Ok(&self.0.ranks) }
    }
}

/// What a call does, and with which operator.
pub(super) struct Steps {
    pub execution: Execution,
    pub combine: KeptCombine,
}

/// A collective call under way.
struct CollectiveRun {
    way: Way,
    send: Option<Side>,
    /// `None` once it was delivered.
    receive: Option<Side>,
}

enum Way {
    Messages(Course, Arc<Mutex<Steps>>, Others),
    /// In which an operator that panics ends the call for all.
    Memory(Queued),
}

/// Whoever waits for messages of ours.
struct Others {
    failures: Arc<Mutex<Failures>>,
    name: Name,
}

impl Others {
    /// Tells them by a revocation that no more come.
    fn tell(&self, device: &mut Device) {
        adi::lock(&self.failures).revoke(device, self.name);
    }
}

/// What is given, if it is not in place, and got, and what combines, of a call of few numbers.
struct Few {
    send: Option<NonNull<[u8]>>,
    receive: NonNull<[u8]>,
    function: Option<Function>,
}

impl Few {
    /// `None`: it is none of those.
    #[inline(always)]
    fn of(given: Option<&Elements>, room: &Elements, operator: Operator) -> Option<Self> {
        let receive = NonNull::new(room.numbers()?)?;
        let send = match given {
            None => None,
            Some(given) => Some(NonNull::new(given.numbers()?)?),
        };
        let function = match operator {
            None => None,
            Some((operand, op)) => Some(op.function(operand.kind()?)?),
        };
        (send.unwrap_or(receive).len() <= FEW).then_some(Self { send, receive, function })
    }

    /// Ends the elements of such a call, which own nothing: the compiler does not see that, and would call two functions.
    #[inline]
    fn end(given: Option<Elements>, room: Elements) {
        std::mem::forget((given, room));
    }
}

/// A call that is over as soon as it is begun.
///
/// # Safety
///
/// As for [`Side::end`].
unsafe fn ended(send: Option<Side>, receive: Side, done: Result<(), ErrorClass>) -> Pending {
    // SAFETY: passed on.
    let error = unsafe { Side::end(send, receive, done) }.err();
    Pending::Done(Status { error, ..Status::EMPTY })
}

impl Run for CollectiveRun {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        let result = match &mut self.way {
            Way::Messages(course, steps, others) => {
                let mut steps = adi::lock(steps);
                let Steps { execution, combine } = &mut *steps;
                let advanced = course.advance(device, execution, combine.as_dyn());
                if advanced.is_err() && execution.has_left_others() {
                    others.tell(device);
                }
                advanced
            }
            Way::Memory(queued) => queued.advance(device),
        };
        if result == Ok(false) {
            return None;
        }
        let done = result.map(drop).map_err(ErrorClass::from);
        let ended = match self.receive.take() {
            // SAFETY: the call is over, and who began it has lent the room until it is waited for.
            Some(receive) => unsafe { Side::end(self.send.take(), receive, done) },
            None => done,
        };
        Some(Status { error: ended.err(), ..Status::EMPTY })
    }

    fn context(&self) -> Option<u32> {
        Some(match &self.way {
            Way::Messages(course, ..) => course.context(),
            Way::Memory(queued) => queued.context(),
        })
    }

    fn end_by_panic(&mut self, device: &mut Device) {
        if let Way::Messages(_, steps, others) = &mut self.way {
            // It may be begun again.
            adi::lock(steps).execution.give_up();
            others.tell(device);
        }
    }
}
