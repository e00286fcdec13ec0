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
use crate::coll::{Blocks, Call};
use crate::host::{DIFFER, FEW, Host, Limits, Peers};
use crate::op::Function;

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
    /// A receive for who wakes us.
    pub wake: &'a mut Option<Request>,
    /// Since when this call is known to go on without a member.
    pub bereft: &'a mut Option<Instant>,
}

impl Words<'_> {
    /// Whether those that `awaits` is true of are all there, and calls may go on.
    fn check(&mut self, awaits: impl Fn(usize) -> bool) -> Result<(), Error> {
        self.hear();
        if !self.device.gone().is_empty() && self.is_hopeless(awaits) {
            return Err(Error::ProcFailed);
        }
        if self.device.is_revoked(self.members.context) { Err(Error::Revoked) } else { Ok(()) }
    }

    /// Who is awaited is gone, or may have given up, in this call or one before, because another member is.
    #[cold]
    fn is_hopeless(&mut self, awaits: impl Fn(usize) -> bool) -> bool {
        let gone = self.device.gone();
        if !gone.iter().any(|process| self.members.whole.contains(process)) {
            return false;
        }
        let mut lost = (0..).zip(self.members.processes).filter(|(_, process)| gone.contains(process));
        let now = self.device.now();
        lost.any(|(member, _)| awaits(member)) || now.since(*self.bereft.get_or_insert(now)) > GRACE
    }

    /// A receive of somebody's word that wakes us.
    fn expect(&mut self) {
        if self.wake.is_none() {
            let pattern = Pattern { context: self.members.context, source: None, tag: Some(self.members.tag) };
            *self.wake = Some(self.device.recv(pattern, Incoming::EMPTY));
        }
    }

    fn slept(&mut self, woken: bool) {
        if woken {
            // It comes, if it has not come.
            self.expect();
        } else if let Some(request) = *self.wake {
            self.device.cancel(request);
        }
        self.hear();
    }

    fn say(&mut self, member: usize) {
        let Members { context, rank, processes, tag, .. } = self.members;
        let envelope = Envelope { context, source: rank as u32, tag };
        let word = self.device.send(processes[member], envelope, Outgoing::EMPTY, Mode::Standard);
        self.device.free(word);
        self.device.flush();
    }

    fn hear(&mut self) {
        if self.wake.is_some_and(|request| self.device.poll(request).is_some()) {
            *self.wake = None;
        }
    }
}

/// How a call ended, or with which panic.
pub(super) type Done = Result<Result<(), Error>, Box<dyn Any + Send>>;

/// What calls that wait and those that do not differ in.
pub(super) trait Caller {
    /// As [`Peers::WAITS`].
    const WAITS: bool;

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

    fn code(error: &Error) -> NonZeroU32 {
        code(*error)
    }

    fn error(code: NonZeroU32) -> Error {
        error(code)
    }
}

/// The other ranks, for a call in which nobody has to be waited for.
struct WaitingForNobody<'a>(Words<'a>);

impl Caller for WaitingForNobody<'_> {
    const WAITS: bool = true;

    fn with<R>(&mut self, does: impl FnOnce(&mut Words) -> R) -> R {
        does(&mut self.0)
    }

    fn turn(&mut self) -> bool {
        unreachable!("a call that needs nobody takes no turn")
    }

    fn sleep(&mut self) {
        unreachable!("a call that needs nobody does not sleep")
    }

    fn may_sleep(&self) -> bool {
        false
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

fn error(code: NonZeroU32) -> Error {
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
        Call::Scatter { len, .. } | Call::Alltoall { len } => limits.take(len * size),
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
    if !fits(host, &call, send.map(<[u8]>::len), receive.len()) {
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
            let (sources, destinations) = match neighbors {
                Neighbors::Graph { sources, destinations } => (sources, destinations),
                Neighbors::Grid(both) => (both, both),
            };
            host.neighbor_allgather((sources, destinations), send.unwrap_or_default(), (receive, from), peers).await
        }
        Call::NeighborAlltoall { neighbors, to, from } => {
            let (Neighbors::Grid(both) | Neighbors::Graph { sources: both, .. }) = neighbors;
            host.neighbor_alltoall(both, (send.unwrap_or_default(), to), (receive, from), peers).await
        }
    }
}

