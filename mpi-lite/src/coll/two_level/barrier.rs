//! Nobody leaves before everybody has come: the ranks of a host tell its leader, and hear of the others by it. Karonis et al., 2000.
//!
//! Cost: ceil(log2 h) (L + 2o) + 2 (L' + k o'). Between hosts go ceil(log2 h) messages from each.

use super::Levels;
use crate::coll::{Schedule, barrier as on_one_level};

/// Nobody leaves before everybody has come.
pub fn barrier(schedule: &mut Schedule, levels: &Levels) {
    let ours = levels.ours();
    let others = || (1..ours.size).map(|number| ours.rank(number));
    match levels.leaders() {
        Some(leaders) => {
            others().for_each(|rank| schedule.await_signal(rank));
            schedule.next_round();
            on_one_level::dissemination(schedule, leaders);
            others().for_each(|rank| schedule.signal(rank));
        }
        None => {
            schedule.signal(ours.rank(0));
            schedule.next_round();
            schedule.await_signal(ours.rank(0));
        }
    }
    schedule.next_round();
}
