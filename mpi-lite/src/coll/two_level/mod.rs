//! Among the ranks of each host, and among one rank of each, its leader: what goes between hosts goes as few messages, of which
//! none is there twice.
//!
//! Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, "Exploiting hierarchy in parallel computer networks to optimize
//! collective operation performance", 2000. Blocks for each rank have papers of their own.
//!
//! Within each level goes what the table says of a team of that size, by its algorithm for that length; or within hosts what their
//! ranks have made of a call of theirs ([`WithinHosts`]), such as by memory that they share (as Graham, Shipman, 2008, among others). Costs are given of h hosts
//! with k ranks each, where L', o' and G' are those within a host, and of short messages, whose algorithms within the levels are trees.
//!
//! Where two levels are is a rule of the table (`two-level`), built in or measured (`sidelane tune`). On one stay what only the root knows the lengths of (`gatherv`, `scatterv`), what each pair of ranks has a length of its own
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
mod within;

use std::borrow::Cow;

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
pub use within::WithinHosts;

/// The two teams that a rank may be in: its host's, and that of all hosts' leaders.
///
/// A host is led by its first rank, but the root's by the root; and hosts are counted from the root's.
#[derive(Clone, Debug)]
pub struct Levels<'a> {
    hosts: &'a Hosts,
    within: WithinHosts,
    table: &'a Table,
    me: usize,
    root: usize,
    /// By the hosts' own numbers.
    leaders: Cow<'a, [u32]>,
}

impl<'a> Levels<'a> {
    /// As rank `me` sees them in a call with this root; without one it is the first of all.
    pub fn new(me: usize, (hosts, within): (&'a Hosts, WithinHosts), root: Option<usize>, table: &'a Table) -> Self {
        let root = root.unwrap_or(0);
        let mut leaders = Cow::Borrowed(hosts.firsts());
        if hosts.place(root) > 0 {
            leaders.to_mut()[hosts.of(root)] = root as u32;
        }
        // A rank that is alone has nobody to call.
        let within = if hosts.on(hosts.of(me)).len() == 1 { WithinHosts::Messages } else { within };
        Self { hosts, within, table, me, root, leaders }
    }

    /// The ranks of our host.
    fn ours(&self) -> Team<'_> {
        Team::of(self.hosts.on(self.hosts.of(self.me)), self.hosts.place(self.me))
    }

    /// Which of them leads.
    fn place_of_leader(&self) -> usize {
        self.hosts.place(self.leaders[self.hosts.of(self.me)] as usize)
    }

    /// Whether we do.
    fn leads(&self) -> bool {
        self.hosts.place(self.me) == self.place_of_leader()
    }

    /// The leaders, if we are one.
    fn leaders(&self) -> Option<Team<'_>> {
        let team = || Team::of(&self.leaders, self.hosts.of(self.me)).counted_from(self.hosts.of(self.root));
        self.leads().then(team)
    }

    /// The ranks of the host with that number among the leaders.
    fn on(&self, number: usize) -> &[u32] {
        self.hosts.on((number + self.hosts.of(self.root)) % self.hosts.count())
    }

    /// All ranks in the order of hosts.
    fn ranks(&self) -> impl Iterator<Item = u32> {
        (0..self.hosts.count()).flat_map(|number| self.on(number)).copied()
    }

    /// Whether all hosts have as many ranks. All ranks find the same.
    fn are_even(&self) -> bool {
        self.hosts.are_even()
    }

    /// Whether the order of hosts is that of ranks.
    fn are_in_order(&self) -> bool {
        self.hosts.of(self.root) == 0 && self.hosts.are_in_order()
    }

    /// Bytes of all blocks for each host.
    fn lens(&self, blocks: Blocks) -> Vec<usize> {
        let len = |rank: &u32| blocks.len(*rank as usize);
        (0..self.hosts.count()).map(|number| self.on(number).iter().map(len).sum()).collect()
    }

    /// Bytes of each block for our host.
    fn lens_here(&self, blocks: Blocks) -> Vec<usize> {
        let ours = self.ours();
        (0..ours.size).map(|number| blocks.len(ours.rank(number) as usize)).collect()
    }

    /// Copies `blocks` of `whole`, which is in the order of ranks, to or from `packed`, where they follow each other in that of hosts.
    fn copy(&self, schedule: &mut Schedule, direction: Direction, whole: Span, packed: Span, blocks: Blocks) {
        let mut start = 0;
        for rank in self.ranks() {
            let block = blocks.of(whole, rank as usize);
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
