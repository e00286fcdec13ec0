//! Rabenseifner, "Optimization of collective reduction operations", 2004. For operators whose order doesn't matter.
//!
//! Cost: 2 log2 p (L + 2o) + 2 (p - 1)/p n G, where p is a power of two; two messages of n bytes more where not.

use crate::coll::fold::{Fold, Role};
use crate::coll::{Blocks, Reduction, Schedule, Span, Team, halving};

/// Everybody gets a block of the result by halving, and all blocks by doubling. In place, `input` is `output`.
pub fn rabenseifner(schedule: &mut Schedule, team: Team, input: Span, output: Span, reduction: Reduction) {
    let fold = Fold::of(team);
    let (number, takes_from) = match fold.role {
        Role::Aside { to } => {
            schedule.send(team.rank(to), input);
            schedule.next_round();
            schedule.receive(team.rank(to), output);
            return schedule.next_round();
        }
        Role::Stays { number, takes_from } => (number, takes_from),
    };
    schedule.copy(output, input);
    if let Some(member) = takes_from {
        let came = schedule.scratch(input.len());
        schedule.receive(team.rank(member), came);
        schedule.combine(output, came);
    }
    let blocks = Blocks::cut(input.len(), reduction.element, fold.size);
    let run = |first, end| blocks.run(output, first, end);
    halving::reduce_scatter(schedule, team, &fold, number, output, run, reduction);
    halving::allgather(schedule, team, &fold, number, run);
    if let Some(member) = takes_from {
        schedule.send(team.rank(member), output);
        schedule.next_round();
    }
}
