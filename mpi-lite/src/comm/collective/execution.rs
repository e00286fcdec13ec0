//! A schedule under way: posts a round's messages, waits for them, does the local steps, and goes on.
#![allow(unsafe_code)] // The caller's buffers are read and written while other calls go on: it lends their addresses.

use sidelane_nic::time::{Duration, Instant};

use crate::adi::{Device, Envelope, Error, Idle, Incoming, Mode, Outgoing, Pattern, Request, Source, Turns};
use crate::coll::{Call, HostCall, Memory, Schedule, Span, Step, Transfer};

use super::Combine;

/// A call's buffers.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    send: *const [u8],
    receive: *mut [u8],
}

// SAFETY: Whoever made it has promised that the buffers may be used until the call is over, on whatever thread.
unsafe impl Send for Lent {}

impl Lent {
    /// Lends a call its send and its receive buffer.
    ///
    /// # Safety
    /// They do not overlap, and stay where they are until the call is over, or the device is closed; nobody writes the
    /// send buffer meanwhile, and nobody else touches the receive buffer.
    pub unsafe fn new(send: *const [u8], receive: *mut [u8]) -> Self {
        Self { send, receive }
    }

    /// Both.
    ///
    /// # Safety
    /// The call is not over, and nobody else has them.
    pub(in crate::comm) unsafe fn slices<'a>(self) -> (&'a [u8], &'a mut [u8]) {
        // SAFETY: as `new` and the caller say.
        unsafe { (&*self.send, &mut *self.receive) }
    }

    /// Bytes of each.
    pub(super) fn lens(&self) -> (usize, usize) {
        (self.send.len(), self.receive.len())
    }
}

/// Where messages of a call go, and how they are told from others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route<'a> {
    /// The communicator's context for collectives.
    pub context: u32,
    /// Our rank.
    pub rank: u32,
    /// Which process each rank is.
    pub processes: &'a [u32],
    /// The processes that a call needs which this one is part of: often the same.
    pub whole: &'a [u32],
}

/// One call by messages. Used again, it needs no new memory.
#[derive(Default, Debug)]
pub struct Execution {
    schedule: Schedule,
    /// In words, so that elements in it are aligned.
    scratch: Vec<Word>,
    lent: Option<Lent>,
    tag: i32,
    round: usize,
    /// Of the round's steps, those that are done.
    done: usize,
    /// Of this round, and how many of them are over.
    requests: Vec<Request>,
    over: usize,
    error: Option<Error>,
    /// What was under way when it failed is not waited for.
    cancelled: bool,
    /// Since when nothing has come while a member is gone.
    stalled_since: Option<Instant>,
}

/// How far a call is.
pub(super) enum Progress {
    Over,
    /// Something has to come first.
    Waits,
    /// The ranks of our host make a call of their own, and [`Execution::called`] goes on.
    Calls(Part),
}

/// A call of the ranks of our host, on the memory of the whole one. Its buffers are as those of [`Lent`].
pub(super) struct Part {
    pub call: Call<'static>,
    pub send: Option<*const [u8]>,
    pub receive: *mut [u8],
}

impl Execution {
    /// Whether the ranks of our host make calls of their own.
    pub(super) fn has_calls(&self) -> bool {
        self.schedule.has_calls()
    }

    /// What is done by [`Self::start`]. Not to be changed while it is under way.
    pub(super) fn schedule(&mut self) -> &mut Schedule {
        assert!(self.lent.is_none(), "the call before is over");
        &mut self.schedule
    }

