//! Rabenseifner, "Optimization of collective reduction operations", 2004. For operators whose order doesn't matter.
//!
//! Cost: 2 log2 p (L + 2o) + 2 (p - 1)/p n G, where p is a power of two; a message of n bytes more where not.

use crate::coll::fold::Fold;
use crate::coll::{Blocks, Reduction, Schedule, Span, Team, gather, halving};

/// Everybody gets a block of the result by halving, and the root gathers them; `output` is the root's, and where it is in
/// place `input` is the same.
pub fn rabenseifner(
    schedule: &mut Schedule,
    team: Team,
    root: usize,
    input: Span,
    output: Option<Span>,
    reduction: Reduction,
) {
    // The root is number 0, which never stands aside.
    let team = team.counted_from(root);
    let fold = Fold::of(team);
    let Some(staying) = fold.enter(schedule, team, input, None) else { return };
    let number = staying.number;
    let work = output.unwrap_or_else(|| schedule.scratch(input.len()));
    schedule.copy(work, input);
    staying.take_in(schedule, team, work);
    let blocks = Blocks::cut(input.len(), reduction.element, fold.size);
    let run = |first, end| blocks.run(work, first, end);
    halving::reduce_scatter(schedule, team, &fold, number, run, reduction);
    gather::up_tree(schedule, number, fold.size, |number| team.rank(fold.member(number)), run);
}
