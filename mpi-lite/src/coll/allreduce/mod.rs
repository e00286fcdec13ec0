//! Everybody's arrays combined, element by element, at everybody's.

mod rabenseifner;
mod recursive_doubling;
mod ring;

use super::{Algorithm, Reduction, Schedule, Span, Team};

pub use rabenseifner::rabenseifner;
pub use recursive_doubling::recursive_doubling;
pub use ring::ring;

/// To all, by one of an allreduce's algorithms. In place, `input` is `output`.
pub fn build(
    algorithm: Algorithm,
    schedule: &mut Schedule,
    team: Team,
    input: Span,
    output: Span,
    reduction: Reduction,
) {
    match algorithm {
        Algorithm::RecursiveDoubling => recursive_doubling(schedule, team, input, output, reduction),
        Algorithm::Rabenseifner => rabenseifner(schedule, team, input, output, reduction),
        Algorithm::Ring => ring(schedule, team, input, output, reduction),
        other => panic!("an allreduce has no algorithm {other}"),
    }
}
