//! A reduction on each host, one that scatters among the leaders, and a scatter on each host, after Karonis et al., 2000. For
//! operators whose order doesn't matter.
//!
//! Cost: log2 h (L + 2o) + (h - 1)/h n G + 2 log2 k (L' + 2o') + (log2 k + (k - 1)/p) n G', where h is a power of two, and a copy of n
//! bytes at each leader where hosts do not follow each other in the order of ranks. Between hosts go log2 h messages from each.

use super::{Direction, Levels};
use crate::coll::{Blocks, Collective, Reduction, Schedule, Span, reduce_scatter as on_one_level, scatter};

/// Its block to each. `output` is our block; in place it lies within `input`.
pub fn reduce_scatter(
    schedule: &mut Schedule,
    levels: &Levels,
    (input, output): (Span, Span),
    blocks: Blocks,
    reduction: Reduction,
) {
    debug_assert!(reduction.commutative, "hosts are in no order of ranks");
    let partial = levels.leads().then(|| schedule.scratch(input.len()));
    levels.reduce(schedule, (input, partial), reduction);
    let on_host = levels.leaders().zip(partial).map(|(leaders, partial)| {
        let lens = levels.lens(blocks);
        let packed = if levels.are_in_order() { partial } else { schedule.scratch(input.len()) };
        if packed != partial {
            levels.copy(schedule, Direction::Pack, partial, packed, blocks);
        }
        let on_host = schedule.scratch(lens[leaders.me]);
        let algorithm = levels.choose(Collective::ReduceScatter, leaders, input.len());
        on_one_level::build(algorithm, schedule, leaders, (packed, on_host), Blocks::Lens(&lens), reduction);
        on_host
    });
    if let Blocks::Equal(len) = blocks {
        levels.scatter(schedule, len, (on_host, Some(output)));
    } else {
        let lens = levels.lens_here(blocks);
        let on_host = on_host.map(|on_host| (on_host, Blocks::Lens(&lens)));
        scatter::linear(schedule, levels.ours(), levels.place_of_leader(), Some(output), on_host);
    }
}
