//! From the root to the other hosts' leaders, and from each to its host. Karonis et al., 2000.
//!
//! Cost: that of a broadcast among h ranks, and of one among k after it. Between hosts go the messages of the former: by a tree h - 1.

use super::Levels;
use crate::coll::{Collective, Schedule, Span, broadcast as on_one_level};

/// The `data` of the root, which `levels` was made with, to all.
pub fn broadcast(schedule: &mut Schedule, levels: &Levels, data: Span) {
    if let Some(leaders) = levels.leaders() {
        let algorithm = levels.choose(Collective::Broadcast, leaders, data.len());
        on_one_level::build(algorithm, schedule, leaders, 0, data);
    }
    levels.broadcast(schedule, data);
}
