//! Everybody's block to all.

mod bruck;
mod recursive_doubling;
mod ring;

use super::{Algorithm, Blocks, Schedule, Span, Team};

pub use bruck::bruck;
pub use recursive_doubling::recursive_doubling;
pub use ring::ring;

/// To all, by one of an allgather's algorithms. In place, `block` is ours of `output`.
pub fn build(algorithm: Algorithm, schedule: &mut Schedule, team: Team, block: Span, output: Span, blocks: Blocks) {
    match algorithm {
        Algorithm::Ring => ring(schedule, team, block, output, blocks),
        Algorithm::Bruck => bruck(schedule, team, block, output, blocks),
        Algorithm::RecursiveDoubling => recursive_doubling(schedule, team, block, output, blocks),
        other => panic!("an allgather has no algorithm {other}"),
    }
}
