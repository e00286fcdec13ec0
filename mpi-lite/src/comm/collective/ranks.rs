//! The ranks of a communicator, and the collective calls that they make together.
#![allow(unsafe_code)] // A call that waits lends what it has borrowed.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use sidelane_nic::share::Ticket;

use super::between::Groups;
use super::execution::{Execution, Lent, Route};
use crate::adi::{Device, Envelope, Error, Idle, Incoming, Mode, Outgoing, Pattern, Request};
use crate::coll::neighbor::Neighbors;
use crate::coll::{Blocks, Buffers, Call, Table, Team};
use crate::host::{DIFFER, Host, Peers};

/// An operator: the second operand and result, and the first.
pub type Combine<'a> = dyn FnMut(&mut [u8], &[u8]) + 'a;

/// The ranks of a communicator, for collective calls. All make the same calls in the same order.
#[derive(Debug)]
pub struct Ranks {
    context: u32,
    rank: usize,
    /// Which process of the job each rank is.
    processes: Arc<[u32]>,
    /// Which host each is on: the first rank there.
    hosts: Vec<usize>,
    table: Arc<Table>,
    /// Messages of one call have its number as their tag.
    calls: u32,
    execution: Execution,
    host: Shared,
    /// Of ranks in two groups.
    groups: Option<Groups>,
    /// A receive for who wakes us out of a wait for shared memory.
    wake: Option<Request>,
}

/// Where the messages of a communicator's calls go.
#[derive(Clone, Debug)]
pub struct Course {
    context: u32,
    rank: u32,
    processes: Arc<[u32]>,
}

impl Course {
    /// What its messages are told from others by.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// Begins once more what was built in `execution`, with messages of this tag, which nobody else has now.
    pub fn start(&self, device: &mut Device, execution: &mut Execution, lent: Lent, tag: i32) {
        let route = Route { context: self.context, rank: self.rank, processes: &self.processes };
        execution.start(device, route, lent, tag);
    }

    /// As [`Ranks::advance`].
    pub fn advance(
        &self,
        device: &mut Device,
        execution: &mut Execution,
        combine: &mut Combine,
    ) -> Result<bool, Error> {
        let route = Route { context: self.context, rank: self.rank, processes: &self.processes };
        execution.advance(device, route, combine)
    }
}

/// A process that waits in a call: what else it does meanwhile.
pub trait Turns {
    /// The way to the others.
    fn device(&mut self) -> &mut Device;

    /// One turn of everything that is under way here. True if anything moved.
    fn turn(&mut self) -> bool;
}

/// Nothing else is under way.
impl Turns for Device {
    fn device(&mut self) -> &mut Device {
        self
    }

    fn turn(&mut self) -> bool {
        self.progress()
    }
}

