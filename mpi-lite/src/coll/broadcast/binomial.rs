//! Johnsson, Ho, "Optimum broadcasting and personalized communication in hypercubes", 1989.
//!
//! Cost: floor(log2 p) L + ceil(log2 p) (2o + n G).

use crate::coll::{Schedule, Span, Team};

/// The number of those who have the `data` doubles with every message time.
pub fn binomial(schedule: &mut Schedule, team: Team, root: usize, data: Span) {
    let team = team.counted_from(root);
    // Our subtree is as large as the lowest bit of our number says; the root's is everybody.
    let subtree = if team.me == 0 { team.size.next_power_of_two() } else { 1 << team.me.trailing_zeros() };
    if team.me != 0 {
        schedule.receive(team.rank(team.me - subtree), data);
        schedule.next_round();
    }
    // The largest subtree first: it has the longest way to go.
    let mut child = subtree / 2;
    while child > 0 {
        if team.me + child < team.size {
            schedule.send(team.rank(team.me + child), data);
        }
        child /= 2;
    }
    schedule.next_round();
}
