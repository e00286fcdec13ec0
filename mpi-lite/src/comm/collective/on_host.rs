//! What a rank does in a call by shared memory, and the words by which others wake it out of a wait for that.

use std::any::Any;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use sidelane_nic::time::Instant;

use super::execution::GRACE;
use super::ranks::Combine;
use crate::adi::{Device, Envelope, Error, Idle, Incoming, Mode, Outgoing, Pattern, Request, Turns};
use crate::coll::neighbor::Neighbors;
use crate::coll::{Blocks, Buffers, Call};
use crate::host::{DIFFER, Host, Limits, Peers};

/// Who shares memory, and how words to them go that wake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members<'a> {
    /// The communicator's context for collectives.
    pub context: u32,
    /// Our rank.
    pub rank: usize,
    /// Which process each rank is.
    pub processes: &'a [u32],
    /// The processes that a call needs which theirs is part of: often the same.
    pub whole: &'a [u32],
    /// Of words; no call's.
    pub tag: i32,
}

/// The way to them, for a while.
pub(super) struct Words<'a> {
    pub members: Members<'a>,
    pub device: &'a mut Device,
    /// A receive for who wakes us, while we may sleep.
    pub wake: &'a mut Option<Request>,
    /// Since when this call is known to go on without a member.
    pub bereft: &'a mut Option<Instant>,
}

impl Words<'_> {
    /// Whether those that `awaits` is true of are all there, and calls may go on.
    fn check(&mut self, awaits: impl Fn(usize) -> bool) -> Result<(), Error> {
        if !self.device.gone().is_empty() && self.is_hopeless(&awaits) {
            return Err(Error::ProcFailed);
        }
        if self.device.is_revoked(self.members.context) { Err(Error::Revoked) } else { Ok(()) }
    }

    /// Who is awaited is gone, or may have given up, in this call or one before, because another member is.
    #[cold]
    fn is_hopeless(&mut self, awaits: &dyn Fn(usize) -> bool) -> bool {
        let gone = self.device.gone();
        if !gone.iter().any(|process| self.members.whole.contains(process)) {
            return false;
        }
        let mut lost = (0..).zip(self.members.processes).filter(|(_, process)| gone.contains(process));
        let now = self.device.now();
        lost.any(|(member, _)| awaits(member)) || now.since(*self.bereft.get_or_insert(now)) > GRACE
    }

    /// From now on somebody's word wakes us.
    fn expect(&mut self) {
        if self.wake.is_none() {
            *self.wake = Some(self.receive());
        }
    }

    fn receive(&mut self) -> Request {
        let pattern = Pattern { context: self.members.context, source: None, tag: Some(self.members.tag) };
        self.device.recv(pattern, Incoming::EMPTY)
    }

    fn slept(&mut self, woken: bool) {
        let expected = self.wake.take();
        // A word comes, if it has not come, and is for nobody any more.
        let word = if woken { Some(expected.unwrap_or_else(|| self.receive())) } else { expected };
        if let Some(word) = word {
            if !woken {
                self.device.cancel(word);
            }
            self.device.free(word);
        }
    }

    fn say(&mut self, member: usize) {
        let Members { context, rank, processes, tag, .. } = self.members;
        let envelope = Envelope::new(context, rank as u32, tag);
        let word = self.device.send(processes[member], envelope, Outgoing::EMPTY, Mode::Standard);
        self.device.free(word);
        self.device.flush();
    }
}

/// How a call ended, or with which panic.
pub(super) type Done = Result<Result<(), Error>, Box<dyn Any + Send>>;

/// What calls that wait and those that do not differ in.
pub(super) trait Caller {
    /// As [`Peers::WAITS`].
    const WAITS: bool;

    /// As [`Peers::LOOKS`].
    const LOOKS: Option<u32> = None;

    /// As [`Peers::not_yet`].
    fn not_yet(&mut self) -> Error {
        unreachable!("a call waits for as long as it takes")
    }

    /// Has to do with the others.
    fn with<R>(&mut self, does: impl FnOnce(&mut Words) -> R) -> R;

    /// One turn of what else is under way. True if somebody came for something.
    fn turn(&mut self) -> bool;