/// Memory that the ranks share.
#[derive(Debug)]
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
        let on_host = processes.len() > 1 && processes.iter().all(|process| device.is_on_host(*process));
        let host = if on_host { Shared::Unmade } else { Shared::None };
        let mut first = HashMap::new();
        let host_of =
            |(rank, process): (usize, &u32)| *first.entry(&device.processes()[*process as usize].host).or_insert(rank);
        let hosts = processes.iter().enumerate().map(host_of).collect();
        let processes = processes.into();
        Self {
            context,
            rank,
            processes,
            hosts,
            table,
            calls: 0,
            execution: Execution::default(),
            host,
            groups: None,
            wake: None,
        }
    }

    /// The processes of two groups, whose calls go from one to the other.
    pub fn between(device: &Device, context: u32, here: &[u32], rank: usize, there: &[u32], table: Arc<Table>) -> Self {
        let (groups, processes) = Groups::new(here, rank, there);
        let it = Self::new(device, context, groups.number(), processes, table);
        Self { groups: Some(groups), host: Shared::None, ..it }
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
        self.host = Shared::None;
        self
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
        if matches!(self.host, Shared::Unmade) {
            self.host = self.make_host(turns)?;
        }
        if let Shared::Failed(error) = self.host {
            return Err(error);
        }
        let given = send.map_or(receive.len(), <[u8]>::len);
        if let Shared::Made(host) = &mut self.host
            && takes(host, call, given, receive.len(), self.processes.len())
        {
            let mut peers = OnHost {
                turns,
                context: self.context,
                rank: self.rank,
                processes: &self.processes,
                wake: &mut self.wake,
                idle: Idle::tired(),
            };
            // An operator of the program's may panic; the others are not to wait for us then.
            let done =
                catch_unwind(AssertUnwindSafe(|| by_memory(host, &mut peers, self.rank, call, send, receive, combine)));
            let failed = match done {
                Ok(Ok(())) => match host.failure() {
                    None => return Ok(()),
                    Some(code) => Ok(error(code)),
                },
                Ok(Err(error)) => Ok(error),
                Err(panic) => Err(panic),
            };
            host.fail(code(*failed.as_ref().unwrap_or(&Error::ProcFailed)));
            host.tell(&mut peers);
            self.host = Shared::Failed(*failed.as_ref().unwrap_or(&Error::ProcFailed));
            return failed.map_or_else(|panic| resume_unwind(panic), Err);
        }
        self.call_by_messages(turns, call, send, receive, combine)
    }

    /// Begins a call in `execution`, which is not under way.
    ///
    /// The numbers of blocks and neighbours that `call` has are not needed any more when this returns.
    pub fn start(&mut self, device: &mut Device, execution: &mut Execution, call: Call, in_place: bool, lent: Lent) {
        let (send, receive) = lent.lens();
        self.build(execution, call, Buffers { send, receive, in_place });
        self.start_again(device, execution, lent);
    }

    /// Prepares a call in `execution`, which is not under way, for [`Self::start_again`].
    pub fn build(&self, execution: &mut Execution, call: Call, buffers: Buffers) {
        let schedule = execution.schedule();
        if let Some(groups) = &self.groups {
            return groups.build(call, schedule, buffers, &self.table);
        }
        let team = Team::all(self.rank, self.processes.len());
        if !call.build_on_hosts(schedule, self.rank, buffers, &self.hosts) {
            call.build(schedule, team, buffers, &self.table);
        }
    }

    /// Begins once more what `execution` did last, for a persistent call, with buffers of the same lengths.
    pub fn start_again(&mut self, device: &mut Device, execution: &mut Execution, lent: Lent) {
        let tag = self.next_tag();
        execution.start(device, self.route(), lent, tag);
    }

    /// Goes on with a call, as far as it can without waiting. True once it is over.
    pub fn advance(
        &self,
        device: &mut Device,
        execution: &mut Execution,
        combine: &mut Combine,
    ) -> Result<bool, Error> {
        execution.advance(device, self.route(), combine)
    }

    /// Waits until a call is over.
    pub fn finish(
        &self,
        turns: &mut impl Turns,
        execution: &mut Execution,
        combine: &mut Combine,
    ) -> Result<(), Error> {
        execution.finish(turns, self.route(), combine)
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
        let mut execution = std::mem::take(&mut self.execution);
        self.start(turns.device(), &mut execution, call, send.is_none(), lent);
        let done = execution.finish(turns, self.route(), combine);
        self.execution = execution;
        done
    }

    /// Rank 0 makes the memory and tells the others where; it is used if all have got it.
    #[cold]
    fn make_host(&mut self, turns: &mut impl Turns) -> Result<Shared, Error> {
        let (rank, size) = (self.rank, self.processes.len());
        let made = if rank == 0 { Host::create(size).ok() } else { None };
        let mut ticket = made.as_ref().map_or([0; Ticket::LEN], |host| host.ticket().to_bytes());
        let broadcast = Call::Broadcast { root: 0 };
        self.call_by_messages(turns, broadcast, Some(&[]), &mut ticket, &mut |_, _| ())?;
        let host = match made {
            None if rank > 0 => Host::join(Ticket::from_bytes(ticket), rank, size).ok(),
            made => made,
        };
        let (mut have, all) = (vec![0; size], Call::Allgather { len: 1 });
        self.call_by_messages(turns, all, Some(&[u8::from(host.is_some())]), &mut have, &mut |_, _| ())?;
        let Some(mut host) = host.filter(|_| !have.contains(&0)) else { return Ok(Shared::None) };
        // Whether we can read others' memory shows at that of rank 0, or of 1: the ranks' rights are the same.
        let word = 0u64;
        let mut words = vec![0; size * 8];
        let address = ((&raw const word).expose_provenance() as u64).to_ne_bytes();
        let all = Call::Allgather { len: 8 };
        self.call_by_messages(turns, all, Some(&address), &mut words, &mut |_, _| ())?;
        let other = usize::from(rank == 0);
        let its = u64::from_ne_bytes(std::array::from_fn(|at| words[other * 8 + at]));
        let can = turns.device().read_memory(self.processes[other], its, &mut [0; 8]);
        let mut peers = OnHost {
            turns,
            context: self.context,
            rank,
            processes: &self.processes,
            wake: &mut self.wake,
            idle: Idle::tired(),
        };
        host.allow_reads(can, &mut peers)?;
        Ok(Shared::Made(host))
    }

    fn route(&self) -> Route<'_> {
        Route { context: self.context, rank: self.rank as u32, processes: &self.processes }
    }

    /// What the messages of the next call are told from others by.
    pub fn next_tag(&mut self) -> i32 {
        self.calls = self.calls.wrapping_add(1);
        // Calls under way at the same time are fewer than tags.
        (self.calls & i32::MAX as u32) as i32
    }
}

