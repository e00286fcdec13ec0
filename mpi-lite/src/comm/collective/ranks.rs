//! The ranks of a communicator, and the collective calls that they make together.
#![allow(unsafe_code)] // A call that waits lends what it has borrowed.

mod meeting;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::between::Groups;
use super::course::Course;
use super::execution::{Execution, Lent, Part, Route};
use super::few::make_few;
use super::on_host::{Members, Waiting, give_up, make, takes};
use super::queue::Queue;
use crate::adi::{Device, Error, Request, Turns};
use crate::coll::{Access, Buffers, Call, Hosts, Table, WithinHosts};
use crate::giving_way::Turnless;
use crate::host::{Host, at_once};
use crate::op::Function;

/// An operator: the second operand and result, and the first.
pub type Combine<'a> = dyn FnMut(&mut [u8], &[u8]) + 'a;

/// The ranks of a communicator, for collective calls. All make the same calls in the same order.
#[derive(Debug)]
pub struct Ranks {
    context: u32,
    rank: usize,
    /// Which process of the job each rank is.
    processes: Arc<[u32]>,
    /// Those of all ranks, where these are only the ones of a host.
    whole: Arc<[u32]>,
    hosts: Hosts,
    table: Arc<Table>,
    /// Messages of one call have its number as their tag.
    calls: u32,
    /// Calls that are begun again and again, each with a tag of its own.
    repeated: u32,
    execution: Execution,
    host: Shared,
    /// Of calls that do not wait; made with `host`.
    queue: Option<Arc<Queue>>,
    /// Of calls that are begun again and again, all in one order; made for the first of them.
    repeated_queue: Option<Arc<Queue>>,
    /// The ranks of our host among several, for their part of calls that wait.
    ours: Option<Box<Ranks>>,
    /// Added to a call's number, for its messages' tag.
    tags: i32,
    /// Of ranks in two groups.
    groups: Option<Groups>,
    /// A receive for who wakes us out of a wait for shared memory.
    wake: Option<Request>,
    /// In the call that failed last others may wait for us, and do not know of it.
    left_others: bool,
    /// Calls by memory that the ranks share.
    turnless: Turnless,
}

/// Memory that the ranks share.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a communicator has one, and no pointer to follow for each call")]
enum Shared {
    /// All are on one host, and have made no call yet that waits.
    Unmade,
    Made(Host),
    /// A call has failed at one of them: so do all that follow.
    Failed(Error),
    /// They are on several hosts, or one of them could not map it.
    None,
}

impl Ranks {
    /// Rank `rank` among `processes`, whose collective messages are told from all others by `context`.
    pub fn new(device: &Device, context: u32, rank: usize, processes: Vec<u32>, table: Arc<Table>) -> Self {
        assert_eq!(processes[rank], device.own(), "the rank is that of this process");
        // Who waits for another in shared memory has to notice its end.
        let on_host = processes.len() > 1 && processes.iter().all(|process| device.sees(*process));
        let host = if on_host { Shared::Unmade } else { Shared::None };
        let hosts = Hosts::new(processes.iter().map(|process| &device.processes()[*process as usize].host));
        Self { host, ..Self::on_hosts(device, context, rank, processes, hosts, table) }
    }

    /// As [`Self::new`], where all are not on one host, but on these.
    pub(super) fn on_hosts(
        device: &Device,
        context: u32,
        rank: usize,
        processes: Vec<u32>,
        hosts: Hosts,
        table: Arc<Table>,
    ) -> Self {
        let here = hosts.on(hosts.of(rank));
        let ours = (1 < here.len() && hosts.count() > 1).then(|| {
            let here = here.iter().map(|rank| processes[*rank as usize]).collect();
            let ours = Self::new(device, context, hosts.place(rank), here, Arc::clone(&table));
            Box::new(Self { whole: processes.as_slice().into(), tags: OF_HOSTS, ..ours })
        });
        let processes: Arc<[u32]> = processes.into();
        Self {
            context,
            rank,
            whole: Arc::clone(&processes),
            processes,
            hosts,
            table,
            calls: 0,
            repeated: 0,
            execution: Execution::default(),
            host: Shared::None,
            queue: None,
            repeated_queue: None,
            ours,
            tags: 0,
            groups: None,
            wake: None,
            left_others: false,
            turnless: Turnless::default(),
        }
    }

