//! A ring; see Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
//!
//! Cost: (p - 1) (L + 2o) + (p - 1)/p n G.

use crate::coll::{Blocks, Schedule, Span, Team};

/// Each block goes from each to the next. In place, `block` is ours of `output`.
pub fn ring(schedule: &mut Schedule, team: Team, block: Span, output: Span, blocks: Blocks) {
    schedule.copy(blocks.of(output, team.me), block);
    let (next, previous) = (team.rank(team.after(1)), team.rank(team.before(1)));
    for turn in 1..team.size {
        schedule.send(next, blocks.of(output, team.before(turn - 1)));
        schedule.receive(previous, blocks.of(output, team.before(turn)));
        schedule.next_round();
    }
}
