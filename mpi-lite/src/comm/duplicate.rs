#![allow(unsafe_code)]
//! Duplicates that are made while their ranks do something else (`MPI_Comm_idup`). Unsafe, since what is agreed on is lent to the
//! call that agrees.

use std::ptr::slice_from_raw_parts;
use std::sync::{Arc, Mutex};

use crate::adi::{self, Device};
use crate::coll::{Buffers, Call, Reduction};

use super::agreeing::{Agreeing, Key};
use super::collective::{Course, Execution, Lent};
use super::communicator::Settings;
use super::context::{ContextIds, NOTHING, Offer};
use super::info::Info;
use super::operator::lock_outside_operators;
use super::pending::Pending;
use super::running::Run;
use super::{Communicator, ErrorClass, Status};

/// A duplicate that is being made. Given up, it is waited for.
#[derive(Debug)]
pub struct Duplicate {
    of: Communicator,
    info: Info,
    /// As they were when it was begun. `None` once it is made, or cannot be.
    settings: Option<Result<Settings, ErrorClass>>,
    pending: Pending,
    id: Arc<Mutex<Option<u32>>>,
}

impl Communicator {
    /// Begins to duplicate it, as [`Self::dup`] does; in the order of collective calls. What it copies is what there is now; if a
    /// copy fails, who waits for it is told, and for the others it is revoked. Within one group.
    pub fn idup(&self) -> Result<Duplicate, ErrorClass> {
        self.idup_with_info(&Info::new())
    }

    /// As [`Self::idup`], with these hints.
    pub fn idup_with_info(&self, info: &Info) -> Result<Duplicate, ErrorClass> {
        self.within_one_group()?;
        let settings = Some(self.settings());
        let mut execution = Execution::default();
        let (course, tag) = {
            let mut ranks = lock_outside_operators(&self.0.ranks);
            let call = Call::Allreduce { reduction: Reduction { element: 8, commutative: true } };
            ranks.build(&mut execution, call, Buffers { send: 0, receive: size_of::<Offer>(), in_place: true });
            (ranks.course(), ranks.next_tag())
        };
        let id = Arc::new(Mutex::new(None));
        let offer = Box::into_raw(Box::new(NOTHING));
        let agreeing = Agreeing::new(Key::Begun { of: self.0.id, tag });
        let run = Duplicating { course, tag, execution, offer, agreeing, is_between_rounds: true, id: Arc::clone(&id) };
        self.0.local.reclaim();
        let handle = self.0.local.lock().begin_run(Box::new(run));
        Ok(Duplicate { of: self.clone(), info: info.clone(), settings, pending: Pending::Running(handle), id })
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
        let settings = self.settings.take().expect("it ends once");
        if let Err(class) = self.of.status(status) {
            settings.into_iter().for_each(|settings| self.of.drop_settings(settings));
            return Err(class);
        }
        let id = adi::lock(&self.id).take().expect("it was agreed upon");
        let inner = &self.of.0;
        let copy = self.of.made(id, inner.group.clone(), inner.rank, inner.topology.clone());
        copy.begin_with(settings).map_err(|class| self.of.fail(class))?;
        copy.set_info(&self.info);
        Ok(copy)
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        if !matches!(self.pending, Pending::Null) {
            let status = self.of.local().finish(&mut self.pending);
            // Nobody else can delete what was copied, and nobody is there to be told of errors; its id is free again when it is dropped.
            let _ = self.end(status).map(Communicator::free_quietly);
        }
    }
}

/// All ranks agree on an id that all have free, as for [`Communicator::dup`]: a call for each round.
struct Duplicating {
    course: Course,
    /// Of all calls: each is over before the next one begins.
    tag: i32,
    execution: Execution,
    offer: *mut Offer,
    agreeing: Agreeing,
    /// No call is under way.
    is_between_rounds: bool,
    id: Arc<Mutex<Option<u32>>>,
}

// SAFETY: the offer is this value's own.
unsafe impl Send for Duplicating {}

impl Run for Duplicating {
    fn turn(&mut self, device: &mut Device, contexts: &mut ContextIds) -> Option<Status> {
        if std::mem::take(&mut self.is_between_rounds) {
            self.begin(device, contexts);
        }
        let done = self.course.advance(device, &mut self.execution, &mut |into, from| {
            into.iter_mut().zip(from).for_each(|(into, from)| *into &= from);
        });
        if done == Ok(false) {
            return None;
        }
        // SAFETY: no call is under way, and the offer is ours.
        let all = unsafe { *self.offer };
        let ended = match done {
            Ok(_) => self.agreeing.hear(contexts, &all),
            Err(error) => {
                self.agreeing.give_up(contexts);
                Some(Err(error.into()))
            }
        };
        // Whoever's turn it is among those here has one before the next round.
        self.is_between_rounds = ended.is_none();
        ended.map(|ended| match ended {
            Ok(id) => {
                *adi::lock(&self.id) = Some(id);
                Status::EMPTY
            }
            Err(class) => Status { error: Some(class), ..Status::EMPTY },
        })
    }

    fn context(&self) -> Option<u32> {
        Some(self.course.context())
    }
}

impl Duplicating {
    fn begin(&mut self, device: &mut Device, contexts: &mut ContextIds) {
        // SAFETY: no call is under way, and the offer is ours.
        unsafe { *self.offer = self.agreeing.offer(contexts) };
        let bytes = std::ptr::slice_from_raw_parts_mut(self.offer.cast::<u8>(), size_of::<Offer>());
        let none = slice_from_raw_parts(std::ptr::NonNull::dangling().as_ptr(), 0);
        // SAFETY: the offer stays, and is not touched, until the call is over: `drop` is called only then, or with the device.
        let lent = unsafe { Lent::new(none, bytes) };
        self.course.start(device, &mut self.execution, lent, self.tag);
    }
}

impl Drop for Duplicating {
    fn drop(&mut self) {
        if self.execution.is_under_way() {
            // It is lent to messages: lost.
            return;
        }
        // SAFETY: made of a box by `idup`, and lent to nobody.
        drop(unsafe { Box::from_raw(self.offer) });
    }
}
