//! Calls in which a rank shows a few bytes: made without a future, by who waits and by who need not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::on_host::{Caller, Done, Words, error, give_up, scattered};
use crate::adi::Error;
use crate::coll::neighbor::Neighbors;
use crate::coll::{Blocks, Buffers, Call};
use crate::host::{FEW, Host, Peers};
use crate::op::Function;

/// Makes a call in which this rank shows a few bytes, and waits for it. `None`: it is none of those, or one whose lengths do not fit,
/// which [`make`](super::on_host::make) says; and was not made. When it fails it has failed for all members.
#[inline]
pub(super) fn make_few(
    host: &mut Host,
    peers: &mut impl Peers<Error = Error>,
    call: &Call<'_>,
    (send, receive): (Option<&[u8]>, &mut [u8]),
    function: Option<Function>,
) -> Option<Result<(), Error>> {
    let done = by_few(host, peers, call, (send, receive), function)?;
    Some(ended(host, peers, done))
}

#[inline]
fn ended(host: &Host, peers: &mut impl Peers<Error = Error>, done: Result<(), Error>) -> Result<(), Error> {
    let Some(error) = done.err().or_else(|| host.failure().map(error)) else { return Ok(()) };
    give_up(host, peers, error);
    Err(error)
}

/// As [`make_few`], if this rank has to wait for nobody: for who comes at once it looks for a moment. A panic too has failed for all
/// members.
pub(super) fn make_now(
    host: &mut Host,
    words: Words<'_>,
    call: &Call<'_>,
    buffers: (Option<&[u8]>, &mut [u8]),
    function: Option<Function>,
) -> Look<Done> {
    if !may_need_nobody(host, call) {
        return Look::Nothing;
    }
    let mut peers = Looking { words, in_vain: false };
    let made = catch_unwind(AssertUnwindSafe(|| by_few(host, &mut peers, call, buffers, function)));
    match made {
        Ok(_) if peers.in_vain => Look::NotYet,
        Ok(None) => Look::Nothing,
        Ok(Some(done)) => Look::Made(Ok(ended(host, &mut peers, done))),
        Err(panic) => {
            give_up(host, &mut peers, Error::ProcFailed);
            Look::Made(Err(panic))
        }
    }
}

/// What came of a call that looks only for a moment.
pub enum Look<T> {
    /// It is over.
    Made(T),
    /// What it gives is shown; it is to be made again, so or otherwise.
    NotYet,
    /// It was not made.
    Nothing,
}

/// Whether a rank that makes this call now has to wait for nobody, if it is of few bytes; or, where all wait for all, may find that they
/// come.
fn may_need_nobody(host: &mut Host, call: &Call<'_>) -> bool {
    let (me, last) = (host.me(), host.limits().size() - 1);
    match *call {
        Call::Barrier
        | Call::Allreduce { .. }
        | Call::ReduceScatter { .. }
        | Call::Allgather { .. }
        | Call::Alltoall { .. } => host.may_show() && host.may_all_have_come(),
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
    let buffers = Buffers::of(send, receive);
    let given = if buffers.in_place { buffers.receive } else { buffers.send };
    // In each arm, where the kind of call is known: looked at before, it was 20 to 30 of a broadcast's 550 instructions.
    let fits = || call.fits((me, limits.size()), buffers);
    let are_short = |blocks: Blocks, count| (0..count).all(|index| blocks.len(index) <= FEW);
    let all_short = |blocks| are_short(blocks, limits.size());
    Some(match *call {
        Call::Barrier => host.barrier_few(peers),
        Call::Broadcast { root } if receive.len() <= FEW => host.broadcast_few(root, receive, peers),
        Call::Reduce { root, .. } if given <= FEW && fits() => {
            host.reduce_few(root, send, (me == root).then_some(receive), function?, peers)
        }
        Call::Allreduce { reduction } if given <= FEW && fits() => {
            host.allreduce_few(send, receive, reduction.element, function?, peers)
        }
        Call::ReduceScatter { blocks, reduction } if given <= FEW && fits() => {
            host.reduce_scatter_few(send, receive, blocks, reduction.element, function?, peers)
        }
        Call::Scan { .. } if given <= FEW && fits() => host.scan_few(send, receive, function?, peers),
        Call::Exscan { .. } if given <= FEW && fits() => host.exscan_few(send, receive, function?, peers),
        Call::Gather { root, len } if len <= FEW && fits() => {
            host.gather_few(root, send, (me == root).then_some((receive, Blocks::Equal(len))), peers)
        }
        Call::Gatherv { root, blocks } if limits.take_varying() && fits() && blocks.is_none_or(all_short) => {
            host.gather_few(root, send, blocks.map(|blocks| (receive, blocks)), peers)
        }
        Call::Scatter { root, len } if limits.size().saturating_mul(len) <= FEW && fits() => {
            host.scatter_few(root, len, if me == root { send } else { None }, scattered(me == root, receive), peers)
        }
        Call::Scatterv { root, blocks } if limits.are_few(limits.size(), buffers.send) && fits() => {
            host.scatter_varying_few(root, send.zip(blocks), scattered(me == root, receive), peers)
        }
        Call::Allgather { len } if len <= FEW && fits() => host.allgather_few(Blocks::Equal(len), send, receive, peers),
        Call::Allgatherv { blocks } if limits.take_varying() && fits() && all_short(blocks) => {
            host.allgather_few(blocks, send, receive, peers)
        }
        Call::Alltoall { len } if limits.size().saturating_mul(len) <= FEW && fits() => {
            host.alltoall_few(len, send, receive, peers)
        }
        Call::Alltoallv { to, from } if limits.are_few(limits.size(), given) && fits() => {
            host.alltoall_varying_few((send?, to), (receive, from), peers)
        }
        Call::NeighborAllgather { neighbors, from } if given <= FEW && limits.take_neighbors(0) && fits() => {
            let (sources, _) = neighbors.both();
            // What a neighbour shows may be long although ours is not.
            if !are_short(from, sources.len()) {
                return None;
            }
            host.neighbor_allgather_few(sources, send.unwrap_or_default(), (receive, from), peers)
        }
        Call::NeighborAlltoall { neighbors: Neighbors::Grid(both), to, from }
            if limits.are_few(both.len(), given) && fits() =>
        {
            host.neighbor_alltoall_few(both, (send.unwrap_or_default(), to), (receive, from), peers)
        }
        _ => return None,
    })
}

/// The other ranks, for a call that looks for them only for a moment.
struct Looking<'a> {
    words: Words<'a>,
    /// Not all have come.
    in_vain: bool,
}

