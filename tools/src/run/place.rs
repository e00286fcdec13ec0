//! Which rank is where, and on which core.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use sidelane::lab::keeper::{KeepError, Kept};
use sidelane::lab::{self, Lifetime};
use sidelane_nic::affinity;

use super::{Bind, Failure, JobSpec, LabHosts};

/// The places of all ranks.
#[derive(Debug)]
pub struct Places {
    /// By rank.
    pub ranks: Vec<Place>,
    lab: Option<Kept>,
}

/// Where one rank runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Number of its host among those of the job.
    pub node: usize,
    /// The host's name.
    pub host: String,
    /// Its number among the ranks of its host.
    pub local_rank: usize,
    /// How many ranks its host has.
    pub local_size: usize,
    core: Option<usize>,
}

impl Places {
    /// Finds the hosts and spreads the ranks over them.
    pub fn find(spec: &JobSpec) -> Result<Self, Failure> {
        let cores = affinity::cores_apart();
        let bound = match spec.bind {
            Some(Bind::None) => false,
            None => spec.ranks <= cores.len(),
            Some(Bind::Core) if spec.ranks <= cores.len() => true,
            Some(Bind::Core) => return Err(Failure::Cores { ranks: spec.ranks, cores: cores.len() }),
        };
        let (lab, hosts) = match &spec.hosts {
            None => (None, vec![own_name()]),
            Some(LabHosts { lab, hosts }) => {
                let lab = Kept::find(lab).map_err(|error| match error {
                    KeepError::NotUp(_) => Failure::NoLab(error),
                    error => error.into(),
                })?;
                let all = || lab.description.hosts.iter().map(|host| host.name.to_string()).collect();
                let hosts = if hosts.is_empty() { all() } else { hosts.clone() };
                // Before the first rank is started.
                hosts.iter().try_for_each(|host| lab.index_of(host).map(drop))?;
                (Some(lab), hosts)
            }
        };
        let ranks = spread(spec.ranks, &hosts, |rank| bound.then(|| cores[rank]));
        Ok(Self { ranks, lab })
    }

    /// A command that will run as `rank`, and is killed when this thread ends.
    pub fn command(&self, rank: usize, program: &OsStr) -> Result<Command, Failure> {
        let place = &self.ranks[rank];
        let mut command = match &self.lab {
            Some(lab) => lab.command_with(&place.host, program, Lifetime::Tied)?,
            None => {
                let mut command = Command::new(program);
                lab::tie(&mut command);
                command
            }
        };
        if let Some(core) = place.core {
            lab::pin_to(&mut command, core);
        }
        Ok(command)
    }
}

/// Neighbours in rank are on the same host, as far as hosts have as many ranks as others, or one more.
fn spread(ranks: usize, hosts: &[String], core: impl Fn(usize) -> Option<usize>) -> Vec<Place> {
    let used = hosts.len().min(ranks);
    let first = |node: usize| (node * ranks).div_ceil(used);
    let place = |rank: usize| {
        let node = rank * used / ranks;
        let local_rank = rank - first(node);
        let local_size = first(node + 1) - first(node);
        Place { node, host: hosts[node].clone(), local_rank, local_size, core: core(rank) }
    };
    (0..ranks).map(place).collect()
}

fn own_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "this".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_spread_evenly_and_in_order() {
        let hosts: Vec<String> = ["A", "B", "C"].map(str::to_owned).to_vec();
        for (ranks, wanted) in [(1, "A"), (2, "AB"), (3, "ABC"), (4, "AABC"), (5, "AABBC"), (7, "AAABBCC")] {
            let places = spread(ranks, &hosts, |_| None);
            assert_eq!(places.iter().map(|place| place.host.as_str()).collect::<String>(), wanted);
            for (rank, place) in places.iter().enumerate() {
                let on_host: Vec<_> = (0..ranks).filter(|other| places[*other].host == place.host).collect();
                assert_eq!(place.local_size, on_host.len());
                assert_eq!(on_host[place.local_rank], rank);
            }
        }
    }
}
