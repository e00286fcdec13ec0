//! Graph topologies, whole (MPI-4.1 8.5.3) and distributed (8.5.4).

/// Neighbours of every rank, known to all (`MPI_Graph_create`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// Where each rank's neighbours end in `edges`.
    index: Vec<usize>,
    edges: Vec<u32>,
}

/// Neighbours of this rank, in and out (`MPI_Dist_graph_create_adjacent`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistGraph {
    sources: Vec<Edge>,
    destinations: Vec<Edge>,
    weighted: bool,
}

/// A neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Its rank.
    pub rank: u32,
    /// How much goes along, in whatever unit the program means; 1 in graphs without weights.
    pub weight: u32,
}

/// An edge that some rank told of (`MPI_Dist_graph_create`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the standard")]
pub struct Link {
    pub source: u32,
    pub destination: u32,
    pub weight: u32,
}

/// Why a graph was refused (`MPI_ERR_ARG`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The ends of the ranks' lists have to rise up to the number of edges.
    #[error("the index falls, or does not end with the number of edges")]
    Index,
    /// An edge to nobody.
    #[error("an edge leads to rank {0}, which there is not")]
    Rank(u32),
}

impl Graph {
    /// `index[r]` is where rank `r`'s neighbours end in `edges`; they begin where those of the rank before end. A rank may
    /// be its own neighbour, and any number of times; the graph need not be symmetric.
    pub fn new(index: &[usize], edges: &[u32]) -> Result<Self, GraphError> {
        if !index.is_sorted() || index.last().copied().unwrap_or(0) != edges.len() {
            return Err(GraphError::Index);
        }
        if let Some(stranger) = edges.iter().find(|rank| **rank as usize >= index.len()) {
            return Err(GraphError::Rank(*stranger));
        }
        Ok(Self { index: index.to_vec(), edges: edges.to_vec() })
    }

    /// Ranks in all. Others of a communicator that is larger have no place.
    pub fn size(&self) -> u32 {
        self.index.len() as u32
    }

    /// The arguments it was made of, for `MPI_Graph_get`.
    pub fn parts(&self) -> (&[usize], &[u32]) {
        (&self.index, &self.edges)
    }

    /// Whom a rank names.
    ///
    /// # Panics
    ///
    /// When the graph has no such rank.
    pub fn neighbors(&self, rank: u32) -> &[u32] {
        let rank = rank as usize;
        let start = rank.checked_sub(1).map_or(0, |before| self.index[before]);
        &self.edges[start..self.index[rank]]
    }
}

impl DistGraph {
    /// Whom this rank, of `size`, receives from and sends to, as it says itself. `weighted` is whether weights mean anything.
    pub fn adjacent(
        size: u32,
        mut sources: Vec<Edge>,
        mut destinations: Vec<Edge>,
        weighted: bool,
    ) -> Result<Self, GraphError> {
        if !weighted {
            sources.iter_mut().chain(&mut destinations).for_each(|edge| edge.weight = 1);
        }
        let stranger = sources.iter().chain(&destinations).find(|edge| edge.rank >= size);
        match stranger {
            Some(edge) => Err(GraphError::Rank(edge.rank)),
            None => Ok(Self { sources, destinations, weighted }),
        }
    }

    /// The part of `rank` of the graph that all `links` make, each told of by any one rank. Neighbours are in the links'
    /// order, so all ranks that see the links in one order have edges between two ranks in one order.
    pub fn of_links(size: u32, rank: u32, links: &[Link], weighted: bool) -> Result<Self, GraphError> {
        let ends = links.iter().flat_map(|link| [link.source, link.destination]);
        if let Some(stranger) = ends.into_iter().find(|end| *end >= size) {
            return Err(GraphError::Rank(stranger));
        }
        let into = links.iter().filter(|link| link.destination == rank);
        let out = links.iter().filter(|link| link.source == rank);
        let sources = into.map(|link| Edge { rank: link.source, weight: link.weight }).collect();
        let destinations = out.map(|link| Edge { rank: link.destination, weight: link.weight }).collect();
        Self::adjacent(size, sources, destinations, weighted)
    }

    /// Whom this rank receives from.
    pub fn sources(&self) -> &[Edge] {
        &self.sources
    }

    /// Whom it sends to.
    pub fn destinations(&self) -> &[Edge] {
        &self.destinations
    }

    /// Whether weights mean anything.
    pub fn is_weighted(&self) -> bool {
        self.weighted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MPI-4.1 8.5.3, the example after `MPI_GRAPH_CREATE`.
    #[test]
    fn neighbors_are_between_two_ends() {
        let graph = Graph::new(&[2, 3, 4, 6], &[1, 3, 0, 3, 0, 2]).unwrap();
        let all: Vec<_> = (0..4).map(|rank| graph.neighbors(rank)).collect();
        assert_eq!(all, [&[1, 3][..], &[0], &[3], &[0, 2]]);
        assert_eq!(Graph::new(&[2, 1], &[0]), Err(GraphError::Index));
        assert_eq!(Graph::new(&[1, 2], &[0]), Err(GraphError::Index));
        assert_eq!(Graph::new(&[1, 2], &[0, 2]), Err(GraphError::Rank(2)));
        assert_eq!(Graph::new(&[], &[]).map(|graph| graph.size()), Ok(0));
        assert_eq!(Graph::new(&[0, 1], &[0]).unwrap().neighbors(0), [0; 0]);
    }

    #[test]
    fn links_reach_both_their_ends() {
        let link = |source, destination, weight| Link { source, destination, weight };
        let links = [link(0, 1, 5), link(2, 1, 6), link(1, 1, 7), link(0, 1, 8)];
        let edge = |rank, weight| Edge { rank, weight };
        let middle = DistGraph::of_links(3, 1, &links, true).unwrap();
        assert_eq!(middle.sources(), [edge(0, 5), edge(2, 6), edge(1, 7), edge(0, 8)]);
        assert_eq!((middle.destinations(), middle.is_weighted()), (&[edge(1, 7)][..], true));
        let first = DistGraph::of_links(3, 0, &links, true).unwrap();
        assert_eq!((first.sources(), first.destinations()), (&[][..], &[edge(1, 5), edge(1, 8)][..]));
        let unweighted = DistGraph::of_links(3, 0, &links, false).unwrap();
        assert_eq!((unweighted.destinations(), unweighted.is_weighted()), (&[edge(1, 1), edge(1, 1)][..], false));
        assert_eq!(DistGraph::of_links(2, 0, &links, true), Err(GraphError::Rank(2)));
        assert_eq!(DistGraph::adjacent(2, vec![edge(2, 1)], vec![], false), Err(GraphError::Rank(2)));
    }
}
