//! Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport message-passing
//! systems", 1997.
//!
//! Cost: ceil(log2 p) (L + 2o) + (p - 1)/p n G, and a copy of n bytes.

use crate::coll::{Blocks, Schedule, Span, Team};

/// Everybody collects the blocks from its own on, twice as many with every message time. In place, `block` is ours of
/// `output`.
pub fn bruck(schedule: &mut Schedule, team: Team, block: Span, output: Span, blocks: Blocks) {
    let total = (0..team.size).map(|member| blocks.len(member)).sum();
    let work = schedule.scratch(total);
    schedule.copy(work.part(0, block.len()), block);
    schedule.next_round();
    // Bytes of the first blocks from `member` on.
    let len_from = |member: usize, count: usize| -> usize {
        (member..member + count).map(|member| blocks.len(member % team.size)).sum()
    };
    let mut have = 1;
    while have < team.size {
        let more = have.min(team.size - have);
        let (to, from) = (team.before(have), team.after(have));
        schedule.send(team.rank(to), work.part(0, len_from(team.me, more)));
        schedule.receive(team.rank(from), work.part(len_from(team.me, have), len_from(from, more)));
        schedule.next_round();
        have += more;
    }
    let mut start = 0;
    for turn in 0..team.size {
        let into = blocks.of(output, team.after(turn));
        schedule.copy(into, work.part(start, into.len()));
        start += into.len();
    }
    schedule.next_round();
}
