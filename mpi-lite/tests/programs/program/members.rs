//! Who is in a communicator, and how its calls name ranks.

use sidelane_mpi::comm::Root;
use sidelane_mpi::comm::collective::NOBODY;

use super::around::Around;

/// Who is in a communicator, by their numbers in the world.
#[derive(Debug, Clone)]
pub struct Members {
    /// One group, or the two of an intercommunicator.
    pub groups: Vec<Vec<u32>>,
    pub around: Around,
    pub lives: bool,
}

/// A rank of one of the groups.
pub type Place = (usize, u32);

impl Members {
    pub fn world(ranks: u32) -> Self {
        Self::group((0..ranks).collect())
    }

    pub fn group(processes: Vec<u32>) -> Self {
        Self { groups: vec![processes], around: Around::Nobody, lives: true }
    }

    pub fn is_one_group(&self) -> bool {
        self.groups.len() == 1
    }

    /// Of one group.
    pub fn size(&self) -> u32 {
        self.groups[0].len() as u32
    }

    /// The group of those whom a member of a group speaks to.
    pub fn peers_of(&self, group: usize) -> usize {
        self.groups.len() - 1 - group
    }

    /// All ranks.
    pub fn places(&self) -> Vec<Place> {
        let ranks = |(group, ranks): (usize, &Vec<u32>)| (0..ranks.len() as u32).map(move |rank| (group, rank));
        self.groups.iter().enumerate().flat_map(ranks).collect()
    }

    /// The numbers that calls name members of a group by, from its first one on: of two groups that comes first whose first process does.
    pub fn first_number(&self, group: usize) -> usize {
        let other = self.peers_of(group);
        if self.groups[other][0] < self.groups[group][0] { self.groups[other].len() } else { 0 }
    }

    /// As calls on memory name the root `root` at `own`.
    pub fn root_number(&self, root: Place, own: Place) -> usize {
        if own.0 == root.0 && own != root && !self.is_one_group() {
            return NOBODY;
        }
        self.first_number(root.0) + root.1 as usize
    }

    /// As calls on slices do.
    pub fn root(&self, root: Place, own: Place) -> Root {
        match own {
            _ if self.is_one_group() || own.0 != root.0 => Root::Rank(root.1),
            _ if own == root => Root::Here,
            _ => Root::Elsewhere,
        }
    }

    pub fn place(&self, process: u32) -> Option<Place> {
        self.places().into_iter().find(|(group, rank)| self.groups[*group][*rank as usize] == process)
    }
}
