//! On each host to its leader, among the leaders, and back. Karonis et al., 2000. For operators whose order doesn't matter.
//!
//! Cost: that of an allreduce among h ranks, of a reduction among k before it and of a broadcast after it. Between hosts go the
//! messages of the first: by recursive doubling log2 h from each.

use super::Levels;
use crate::coll::{Collective, Reduction, Schedule, Span, allreduce as on_one_level};

/// To all. In place, `input` is `output`.
pub fn allreduce(schedule: &mut Schedule, levels: &Levels, input: Span, output: Span, reduction: Reduction) {
    debug_assert!(reduction.commutative, "hosts are in no order of ranks");
    levels.reduce(schedule, (input, levels.leads().then_some(output)), reduction);
    if let Some(leaders) = levels.leaders() {
        let algorithm = levels.choose(Collective::Allreduce, leaders, input.len());
        on_one_level::build(algorithm, schedule, leaders, output, output, reduction);
    }
    levels.broadcast(schedule, output);
}
