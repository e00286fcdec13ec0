//! Everybody's arrays combined, element by element, at one rank.

mod binomial;
mod rabenseifner;

use super::{Algorithm, Reduction, Schedule, Span, Team};

pub use binomial::binomial;
pub use rabenseifner::rabenseifner;

/// To the root, by one of a reduction's algorithms; `output` is the root's, and where it is in place `input` is the same.
pub fn build(
    algorithm: Algorithm,
    schedule: &mut Schedule,
    team: Team,
    root: usize,
    (input, output): (Span, Option<Span>),
    reduction: Reduction,
) {
    match algorithm {
        Algorithm::Binomial => binomial(schedule, team, root, input, output, reduction),
        Algorithm::Rabenseifner => rabenseifner(schedule, team, root, input, output, reduction),
        other => panic!("a reduction has no algorithm {other}"),
    }
}
