//! An exchange along every dimension of a hypercube; see Thakur, Rabenseifner, Gropp, "Optimization of collective
//! communication operations in MPICH", 2005. For a power of two of ranks, and blocks that follow each other.
//!
//! Cost: log2 p (L + 2o) + (p - 1)/p n G.

use crate::coll::fold::Fold;
use crate::coll::{Blocks, Schedule, Span, Team, halving};

/// Everybody has twice as many blocks with every message time. In place, `block` is ours of `output`.
pub fn recursive_doubling(schedule: &mut Schedule, team: Team, block: Span, output: Span, blocks: Blocks) {
    assert!(team.size.is_power_of_two(), "a hypercube has a power of two of corners");
    schedule.copy(blocks.of(output, team.me), block);
    schedule.next_round();
    halving::allgather(schedule, team, &Fold::of(team), team.me, |first, end| blocks.run(output, first, end));
}
