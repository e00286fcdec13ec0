//! Rabenseifner, "Optimization of collective reduction operations", 2004. For operators whose order doesn't matter.
//!
//! Cost: 2 log2 p (L + 2o) + 2 (p - 1)/p n G, where p is a power of two; two messages of n bytes more where not.

use crate::coll::fold::{Fold, Staying};
use crate::coll::{Blocks, Reduction, Schedule, Span, Team, halving};

/// Everybody gets a block of the result by halving, and all blocks by doubling. In place, `input` is `output`.
pub fn rabenseifner(schedule: &mut Schedule, team: Team, input: Span, output: Span, reduction: Reduction) {
    let fold = Fold::of(team);
    let Some(staying @ Staying { number, takes_from }) = fold.enter(schedule, team, input, Some(output)) else {
        return;
    };
    schedule.copy(output, input);
    staying.take_in(schedule, team, output);
    let blocks = Blocks::cut(input.len(), reduction.element, fold.size);
    let run = |first, end| blocks.run(output, first, end);
    halving::reduce_scatter(schedule, team, &fold, number, run, reduction);
    halving::allgather(schedule, team, &fold, number, run);
    if let Some(member) = takes_from {
        schedule.send(team.rank(member), output);
        schedule.next_round();
    }
}
