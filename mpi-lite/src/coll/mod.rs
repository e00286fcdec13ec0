//! Collectives as schedules: what one rank sends, receives and computes, in rounds, and no network.
//!
//! An algorithm is a function that appends its rounds to a [`Schedule`], for one rank of a [`Team`]; two in a row are one
//! collective of two phases. Whoever runs the schedule posts a round's transfers, waits for them, does its local steps, and
//! goes on. Messages of one schedule need no tags of their own: those between two ranks match in the order in which both
//! sides list them.
//!
//! | collective | algorithms |
//! | --- | --- |
//! | [`barrier`] | dissemination |
//! | [`broadcast`] | binomial tree, scatter and allgather, chain |
//! | [`reduce`] | binomial tree, Rabenseifner's |
//! | [`allreduce`] | recursive doubling, Rabenseifner's, ring |
//! | [`reduce_scatter`] | recursive halving, pairwise |
//! | [`scan`] | doubling |
//! | [`gather`], [`scatter`] | binomial tree, linear |
//! | [`allgather`] | Bruck's, recursive doubling, ring |
//! | [`alltoall`] | Bruck's, pairwise, linear |
//! | [`neighbor`] | linear |
//! | [`two_level`] | all but scans, neighbours, and lengths that not all know: within hosts, and between them, each by one of the others |
//!
//! Where costs are given, `n` is the bytes of the whole array, `p` the ranks, and L, o, G are LogGP's latency, overhead and
//! time a byte (Alexandrov, Ionescu, Schauser, Scheiman, 1995); `g` is left out, since no message waits for it where o
//! is the larger. The tests run every schedule against the others by that model and compare.

mod accumulator;
pub mod allgather;
pub mod allreduce;
pub mod alltoall;
pub mod barrier;
mod blocks;
pub mod broadcast;
mod call;
mod fold;
pub mod gather;
mod halving;
mod hosts;
pub mod neighbor;
pub mod reduce;
pub mod reduce_scatter;
pub mod scan;
pub mod scatter;
mod schedule;
mod select;
mod team;
#[cfg(test)]
pub(crate) mod tests;
pub mod two_level;

pub use blocks::Blocks;
pub use call::{Access, Buffers, Call};
pub use hosts::Hosts;
pub use schedule::{Clash, HostCall, Memory, Round, Schedule, Span, Step, Transfer};
pub use select::{Algorithm, Case, Collective, Rule, Table, TableError};
pub use team::Team;
pub use two_level::WithinHosts;

/// What a reduction reduces: arrays of elements that are never cut, by an operator that may need them in the ranks' order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reduction {
    /// Bytes of an element, at least 1.
    pub element: usize,
    /// Whether the operator gives the same in any order.
    pub commutative: bool,
}
