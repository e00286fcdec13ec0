//! One rank's blocks, one to each.

mod binomial;
mod linear;

use super::{Algorithm, Blocks, Schedule, Span, Team};

pub use binomial::binomial;
pub(super) use binomial::down_tree;
pub use linear::linear;

/// From the root, by one of a scatter's algorithms: `block` is our part, of `len` bytes as everybody's, and nowhere if it
/// stays in place; `input` is the root's.
pub fn build(
    algorithm: Algorithm,
    schedule: &mut Schedule,
    team: Team,
    root: usize,
    len: usize,
    (input, block): (Option<Span>, Option<Span>),
) {
    match algorithm {
        Algorithm::Binomial => binomial(schedule, team, root, len, block, input),
        Algorithm::Linear => linear(schedule, team, root, block, input.map(|input| (input, Blocks::Equal(len)))),
        other => panic!("a scatter has no algorithm {other}"),
    }
}
