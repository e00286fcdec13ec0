#![allow(unsafe_code)]
//! Collective calls on raw memory: what the typed ones and the C interface stand on. Unsafe, since the memory is lent.

use std::ptr::slice_from_raw_parts_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::adi::Device;
use crate::coll::{Call, Reduction};
use crate::datatype::{Datatype, Made, Predefined};
use crate::op::Op;

use super::collective::{Course, Execution, Lent, Ranks};
use super::elements::Elements;
use super::pending::Pending;
use super::running::Run;
use super::{Communicator, ErrorClass};

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
        let mut combine = combine(operator)?;
        // SAFETY: the caller's elements.
        let (send, receive) =
            unsafe { (given.map(|given| Side::of(given, operator)).transpose()?, Side::of(room, operator)?) };
        let ranks = self.ranks()?;
        {
            let mut state = self.0.local.lock();
            // SAFETY: lent for the call, which is over when this returns.
            let (send, receive) = unsafe { (send.as_ref().map(|side| &*side.bytes), &mut *receive.bytes) };
            lock(ranks).call(&mut *state, call, send, receive, &mut *combine)?;
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
        let none = slice_from_raw_parts_mut(std::ptr::NonNull::dangling().as_ptr(), 0);
        let in_place = send.is_none();
        // SAFETY: both stay until the run is over: the caller's, as it says, and copies, as the run keeps them.
        let lent = unsafe { Lent::new(send.as_ref().map_or(none, |side| side.bytes), receive.bytes) };
        let mut state = self.0.local.lock();
        let course = {
            let mut ranks = lock(self.ranks()?);
            ranks.start(&mut state.device, &mut execution, call, in_place, lent);
            ranks.course()
        };
        let run = CollectiveRun { course, execution, combine, send, receive: Some(receive) };
        Ok(Pending::Running(state.runs.add(Box::new(run))))
    }

    fn ranks(&self) -> Result<&Arc<Mutex<Ranks>>, ErrorClass> {
        // Between the two groups of an intercommunicator there are no collective calls yet.
        self.0.ranks.as_ref().ok_or(ErrorClass::UnsupportedOperation)
    }
}

/// What is reduced, for a call with an operator.
pub(super) fn reduction(datatype: &Datatype, op: &Op) -> Result<Reduction, ErrorClass> {
    let element = match kind(datatype) {
        Some(kind) => kind.extent(),
        None => usize::try_from(datatype.extent()).map_err(|_| ErrorClass::Type)?,
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
    execution: Execution,
    combine: Combine,
    send: Option<Side>,
    /// `None` once it was delivered.
    receive: Option<Side>,
}

impl Run for CollectiveRun {
    fn turn(&mut self, device: &mut Device) -> Option<Result<(), ErrorClass>> {
        let result = self.course.advance(device, &mut self.execution, &mut *self.combine);
        if result == Ok(false) {
            return None;
        }
        if let Some(send) = self.send.take() {
            // SAFETY: the call is over.
            unsafe { send.forget() };
        }
        // SAFETY: the call is over, and who began it has lent the room until it is waited for.
        let delivered = self.receive.take().map_or(Ok(()), |receive| unsafe { receive.deliver() });
        Some(result.map_err(ErrorClass::from).and(delivered))
    }
}

fn lock(ranks: &Mutex<Ranks>) -> MutexGuard<'_, Ranks> {
    ranks.lock().unwrap_or_else(PoisonError::into_inner)
}
