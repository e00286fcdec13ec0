#![allow(unsafe_code)]
//! Collective calls on raw memory: what the typed ones and the C interface stand on. Unsafe, since the memory is lent.

use std::ptr::slice_from_raw_parts_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::adi::Device;
use crate::coll::{Buffers, Call, Reduction};
use crate::datatype::{Datatype, Made, Predefined};
use crate::op::Op;

use super::collective::{Course, Execution, Lent, Ranks};
use super::context::ContextIds;
use super::elements::Elements;
use super::pending::Pending;
use super::persistent::Persistent;
use super::prepare::Prepared;
use super::running::{Handle, Run};
use super::{Communicator, ErrorClass, Status};

/// What a reduction does with two arrays of elements as in memory: `into = from OP into`.
type Combine = Box<dyn FnMut(&mut [u8], &[u8]) + Send>;

/// The operator of a call: the type that it is called with, and the operator.
pub type Operator<'a> = Option<(&'a Datatype, &'a Op)>;

impl Communicator {
    /// A collective call: what this rank gives, or `None` for what is in `room` already; what it gets; and the operator.
    /// Lengths in `call` are those of the elements' packed bytes, or of their extents where there is an operator.
    ///
    /// # Safety
    ///
    /// All data of `given` can be read, and of `room` be written; nobody else uses them.
    pub unsafe fn call_raw(
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
        // SAFETY: passed on.
        unsafe { self.start_call(call, given, room, operator) }.map_err(|class| self.fail(class))
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
            if !op.is_defined_on(kind) {
                return Err(ErrorClass::Op);
            }
            let mut combine =
                |into: &mut [u8], from: &[u8]| op.combine(kind, into, from).expect("it is defined, as checked");
            // SAFETY: passed on.
            return unsafe { self.call_with(call, given, room, operator, &mut combine) };
        }
        // SAFETY: passed on.
        unsafe { self.call_with(call, given, room, operator, &mut *combine(operator)?) }
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
        // SAFETY: the caller's elements.
        let (send, receive) =
            unsafe { (given.map(|given| Side::of(given, operator)).transpose()?, Side::of(room, operator)?) };
        let ranks = self.ranks(&call)?;
        {
            let mut state = self.0.local.lock();
            // SAFETY: lent for the call, which is over when this returns.
            let (send, receive) = unsafe { (send.as_ref().map(|side| &*side.bytes), &mut *receive.bytes) };
            lock(ranks).call(&mut *state, call, send, receive, combine)?;
        }
        if let Some(send) = send {
            // SAFETY: the call is over.
            unsafe { send.forget() };
        }
        // SAFETY: the call is over, and the room is the caller's.
        unsafe { receive.deliver() }
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
        let combine = combine(operator)?;
        // SAFETY: the caller's elements.
        let (send, receive) =
            unsafe { (given.map(|given| Side::of(given, operator)).transpose()?, Side::of(room, operator)?) };
        let mut execution = Execution::default();
        let mut ranks = lock(self.ranks(&call)?);
        ranks.build(&mut execution, call, buffers(send.as_ref(), &receive));
        let steps = Arc::new(Mutex::new(Steps { execution, combine }));
        // SAFETY: as the caller says.
        Ok(Pending::Running(unsafe { self.begin_steps(&mut ranks, steps, send, receive) }))
    }

    /// As [`Self::call_raw`], to be begun again and again. The persistent request is for all elements as they are at each start.
    ///
    /// # Safety
    ///
    /// As for [`Self::call_raw`], whenever the request is active.
    pub unsafe fn call_init_raw(
        &self,
        call: Call,
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
    ) -> Result<Persistent, ErrorClass> {
        // SAFETY: passed on.
        unsafe { self.repeated_call(call, given, room, operator) }.map_err(|class| self.fail(class))
    }

    /// # Safety
    ///
    /// As for [`Self::call_init_raw`].
    pub(super) unsafe fn call_init(&self, it: Prepared<'_>) -> Result<Persistent, ErrorClass> {
        // SAFETY: passed on.
        unsafe { self.call_init_raw(it.call, it.given, it.room, it.operator) }
    }

    /// # Safety
    ///
    /// As for [`Self::call_init_raw`].
    unsafe fn repeated_call(
        &self,
        call: Call,
        given: Option<Elements>,
        room: Elements,
        operator: Operator,
    ) -> Result<Persistent, ErrorClass> {
        let combine = combine(operator)?;
        let native = |elements: Elements| if operator.is_some() { elements.native() } else { elements };
        let (given, room) = (given.map(native), native(room));
        let send = given.as_ref().map_or(Ok(0), Elements::len)?;
        let buffers = Buffers { send, receive: room.len()?, in_place: given.is_none() };
        let mut execution = Execution::default();
        lock(self.ranks(&call)?).build(&mut execution, call, buffers);
        let steps = Arc::new(Mutex::new(Steps { execution, combine }));
        Ok(self.persistent_call(RepeatedCall { steps, given, room }))
    }

    /// Begins what was built.
    ///
    /// # Safety
    ///
    /// The bytes of both sides that are the caller's are lent until the run is over.
    unsafe fn begin_steps(
        &self,
        ranks: &mut Ranks,
        steps: Arc<Mutex<Steps>>,
        send: Option<Side>,
        receive: Side,
    ) -> Handle {
        let none = slice_from_raw_parts_mut(std::ptr::NonNull::dangling().as_ptr(), 0);
        // SAFETY: both stay until the run is over: the caller's, as it says, and copies, as the run keeps them.
        let lent = unsafe { Lent::new(send.as_ref().map_or(none, |side| side.bytes), receive.bytes) };
        let mut state = self.0.local.lock();
        ranks.start_again(&mut state.device, &mut lock_steps(&steps).execution, lent);
        let run = CollectiveRun { course: ranks.course(), steps, send, receive: Some(receive) };
        state.runs.add(Box::new(run))
    }

    fn ranks(&self, call: &Call) -> Result<&Arc<Mutex<Ranks>>, ErrorClass> {
        let within_one_group = matches!(
            call,
            Call::Scan { .. } | Call::Exscan { .. } | Call::NeighborAllgather { .. } | Call::NeighborAlltoall { .. }
        );
        // These are not defined between two groups.
        if within_one_group && self.0.remote.is_some() { Err(ErrorClass::Comm) } else { Ok(&self.0.ranks) }
    }
}