    /// Begins what the schedule says, with messages of this `tag`.
    pub(super) fn start(&mut self, device: &mut Device, route: Route, lent: Lent, tag: i32) {
        assert!(self.lent.is_none(), "the call before is over");
        assert_eq!(self.schedule.buffer_lens(), (lent.send.len(), lent.receive.len()), "as the schedule was built for");
        debug_assert_eq!(self.schedule.check(), Ok(()));
        let words = self.schedule.scratch_len().div_ceil(size_of::<Word>());
        if words > self.scratch.len() {
            // Of no value yet: what was there is not copied, and new pages are zeroed already.
            self.scratch = vec![0; words];
        }
        self.lent = Some(lent);
        (self.tag, self.round, self.done, self.stalled_since) = (tag, 0, 0, None);
        (self.error, self.cancelled) = (None, false);
        // Who has no message to wait for would not be told.
        if device.is_revoked(route.context) {
            self.error = Some(Error::Revoked);
        } else {
            self.post(device, route);
        }
    }

    /// Whether it has been begun and is not over.
    pub fn is_under_way(&self) -> bool {
        self.lent.is_some()
    }

    /// Goes on as far as it can without waiting.
    pub(super) fn advance(
        &mut self,
        device: &mut Device,
        route: Route,
        combine: &mut Combine,
    ) -> Result<Progress, Error> {
        while self.lent.is_some() {
            while let Some(request) = self.requests.get(self.over) {
                let Some(status) = device.poll(*request) else {
                    if !device.gone().is_empty() {
                        self.wait_no_longer(device, route);
                    }
                    return Ok(Progress::Waits);
                };
                let is_short = status.error.is_none() && self.is_short(status.bytes);
                self.over += 1;
                self.stalled_since = None;
                match status.error {
                    None if is_short => self.error = self.error.or(Some(Error::Truncated)),
                    None => {}
                    // What the others wait for in this round goes on.
                    Some(Error::Truncated) => self.error = self.error.or(Some(Error::Truncated)),
                    Some(error) => self.fail(device, error),
                }
            }
            if self.error.is_none()
                && let Some(part) = self.do_steps(combine)
            {
                return Ok(Progress::Calls(part));
            }
            if let Some(error) = self.error {
                self.lent = None;
                return Err(error);
            }
            self.round += 1;
            self.post(device, route);
        }
        Ok(Progress::Over)
    }

    /// Goes on until it is over. `on_host` makes what the ranks of our host call.
    pub(super) fn finish<T: Turns>(
        &mut self,
        turns: &mut T,
        route: Route,
        combine: &mut Combine,
        mut on_host: impl FnMut(&mut T, Part, &mut Combine) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut idle = Idle::new();
        loop {
            match self.advance(turns.device(), route, combine)? {
                Progress::Over => break,
                Progress::Waits => {
                    turns.device().flush();
                    let moved = turns.turn();
                    turns.pass(moved, &mut idle);
                }
                Progress::Calls(part) => {
                    let called = on_host(turns, part, combine);
                    self.called(called);
                    idle = Idle::new();
                }
            }
        }
        turns.device().flush();
        Ok(())
    }

    /// Whether others may wait for us in the call that has failed, and do not know of it.
    pub fn has_left_others(&self) -> bool {
        let later = || self.schedule.rounds().skip(self.round + 1).any(|round| !round.transfers.is_empty());
        let only_we_know = matches!(self.error, Some(Error::Truncated | Error::NoAccess));
        only_we_know && (self.cancelled || self.has_calls() || later())
    }

    /// A step has panicked: it is over. No message is under way.
    pub fn give_up(&mut self) {
        self.lent = None;
    }

    /// What the last [`Progress::Calls`] asked for is done. No message is under way.
    fn called(&mut self, ended: Result<(), Error>) {
        self.done += 1;
        self.error = ended.err();
    }

    /// Whether the message that is over now has brought less than was to come, as of ranks that do not mean the same lengths.
    #[inline]
    fn is_short(&self, bytes: usize) -> bool {
        let transfer = self.schedule.round(self.round).and_then(|round| round.transfers.get(self.over));
        matches!(transfer, Some(Transfer::Receive(_, span)) if bytes != span.len())
    }

