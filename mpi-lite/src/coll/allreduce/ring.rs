//! Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. For operators whose order
//! doesn't matter.
//!
//! Cost: 2 (p - 1) (L + 2o + ceil(n/p) G).

use crate::coll::{Blocks, Reduction, Schedule, Span, Team, allgather};

/// Each block goes around the ring twice: to be combined with everybody's, and as the result. In place, `input` is `output`.
pub fn ring(schedule: &mut Schedule, team: Team, input: Span, output: Span, reduction: Reduction) {
    debug_assert!(reduction.commutative, "each block begins at another rank");
    let blocks = Blocks::cut(input.len(), reduction.element, team.size);
    schedule.copy(output, input);
    let room = schedule.scratch(blocks.len(0));
    let (next, previous) = (team.rank(team.after(1)), team.rank(team.before(1)));
    // What we send last is complete after the next one's turn: so we end with the block of our own number.
    for turn in 1..team.size {
        let keep = blocks.of(output, team.before(turn + 1));
        let came = room.part(0, keep.len());
        schedule.send(next, blocks.of(output, team.before(turn)));
        schedule.receive(previous, came);
        schedule.combine(keep, came);
        schedule.next_round();
    }
    allgather::ring(schedule, team, blocks.of(output, team.me), output, blocks);
}
