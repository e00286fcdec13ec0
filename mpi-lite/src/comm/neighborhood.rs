//! Who is around a rank in a topology (MPI-4.1 8.6).

use crate::coll::neighbor::Neighbors;

use super::communicator::Topology;
use super::{Communicator, ErrorClass};

impl Communicator {
    /// Our neighbours, in the order of blocks.
    pub fn around(&self) -> Result<&Around, ErrorClass> {
        // Topologies are for good.
        let around = self.0.around.get_or_init(|| self.find_around());
        around.as_ref().ok_or_else(|| self.fail(ErrorClass::Topology))
    }

    fn find_around(&self) -> Option<Around> {
        let ranks = |ranks: &[u32]| ranks.iter().copied().map(Some).collect();
        match self.topology() {
            Topology::None => None,
            Topology::Cartesian(grid) => Some(Around { sources: grid.neighbors(self.rank()), destinations: None }),
            Topology::Graph(graph) => {
                let both: Vec<Option<u32>> = ranks(graph.neighbors(self.rank()));
                Some(Around { sources: both.clone(), destinations: Some(both) })
            }
            Topology::DistGraph(graph) => Some(Around {
                sources: graph.sources().iter().map(|edge| Some(edge.rank)).collect(),
                destinations: Some(graph.destinations().iter().map(|edge| Some(edge.rank)).collect()),
            }),
        }
    }
}

/// Whom a rank receives from and sends to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Around {
    /// `None` beyond the border of a grid.
    pub sources: Vec<Option<u32>>,
    /// `None` for grids, where they are the sources.
    destinations: Option<Vec<Option<u32>>>,
}

impl Around {
    /// Those we send to.
    pub fn destinations(&self) -> &[Option<u32>] {
        self.destinations.as_ref().unwrap_or(&self.sources)
    }

    /// As calls have them.
    pub fn neighbors(&self) -> Neighbors<'_> {
        match &self.destinations {
            None => Neighbors::Grid(&self.sources),
            Some(destinations) => Neighbors::Graph { sources: &self.sources, destinations },
        }
    }
}