/// A collective call with its arguments, to be begun again and again.
pub(super) struct RepeatedCall {
    steps: Arc<Mutex<Steps>>,
    given: Option<Elements>,
    room: Elements,
}

impl RepeatedCall {
    /// # Safety
    ///
    /// All elements are lent until the call is over; it is not under way.
    pub unsafe fn start(&self, comm: &Communicator) -> Result<Pending, ErrorClass> {
        // SAFETY: the caller's elements, which are in their form already.
        let (send, receive) = unsafe {
            (self.given.clone().map(|given| Side::of(given, None)).transpose()?, Side::of(self.room.clone(), None)?)
        };
        let mut ranks = lock(&comm.0.ranks);
        // SAFETY: as the caller says.
        Ok(Pending::Running(unsafe { comm.begin_steps(&mut ranks, Arc::clone(&self.steps), send, receive) }))
    }
}

impl std::fmt::Debug for RepeatedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RepeatedCall").field("room", &self.room).finish_non_exhaustive()
    }
}

/// What a call does, and with which operator.
struct Steps {
    execution: Execution,
    combine: Combine,
}

fn buffers(send: Option<&Side>, receive: &Side) -> Buffers {
    Buffers { send: send.map_or(0, |side| side.bytes.len()), receive: receive.bytes.len(), in_place: send.is_none() }
}

fn lock_steps(steps: &Mutex<Steps>) -> MutexGuard<'_, Steps> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is reduced, for a call with an operator.
pub(super) fn reduction(datatype: &Datatype, op: &Op) -> Result<Reduction, ErrorClass> {
    let element = match kind(datatype) {
        // The program's own operators get whole elements of what they were called with.
        Some(kind) if !matches!(op, Op::User(_)) => kind.extent(),
        _ => usize::try_from(datatype.extent()).map_err(|_| ErrorClass::Type)?,
    };
    // Elements of no bytes are reduced as bytes that there are none of.
    Ok(Reduction { element: element.max(1), commutative: op.is_commutative() })
}

/// The predefined type that arrays of this type are arrays of.
fn kind(datatype: &Datatype) -> Option<Predefined> {
    match datatype.made() {
        Made::Named(kind) => Some(*kind),
        _ if datatype.extent() == datatype.size() as isize && datatype.contiguous_run(1).is_some() => {
            datatype.element_kind().filter(|kind| kind.size() == kind.extent())
        }
        _ => None,
    }
}

