//! All messages at once, each rank beginning with the next after it.
//!
//! Cost: L + o + (p - 1) (o + n/p G).

use super::set_apart;
use crate::coll::{Blocks, Schedule, Span, Team};

/// Block r of `input` goes to member r, and its block to us comes as block r of `output`.
pub fn linear(schedule: &mut Schedule, team: Team, (input, to): (Span, Blocks), (output, from): (Span, Blocks)) {
    let input = set_apart(schedule, input, output);
    for turn in 1..team.size {
        schedule.receive(team.rank(team.before(turn)), from.of(output, team.before(turn)));
    }
    for turn in 1..team.size {
        schedule.send(team.rank(team.after(turn)), to.of(input, team.after(turn)));
    }
    schedule.copy(from.of(output, team.me), to.of(input, team.me));
    schedule.next_round();
}