/// The other ranks, beside the memory that all share.
struct OnHost<'a, T> {
    turns: &'a mut T,
    context: u32,
    rank: usize,
    processes: &'a [u32],
    wake: &'a mut Option<Request>,
    idle: Idle,
}

impl<T: Turns> OnHost<'_, T> {
    /// A receive of somebody's word that wakes us.
    fn await_word(&mut self) {
        if self.wake.is_none() {
            let pattern = Pattern { context: self.context, source: None, tag: Some(WAKE) };
            *self.wake = Some(self.turns.device().recv(pattern, Incoming::EMPTY));
        }
    }

    fn hear_word(&mut self) {
        if self.wake.is_some_and(|request| self.turns.device().poll(request).is_some()) {
            *self.wake = None;
        }
    }
}

impl<T: Turns> Peers for OnHost<'_, T> {
    type Error = Error;

    fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<bool, Error> {
        let moved = self.turns.turn();
        self.hear_word();
        let device = self.turns.device();
        let gone = device.gone();
        if !gone.is_empty() {
            let mut members = self.processes.iter().enumerate();
            if members.any(|(member, process)| gone.contains(process) && awaits(member)) {
                return Err(Error::ProcFailed);
            }
        }
        if device.is_revoked(self.context) { Err(Error::Revoked) } else { Ok(moved) }
    }

    fn sleep(&mut self) {
        self.await_word();
        let device = self.turns.device();
        device.flush();
        device.idle(&mut self.idle);
    }

    fn slept(&mut self, woken: bool) {
        if woken {
            // It comes, if it has not come.
            self.await_word();
        } else if let Some(request) = *self.wake {
            self.turns.device().cancel(request);
        }
        self.hear_word();
    }

    fn wake(&mut self, member: usize) {
        let envelope = Envelope { context: self.context, source: self.rank as u32, tag: WAKE };
        let device = self.turns.device();
        let word = device.send(self.processes[member], envelope, Outgoing::EMPTY, Mode::Standard);
        device.free(word);
        device.flush();
    }

    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), Error> {
        // It was tried when the memory was made: now only its owner's end can be the reason.
        let read = self.turns.device().read_memory(self.processes[member], address, into);
        if read { Ok(()) } else { Err(Error::ProcFailed) }
    }

    fn code(error: &Error) -> NonZeroU32 {
        code(*error)
    }

    fn error(code: NonZeroU32) -> Error {
        error(code)
    }
}

fn code(error: Error) -> NonZeroU32 {
    match error {
        Error::Truncated => DIFFER,
        Error::ProcFailed => const { NonZeroU32::new(2).unwrap() },
        Error::NoAccess => const { NonZeroU32::new(3).unwrap() },
        Error::Revoked => const { NonZeroU32::new(4).unwrap() },
    }
}

