#![allow(unsafe_code)]
//! Collective calls on raw memory that are begun again and again (MPI-4.1 6.13). Unsafe, since the memory is lent.

use std::sync::{Arc, Mutex};

use crate::coll::{Access, Buffers, Call};

use super::calls::Steps;
use super::collective::{Course, Execution, KeptCombine, Queue};
use super::elements::Elements;
use super::operand::{Operator, combine};
use super::operator::lock_outside_operators;
use super::pending::Pending;
use super::persistent::Persistent;
use super::prepare::Prepared;
use super::side::Side;
use super::{Communicator, ErrorClass};

impl Communicator {
    /// As [`Communicator::call_raw`], to be begun again and again. The persistent request is for all elements as they are at each start.
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
        unsafe { self.call_init(Prepared { call, given, room, operator }) }
    }

    /// # Safety
    ///
    /// As for [`Self::call_init_raw`].
    pub(super) unsafe fn call_init(&self, it: Prepared<'_>) -> Result<Persistent, ErrorClass> {
        // SAFETY: passed on.
        unsafe { self.repeated_call(it) }.map_err(|class| self.fail(class))
    }

    /// # Safety
    ///
    /// As for [`Self::call_init_raw`].
    unsafe fn repeated_call(
        &self,
        Prepared { call, given, room, operator }: Prepared<'_>,
    ) -> Result<Persistent, ErrorClass> {
        let combine = combine(operator)?;
        let native = |elements: Elements| if operator.is_some() { elements.native() } else { elements };
        let (given, room) = (given.map(native), native(room));
        let send = given.as_ref().map_or(Ok(0), Elements::len)?;
        let buffers = Buffers { send, receive: room.len()?, in_place: given.is_none() };
        let ranks = self.ranks(&call)?;
        let access = lock_outside_operators(ranks).access(&call, buffers.receive, buffers.in_place);
        // By shared memory calls are made in one order.
        let queued = if self.info().get(IN_ORDER) == Some("true") && !self.0.local.has_threads() {
            let mut held = self.0.local.hold();
            lock_outside_operators(ranks).repeated_queue_for(&mut held, call, buffers)?
        } else {
            None
        };
        let course = if let Some((queue, call)) = queued {
            RepeatedCourse::Queued { queue, call, combine: Arc::new(Mutex::new(combine)) }
        } else if !lock_outside_operators(ranks).fits(&call, buffers) {
            self.revoke();
            return Err(ErrorClass::Truncate);
        } else {
            let (mut ranks, mut execution) = (lock_outside_operators(ranks), Execution::default());
            ranks.build(&mut execution, call, buffers);
            let tag = ranks.next_repeated_tag();
            RepeatedCourse::Steps(ranks.course(), Arc::new(Mutex::new(Steps { execution, combine })), tag)
        };
        Ok(self.persistent_call(RepeatedCall { course, given, room, access }))
    }
}

/// A collective call with its arguments, to be begun again and again.
pub(super) struct RepeatedCall {
    course: RepeatedCourse,
    given: Option<Elements>,
    room: Elements,
    access: Access,
}

/// By messages or by shared memory.
enum RepeatedCourse {
    /// With messages of this tag.
    Steps(Course, Arc<Mutex<Steps>>, i32),
    Queued {
        queue: Arc<Queue>,
        call: Call<'static>,
        combine: Arc<Mutex<KeptCombine>>,
    },
}

impl RepeatedCall {
    /// # Safety
    ///
    /// All elements are lent until the call is over; it is not under way.
    pub unsafe fn start(&self, comm: &Communicator) -> Result<Pending, ErrorClass> {
        // SAFETY: the caller's elements, which are in their form already.
        let (send, receive) = unsafe { Side::both(self.given.clone(), (self.room.clone(), self.access), None) }?;
        Ok(match &self.course {
            // SAFETY: as the caller says.
            RepeatedCourse::Steps(course, steps, tag) => unsafe {
                comm.begin_steps(course.clone(), Arc::clone(steps), *tag, send, receive)
            },
            RepeatedCourse::Queued { queue, call, combine } => {
                // SAFETY: as the caller says.
                unsafe { comm.begin_in(queue, *call, KeptCombine::of_shared(combine), send, receive) }
            }
        })
    }
}

impl std::fmt::Debug for RepeatedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RepeatedCall").field("room", &self.room).finish_non_exhaustive()
    }
}

/// The hint that persistent calls are begun in the same order by all ranks (MPI-4.1 7.4.4).
const IN_ORDER: &str = "mpi_assert_strict_persistent_collective_ordering";
