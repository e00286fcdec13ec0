//! On each host to its leader, and from the leaders to the root. Karonis et al., 2000. For operators whose order doesn't matter.
//!
//! Cost: that of a reduction among k ranks, and of one among h after it. Between hosts go the messages of the latter: by a tree h - 1.

use super::Levels;
use crate::coll::{Collective, Reduction, Schedule, Span, reduce as on_one_level};

/// To the root, which `levels` was made with and which has the `output`; in place, `input` is the same.
pub fn reduce(schedule: &mut Schedule, levels: &Levels, input: Span, output: Option<Span>, reduction: Reduction) {
    debug_assert!(reduction.commutative, "hosts are in no order of ranks");
    let partial = levels.leads().then(|| output.unwrap_or_else(|| schedule.scratch(input.len())));
    levels.reduce(schedule, (input, partial), reduction);
    if let Some((leaders, partial)) = levels.leaders().zip(partial) {
        let algorithm = levels.choose(Collective::Reduce, leaders, input.len());
        on_one_level::build(algorithm, schedule, leaders, 0, (partial, output), reduction);
    }
}
