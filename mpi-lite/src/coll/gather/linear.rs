//! Everybody sends to the root, which takes what comes first.
//!
//! Cost: L + o + (p - 1) (o + n/p G).

use crate::coll::{Blocks, Schedule, Span, Team};

/// `block` is our part; `output` is the root's, with everybody's `blocks`. In place, the root's part is there already.
pub fn linear(schedule: &mut Schedule, team: Team, root: usize, block: Span, output: Option<(Span, Blocks)>) {
    match output {
        None => schedule.send(team.rank(root), block),
        Some((output, blocks)) => {
            for turn in 1..team.size {
                let from = team.before(turn);
                schedule.receive(team.rank(from), blocks.of(output, from));
            }
            schedule.copy(blocks.of(output, team.me), block);
        }
    }
    schedule.next_round();
}
