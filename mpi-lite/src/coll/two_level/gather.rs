//! On each host to its leader, and from the leaders to the root. Träff, "Hierarchical gather/scatter algorithms with graceful
//! degradation", 2004.
//!
//! Cost: floor(log2 k) (L' + 2o') + floor(log2 h) (L + 2o) + (h - 1)/h n G + (k - 1)/p n G', and a copy of n bytes at the root where
//! hosts do not follow each other in the order of ranks. Between hosts goes one message from each.

use super::{Direction, Levels};
use crate::coll::{Blocks, Collective, Schedule, Span, gather as on_one_level};

/// To the root, which `levels` was made with: `block` is our part, as long as everybody's; `output` is the root's. In place, the root's
/// part is there already.
pub fn gather(schedule: &mut Schedule, levels: &Levels, block: Span, output: Option<Span>) {
    let (size, len) = (levels.ours().size, block.len());
    let apart = output.is_some() && !levels.are_in_order();
    let whole = if apart { Some(schedule.scratch(levels.hosts.ranks() * len)) } else { output };
    let on_host = levels.leaders().map(|_| match whole {
        Some(whole) => whole.part(0, size * len),
        None if size == 1 => block,
        None => schedule.scratch(size * len),
    });
    levels.gather(schedule, block, on_host);
    if let Some((leaders, on_host)) = levels.leaders().zip(on_host) {
        if levels.are_even() {
            let algorithm = levels.choose(Collective::Gather, leaders, on_host.len());
            on_one_level::build(algorithm, schedule, leaders, 0, on_host, whole);
        } else {
            let lens = levels.lens(Blocks::Equal(len));
            on_one_level::linear(schedule, leaders, 0, on_host, whole.map(|whole| (whole, Blocks::Lens(&lens))));
        }
    }
    if let (true, Some(output), Some(whole)) = (apart, output, whole) {
        levels.copy(schedule, Direction::Unpack, output, whole, Blocks::Equal(len));
    }
}
