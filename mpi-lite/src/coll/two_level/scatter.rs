//! From the root to the other hosts' leaders, and from each to its host. Träff, "Hierarchical gather/scatter algorithms with graceful
//! degradation", 2004.
//!
//! Cost: floor(log2 h) (L + 2o) + floor(log2 k) (L' + 2o') + (h - 1)/h n G + (k - 1)/p n G', and a copy of n bytes at the root where
//! hosts do not follow each other in the order of ranks. Between hosts goes one message to each.

use super::{Direction, Levels};
use crate::coll::{Blocks, Collective, Schedule, Span, scatter as on_one_level};

/// From the root, which `levels` was made with: `block` is our part, of `len` bytes as everybody's, and nowhere if it stays in place;
/// `input` is the root's.
pub fn scatter(schedule: &mut Schedule, levels: &Levels, len: usize, block: Option<Span>, input: Option<Span>) {
    let (size, blocks) = (levels.ours().size, Blocks::Equal(len));
    let whole = input.map(|input| {
        if levels.are_in_order() {
            return input;
        }
        let packed = schedule.scratch(input.len());
        levels.copy(schedule, Direction::Pack, input, packed, blocks);
        packed
    });
    let on_host = levels.leaders().map(|_| match (whole, block) {
        (Some(whole), _) => whole.part(0, size * len),
        (None, Some(block)) if size == 1 => block,
        (None, _) => schedule.scratch(size * len),
    });
    if let Some((leaders, on_host)) = levels.leaders().zip(on_host) {
        let part = whole.is_none().then_some(on_host);
        if levels.are_even() {
            let algorithm = levels.choose(Collective::Scatter, leaders, on_host.len());
            on_one_level::build(algorithm, schedule, leaders, 0, on_host.len(), (whole, part));
        } else {
            let lens = levels.lens(blocks);
            on_one_level::linear(schedule, leaders, 0, part, whole.map(|whole| (whole, Blocks::Lens(&lens))));
        }
    }
    levels.scatter(schedule, len, (on_host, block));
}
