//! Among the ranks of each host, and among one rank of each: what goes between hosts goes once.
//!
//! Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, "Exploiting hierarchy in parallel computer networks to optimize
//! collective operation performance", 2000.
//!
//! Cost: that of the one after that of the other; of h hosts, log2 h messages cross the network one after the other.

use super::{Reduction, Schedule, Span, Team};
use super::{allreduce as allreduces, barrier as barriers, broadcast as broadcasts, reduce as reductions};

/// Which ranks share a host, as one rank sees it: its host's, the first of them its leader, and the leaders of all hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    ours: Vec<u32>,
    me: usize,
    leaders: Vec<u32>,
    host: usize,
}

impl Hosts {
    /// `hosts` says of each rank which host it is on, by any number; we are rank `me`. Hosts are in the order of their first
    /// ranks, but if there is a `root`, it leads its host, and that host comes first.
    pub fn new(me: usize, hosts: &[usize], root: Option<usize>) -> Self {
        let ranks = || root.into_iter().chain((0..hosts.len()).filter(move |rank| Some(*rank) != root));
        let mut leaders: Vec<u32> = Vec::new();
        for rank in ranks() {
            if leaders.iter().all(|leader| hosts[*leader as usize] != hosts[rank]) {
                leaders.push(rank as u32);
            }
        }
        let ours: Vec<u32> = ranks().filter(|rank| hosts[*rank] == hosts[me]).map(|rank| rank as u32).collect();
        let place = |ranks: &[u32], rank: u32| ranks.iter().position(|other| *other == rank);
        let (me, host) = (place(&ours, me as u32), place(&leaders, ours[0]));
        let (Some(me), Some(host)) = (me, host) else { unreachable!("a rank is on its host, which has a leader") };
        Self { ours, me, leaders, host }
    }

    /// Whether two levels differ from one: there are several hosts, and not one for each of `ranks`.
    pub fn differ(&self, ranks: usize) -> bool {
        self.leaders.len() > 1 && self.leaders.len() < ranks
    }

    fn ours(&self) -> Team<'_> {
        Team::of(&self.ours, self.me)
    }

    fn leaders(&self) -> Option<Team<'_>> {
        (self.me == 0).then(|| Team::of(&self.leaders, self.host))
    }
}

/// Nobody leaves before everybody has come.
pub fn barrier(schedule: &mut Schedule, hosts: &Hosts) {
    match hosts.leaders() {
        Some(leaders) => {
            hosts.ours[1..].iter().for_each(|rank| schedule.await_signal(*rank));
            schedule.next_round();
            barriers::dissemination(schedule, leaders);
            hosts.ours[1..].iter().for_each(|rank| schedule.signal(*rank));
        }
        None => {
            schedule.signal(hosts.ours[0]);
            schedule.next_round();
            schedule.await_signal(hosts.ours[0]);
        }
    }
    schedule.next_round();
}

/// The `data` of the root, which `hosts` was made with, to all.
pub fn broadcast(schedule: &mut Schedule, hosts: &Hosts, data: Span) {
    if let Some(leaders) = hosts.leaders() {
        broadcasts::binomial(schedule, leaders, 0, data);
    }
    broadcasts::binomial(schedule, hosts.ours(), 0, data);
}

/// To the root, which `hosts` was made with and which has the `output`; in place, `input` is the same. For operators whose
/// order doesn't matter.
pub fn reduce(schedule: &mut Schedule, hosts: &Hosts, input: Span, output: Option<Span>, reduction: Reduction) {
    let Some(leaders) = hosts.leaders() else {
        return reductions::binomial(schedule, hosts.ours(), 0, input, None, reduction);
    };
    let partial = output.unwrap_or_else(|| schedule.scratch(input.len()));
    reductions::binomial(schedule, hosts.ours(), 0, input, Some(partial), reduction);
    reductions::binomial(schedule, leaders, 0, partial, output, reduction);
}

/// To all. In place, `input` is `output`. For operators whose order doesn't matter.
pub fn allreduce(schedule: &mut Schedule, hosts: &Hosts, input: Span, output: Span, reduction: Reduction) {
    let leaders = hosts.leaders();
    reductions::binomial(schedule, hosts.ours(), 0, input, leaders.map(|_| output), reduction);
    if let Some(leaders) = leaders {
        allreduces::recursive_doubling(schedule, leaders, output, output, reduction);
    }
    broadcasts::binomial(schedule, hosts.ours(), 0, output);
}
