#![allow(unsafe_code)]
//! Duplicates that are made while their ranks do something else (`MPI_Comm_idup`). Unsafe, since what is agreed on is lent to the
//! call that agrees.

use std::ptr::slice_from_raw_parts;
use std::sync::{Arc, Mutex, PoisonError};

use crate::adi::Device;
use crate::coll::{Buffers, Call, Reduction};

use super::collective::{Course, Execution, Lent};
use super::context::{About, ContextIds, Found, NOTHING, Offer};
use super::operator::lock;
use super::pending::Pending;
use super::running::Run;
use super::{Communicator, ErrorClass, Status};

/// A duplicate that is being made. Given up, it is waited for.
#[derive(Debug)]
pub struct Duplicate {
    of: Communicator,
    pending: Pending,
    id: Arc<Mutex<Option<u32>>>,
}

impl Communicator {
    /// Begins to duplicate it, as [`Self::dup`] does; in the order of collective calls. Hints and attributes are copied when it
    /// is waited for. Within one group.
    pub fn idup(&self) -> Result<Duplicate, ErrorClass> {
        self.within_one_group()?;
        let mut execution = Execution::default();
        let (course, tag) = {
            let mut ranks = lock(&self.0.ranks);
            let call = Call::Allreduce { reduction: Reduction { element: 8, commutative: true } };
            ranks.build(&mut execution, call, Buffers { send: 0, receive: size_of::<Offer>(), in_place: true });
            (ranks.course(), ranks.next_tag())
        };
        let id = Arc::new(Mutex::new(None));
        let offer = Box::into_raw(Box::new(NOTHING));
        let id_here = Arc::clone(&id);
        let run =
            Agreeing { course, tag, execution, offer, offered: false, step: Step::Next(About::Places), id: id_here };
        let handle = self.0.local.lock().begin_run(Box::new(run));
        Ok(Duplicate { of: self.clone(), pending: Pending::Running(handle), id })
    }
}

impl Duplicate {
    /// Waits until all ranks have begun it and agreed.
    pub fn wait(mut self) -> Result<Communicator, ErrorClass> {
        let status = self.of.local().finish(&mut self.pending);
        self.end(status)
    }

    /// The duplicate, once it is made; it is to be asked for until then.
    pub fn test(mut self) -> Result<Result<Communicator, Self>, ErrorClass> {
        match self.of.local().test(&mut self.pending) {
            None => Ok(Err(self)),
            Some(status) => self.end(status).map(Ok),
        }
    }

    fn end(&mut self, status: Status) -> Result<Communicator, ErrorClass> {
        self.of.status(status)?;
        let id = self.id.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it was agreed upon");
        let (local, group) = (Arc::clone(&self.of.0.local), self.of.0.group.clone());
        let copy = Communicator::new(local, id, group, self.of.0.rank, self.of.0.topology.clone());
        self.of.copy_settings_to(&copy).map_err(|class| self.of.fail(class))?;
        Ok(copy)
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        if !matches!(self.pending, Pending::Null) {
            let status = self.of.local().finish(&mut self.pending);
            // Its id is free again when it is dropped.
            drop(self.end(status));
        }
    }
}

/// All ranks agree on an id that all have free, as [`Communicator::dup`] does: again and again while one of them offers none, since
/// it is agreeing on another one.
struct Agreeing {
    course: Course,
    /// Of all calls: each is over before the next one begins.
    tag: i32,
    execution: Execution,
    offer: *mut Offer,
    offered: bool,
    step: Step,
    id: Arc<Mutex<Option<u32>>>,
}

/// An attempt is one call, or two where the generation of a place has to be agreed upon.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The next call.
    Next(About),
    UnderWay(About),
}

// SAFETY: the offer is this value's own.
unsafe impl Send for Agreeing {}

impl Run for Agreeing {
    fn turn(&mut self, device: &mut Device, contexts: &mut ContextIds) -> Option<Status> {
        loop {
            if let Step::Next(about) = self.step {
                self.begin(device, contexts, about);
                self.step = Step::UnderWay(about);
            }
            let Step::UnderWay(about) = self.step else { unreachable!("it was just begun") };
            let done = self.course.advance(device, &mut self.execution, &mut |into, from| {
                into.iter_mut().zip(from).for_each(|(into, from)| *into &= from);
            });
            if done == Ok(false) {
                return None;
            }
            // SAFETY: no call is under way, and the offer is ours.
            let all = unsafe { *self.offer };
            let found = done.map(|_| about.found(&all));
            let error = match found {
                Ok(Found::Id(id)) => {
                    contexts.take(id);
                    *self.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
                    return Some(Status::EMPTY);
                }
                Ok(Found::Place(place)) => {
                    self.step = Step::Next(About::Generations(place));
                    continue;
                }
                Ok(Found::NotNow) => None,
                Ok(Found::None) => Some(ErrorClass::Other),
                Ok(Found::Failed) => Some(ErrorClass::ProcFailed),
                Err(error) => Some(error.into()),
            };
            if self.offered {
                contexts.withdraw();
            }
            if error.is_some() {
                return Some(Status { error, ..Status::EMPTY });
            }
            self.step = Step::Next(About::Places);
        }
    }

    fn context(&self) -> Option<u32> {
        Some(self.course.context())
    }
}

impl Agreeing {
    fn begin(&mut self, device: &mut Device, contexts: &mut ContextIds, about: About) {
        let offer = match about {
            About::Generations(place) => contexts.offer_generation(place),
            About::Places => {
                let (offered, offer) = contexts.offer();
                self.offered = offered;
                offer
            }
        };
        // SAFETY: no call is under way, and the offer is ours.
        unsafe { *self.offer = offer };
        let bytes = std::ptr::slice_from_raw_parts_mut(self.offer.cast::<u8>(), size_of::<Offer>());
        let none = slice_from_raw_parts(std::ptr::NonNull::dangling().as_ptr(), 0);
        // SAFETY: the offer stays, and is not touched, until the call is over: `drop` is called only then, or with the device.
        let lent = unsafe { Lent::new(none, bytes) };
        self.course.start(device, &mut self.execution, lent, self.tag);
    }
}

impl Drop for Agreeing {
    fn drop(&mut self) {
        if self.execution.is_under_way() {
            // It is lent to messages: lost.
            return;
        }
        // SAFETY: made of a box by `idup`, and lent to nobody.
        drop(unsafe { Box::from_raw(self.offer) });
    }
}