    fn post(&mut self, device: &mut Device, route: Route) {
        self.requests.clear();
        (self.over, self.done) = (0, 0);
        let Some(lent) = self.lent else { return };
        let Some(round) = self.schedule.round(self.round) else {
            self.lent = None;
            return;
        };
        for transfer in round.transfers {
            let request = match *transfer {
                Transfer::Send(to, span) => {
                    let envelope = Envelope::new(route.context, route.rank, self.tag);
                    // SAFETY: A schedule reads and writes what was lent to it as `check` demands: nothing that is sent is
                    // written in the same round. The memory stays until all requests are over: `lent` is given up only
                    // then, and scratch memory changes only in `start`.
                    let bytes = unsafe { Outgoing::lend(at(lent, &mut self.scratch, span)) };
                    device.send(route.processes[to as usize], envelope, bytes, Mode::Standard)
                }
                Transfer::Receive(from, span) => {
                    let source = Source { rank: from, process: route.processes[from as usize] };
                    let pattern = Pattern { context: route.context, source: Some(source), tag: Some(self.tag) };
                    // SAFETY: As above: nothing else touches what is received into in this round.
                    let room = unsafe { Incoming::lend(at(lent, &mut self.scratch, span)) };
                    device.recv(pattern, room)
                }
            };
            self.requests.push(request);
        }
    }

    /// The round's steps, up to one in which the ranks of our host make a call.
    fn do_steps(&mut self, combine: &mut Combine) -> Option<Part> {
        let (lent, round) = (self.lent?, self.schedule.round(self.round)?);
        for step in &round.steps[self.done..] {
            let (into, from) = match *step {
                Step::Combine { into, from } | Step::Copy { into, from } => (into, from),
                Step::OnHost(number) => {
                    let HostCall { call, send, receive } = self.schedule.call(number);
                    let send = send.map(|span| at(lent, &mut self.scratch, span).cast_const());
                    return Some(Part { call, send, receive: at(lent, &mut self.scratch, receive) });
                }
            };
            let (into, from) = (at(lent, &mut self.scratch, into), at(lent, &mut self.scratch, from));
            // SAFETY: Both lie within what was lent, or scratch memory, and apart: a schedule takes no other steps. No
            // message is under way.
            let (into, from) = unsafe { (&mut *into, &*from.cast_const()) };
            match step {
                Step::Combine { .. } => combine(into, from),
                // As a message to itself: of what a rank gives and what it gets, nobody else knows whether they fit.
                _ => match into.get_mut(..from.len()) {
                    Some(room) => room.copy_from_slice(from),
                    None => {
                        self.error = Some(Error::Truncated);
                        return None;
                    }
                },
            }
            self.done += 1;
        }
        None
    }

    /// A member that is gone ends the call for all, also for who waits for one that has given up because of it. What was sent
    /// before is still taken in.
    #[cold]
    fn wait_no_longer(&mut self, device: &mut Device, route: Route) {
        if self.cancelled || !device.gone().iter().any(|gone| route.whole.contains(gone)) {
            return;
        }
        let now = device.now();
        if now.since(*self.stalled_since.get_or_insert(now)) > GRACE {
            self.fail(device, Error::ProcFailed);
        }
    }

    /// Waits for nothing any more but for what was lent to come back.
    #[cold]
    fn fail(&mut self, device: &mut Device, error: Error) {
        self.error = Some(error);
        if !std::mem::replace(&mut self.cancelled, true) {
            for request in &self.requests[self.over..] {
                device.cancel(*request);
            }
        }
    }
}

/// Where a span is.
fn at(lent: Lent, scratch: &mut [Word], span: Span) -> *mut [u8] {
    let start = match span.memory() {
        Memory::Send => lent.send.cast::<u8>().cast_mut(),
        Memory::Receive => lent.receive.cast::<u8>(),
        Memory::Scratch => scratch.as_mut_ptr().cast::<u8>(),
    };
    std::ptr::slice_from_raw_parts_mut(start.wrapping_add(span.start()), span.len())
}

/// Longer than messages that are on the way take, unless a machine is very busy; whoever has to learn of a failure hardly waits.
pub(super) const GRACE: Duration = Duration::from_millis(100);
/// As large as the largest alignment of an element.
type Word = u128;
