//! A pipeline; the best length of a segment is that of Worsch, Reussner, Augustin, "On benchmarking collective MPI
//! operations", 2002, or what was measured.
//!
//! Cost, in segments of s bytes: (p - 1) (L + 2o) + (p - 2 + ceil(n/s)) (o + s G).

use crate::coll::{Schedule, Span, Team};

/// Everybody passes the `data` on to the next, a segment of at most `segment` bytes at a time.
pub fn chain(schedule: &mut Schedule, team: Team, root: usize, data: Span, segment: usize) {
    assert!(segment > 0, "a segment has bytes");
    let team = team.counted_from(root);
    let segments = data.len().div_ceil(segment);
    let part = |index: usize| data.part(index * segment, segment.min(data.len() - index * segment));
    // While segment `turn` comes in, the one before it goes out.
    for turn in 0..=segments {
        if team.me > 0 && turn < segments {
            schedule.receive(team.rank(team.me - 1), part(turn));
        }
        if team.me + 1 < team.size && turn > 0 {
            schedule.send(team.rank(team.me + 1), part(turn - 1));
        }
        // The root has it all; what leaves it need not wait for anything.
        if team.me > 0 {
            schedule.next_round();
        }
    }
    schedule.next_round();
}
