//! All messages at once.
//!
//! Cost: L + o + d (o + n/d G), for d neighbours.

use crate::coll::{Blocks, Schedule, Span};

/// From whom we receive and to whom we send, by rank, in the order of blocks. `None` is a neighbour that isn't there, beyond
/// the border of a grid: its block stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbors<'a> {
    /// Of a graph. If one appears more than once, its blocks match in this order.
    Graph {
        /// Those we receive from.
        sources: &'a [Option<u32>],
        /// Those we send to.
        destinations: &'a [Option<u32>],
    },
    /// Of a grid, both: for each dimension the one before us and the one after us. Where they are the same rank, what it
    /// sends backwards comes to us from the front (MPI-4.1 8.6).
    Grid(&'a [Option<u32>]),
}

impl<'a> Neighbors<'a> {
    /// Those we receive from, and those we send to.
    pub fn both(self) -> (&'a [Option<u32>], &'a [Option<u32>]) {
        match self {
            Self::Graph { sources, destinations } => (sources, destinations),
            Self::Grid(both) => (both, both),
        }
    }
}

/// `block` to all, and a block from each into `output`.
pub fn allgather(schedule: &mut Schedule, neighbors: Neighbors, block: Span, (output, from): (Span, Blocks)) {
    exchange(schedule, neighbors, |_| block, |source| from.of(output, source));
}

/// A block of `input` to each, and a block from each into `output`.
pub fn alltoall(
    schedule: &mut Schedule,
    neighbors: Neighbors,
    (input, to): (Span, Blocks),
    (output, from): (Span, Blocks),
) {
    exchange(schedule, neighbors, |destination| to.of(input, destination), |source| from.of(output, source));
}

fn exchange(
    schedule: &mut Schedule,
    neighbors: Neighbors,
    outgoing: impl Fn(usize) -> Span,
    incoming: impl Fn(usize) -> Span,
) {
    let (sources, destinations) = neighbors.both();
    // In a grid sent in the other order within a dimension, so that the first of two messages between the same ranks is the one
    // that comes from before.
    let swapped = usize::from(matches!(neighbors, Neighbors::Grid(_)));
    for (index, source) in sources.iter().enumerate() {
        if let Some(rank) = source {
            schedule.receive(*rank, incoming(index));
        }
    }
    for index in 0..destinations.len() {
        let index = index ^ swapped;
        if let Some(rank) = destinations[index] {
            schedule.send(rank, outgoing(index));
        }
    }
    schedule.next_round();
}
