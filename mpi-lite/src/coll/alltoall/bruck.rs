//! Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport message-passing
//! systems", 1997.
//!
//! Cost: ceil(log2 p) (L + 2o + n/2 G), where p is a power of two, and about as many bytes copied twice.

use crate::coll::{Blocks, Schedule, Span, Team};

/// Blocks of `len` bytes: each travels the distance to its rank in steps of 1, 2, 4, ... In place, `input` is `output`.
pub fn bruck(schedule: &mut Schedule, team: Team, input: Span, output: Span, len: usize) {
    let blocks = Blocks::Equal(len);
    // Block `distance` is on its way to whoever is so far after us; what is to travel no more is from so far before.
    let work = schedule.scratch(input.len());
    for distance in 0..team.size {
        schedule.copy(blocks.of(work, distance), blocks.of(input, team.after(distance)));
    }
    schedule.next_round();
    let half = team.size.div_ceil(2) * len;
    let (outgoing, incoming) = (schedule.scratch(half), schedule.scratch(half));
    let mut step = 1;
    while step < team.size {
        let travels = (0..team.size).filter(|distance| distance & step != 0);
        let count = travels.clone().count();
        for (at, distance) in travels.clone().enumerate() {
            schedule.copy(blocks.of(outgoing, at), blocks.of(work, distance));
        }
        schedule.next_round();
        schedule.send(team.rank(team.after(step)), outgoing.part(0, count * len));
        schedule.receive(team.rank(team.before(step)), incoming.part(0, count * len));
        for (at, distance) in travels.enumerate() {
            schedule.copy(blocks.of(work, distance), blocks.of(incoming, at));
        }
        step *= 2;
    }
    for distance in 0..team.size {
        schedule.copy(blocks.of(output, team.before(distance)), blocks.of(work, distance));
    }
    schedule.next_round();
}