fn error(code: NonZeroU32) -> Error {
    let known =
        [Error::Truncated, Error::NoAccess, Error::Revoked].into_iter().find(|known| self::code(*known) == code);
    known.unwrap_or(Error::ProcFailed)
}

/// The tag of words that wake a rank: no call's.
const WAKE: i32 = -1;

/// Whether all ranks can do this call in the memory that they share, which all find alike.
fn takes(host: &Host, call: Call, given: usize, receive: usize, size: usize) -> bool {
    match call {
        Call::Barrier => true,
        Call::Broadcast { .. } => host.takes(receive),
        Call::Reduce { .. }
        | Call::Allreduce { .. }
        | Call::Scan { .. }
        | Call::Exscan { .. }
        | Call::ReduceScatter { .. } => host.takes(given),
        Call::Gather { len, .. } | Call::Allgather { len } => host.takes(len),
        Call::Scatter { len, .. } | Call::Alltoall { len } => host.takes(len * size),
        Call::Gatherv { .. } | Call::Scatterv { .. } | Call::Allgatherv { .. } | Call::Alltoallv { .. } => {
            host.takes_varying()
        }
        Call::NeighborAllgather { .. } => host.takes_neighbors(0),
        Call::NeighborAlltoall { neighbors: Neighbors::Grid(both), .. } => host.takes_neighbors(both.len()),
        // Which of several blocks between two ranks is which, only messages know.
        Call::NeighborAlltoall { .. } => false,
    }
}

fn by_memory(
    host: &mut Host,
    peers: &mut OnHost<impl Turns>,
    me: usize,
    call: Call,
    send: Option<&[u8]>,
    receive: &mut [u8],
    combine: &mut Combine,
) -> Result<(), Error> {
    match call {
        Call::Barrier => host.barrier(peers),
        Call::Broadcast { root } => host.broadcast(root, receive, peers),
        Call::Reduce { root, reduction } => {
            host.reduce(root, send, (me == root).then_some(receive), reduction.element, combine, peers)
        }
        Call::Allreduce { reduction } => host.allreduce(send, receive, reduction.element, combine, peers),
        Call::ReduceScatter { blocks, reduction } => {
            host.reduce_scatter(send, receive, blocks, reduction.element, combine, peers)
        }
        Call::Scan { reduction } => host.scan(send, receive, reduction.element, combine, peers),
        Call::Exscan { reduction } => host.exscan(send, receive, reduction.element, combine, peers),
        Call::Gather { root, len } => {
            host.gather(root, send, (me == root).then_some((receive, Blocks::Equal(len))), peers)
        }
        Call::Gatherv { root, blocks } => host.gather(root, send, blocks.map(|blocks| (receive, blocks)), peers),
        Call::Scatter { root, len } => {
            host.scatter(root, len, if me == root { send } else { None }, scattered(me == root, receive), peers)
        }
        Call::Scatterv { root, blocks } => {
            host.scatter_varying(root, send.zip(blocks), scattered(me == root, receive), peers)
        }
        Call::Allgather { len } => host.allgather(Blocks::Equal(len), send, receive, peers),
        Call::Allgatherv { blocks } => host.allgather(blocks, send, receive, peers),
        Call::Alltoall { len } => host.alltoall(len, send, receive, peers),
        Call::Alltoallv { to, from } => host.alltoall_varying((send, to), (receive, from), peers),
        Call::NeighborAllgather { neighbors, from } => {
            let (sources, destinations) = match neighbors {
                Neighbors::Graph { sources, destinations } => (sources, destinations),
                Neighbors::Grid(both) => (both, both),
            };
            host.neighbor_allgather((sources, destinations), send.unwrap_or_default(), (receive, from), peers)
        }
        Call::NeighborAlltoall { neighbors, to, from } => {
            let (Neighbors::Grid(both) | Neighbors::Graph { sources: both, .. }) = neighbors;
            host.neighbor_alltoall(both, (send.unwrap_or_default(), to), (receive, from), peers)
        }
    }
}

/// In place, the root that scatters has nothing to receive into.
fn scattered(is_root: bool, receive: &mut [u8]) -> Option<&mut [u8]> {
    (!is_root || !receive.is_empty()).then_some(receive)
}