/// A predefined operator, with the type whose elements it gets.
fn predefined(operator: Operator<'_>) -> Option<(Predefined, &Op)> {
    let (datatype, op) = operator.filter(|(_, op)| !matches!(op, Op::User(_)))?;
    Some((kind(datatype)?, op))
}

fn combine(operator: Operator) -> Result<Combine, ErrorClass> {
    let Some((datatype, op)) = operator else { return Ok(Box::new(|_, _| unreachable!("nothing is combined"))) };
    let op = op.clone();
    // A user's operator gets the type that it was called with; a predefined one on a dense type its elements.
    let user = matches!(op, Op::User(_));
    match kind(datatype) {
        Some(kind) if !user => {
            if !op.is_defined_on(kind) {
                return Err(ErrorClass::Op);
            }
            Ok(Box::new(move |into, from| op.combine(kind, into, from).expect("it is defined, as checked")))
        }
        _ if !user => Err(ErrorClass::Op),
        _ => {
            let datatype = datatype.clone();
            let extent = usize::try_from(datatype.extent()).map_err(|_| ErrorClass::Type)?.max(1);
            Ok(Box::new(move |into, from| {
                let count = into.len() / extent;
                op.combine_any(&datatype, count, into, from).expect("users' operators take all types");
            }))
        }
    }
}

/// The bytes of one side of a call.
struct Side {
    elements: Elements,
    bytes: *mut [u8],
    copied: bool,
}

// SAFETY: who began the call has lent its memory until it is over; a copy is this value's own.
unsafe impl Send for Side {}

impl Side {
    /// The elements' bytes in one piece, where they are or copied.
    ///
    /// # Safety
    ///
    /// All data of the elements can be read.
    unsafe fn of(elements: Elements, operator: Operator) -> Result<Self, ErrorClass> {
        let elements = if operator.is_some() { elements.native() } else { elements };
        if let Some(bytes) = elements.in_place() {
            return Ok(Self { elements, bytes, copied: false });
        }
        // SAFETY: passed on.
        let bytes = Box::into_raw(unsafe { elements.gather() }?.into_boxed_slice());
        Ok(Self { elements, bytes, copied: true })
    }

    /// Gives back what was only read.
    ///
    /// # Safety
    ///
    /// The call is over.
    unsafe fn forget(self) {
        if self.copied {
            // SAFETY: made of a box by `of`, and nobody else has it any more.
            drop(unsafe { Box::from_raw(self.bytes) });
        }
    }

    /// Brings what was received to its place.
    ///
    /// # Safety
    ///
    /// The call is over, and all data of the elements can be written.
    unsafe fn deliver(self) -> Result<(), ErrorClass> {
        if !self.copied {
            return Ok(());
        }
        // SAFETY: made of a box by `of`, and nobody else has it any more; the place is the caller's.
        unsafe {
            let mut bytes = Box::from_raw(self.bytes);
            self.elements.scatter(&mut bytes)
        }
    }
}

/// A collective call under way.
struct CollectiveRun {
    course: Course,
    steps: Arc<Mutex<Steps>>,
    send: Option<Side>,
    /// `None` once it was delivered.
    receive: Option<Side>,
}

impl Run for CollectiveRun {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        let result = {
            let mut steps = lock_steps(&self.steps);
            let Steps { execution, combine } = &mut *steps;
            self.course.advance(device, execution, &mut **combine)
        };
        if result == Ok(false) {
            return None;
        }
        if let Some(send) = self.send.take() {
            // SAFETY: the call is over.
            unsafe { send.forget() };
        }
        // SAFETY: the call is over, and who began it has lent the room until it is waited for.
        let delivered = self.receive.take().map_or(Ok(()), |receive| unsafe { receive.deliver() });
        let error = result.map_err(ErrorClass::from).and(delivered).err();
        Some(Status { error, ..Status::EMPTY })
    }

    fn context(&self) -> Option<u32> {
        Some(self.course.context())
    }
}

fn lock(ranks: &Mutex<Ranks>) -> MutexGuard<'_, Ranks> {
    ranks.lock().unwrap_or_else(PoisonError::into_inner)
}
