//! Barnett, Gupta, Payne, Shuler, van de Geijn, Watts, "Interprocessor collective communication library", 1994.
//!
//! Cost: (floor(log2 p) + p - 1) (L + 2o) + 2 (p - 1)/p n G, where p is a power of two; a little more where not.

use crate::coll::{Blocks, Schedule, Span, Team, allgather, scatter};

/// The root scatters the `data`, then everybody passes blocks around a ring.
pub fn scatter_allgather(schedule: &mut Schedule, team: Team, root: usize, data: Span) {
    let team = team.counted_from(root);
    let blocks = Blocks::cut(data.len(), 1, team.size);
    scatter::down_tree(schedule, team, |first, end| blocks.run(data, first, end));
    allgather::ring(schedule, team, blocks.of(data, team.me), data, blocks);
}
