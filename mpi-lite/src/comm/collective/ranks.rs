//! The ranks of a communicator, and the collective calls that they make together.
#![allow(unsafe_code)] // A call that waits lends what it has borrowed.

use std::collections::HashMap;
use std::sync::Arc;

use sidelane_nic::share::Ticket;

use super::between::Groups;
use super::execution::{Execution, Lent, Route};
use crate::adi::{Device, Error};
use crate::coll::{Buffers, Call, Table, Team};
use crate::host::{Host, Peers};

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
    /// They are on several hosts, or one of them could not map it, or has failed.
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
        Self { context, rank, processes, hosts, table, calls: 0, execution: Execution::default(), host, groups: None }
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
        let given = send.map_or(receive.len(), <[u8]>::len);
        if let Shared::Made(host) = &mut self.host
            && let Some(shown) = shown(call, given, receive.len(), self.processes.len())
            && host.takes(shown)
        {
            let mut peers = OnHost { turns, context: self.context, processes: &self.processes };
            let done = by_memory(host, &mut peers, self.rank, call, send, receive, combine);
            if done.is_err() {
                self.host = Shared::None;
            }
            return done;
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
        host.allow_reads(can, &mut OnHost { turns, context: self.context, processes: &self.processes })?;
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
    processes: &'a [u32],
}

impl<T: Turns> Peers for OnHost<'_, T> {
    type Error = Error;

    fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<(), Error> {
        self.turns.turn();
        let device = self.turns.device();
        let gone = device.gone();
        if !gone.is_empty() {
            let mut members = self.processes.iter().enumerate();
            if members.any(|(member, process)| gone.contains(process) && awaits(member)) {
                return Err(Error::ProcFailed);
            }
        }
        if device.is_revoked(self.context) { Err(Error::Revoked) } else { Ok(()) }
    }

    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), Error> {
        // It was tried when the memory was made: now only its owner's end can be the reason.
        let read = self.turns.device().read_memory(self.processes[member], address, into);
        if read { Ok(()) } else { Err(Error::ProcFailed) }
    }
}

/// Bytes that a rank shows the others in a call, the same at every rank; `None` where it isn't, and messages know better.
fn shown(call: Call, given: usize, receive: usize, size: usize) -> Option<usize> {
    match call {
        Call::Barrier => Some(0),
        Call::Broadcast { .. } => Some(receive),
        Call::Reduce { .. }
        | Call::Allreduce { .. }
        | Call::Scan { .. }
        | Call::Exscan { .. }
        | Call::ReduceScatter { .. } => Some(given),
        Call::Gather { len, .. } | Call::Allgather { len } => Some(len),
        Call::Scatter { len, .. } | Call::Alltoall { len } => Some(len * size),
        _ => None,
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
        Call::Broadcast { root } => host.broadcast(root, receive, peers),
        Call::Reduce { root, reduction } => {
            host.reduce(send, (me == root).then_some(receive), reduction.element, combine, peers)
        }
        Call::Allreduce { reduction } => host.allreduce(send, receive, reduction.element, combine, peers),
        Call::ReduceScatter { blocks, reduction } => {
            host.reduce_scatter(send, receive, blocks, reduction.element, combine, peers)
        }
        Call::Scan { reduction } => host.scan(true, send, receive, reduction.element, combine, peers),
        Call::Exscan { reduction } => host.scan(false, send, receive, reduction.element, combine, peers),
        Call::Gather { root, len } => host.gather(root, len, send, (me == root).then_some(receive), peers),
        Call::Scatter { root, len } => {
            let block = (me != root || !receive.is_empty()).then_some(receive);
            host.scatter(root, len, if me == root { send } else { None }, block, peers)
        }
        Call::Allgather { len } => host.allgather(len, send, receive, peers),
        Call::Alltoall { len } => host.alltoall(len, send, receive, peers),
        // The rest shows nothing.
        _ => host.barrier(peers),
    }
}
