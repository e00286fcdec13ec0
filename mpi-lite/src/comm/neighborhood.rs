//! Who is around a rank in a topology (MPI-4.1 8.6), and collective calls with those: what is checked of their arguments.

use crate::coll::neighbor::Neighbors;
use crate::coll::{Blocks, Call};

use super::communicator::Topology;
use super::elements::Elements;
use super::prepare::{Prepared, Run, bytes};
use super::{Communicator, Counts, Equivalence, ErrorClass};

impl Communicator {
    /// Our neighbours, in the order of blocks.
    pub fn around(&self) -> Result<&Around, ErrorClass> {
        // Topologies are for good.
        let around = self.0.around.get_or_init(|| self.find_around());
        around.as_ref().ok_or_else(|| self.fail(ErrorClass::Topology))
    }

    pub(super) fn prepare_neighbor_allgather<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let around = self.around()?;
        let count = self.each_of(all.len(), around.sources.len())?;
        let from = Blocks::Equal(bytes::<T>(count));
        let call = Call::NeighborAllgather { neighbors: around.neighbors(), from };
        run(Prepared::exchange(call, data, all))
    }

    /// Elements of each of so many equal blocks.
    fn each_of(&self, len: usize, blocks: usize) -> Result<usize, ErrorClass> {
        let each = len.checked_div(blocks).unwrap_or(0);
        self.check(len == each * blocks)?;
        Ok(each)
    }

    pub(super) fn prepare_neighbor_alltoall<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let around = self.around()?;
        // What goes and what comes are the same only where all ranks do the same (MPI-4.1 8.6).
        let to = Blocks::Equal(bytes::<T>(self.each_of(data.len(), around.destinations().len())?));
        let from = Blocks::Equal(bytes::<T>(self.each_of(all.len(), around.sources.len())?));
        let call = Call::NeighborAlltoall { neighbors: around.neighbors(), to, from };
        run(Prepared::exchange(call, data, all))
    }

    pub(super) fn prepare_neighbor_allgather_varying<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        from: &(impl Counts + ?Sized),
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let around = self.around()?;
        let from = self.check_counts(from, around.sources.len(), all.len())?;
        let (room, from) = from.written(all);
        let call = Call::NeighborAllgather { neighbors: around.neighbors(), from };
        run(Prepared { call, given: Some(Elements::of(data)), room, operator: None })
    }

    pub(super) fn prepare_neighbor_alltoall_varying<T: Equivalence, R>(
        &self,
        data: &[T],
        all: &mut [T],
        to: &(impl Counts + ?Sized),
        from: &(impl Counts + ?Sized),
        run: impl Run<R>,
    ) -> Result<R, ErrorClass> {
        let around = self.around()?;
        let to = self.check_counts(to, around.destinations().len(), data.len())?;
        let from = self.check_counts(from, around.sources.len(), all.len())?;
        let ((given, to), (room, from)) = (to.read(data), from.written(all));
        let call = Call::NeighborAlltoall { neighbors: around.neighbors(), to, from };
        run(Prepared { call, given: Some(given), room, operator: None })
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