/// Makes a call in which this rank shows a few bytes, and waits for it. `None`: it is none of those, or one whose lengths do not fit,
/// which [`make`] says; and was not made. When it fails it has failed for all members.
#[inline]
pub(super) fn make_few(
    host: &mut Host,
    peers: &mut impl Peers<Error = Error>,
    call: &Call<'_>,
    (send, receive): (Option<&[u8]>, &mut [u8]),
    function: Option<Function>,
) -> Option<Result<(), Error>> {
    let done = by_few(host, peers, call, (send, receive), function)?;
    let Some(error) = done.err().or_else(|| host.failure().map(error)) else { return Some(Ok(())) };
    give_up(host, peers, error);
    Some(Err(error))
}

/// As [`make_few`], if this rank has to wait for nobody; else nothing is done. A panic too has failed for all members.
pub(super) fn make_now(
    host: &mut Host,
    words: Words<'_>,
    call: &Call<'_>,
    buffers: (Option<&[u8]>, &mut [u8]),
    function: Option<Function>,
) -> Option<Done> {
    if !needs_nobody(host, call) {
        return None;
    }
    let mut peers = WaitingForNobody(words);
    let made = catch_unwind(AssertUnwindSafe(|| make_few(host, &mut peers, call, buffers, function)));
    made.inspect_err(|_| give_up(host, &mut peers, Error::ProcFailed)).transpose()
}

/// Whether a rank that makes this call now has to wait for nobody, if it is of few bytes: as `few.rs` would.
fn needs_nobody(host: &mut Host, call: &Call<'_>) -> bool {
    let (me, last) = (host.me(), host.limits().size() - 1);
    match *call {
        Call::Barrier
        | Call::Allreduce { .. }
        | Call::ReduceScatter { .. }
        | Call::Allgather { .. }
        | Call::Alltoall { .. } => host.may_show() && host.have_others_come(),
        Call::Broadcast { root } | Call::Scatter { root, .. } if me != root => host.has_shown(root),
        Call::Reduce { root, .. } | Call::Gather { root, .. } if me == root => {
            host.may_show() && host.have_others_shown()
        }
        Call::Broadcast { .. } | Call::Scatter { .. } | Call::Reduce { .. } | Call::Gather { .. } => host.may_show(),
        Call::Scan { .. } | Call::Exscan { .. } => {
            (me == 0 || host.has_shown(me - 1)) && (me == last || host.may_show_next())
        }
        _ => false,
    }
}