    /// The processes of two groups, whose calls go from one to the other.
    pub fn between(device: &Device, context: u32, here: &[u32], rank: usize, there: &[u32], table: Arc<Table>) -> Self {
        let (groups, processes) = Groups::new(here, rank, there);
        let it = Self::new(device, context, groups.number(), processes, table);
        Self { groups: Some(groups), host: Shared::None, ours: None, ..it }
    }

    /// What calls name a root by: this process.
    pub fn own_number(&self) -> usize {
        self.rank
    }

    /// The same of another rank; of two groups, one of the other group.
    pub fn number_of(&self, rank: usize) -> usize {
        self.groups.as_ref().map_or(rank, |groups| groups.number_there(rank))
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.processes.len()
    }

    /// By messages only, from now on. All ranks do so.
    pub fn without_shared_memory(mut self) -> Self {
        (self.host, self.queue, self.ours) = (Shared::None, None, None);
        self
    }

    /// What a call does with its `receive` bytes of room here. Between two groups only a root's of a broadcast is known.
    pub fn access(&self, call: &Call, receive: usize, in_place: bool) -> Access {
        match call.access((self.rank, self.size()), receive, in_place) {
            Access::Written if self.groups.is_some() => Access::Both,
            access => access,
        }
    }

    /// A call that returns when it is over for this rank. Without `send`, what this rank gives is in `receive`: in place, or
    /// nothing.
    ///
    /// While it waits, everything else goes on that `turns` knows of.
    pub fn call(
        &mut self,
        turns: &mut impl Turns,
        call: Call,
        send: Option<&[u8]>,
        receive: &mut [u8],
        combine: &mut Combine,
    ) -> Result<(), Error> {
        // Others may wait for it while we wait, or are away, without a turn.
        turns.device().flush();
        // Who need not wait in memory would not look.
        if turns.device().is_revoked(self.context) {
            return Err(Error::Revoked);
        }
        if matches!(self.host, Shared::Unmade) {
            self.make_host(turns)?;
        }
        if let Shared::Failed(error) = self.host {
            return Err(error);
        }
        let given = send.map_or(receive.len(), <[u8]>::len);
        if let Shared::Made(host) = &mut self.host
            && takes(host.limits(), call, given, receive.len(), self.processes.len())
        {
            let members = members(self.context, self.rank, &self.processes, &self.whole);
            let mut peers = Waiting::new(turns, members, &mut self.wake);
            let done = at_once(make(host, &mut peers, call, (send, receive), combine));
            if let Ok(Ok(())) = done {
                self.serve_now_and_then(turns);
                return Ok(());
            }
            self.host = Shared::Failed(done.as_ref().map_or(Error::ProcFailed, |ended| ended.err().unwrap()));
            return done.unwrap_or_else(|panic| resume_unwind(panic));
        }
        if !self.fits(&call, Buffers::of(send, receive)) {
            // The others go by messages, or by memory.
            self.left_others = true;
            self.give_up(turns, Error::Truncated);
            return Err(Error::Truncated);
        }
        self.call_by_messages(turns, call, send, receive, combine)
    }

    /// Whether the buffers are as long as the call says, where that is known before it is made: else [`Self::build`] may panic.
    pub fn fits(&self, call: &Call, buffers: Buffers) -> bool {
        match &self.groups {
            Some(groups) => groups.fits(call, buffers),
            None => call.fits((self.rank, self.size()), buffers),
        }
    }

    /// As [`Self::call`], of a call of few bytes in memory that the ranks share. `None`: it is none of those, or that was not made
    /// yet; then nothing was done.
    #[inline]
    pub fn call_few(
        &mut self,
        turns: &mut impl Turns,
        call: &Call,
        send: Option<&[u8]>,
        receive: &mut [u8],
        function: Option<Function>,
    ) -> Option<Result<(), Error>> {
        let Shared::Made(host) = &mut self.host else { return None };
        turns.device().flush();
        if turns.device().is_revoked(self.context) {
            return Some(Err(Error::Revoked));
        }
        let members = members(self.context, self.rank, &self.processes, &self.whole);
        let mut peers = Waiting::new(turns, members, &mut self.wake);
        let done = make_few(host, &mut peers, call, (send, receive), function)?;
        if let Err(error) = done {
            self.host = Shared::Failed(error);
        }
        self.serve_now_and_then(turns);
        Some(done)
    }

