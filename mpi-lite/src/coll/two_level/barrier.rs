//! Nobody leaves before everybody has come: the ranks of a host tell its leader, and hear of the others by it. Karonis et al., 2000.
//!
//! Cost: ceil(log2 h) (L + 2o) + 2 (L' + k o'). Between hosts go ceil(log2 h) messages from each.

use super::Levels;
use crate::coll::{Schedule, barrier as on_one_level};

/// Nobody leaves before everybody has come.
pub fn barrier(schedule: &mut Schedule, levels: &Levels) {
    levels.meet(schedule);
    if let Some(leaders) = levels.leaders() {
        on_one_level::dissemination(schedule, leaders);
    }
    levels.part(schedule);
}
