#![allow(unsafe_code)]
//! Collective calls among neighbours in a topology (MPI-4.1 8.6). Unsafe within, since the raw calls are.

use crate::coll::Blocks;
use crate::coll::Call;
use crate::coll::neighbor::Neighbors;

use super::communicator::Topology;
use super::elements::Elements;
use super::{Communicator, Equivalence, ErrorClass};

impl Communicator {
    /// `data` to each neighbour, and of each as much into `all`. The blocks of neighbours beyond a grid's border stay as they
    /// are.
    pub fn neighbor_allgather<T: Equivalence>(&self, data: &[T], all: &mut [T]) -> Result<(), ErrorClass> {
        let around = self.around()?;
        let len = data.len() * T::datatype().size();
        self.check(all.len() == data.len() * around.sources.len())?;
        let call = Call::NeighborAllgather { neighbors: around.neighbors(), from: Blocks::Equal(len) };
        let (given, room) = (Elements::of(data), Elements::of_mut(all));
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(given), room, None) }
    }

    /// A block of `data` to each neighbour, and as much of each into `all`. The blocks of neighbours beyond a grid's border
    /// stay as they are.
    pub fn neighbor_alltoall<T: Equivalence>(&self, data: &[T], all: &mut [T]) -> Result<(), ErrorClass> {
        let around = self.around()?;
        let (sources, destinations) = (around.sources.len(), around.destinations().len());
        // Who sends to nobody can't tell how much it receives but by its room.
        let count = data.len().checked_div(destinations).or(all.len().checked_div(sources)).unwrap_or(0);
        self.check(data.len() == count * destinations && all.len() == count * sources)?;
        let blocks = Blocks::Equal(count * T::datatype().size());
        let call = Call::NeighborAlltoall { neighbors: around.neighbors(), to: blocks, from: blocks };
        let (given, room) = (Elements::of(data), Elements::of_mut(all));
        // SAFETY: borrowed until this returns.
        unsafe { self.call_raw(call, Some(given), room, None) }
    }

    /// Our neighbours, in the order of blocks.
    pub fn around(&self) -> Result<Around, ErrorClass> {
        let ranks = |ranks: &[u32]| ranks.iter().copied().map(Some).collect();
        match self.topology() {
            Topology::None => Err(self.fail(ErrorClass::Topology)),
            Topology::Cartesian(grid) => Ok(Around { sources: grid.neighbors(self.rank()), destinations: None }),
            Topology::Graph(graph) => {
                let both: Vec<Option<u32>> = ranks(graph.neighbors(self.rank()));
                Ok(Around { sources: both.clone(), destinations: Some(both) })
            }
            Topology::DistGraph(graph) => Ok(Around {
                sources: graph.sources().iter().map(|edge| Some(edge.rank)).collect(),
                destinations: Some(graph.destinations().iter().map(|edge| Some(edge.rank)).collect()),
            }),
        }
    }

    fn check(&self, fits: bool) -> Result<(), ErrorClass> {
        if fits { Ok(()) } else { Err(self.fail(ErrorClass::Count)) }
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