    /// Of calls by shared memory a few take a turn: who finds that the others have come takes none, and has to serve others too.
    #[inline]
    fn serve_now_and_then(&mut self, turns: &mut impl Turns) {
        if self.turnless.is_turn_due() {
            turns.turn();
        }
    }

    /// Where a call is begun that does not wait, and the call, if by shared memory: as all ranks find alike.
    pub fn queue_for(&self, call: Call, buffers: Buffers) -> Option<(&Arc<Queue>, Call<'static>)> {
        let queue = self.queue.as_ref()?;
        Some((queue, queue.takes(call, buffers)?))
    }

    /// The same of a call that is begun again and again, if all such calls of these ranks are begun in one order. The first time all
    /// ranks have to come.
    pub fn repeated_queue_for(
        &mut self,
        turns: &mut impl Turns,
        call: Call,
        buffers: Buffers,
    ) -> Result<Option<(Arc<Queue>, Call<'static>)>, Error> {
        if matches!(self.host, Shared::Unmade) {
            self.make_host(turns)?;
        }
        // Also where calls that wait have failed: not all ranks may know.
        if !matches!(self.host, Shared::None) && self.repeated_queue.is_none() {
            let made = self.make_memory(turns)?;
            self.repeated_queue = made.map(|[host]| self.queue_in(turns, host, WAKE_REPEATED));
        }
        let queue = self.repeated_queue.as_ref();
        Ok(queue.and_then(|queue| Some((Arc::clone(queue), queue.takes(call, buffers)?))))
    }

    fn queue_in(&self, turns: &mut impl Turns, host: Host, wake: i32) -> Arc<Queue> {
        let processes = Arc::clone(&self.processes);
        Arc::new(Queue::new(self.context, self.rank, processes, host, wake, turns.device().patience()))
    }

    /// Prepares a call in `execution`, which is not under way, for [`Course::start`].
    ///
    /// The numbers of blocks and neighbours that `call` has are not needed any more when this returns.
    ///
    /// # Panics
    ///
    /// Of calls that do not fit ([`Self::fits`]).
    pub fn build(&self, execution: &mut Execution, call: Call, buffers: Buffers) {
        self.build_within(WithinHosts::Messages, execution, call, buffers);
    }

    /// Whether the ranks of our host share memory for their part of calls.
    #[cfg(test)]
    pub(super) fn share_on_host(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| matches!(ours.host, Shared::Made(_)))
    }

    fn build_within(&self, within: WithinHosts, execution: &mut Execution, call: Call, buffers: Buffers) {
        let schedule = execution.schedule();
        if let Some(groups) = &self.groups {
            return groups.build(call, schedule, buffers, &self.table);
        }
        call.build(schedule, self.rank, (&self.hosts, within), buffers, &self.table);
    }

    /// What calls that are under way need of this, for who moves them on while other calls are made.
    pub fn course(&self) -> Course {
        Course { context: self.context, rank: self.rank as u32, processes: Arc::clone(&self.processes) }
    }

    fn call_by_messages(
        &mut self,
        turns: &mut impl Turns,
        call: Call,
        send: Option<&[u8]>,
        receive: &mut [u8],
        combine: &mut Combine,
    ) -> Result<(), Error> {
        // SAFETY: Both are borrowed until this returns, and the call is over by then.
        let lent = unsafe { Lent::new(send.unwrap_or_default(), receive) };
        let (in_place, (send, receive)) = (send.is_none(), lent.lens());
        let within = if self.ours.is_some() { WithinHosts::Calls } else { WithinHosts::Messages };
        let mut execution = std::mem::take(&mut self.execution);
        self.build_within(within, &mut execution, call, Buffers { send, receive, in_place });
        let tag = self.next_tag();
        if let (true, Some(ours)) = (execution.has_calls(), &mut self.ours)
            && matches!(ours.host, Shared::Unmade)
        {
            // Before anything that may fail: by it the others of our host are told.
            ours.make_host(turns)?;
        }
        let Self { context, rank, processes, whole, ours, .. } = self;
        let route = Route { context: *context, rank: *rank as u32, processes, whole };
        execution.start(turns.device(), route, lent, tag);
        let on_host = |turns: &mut _, part: Part, combine: &mut Combine| {
            let ours = ours.as_mut().expect("within hosts go messages");
            // SAFETY: of the memory that was lent to the whole call, or its scratch memory, which nobody uses while its part is under
            // way: no message is. What is given and what is got lie apart, as the schedule was built.
            let (send, receive) = unsafe { (part.send.map(|send| &*send), &mut *part.receive) };
            ours.call(turns, part.call, send, receive, combine)
        };
        let done = catch_unwind(AssertUnwindSafe(|| execution.finish(turns, route, combine, on_host)));
        let failed = done.as_ref().map_or(Some(Error::ProcFailed), |done| done.err());
        if let (Some(error), true, Some(ours)) = (failed, execution.has_calls(), ours) {
            ours.give_up(turns, error);
        }
        let done = done.unwrap_or_else(|panic| resume_unwind(panic));
        self.left_others = execution.has_left_others();
        self.execution = execution;
        done
    }

    /// Whether others may wait for us in the call that has failed last, and do not know of it.
    pub fn has_left_others(&self) -> bool {
        self.left_others
    }

    /// Whether calls have failed by memory that all ranks share: the others know.
    pub fn have_failed_together(&self) -> bool {
        matches!(self.host, Shared::Failed(_))
    }

    /// A call has failed of which ours was a part, or would have failed: others may wait for us in theirs.
    #[cold]
    fn give_up(&mut self, turns: &mut impl Turns, error: Error) {
        if let Shared::Made(host) = &mut self.host {
            let members = members(self.context, self.rank, &self.processes, &self.whole);
            give_up(host, &mut Waiting::new(turns, members, &mut self.wake), error);
            self.host = Shared::Failed(error);
        }
    }

    /// What the messages of the next call are told from others by.
    pub fn next_tag(&mut self) -> i32 {
        self.calls = self.calls.wrapping_add(1);
        // Calls under way at the same time are fewer than tags.
        self.tags + (self.calls & TAGS) as i32
    }

    /// The same of a call that is begun again and again, in whatever order with others (MPI-4.1 6.13): it is made in the same one by
    /// all ranks.
    pub fn next_repeated_tag(&mut self) -> i32 {
        self.repeated = self.repeated.wrapping_add(1);
        // Which of them live is each rank's own business, so none is left out that is in use (README, "What is not supported").
        REPEATED - (self.repeated & TAGS) as i32
    }
}