#[inline]
fn by_few(
    host: &mut Host,
    peers: &mut impl Peers<Error = Error>,
    call: &Call<'_>,
    (send, receive): (Option<&[u8]>, &mut [u8]),
    function: Option<Function>,
) -> Option<Result<(), Error>> {
    let (me, limits) = (host.me(), host.limits());
    let given = send.map_or(receive.len(), <[u8]>::len);
    let (sent, room) = (send.map(<[u8]>::len), receive.len());
    // In each arm, where the kind of call is known: looked at before, it was 20 to 30 of a broadcast's 550 instructions.
    let fits = |host: &Host| fits(host, call, sent, room);
    let are_short = |blocks: Blocks, count| (0..count).all(|index| blocks.len(index) <= FEW);
    let all_short = |blocks| are_short(blocks, limits.size());
    Some(match *call {
        Call::Barrier => host.barrier_few(peers),
        Call::Broadcast { root } if receive.len() <= FEW => host.broadcast_few(root, receive, peers),
        Call::Reduce { root, .. } if given <= FEW && fits(host) => {
            host.reduce_few(root, send, (me == root).then_some(receive), function?, peers)
        }
        Call::Allreduce { reduction } if given <= FEW && fits(host) => {
            host.allreduce_few(send, receive, reduction.element, function?, peers)
        }
        Call::ReduceScatter { blocks, reduction } if given <= FEW && fits(host) => {
            host.reduce_scatter_few(send, receive, blocks, reduction.element, function?, peers)
        }
        Call::Scan { .. } if given <= FEW => host.scan_few(send, receive, function?, peers),
        Call::Exscan { .. } if given <= FEW && fits(host) => host.exscan_few(send, receive, function?, peers),
        Call::Gather { root, len } if len <= FEW && fits(host) => {
            host.gather_few(root, send, (me == root).then_some((receive, Blocks::Equal(len))), peers)
        }
        Call::Gatherv { root, blocks } if limits.take_varying() && blocks.is_none_or(all_short) => {
            host.gather_few(root, send, blocks.map(|blocks| (receive, blocks)), peers)
        }
        Call::Scatter { root, len } if limits.size() * len <= FEW && fits(host) => {
            host.scatter_few(root, len, if me == root { send } else { None }, scattered(me == root, receive), peers)
        }
        Call::Scatterv { root, blocks } if limits.are_few(limits.size(), send.map_or(0, <[u8]>::len)) => {
            host.scatter_varying_few(root, send.zip(blocks), scattered(me == root, receive), peers)
        }
        Call::Allgather { len } if len <= FEW && fits(host) => {
            host.allgather_few(Blocks::Equal(len), send, receive, peers)
        }
        Call::Allgatherv { blocks } if limits.take_varying() && all_short(blocks) => {
            host.allgather_few(blocks, send, receive, peers)
        }
        Call::Alltoall { len } if limits.size() * len <= FEW && fits(host) => {
            host.alltoall_few(len, send, receive, peers)
        }
        Call::Alltoallv { to, from } if limits.are_few(limits.size(), given) => {
            host.alltoall_varying_few((send?, to), (receive, from), peers)
        }
        Call::NeighborAllgather { neighbors, from } if given <= FEW && limits.take_neighbors(0) => {
            let (Neighbors::Grid(sources) | Neighbors::Graph { sources, .. }) = neighbors;
            // What a neighbour shows may be long although ours is not.
            if !are_short(from, sources.len()) {
                return None;
            }
            host.neighbor_allgather_few(sources, send.unwrap_or_default(), (receive, from), peers)
        }
        Call::NeighborAlltoall { neighbors: Neighbors::Grid(both), to, from } if limits.are_few(both.len(), given) => {
            host.neighbor_alltoall_few(both, (send.unwrap_or_default(), to), (receive, from), peers)
        }
        _ => return None,
    })
}

/// Whether what this rank gives, if not in place, and its room are as long as the call says, as far as that is not seen where they are
/// used: a program may give a call two counts.
#[inline]
fn fits(host: &Host, call: &Call<'_>, send: Option<usize>, receive: usize) -> bool {
    let (me, size) = (host.me(), host.limits().size());
    let gives = |len| send.is_none_or(|send| send == len);
    match *call {
        Call::Reduce { root, .. } => me != root || gives(receive),
        Call::Allreduce { .. } | Call::Scan { .. } | Call::Exscan { .. } => gives(receive),
        Call::ReduceScatter { blocks: Blocks::Equal(len), .. } => {
            send.unwrap_or(receive) == len * size && len <= receive
        }
        Call::Gather { root, len } => gives(len) && (me != root || receive == len * size),
        Call::Scatter { root, len } if me == root => send == Some(len * size),
        Call::Scatter { len, .. } => receive == len,
        Call::Allgather { len } => gives(len) && receive == len * size,
        Call::Alltoall { len } => gives(len * size) && receive == len * size,
        _ => true,
    }
}

/// In place, the root that scatters has nothing to receive into.
fn scattered(is_root: bool, receive: &mut [u8]) -> Option<&mut [u8]> {
    (!is_root || !receive.is_empty()).then_some(receive)
}
