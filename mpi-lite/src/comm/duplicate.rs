#![allow(unsafe_code)]
//! Duplicates that are made while their ranks do something else (`MPI_Comm_idup`). Unsafe, since what is agreed on is lent to the
//! call that agrees.

use std::ptr::slice_from_raw_parts_mut;
use std::sync::{Arc, Mutex};

use crate::adi::{self, Device};
use crate::coll::{Buffers, Call, Reduction};

use super::agreeing::{Agreeing, Key};
use super::collective::{Course, Execution, Lent};
use super::communicator::Settings;
use super::context::{ContextIds, NOTHING, Offer, and};
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
    ids: Arc<Mutex<Ids>>,
}

/// What was agreed upon: the duplicate's, and of one between two groups that of our side's own.
type Ids = [Option<u32>; 2];

impl Communicator {
    /// Begins to duplicate it, as [`Self::dup`] does; in the order of collective calls. What it copies is what there is now; if a
    /// copy fails, who waits for it is told, and for the others it is revoked.
    pub fn idup(&self) -> Result<Duplicate, ErrorClass> {
        self.idup_with_info(&Info::new())
    }

    /// As [`Self::idup`], with these hints.
    pub fn idup_with_info(&self, info: &Info) -> Result<Duplicate, ErrorClass> {
        let settings = Some(self.settings());
        let parts = [Some(Part::new(self)), self.0.side.as_ref().map(Part::new)];
        let ids = Arc::default();
        let run = Duplicating { parts, ended: [None; 2], ids: Arc::clone(&ids) };
        self.0.local.reclaim();
        let handle = self.0.local.lock().begin_run(Box::new(run));
        Ok(Duplicate { of: self.clone(), info: info.clone(), settings, pending: Pending::Running(handle), ids })
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
        let [id, side] = std::mem::take(&mut *adi::lock(&self.ids));
        if let Err(class) = self.of.status(status) {
            settings.into_iter().for_each(|settings| self.of.drop_settings(settings));
            // Others may have what this process has no use for.
            [id, side].into_iter().flatten().for_each(|id| self.of.give_up(id));
            return Err(class);
        }
        let (id, inner) = (id.expect("it was agreed upon"), &self.of.0);
        let copy = match (&inner.remote, &inner.side, side) {
            (Some(remote), Some(own), Some(side)) => self.of.made_between(id, own.bare_of(side), remote.clone()),
            _ => self.of.made(id, inner.group.clone(), inner.rank, inner.topology.clone()),
        };
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

/// All ranks agree on an id that all have free, as for [`Communicator::dup`]; between two groups those of each side on one more.
struct Duplicating {
    parts: [Option<Part>; 2],
    ended: [Option<Result<u32, ErrorClass>>; 2],
    ids: Arc<Mutex<Ids>>,
}

/// An agreement: a call for each round; between two groups two, of which the first brings what all of the other one say, and the second
/// what the other one has heard of ours.
struct Part {
    course: Course,
    /// Of all calls: each is over before the next one begins.
    tag: i32,
    execution: Execution,
    offers: *mut Offers,
    agreeing: Agreeing,
    next: Next,
    /// What is known before the last call of a round.
    known: Offer,
    between: bool,
}

/// What this process says in a call, and what it hears.
struct Offers {
    said: Offer,
    heard: Offer,
}

/// What comes when no call is under way, or the one that is is over.
#[derive(Clone, Copy)]
enum Next {
    Round,
    /// The second call, when what the other group has said is known.
    Echo,
    Hear,
}

// SAFETY: the offers are this value's own.
unsafe impl Send for Part {}

impl Run for Duplicating {
    fn turn(&mut self, device: &mut Device, contexts: &mut ContextIds) -> Option<Status> {
        for (part, ended) in self.parts.iter_mut().zip(&mut self.ended) {
            if let (Some(part), None) = (part, &ended) {
                *ended = part.turn(device, contexts);
            }
        }
        let is_over = self.parts.iter().zip(&self.ended).all(|(part, ended)| part.is_none() || ended.is_some());
        is_over.then(|| {
            *adi::lock(&self.ids) = self.ended.map(|ended| ended?.ok());
            Status { error: self.ended.iter().flatten().find_map(|ended| ended.err()), ..Status::EMPTY }
        })
    }

    /// Our side's own communicator is there as long as this one.
    fn context(&self) -> Option<u32> {
        self.parts[0].as_ref().map(|part| part.course.context())
    }
}

impl Part {
    fn new(of: &Communicator) -> Self {
        let mut execution = Execution::default();
        let mut ranks = lock_outside_operators(&of.0.ranks);
        let call = Call::Allreduce { reduction: Reduction { element: 8, commutative: true } };
        let len = size_of::<Offer>();
        ranks.build(&mut execution, call, Buffers { send: len, receive: len, in_place: false });
        let tag = ranks.next_tag();
        Self {
            course: ranks.course(),
            tag,
            execution,
            offers: Box::into_raw(Box::new(Offers { said: NOTHING, heard: NOTHING })),
            agreeing: Agreeing::new(Key::Begun { of: of.0.id, tag }),
            next: Next::Round,
            known: NOTHING,
            between: of.0.side.is_some(),
        }
    }

    fn turn(&mut self, device: &mut Device, contexts: &mut ContextIds) -> Option<Result<u32, ErrorClass>> {
        if let Next::Round = self.next {
            let said = self.agreeing.offer(contexts);
            self.begin(device, said);
            (self.next, self.known) = (if self.between { Next::Echo } else { Next::Hear }, said);
        }
        loop {
            let done = self.course.advance(device, &mut self.execution, &mut |into, from| {
                into.iter_mut().zip(from).for_each(|(into, from)| *into &= from);
            });
            match done {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.agreeing.give_up(contexts);
                    return Some(Err(error.into()));
                }
            }
            // SAFETY: no call is under way, and the offers are ours.
            let mut all = unsafe { (*self.offers).heard };
            if let Next::Echo = self.next {
                self.begin(device, all);
                (self.next, self.known) = (Next::Hear, all);
                continue;
            }
            and(&mut all, &self.known);
            // Whoever's turn it is among those here has one before the next round.
            self.next = Next::Round;
            return self.agreeing.hear(contexts, &all);
        }
    }

    fn begin(&mut self, device: &mut Device, said: Offer) {
        // SAFETY: no call is under way, and the offers are ours. They stay, and are not touched, until it is over: `drop` is called only
        // then, or with the device.
        let lent = unsafe {
            (*self.offers).said = said;
            let bytes = |offer: *mut Offer| slice_from_raw_parts_mut(offer.cast::<u8>(), size_of::<Offer>());
            Lent::new(bytes(&raw mut (*self.offers).said), bytes(&raw mut (*self.offers).heard))
        };
        self.course.start(device, &mut self.execution, lent, self.tag);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.execution.is_under_way() {
            // They are lent to messages: lost.
            return;
        }
        // SAFETY: made of a box by `new`, and lent to nobody.
        drop(unsafe { Box::from_raw(self.offers) });
    }
}
