//! Everybody's arrays combined, element by element, and a block of the result to each.

mod pairwise;
mod recursive_halving;

use super::{Algorithm, Blocks, Reduction, Schedule, Span, Team};

pub use pairwise::pairwise;
pub use recursive_halving::recursive_halving;

/// Its block to each, by one of the algorithms of a reduction that scatters. `output` is our block; in place it lies within
/// `input`.
pub fn build(
    algorithm: Algorithm,
    schedule: &mut Schedule,
    team: Team,
    (input, output): (Span, Span),
    blocks: Blocks,
    reduction: Reduction,
) {
    match algorithm {
        Algorithm::Pairwise => pairwise(schedule, team, input, output, blocks, reduction),
        Algorithm::RecursiveHalving => recursive_halving(schedule, team, input, output, blocks, reduction),
        other => panic!("a reduction that scatters has no algorithm {other}"),
    }
}
