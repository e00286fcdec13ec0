//! Blocks to and from the neighbours in a topology.

mod linear;

pub use linear::{Neighbors, allgather, alltoall};
