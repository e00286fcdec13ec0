//! Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005. For operators whose
//! order doesn't matter.
//!
//! Cost: log2 p (L + 2o) + (p - 1)/p n G, where p is a power of two and blocks are equal; a message of n bytes and one of a
//! block more where not.

use crate::coll::fold::{Fold, Staying};
use crate::coll::{Blocks, Reduction, Schedule, Span, Team, halving};

/// Halves of the array are exchanged until a block is left. `output` is our block; in place it lies within `input`.
pub fn recursive_halving(
    schedule: &mut Schedule,
    team: Team,
    input: Span,
    output: Span,
    blocks: Blocks,
    reduction: Reduction,
) {
    let fold = Fold::of(team);
    let Some(staying @ Staying { number, takes_from }) = fold.enter(schedule, team, input, Some(output)) else {
        return;
    };
    let work = schedule.scratch(input.len());
    schedule.copy(work, input);
    staying.take_in(schedule, team, work);
    // Who stays looks after the blocks of whoever stood aside for it.
    let end_of = |number| if number < fold.size { fold.member(number) } else { team.size };
    let run = |first, end| blocks.run(work, fold.member(first), end_of(end));
    halving::reduce_scatter(schedule, team, &fold, number, run, reduction);
    if let Some(member) = takes_from {
        schedule.send(team.rank(member), blocks.of(work, member));
        schedule.next_round();
    }
    schedule.copy(output, blocks.of(work, team.me));
    schedule.next_round();
}
