//! One message after the other; see Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
//! MPICH", 2005.
//!
//! Cost: (p - 1) (L + 2o + n/p G).

use super::set_apart;
use crate::coll::{Blocks, Schedule, Span, Team};

/// Block r of `input` goes to member r, and its block to us comes as block r of `output`.
pub fn pairwise(schedule: &mut Schedule, team: Team, (input, to): (Span, Blocks), (output, from): (Span, Blocks)) {
    let input = set_apart(schedule, input, output);
    for turn in 1..team.size {
        let (previous, next) = (team.before(turn), team.after(turn));
        schedule.receive(team.rank(previous), from.of(output, previous));
        schedule.send(team.rank(next), to.of(input, next));
        schedule.next_round();
    }
    schedule.copy(from.of(output, team.me), to.of(input, team.me));
    schedule.next_round();
}
