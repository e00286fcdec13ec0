//! An exchange along every dimension of a hypercube; see Thakur, Rabenseifner, Gropp, "Optimization of collective
//! communication operations in MPICH", 2005.
//!
//! Cost: log2 p (L + 2o + n G), where p is a power of two; two messages more where not.

use crate::coll::accumulator::Accumulator;
use crate::coll::fold::{Fold, Staying};
use crate::coll::{Reduction, Schedule, Span, Team};

/// Partial results of twice as many neighbours with every message time. In place, `input` is `output`.
pub fn recursive_doubling(schedule: &mut Schedule, team: Team, input: Span, output: Span, _: Reduction) {
    let fold = Fold::of(team);
    let Some(Staying { number, takes_from }) = fold.enter(schedule, team, input, Some(output)) else { return };
    schedule.copy(output, input);
    let room = schedule.scratch(if team.size > 1 { input.len() } else { 0 });
    // In the order of ranks also where that does not matter: of two that combine the same, both get the same, bit by bit (MPI_MAX of
    // a NaN, or of zeros of both signs, may be either operand).
    let mut partial = Accumulator::new(output, room, false);
    if let Some(member) = takes_from {
        schedule.receive(team.rank(member), partial.room());
        partial.append(schedule);
    }
    let mut distance = 1;
    while distance < fold.size {
        let peer = team.rank(fold.member(number ^ distance));
        schedule.send(peer, partial.value());
        schedule.receive(peer, partial.room());
        if number & distance == 0 {
            partial.append(schedule);
        } else {
            partial.prepend(schedule);
        }
        distance *= 2;
    }
    if let Some(member) = takes_from {
        schedule.send(team.rank(member), partial.value());
        schedule.next_round();
    }
    schedule.copy(output, partial.value());
    schedule.next_round();
}
