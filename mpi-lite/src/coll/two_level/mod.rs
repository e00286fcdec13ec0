//! Among the ranks of each host, and among one rank of each, its leader: what goes between hosts goes as few messages, of which
//! none is there twice.
//!
//! Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, "Exploiting hierarchy in parallel computer networks to optimize
//! collective operation performance", 2000. Blocks for each rank have papers of their own.
//!
//! Within each level goes what the table says of a team of that size, by its algorithm for that length. Costs are given of h hosts
//! with k ranks each, where L', o' and G' are those within a host, and of short messages, for which two levels are.
//!
//! Where two levels are is a rule of the table (`two-level`). On one stay what only the root knows the lengths of (`gatherv`, `scatterv`), what each pair of ranks has a length of its own
//! for (`alltoallv`), scans, whose order of ranks is not that of hosts, and exchanges with neighbours.

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod broadcast;
mod gather;
mod reduce;
mod reduce_scatter;
mod scatter;

use super::{Algorithm, Blocks, Case, Collective, Hosts, Schedule, Span, Table, Team};

pub use allgather::{allgather, allgatherv};
pub use allreduce::allreduce;
pub use alltoall::alltoall;
pub use barrier::barrier;
pub use broadcast::broadcast;
pub use gather::gather;
pub use reduce::reduce;
pub use reduce_scatter::reduce_scatter;
pub use scatter::scatter;

/// The two teams that a rank may be in: its host's, the first of them the leader, and that of all hosts' leaders.
#[derive(Clone, Debug)]
pub struct Levels<'a> {
    /// All ranks, host by host; the first one of each leads it.
    ranks: Vec<u32>,
    /// Where in `ranks` each host begins, and the end.
    starts: Vec<usize>,
    leaders: Vec<u32>,
    /// Ours.
    host: usize,
    /// Our place on it.
    me: usize,
    table: &'a Table,
}

impl<'a> Levels<'a> {
    /// As rank `me` sees them. Hosts are in the order of their first ranks, and ranks in theirs; but if there is a `root`, it leads its
    /// host, and that host comes first.
    pub fn new(me: usize, hosts: &Hosts, root: Option<usize>, table: &'a Table) -> Self {
        let first = root.map_or(0, |root| hosts.of(root));
        let host_of = |rank: usize| match hosts.of(rank) {
            host if host == first => 0,
            host if host < first => host + 1,
            host => host,
        };
        let mut starts = vec![0; hosts.count() + 1];
        (0..hosts.ranks()).for_each(|rank| starts[host_of(rank) + 1] += 1);
        (1..starts.len()).for_each(|host| starts[host] += starts[host - 1]);
        let (mut ranks, mut ends) = (vec![0; hosts.ranks()], starts.clone());
        let mut place = 0;
        for rank in root.into_iter().chain((0..hosts.ranks()).filter(|rank| Some(*rank) != root)) {
            let end = &mut ends[host_of(rank)];
            if rank == me {
                place = *end;
            }
            ranks[*end] = rank as u32;
            *end += 1;
        }
        let leaders = starts[..hosts.count()].iter().map(|start| ranks[*start]).collect();
        let host = host_of(me);
        Self { me: place - starts[host], ranks, starts, leaders, host, table }
    }

    /// The ranks of our host; the leader is number 0.
    fn ours(&self) -> Team<'_> {
        Team::of(self.on(self.host), self.me)
    }

    /// The leaders, if we are one; the root's host's is number 0.
    fn leaders(&self) -> Option<Team<'_>> {
        (self.me == 0).then(|| Team::of(&self.leaders, self.host))
    }

    /// The ranks of a host.
    fn on(&self, host: usize) -> &[u32] {
        &self.ranks[self.starts[host]..self.starts[host + 1]]
    }

    /// How many ranks each host has.
    fn sizes(&self) -> impl Iterator<Item = usize> {
        self.starts.windows(2).map(|ends| ends[1] - ends[0])
    }

    /// Whether all hosts have as many ranks. All ranks find the same.
    fn are_even(&self) -> bool {
        self.sizes().all(|size| size == self.starts[1])
    }

    /// Whether the order of hosts is that of ranks.
    fn are_in_order(&self) -> bool {
        self.ranks.iter().zip(0..).all(|(rank, place)| *rank == place)
    }

    /// Bytes of all blocks for each host.
    fn lens(&self, blocks: Blocks) -> Vec<usize> {
        (0..self.leaders.len()).map(|host| self.lens_on(host, blocks).sum()).collect()
    }

    /// Bytes of each block for a host.
    fn lens_on(&self, host: usize, blocks: Blocks) -> impl Iterator<Item = usize> {
        self.on(host).iter().map(move |rank| blocks.len(*rank as usize))
    }

    /// Copies `blocks` of `whole`, which is in the order of ranks, to or from `packed`, where they follow each other in that of hosts.
    fn copy(&self, schedule: &mut Schedule, direction: Direction, whole: Span, packed: Span, blocks: Blocks) {
        let mut start = 0;
        for rank in &self.ranks {
            let block = blocks.of(whole, *rank as usize);
            let place = packed.part(start, block.len());
            match direction {
                Direction::Pack => schedule.copy(place, block),
                Direction::Unpack => schedule.copy(block, place),
            }
            start += block.len();
        }
        schedule.next_round();
    }

    /// What a team of one level goes by.
    fn choose(&self, collective: Collective, team: Team, bytes: usize) -> Algorithm {
        self.table.choose(Case { collective, ranks: team.size, hosts: team.size, bytes, commutative: true })
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Pack,
    Unpack,
}
