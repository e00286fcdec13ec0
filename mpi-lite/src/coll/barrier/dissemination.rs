//! Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988.
//!
//! Cost: ceil(log2 p) (L + 2o).

use crate::coll::{Schedule, Team};

/// Everybody tells whoever is 1, 2, 4, ... places after it that it and all it has heard of are here.
pub fn dissemination(schedule: &mut Schedule, team: Team) {
    let mut distance = 1;
    while distance < team.size {
        schedule.signal(team.rank(team.after(distance)));
        schedule.await_signal(team.rank(team.before(distance)));
        schedule.next_round();
        distance *= 2;
    }
}
