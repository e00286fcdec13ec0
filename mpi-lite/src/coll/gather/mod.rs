//! Everybody's block to one rank.

mod binomial;
mod linear;

use super::{Algorithm, Blocks, Schedule, Span, Team};

pub use binomial::binomial;
pub(super) use binomial::up_tree;
pub use linear::linear;

/// To the root, by one of a gather's algorithms: `block` is our part, as long as everybody's; `output` is the root's. In
/// place, the root's part is there already.
pub fn build(
    algorithm: Algorithm,
    schedule: &mut Schedule,
    team: Team,
    root: usize,
    block: Span,
    output: Option<Span>,
) {
    match algorithm {
        Algorithm::Binomial => binomial(schedule, team, root, block, output),
        Algorithm::Linear => {
            linear(schedule, team, root, block, output.map(|output| (output, Blocks::Equal(block.len()))));
        }
        other => panic!("a gather has no algorithm {other}"),
    }
}
