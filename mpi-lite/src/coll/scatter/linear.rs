//! The root sends to everybody.
//!
//! Cost: L + o + (p - 1) (o + n/p G).

use crate::coll::{Blocks, Schedule, Span, Team};

/// `block` is our part, nowhere if it stays in place; `input` is the root's, with everybody's `blocks`.
pub fn linear(schedule: &mut Schedule, team: Team, root: usize, block: Option<Span>, input: Option<(Span, Blocks)>) {
    match (input, block) {
        (None, Some(block)) => schedule.receive(team.rank(root), block),
        (None, None) => panic!("only the root's part can stay in place"),
        (Some((input, blocks)), block) => {
            for turn in 1..team.size {
                let to = team.after(turn);
                schedule.send(team.rank(to), blocks.of(input, to));
            }
            if let Some(block) = block {
                schedule.copy(block, blocks.of(input, team.me));
            }
        }
    }
    schedule.next_round();
}