    /// As [`Peers::sleep`], once a word is expected that wakes.
    fn sleep(&mut self);

    /// As [`Peers::may_sleep`].
    fn may_sleep(&self) -> bool;
}

impl<C: Caller> Peers for C {
    type Error = Error;

    const WAITS: bool = C::WAITS;
    const LOOKS: Option<u32> = C::LOOKS;

    fn not_yet(&mut self) -> Error {
        Caller::not_yet(self)
    }

    fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<bool, Error> {
        let moved = Caller::turn(self);
        self.with(|words| words.check(awaits)).map(|()| moved)
    }

    fn sleep(&mut self) {
        self.with(|words| words.expect());
        Caller::sleep(self);
    }

    fn may_sleep(&self) -> bool {
        Caller::may_sleep(self)
    }

    fn doze(&mut self) {
        self.with(|words| words.expect());
    }

    fn slept(&mut self, woken: bool) {
        self.with(|words| words.slept(woken));
    }

    fn wake(&mut self, member: usize) {
        self.with(|words| words.say(member));
    }

    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), Error> {
        self.with(|words| words.device.read_memory(words.members.processes[member], address, into))
    }

    fn may_write(&mut self, member: usize) -> Result<(), Error> {
        self.with(|words| words.device.may_write_memory(words.members.processes[member]))
    }

    fn write(&mut self, member: usize, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.with(|words| words.device.write_memory(words.members.processes[member], address, bytes))
    }

    fn code(error: &Error) -> NonZeroU32 {
        code(*error)
    }

    fn error(code: NonZeroU32) -> Error {
        error(code)
    }
}

/// The other ranks, for a call that waits.
pub(super) struct Waiting<'a, T> {
    turns: &'a mut T,
    members: Members<'a>,
    wake: &'a mut Option<Request>,
    bereft: Option<Instant>,
    idle: Idle,
    /// Of turns that brought something.
    busy: Idle,
}

impl<'a, T: Turns> Waiting<'a, T> {
    pub fn new(turns: &'a mut T, members: Members<'a>, wake: &'a mut Option<Request>) -> Self {
        Self { turns, members, wake, bereft: None, idle: Idle::tired(), busy: Idle::new() }
    }
}