impl Caller for Looking<'_> {
    const WAITS: bool = true;
    const LOOKS: Option<u32> = Some(LOOKS);

    fn not_yet(&mut self) -> Error {
        self.in_vain = true;
        // Nobody is told.
        Error::ProcFailed
    }

    fn with<R>(&mut self, does: impl FnOnce(&mut Words) -> R) -> R {
        does(&mut self.words)
    }

    fn turn(&mut self) -> bool {
        unreachable!("a call that only looks takes no turn")
    }

    fn sleep(&mut self) {
        unreachable!("a call that only looks does not sleep")
    }

    fn may_sleep(&self) -> bool {
        false
    }
}

/// As long as it takes to make a future, after which it would be looked again (`bench/NOTES.md`, 53).
const LOOKS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::super::on_host::{Members, Waiting};
    use super::*;
    use crate::adi::{Config, Device, Process};
    use crate::host::at_once;

    /// Elsewhere they may be long.
    #[test]
    fn blocks_of_unknown_lengths_are_for_memory_that_is_read() {
        let mut device = Device::open(0, vec![Process::here("", &[])], Vec::new(), &Config::default()).unwrap();
        let members = Members { context: 9, rank: 0, processes: &[0], whole: &[0], tag: -1 };
        let (mut host, blocks, nobody) = (Host::create(1, 1).unwrap(), Blocks::Equal(1), [None; 2]);
        let calls = [
            Call::Gatherv { root: 0, blocks: Some(blocks) },
            Call::Scatterv { root: 0, blocks: Some(blocks) },
            Call::Allgatherv { blocks },
            Call::Alltoallv { to: blocks, from: blocks },
            Call::NeighborAllgather { neighbors: Neighbors::Grid(&nobody), from: blocks },
            Call::NeighborAlltoall { neighbors: Neighbors::Grid(&nobody), to: blocks, from: blocks },
        ];
        for reads in [false, true] {
            let mut wake = None;
            let mut peers = Waiting::new(&mut device, members, &mut wake);
            at_once(host.allow_reads(reads, &mut peers)).unwrap();
            for call in calls {
                let len = if matches!(call, Call::NeighborAlltoall { .. }) { 2 } else { 1 };
                let room = &mut [0; 2][..if matches!(call, Call::NeighborAllgather { .. }) { 2 } else { len }];
                let made = make_few(&mut host, &mut peers, &call, (Some(&[1; 2][..len]), room), None);
                assert_eq!(made, reads.then_some(Ok(())), "{call:?}");
            }
        }
    }
}