fn members<'a>(context: u32, rank: usize, processes: &'a [u32], whole: &'a [u32]) -> Members<'a> {
    Members { context, rank, processes, whole, tag: WAKE }
}

/// How many calls' tags differ, less one.
const TAGS: u32 = i32::MAX as u32 >> 2;

/// What is added to tags of messages among the ranks of one host, within calls of more.
const OF_HOSTS: i32 = 1 << 30;

/// The tag of words that wake a rank out of a call that waits: no call's.
const WAKE: i32 = -1;

/// The same of words that wake queues, of calls that are begun once, and again and again.
const WAKE_QUEUE: i32 = -2;
const WAKE_REPEATED: i32 = -3;

/// The highest tag of calls that are begun again.
const REPEATED: i32 = WAKE_REPEATED - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::{Config, Process};
    use crate::host::Peers;

    #[test]
    fn no_call_that_is_begun_again_takes_a_word_s_tag() {
        let device = Device::open(0, vec![Process::here("", &[])], Vec::new(), &Config::default()).unwrap();
        let mut ranks = Ranks::new(&device, 9, 0, vec![0], Arc::default());
        for repeated in [0, TAGS - 1, u32::MAX - 1] {
            ranks.repeated = repeated;
            let [one, other] = [(); 2].map(|()| ranks.next_repeated_tag());
            assert!(one != other && one.max(other) < WAKE_REPEATED, "{repeated}: {one}, {other}");
        }
    }

    #[test]
    fn a_word_that_comes_when_nobody_sleeps_any_more_keeps_nothing() {
        let mut device = Device::open(0, vec![Process::here("", &[])], Vec::new(), &Config::default()).unwrap();
        let members = members(9, 0, &[0], &[0]);
        for has_slept in [false, true] {
            let mut wake = None;
            let mut peers = Waiting::new(&mut device, members, &mut wake);
            if has_slept {
                peers.doze();
            }
            // Somebody is about to say one.
            peers.slept(true);
            assert!(wake.is_none() && device.uses(9..10), "it comes");
            Waiting::new(&mut device, members, &mut None).wake(0);
            assert!(!device.uses(9..10));
        }
        let mut wake = None;
        let mut peers = Waiting::new(&mut device, members, &mut wake);
        peers.doze();
        peers.slept(false);
        assert!(!device.uses(9..10));
    }
}