impl<T: Turns> Caller for Waiting<'_, T> {
    const WAITS: bool = true;

    fn with<R>(&mut self, does: impl FnOnce(&mut Words) -> R) -> R {
        let Self { turns, members, wake, bereft, .. } = self;
        does(&mut Words { members: *members, device: turns.device(), wake, bereft })
    }

    fn turn(&mut self) -> bool {
        let moved = self.turns.turn();
        if moved {
            self.turns.device().go_on(&mut self.busy);
        }
        moved
    }

    fn sleep(&mut self) {
        let device = self.turns.device();
        device.flush();
        device.idle(&mut self.idle);
    }

    fn may_sleep(&self) -> bool {
        false
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

pub(super) fn error(code: NonZeroU32) -> Error {
    let known =
        [Error::Truncated, Error::NoAccess, Error::Revoked].into_iter().find(|known| self::code(*known) == code);
    known.unwrap_or(Error::ProcFailed)
}

/// Whether all ranks can do this call in the memory that they share, which all find alike.
pub(super) fn takes(limits: Limits, call: Call, given: usize, receive: usize, size: usize) -> bool {
    match call {
        Call::Barrier => true,
        Call::Broadcast { .. } => limits.take(receive),
        Call::Reduce { .. }
        | Call::Allreduce { .. }
        | Call::Scan { .. }
        | Call::Exscan { .. }
        | Call::ReduceScatter { .. } => limits.take(given),
        Call::Gather { len, .. } | Call::Allgather { len } => limits.take(len),
        Call::Scatter { len, .. } | Call::Alltoall { len } => limits.take(len.saturating_mul(size)),
        Call::Gatherv { .. } | Call::Scatterv { .. } | Call::Allgatherv { .. } | Call::Alltoallv { .. } => {
            limits.take_varying()
        }
        Call::NeighborAllgather { .. } => limits.take_neighbors(0),
        Call::NeighborAlltoall { neighbors: Neighbors::Grid(both), .. } => limits.take_neighbors(both.len()),
        // Which of several blocks between two ranks is which, only messages know.
        Call::NeighborAlltoall { .. } => false,
    }
}

/// Makes a call, of which [`takes`] is true. When it fails, here or elsewhere, it has failed for all members. An operator of the
/// program's may panic; the others are not to wait for us then, and the panic is what comes back.
pub(super) async fn make<P: Peers<Error = Error>>(
    host: &mut Host,
    peers: &mut P,
    call: Call<'_>,
    (send, receive): (Option<&[u8]>, &mut [u8]),
    combine: &mut Combine<'_>,
) -> Done {
    let done = {
        let mut course = pin!(by_memory(host, peers, call, send, receive, combine));
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| course.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await
    };
    let failed = match done {
        Ok(Ok(())) => match host.failure() {
            None => return Ok(Ok(())),
            Some(code) => Ok(error(code)),
        },
        // What a member shows may be gone when it has failed, and then that is why.
        Ok(Err(Error::NoAccess)) => Ok(host.failure().map_or(Error::NoAccess, error)),
        Ok(Err(error)) => Ok(error),
        Err(panic) => Err(panic),
    };
    give_up(host, peers, *failed.as_ref().unwrap_or(&Error::ProcFailed));
    failed.map(Err)
}

/// Ends this and all later calls of all members.
pub(super) fn give_up(host: &Host, peers: &mut impl Peers<Error = Error>, error: Error) {
    host.fail(code(error));
    host.tell(peers);
}

/// A call, of which `takes` is true.
async fn by_memory(
    host: &mut Host,
    peers: &mut impl Peers<Error = Error>,
    call: Call<'_>,
    send: Option<&[u8]>,
    receive: &mut [u8],
    combine: &mut Combine<'_>,
) -> Result<(), Error> {
    let me = host.me();
    if !call.fits((me, host.limits().size()), Buffers::of(send, receive)) {
        return Err(Error::Truncated);
    }
    match call {
        Call::Barrier => host.barrier(peers).await,
        Call::Broadcast { root } => host.broadcast(root, receive, peers).await,
        Call::Reduce { root, reduction } => {
            host.reduce(root, send, (me == root).then_some(receive), reduction.element, combine, peers).await
        }
        Call::Allreduce { reduction } => host.allreduce(send, receive, reduction.element, combine, peers).await,
        Call::ReduceScatter { blocks, reduction } => {
            host.reduce_scatter(send, receive, blocks, reduction.element, combine, peers).await
        }
        Call::Scan { reduction } => host.scan(send, receive, reduction, combine, peers).await,
        Call::Exscan { reduction } => host.exscan(send, receive, reduction.element, combine, peers).await,
        Call::Gather { root, len } => {
            host.gather(root, send, (me == root).then_some((receive, Blocks::Equal(len))), peers).await
        }
        Call::Gatherv { root, blocks } => host.gather(root, send, blocks.map(|blocks| (receive, blocks)), peers).await,
        Call::Scatter { root, len } => {
            host.scatter(root, len, if me == root { send } else { None }, scattered(me == root, receive), peers).await
        }
        Call::Scatterv { root, blocks } => {
            host.scatter_varying(root, send.zip(blocks), scattered(me == root, receive), peers).await
        }
        Call::Allgather { len } => host.allgather(Blocks::Equal(len), send, receive, peers).await,
        Call::Allgatherv { blocks } => host.allgather(blocks, send, receive, peers).await,
        Call::Alltoall { len } => host.alltoall(len, send, receive, peers).await,
        Call::Alltoallv { to, from } => host.alltoall_varying((send, to), (receive, from), peers).await,
        Call::NeighborAllgather { neighbors, from } => {
            host.neighbor_allgather(neighbors.both(), send.unwrap_or_default(), (receive, from), peers).await
        }
        Call::NeighborAlltoall { neighbors, to, from } => {
            host.neighbor_alltoall(neighbors.both().0, (send.unwrap_or_default(), to), (receive, from), peers).await
        }
    }
}

/// In place, the root that scatters has nothing to receive into.
pub(super) fn scattered(is_root: bool, receive: &mut [u8]) -> Option<&mut [u8]> {
    (!is_root || !receive.is_empty()).then_some(receive)
}
