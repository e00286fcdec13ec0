//! Communicators of those that have something of the machine in common: a host, or a part of one. They are made, used and freed, since
//! only the run tells who is where.

use sidelane_mpi::comm::Communicator;
use sidelane_mpi::op::Op;
use sidelane_nic::affinity::{self, Part};
use sidelane_nic::rng::Rng;

use super::Rank;
use super::layout::pick;
use super::members::Members;

#[derive(Debug)]
pub struct Kind {
    comm: usize,
    processes: Vec<u32>,
    by: By,
    keys: Vec<i32>,
    /// Who takes part, and is in none.
    out: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
enum By {
    Host,
    Part(Part),
    /// Whatever is the largest that divides them.
    Finer,
}

/// Where a rank is: its host, and of each kind the part that it is in, from 1 on; 0 of none.
type Place = [u64; 1 + Part::ALL.len()];

impl Kind {
    /// Of one group.
    pub fn random(rng: &mut Rng, comm: usize, members: &Members) -> Self {
        let by = match rng.below(4) {
            0 => By::Part(*pick(rng, &Part::ALL)),
            1 => By::Finer,
            _ => By::Host,
        };
        let all = 0..members.size();
        let keys = all.clone().map(|_| rng.below(5) as i32 - 2).collect();
        let out = all.map(|_| rng.chance(0.1)).collect();
        Self { comm, processes: members.groups[0].clone(), by, keys, out }
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let own = comm.rank() as usize;
        let mut places = vec![Place::default(); self.keys.len()];
        comm.allgather(&[place(rank.host)], &mut places).unwrap();
        let part = match self.by {
            _ if self.out[own] => {
                comm.split_undefined().unwrap();
                None
            }
            By::Host => Some(comm.split_shared(self.keys[own]).unwrap()),
            By::Part(part) => comm.split_by_part(part, self.keys[own]).unwrap(),
            By::Finer => comm.split_finer(self.keys[own]).unwrap(),
        };
        let expected = self.with(own, &places);
        assert_eq!(part.as_ref().map(|part| part.group().processes().to_vec()), expected, "{self:?} at {places:?}");
        if let Some(part) = part {
            used(&part);
            part.free().unwrap();
        }
    }

    /// The processes that are in one with this rank.
    fn with(&self, own: usize, places: &[Place]) -> Option<Vec<u32>> {
        let takes_part = || (0..places.len()).filter(|rank| !self.out[*rank]);
        // What tells the things of a kind from each other.
        let name = |rank: usize, kind: usize| {
            let [host, parts @ ..] = places[rank];
            match kind.checked_sub(1) {
                None => Some((host, 0)),
                Some(part) => Some((host, parts[part])).filter(|(_, part)| *part > 0),
            }
        };
        let kind = match self.by {
            _ if self.out[own] => None,
            By::Host => Some(0),
            By::Part(part) => Some(1 + part as usize),
            By::Finer => (0..1 + Part::ALL.len()).find(|kind| {
                let mut names = takes_part().map(|rank| name(rank, *kind));
                let first = takes_part().next().and_then(|rank| name(rank, *kind));
                names.clone().any(|name| name.is_some()) && names.any(|name| name.is_none() || name != first)
            }),
        }?;
        let mine = name(own, kind)?;
        let mut with: Vec<usize> = takes_part().filter(|rank| name(*rank, kind) == Some(mine)).collect();
        with.sort_by_key(|rank| self.keys[*rank]);
        Some(with.into_iter().map(|rank| self.processes[rank]).collect())
    }
}

fn place(host: u64) -> Place {
    let cores = affinity::cores();
    let mut place = [host; 1 + Part::ALL.len()];
    for (place, part) in place[1..].iter_mut().zip(Part::ALL) {
        *place = part.around(&cores).map_or(0, |first| first as u64 + 1);
    }
    place
}

fn used(comm: &Communicator) {
    let mut sum = [0];
    comm.allreduce(&[1 + comm.rank()], &mut sum, &Op::Sum).unwrap();
    assert_eq!(sum, [comm.size() * (comm.size() + 1) / 2]);
}
