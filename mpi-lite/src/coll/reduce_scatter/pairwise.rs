//! Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
//!
//! Cost: (p - 1) (L + 2o) + (p - 1)/p n G, where blocks are equal.

use crate::coll::{Blocks, Reduction, Schedule, Span, Team};

/// Everybody's part of our block comes straight to us, one after the other. `output` is our block; in place it lies within
/// `input`.
pub fn pairwise(schedule: &mut Schedule, team: Team, input: Span, output: Span, blocks: Blocks, reduction: Reduction) {
    let len = output.len();
    let result = if output.overlaps(input) { schedule.scratch(len) } else { output };
    schedule.copy(result, blocks.of(input, team.me));
    let room = schedule.scratch(len);
    // From the last before us down to the first, and from the last of all down to the next after us: so each is put before
    // those it came after, and the two parts are joined at the end.
    let mut above: Option<Span> = None;
    for turn in 1..team.size {
        let (from, to) = (team.before(turn), team.after(turn));
        let (value, came) = if from < team.me || reduction.commutative {
            (Some(result), room)
        } else {
            (above, if above.is_some() { room } else { schedule.scratch(len) })
        };
        schedule.send(team.rank(to), blocks.of(input, to));
        schedule.receive(team.rank(from), came);
        match value {
            Some(value) => schedule.combine(value, came),
            None => above = Some(came),
        }
        schedule.next_round();
    }
    match above {
        Some(above) => {
            schedule.combine(above, result);
            schedule.copy(output, above);
        }
        None => schedule.copy(output, result),
    }
    schedule.next_round();
}
