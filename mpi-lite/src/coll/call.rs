use super::neighbor::{self, Neighbors};
use super::two_level::{self, Levels, WithinHosts};
use super::{
    Algorithm, Blocks, Case, Collective, Hosts, Reduction, Schedule, Span, Table, Team, allgather, allreduce, alltoall,
    barrier, broadcast, gather, reduce, reduce_scatter, scan, scatter,
};

/// A collective call, as every rank makes it, on packed bytes.
///
/// What a rank gives is in its send buffer, or in place, and what it gets in its receive buffer; the data of a broadcast is in
/// the receive buffer everywhere. Who gives or gets nothing has a buffer of no bytes; so has the root that scatters in place, to
/// receive into. A root is one of the ranks, and who does not know it has none of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as in the standard; fields as in each collective's folder")]
pub enum Call<'a> {
    Barrier,
    Broadcast { root: usize },
    Reduce { root: usize, reduction: Reduction },
    Allreduce { reduction: Reduction },
    ReduceScatter { blocks: Blocks<'a>, reduction: Reduction },
    Scan { reduction: Reduction },
    Exscan { reduction: Reduction },
    Gather { root: usize, len: usize },
    Gatherv { root: usize, blocks: Option<Blocks<'a>> },
    Scatter { root: usize, len: usize },
    Scatterv { root: usize, blocks: Option<Blocks<'a>> },
    Allgather { len: usize },
    Allgatherv { blocks: Blocks<'a> },
    Alltoall { len: usize },
    Alltoallv { to: Blocks<'a>, from: Blocks<'a> },
    NeighborAllgather { neighbors: Neighbors<'a>, from: Blocks<'a> },
    NeighborAlltoall { neighbors: Neighbors<'a>, to: Blocks<'a>, from: Blocks<'a> },
}

/// The buffers that a rank makes a call with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// Bytes of the send buffer.
    pub send: usize,
    /// Bytes of the receive buffer.
    pub receive: usize,
    /// What this rank gives is in the receive buffer: `MPI_IN_PLACE`.
    pub in_place: bool,
}

impl Buffers {
    /// Without `send`, what is given is in `receive`.
    #[inline]
    pub fn of(send: Option<&[u8]>, receive: &[u8]) -> Self {
        Self { send: send.map_or(0, <[u8]>::len), receive: receive.len(), in_place: send.is_none() }
    }
}

/// What a call does with a rank's receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It is read, and ends as it was: an algorithm may bring back to it what it has.
    Read,
    /// All of it is written, whatever was in it.
    Written,
    /// It is read and written, or some of it stays as it was.
    Both,
}

impl Call<'_> {
    /// What becomes of the `receive` bytes of room that rank `me` of `size` has, all of one group, if they fit and the call ends well.
    pub fn access(&self, (me, size): (usize, usize), receive: usize, in_place: bool) -> Access {
        let are_all =
            |blocks: Blocks| blocks.end(size) == Some(receive) && blocks.follow_each_other() && blocks.start(0) == 0;
        let is_written = match *self {
            Self::Broadcast { root } if root == me => return Access::Read,
            Self::Broadcast { .. } => true,
            _ if in_place => false,
            Self::Reduce { root, .. } | Self::Gather { root, .. } => root == me,
            Self::Gatherv { root, blocks } => root == me && blocks.is_some_and(are_all),
            Self::Scatter { .. } | Self::Scatterv { .. } => true,
            Self::Allreduce { .. } | Self::Scan { .. } | Self::Allgather { .. } | Self::Alltoall { .. } => true,
            Self::Allgatherv { blocks } => are_all(blocks),
            // What we give ourselves may be less than there is room for, if nobody has looked.
            Self::Alltoallv { to, from } => are_all(from) && to.end(size).is_some() && to.len(me) == from.len(me),
            // The first rank gets nothing; beyond a border nothing comes; a block may be less than there is room for.
            Self::Exscan { .. } | Self::NeighborAllgather { .. } | Self::NeighborAlltoall { .. } => false,
            Self::ReduceScatter { .. } | Self::Barrier => false,
        };
        if is_written { Access::Written } else { Access::Both }
    }

    /// Whether the buffers of rank `me` of `size`, all of one group, are as long as the call says, as far as one rank can know: a
    /// program may give a call two counts, or blocks that lie beyond its memory.
    #[inline]
    pub fn fits(&self, (me, size): (usize, usize), buffers: Buffers) -> bool {
        let Buffers { send, receive, in_place } = buffers;
        let given = if in_place { receive } else { send };
        let gives = |len| in_place || send == len;
        let is_root = |root| me == root;
        let all = |len| Blocks::Equal(len).end(size);
        // The root has them, and nobody else.
        let of_root = |root: usize, blocks: Option<Blocks>, bytes: usize| match blocks {
            Some(blocks) => is_root(root) && blocks.lie_within(size, bytes),
            None => !is_root(root),
        };
        match *self {
            Self::Barrier | Self::Broadcast { .. } => true,
            Self::Reduce { root, .. } => !is_root(root) || gives(receive),
            Self::Allreduce { .. } | Self::Scan { .. } | Self::Exscan { .. } => gives(receive),
            Self::ReduceScatter { blocks, .. } => {
                let is_cut = blocks.end(size) == Some(given) && blocks.follow_each_other() && blocks.start(0) == 0;
                is_cut && blocks.len(me) <= receive
            }
            Self::Gather { root, len } if is_root(root) => gives(len) && all(len) == Some(receive),
            Self::Gather { len, .. } => send == len,
            Self::Gatherv { root, blocks } => {
                of_root(root, blocks, receive) && blocks.is_none_or(|blocks| gives(blocks.len(me)))
            }
            Self::Scatter { root, len } if is_root(root) => {
                !in_place && all(len) == Some(send) && (receive == 0 || receive == len)
            }
            Self::Scatter { len, .. } => receive == len,
            Self::Scatterv { root, blocks } => {
                of_root(root, blocks, send)
                    && blocks.is_none_or(|blocks| !in_place && (receive == 0 || receive == blocks.len(me)))
            }
            Self::Allgather { len } => gives(len) && all(len) == Some(receive),
            Self::Allgatherv { blocks } => blocks.lie_within(size, receive) && gives(blocks.len(me)),
            Self::Alltoall { len } => all(len) == Some(receive) && gives(receive),
            Self::Alltoallv { to, from } => to.lie_within(size, given) && from.lie_within(size, receive),
            Self::NeighborAllgather { neighbors, from } => from.lie_within(neighbors.both().0.len(), receive),
            Self::NeighborAlltoall { neighbors, to, from } => {
                let (sources, destinations) = neighbors.both();
                to.lie_within(destinations.len(), send) && from.lie_within(sources.len(), receive)
            }
        }
    }

    /// What rank `me` does of those on `hosts`, by the algorithm that `table` says; on two levels `within` its host as it says.
    pub fn build(
        self,
        schedule: &mut Schedule,
        me: usize,
        (hosts, within): (&Hosts, WithinHosts),
        buffers: Buffers,
        table: &Table,
    ) {
        let (send, output) = schedule.begin(buffers.send, buffers.receive);
        let given = if buffers.in_place { output } else { send };
        let team = Team::all(me, hosts.ranks());
        let levels = |root| Levels::new(me, (hosts, within), root, table);
        let choose = |collective, bytes, commutative| {
            table.choose(Case { collective, ranks: team.size, hosts: hosts.count(), bytes, commutative })
        };
        let is = |root: usize| me == root;
        match self {
            Self::Barrier => match choose(Collective::Barrier, 0, true) {
                Algorithm::Dissemination => barrier::dissemination(schedule, team),
                Algorithm::TwoLevel => two_level::barrier(schedule, &levels(None)),
                other => panic!("a barrier has no algorithm {other}"),
            },
            Self::Broadcast { root } => match choose(Collective::Broadcast, output.len(), true) {
                Algorithm::TwoLevel => two_level::broadcast(schedule, &levels(Some(root)), output),
                algorithm => broadcast::build(algorithm, schedule, team, root, output),
            },
            Self::Reduce { root, reduction } => {
                let output = is(root).then_some(output);
                match choose(Collective::Reduce, given.len(), reduction.commutative) {
                    Algorithm::TwoLevel => two_level::reduce(schedule, &levels(Some(root)), given, output, reduction),
                    algorithm => reduce::build(algorithm, schedule, team, root, (given, output), reduction),
                }
            }
            Self::Allreduce { reduction } => match choose(Collective::Allreduce, output.len(), reduction.commutative) {
                Algorithm::TwoLevel => two_level::allreduce(schedule, &levels(None), given, output, reduction),
                algorithm => allreduce::build(algorithm, schedule, team, given, output, reduction),
            },
            Self::ReduceScatter { blocks, reduction } => {
                let spans = (given, output.part(0, blocks.len(me)));
                match choose(Collective::ReduceScatter, given.len(), reduction.commutative) {
                    Algorithm::TwoLevel => {
                        two_level::reduce_scatter(schedule, &levels(None), spans, blocks, reduction);
                    }
                    algorithm => reduce_scatter::build(algorithm, schedule, team, spans, blocks, reduction),
                }
            }
            Self::Scan { reduction } => scan::inclusive(schedule, team, given, output, reduction),
            Self::Exscan { reduction } => scan::exclusive(schedule, team, given, output, reduction),
            Self::Gather { root, len } => {
                let block = own_block(given, buffers.in_place, &Blocks::Equal(len), me);
                let output = is(root).then_some(output);
                match choose(Collective::Gather, len, true) {
                    Algorithm::TwoLevel => two_level::gather(schedule, &levels(Some(root)), block, output),
                    algorithm => gather::build(algorithm, schedule, team, root, block, output),
                }
            }
            Self::Gatherv { root, blocks } => {
                let block = blocks.map_or(given, |blocks| own_block(given, buffers.in_place, &blocks, me));
                gather::linear(schedule, team, root, block, blocks.map(|blocks| (output, blocks)));
            }
            Self::Scatter { root, len } => {
                let (input, block) = (is(root).then_some(send), scattered_to(output, is(root)));
                match choose(Collective::Scatter, len, true) {
                    Algorithm::TwoLevel => two_level::scatter(schedule, &levels(Some(root)), len, block, input),
                    algorithm => scatter::build(algorithm, schedule, team, root, len, (input, block)),
                }
            }
            Self::Scatterv { root, blocks } => {
                let block = scattered_to(output, is(root));
                scatter::linear(schedule, team, root, block, blocks.map(|blocks| (send, blocks)));
            }
            Self::Allgather { len } => {
                let blocks = Blocks::Equal(len);
                let block = own_block(given, buffers.in_place, &blocks, me);
                match choose(Collective::Allgather, len, true) {
                    Algorithm::TwoLevel => two_level::allgather(schedule, &levels(None), block, output, len),
                    algorithm => allgather::build(algorithm, schedule, team, block, output, blocks),
                }
            }
            Self::Allgatherv { blocks } => {
                let block = own_block(given, buffers.in_place, &blocks, me);
                // As if all were as long as on average.
                let total = (0..team.size).map(|member| blocks.len(member)).sum::<usize>();
                match choose(Collective::Allgather, total / team.size, true) {
                    Algorithm::TwoLevel => two_level::allgatherv(schedule, &levels(None), block, output, blocks),
                    // By doubling whole runs of blocks travel, which only they have whose blocks follow each other; where they lie is
                    // each rank's own choice.
                    Algorithm::RecursiveDoubling => allgather::bruck(schedule, team, block, output, blocks),
                    algorithm => allgather::build(algorithm, schedule, team, block, output, blocks),
                }
            }
            Self::Alltoall { len } => match choose(Collective::Alltoall, len, true) {
                Algorithm::TwoLevel => two_level::alltoall(schedule, &levels(None), given, output, len),
                algorithm => alltoall::build(algorithm, schedule, team, given, output, len),
            },
            // Nobody knows how long everybody's blocks are; the two ways for that go together.
            Self::Alltoallv { to, from } => alltoall::linear(schedule, team, (given, to), (output, from)),
            Self::NeighborAllgather { neighbors, from } => {
                neighbor::allgather(schedule, neighbors, send, (output, from));
            }
            Self::NeighborAlltoall { neighbors, to, from } => {
                neighbor::alltoall(schedule, neighbors, (send, to), (output, from));
            }
        }
    }
}

fn own_block(given: Span, in_place: bool, blocks: &Blocks, me: usize) -> Span {
    if in_place { blocks.of(given, me) } else { given }
}

fn scattered_to(output: Span, is_root: bool) -> Option<Span> {
    (!is_root || !output.is_empty()).then_some(output)
}
