//! One rank's bytes to all.

mod binomial;
mod chain;
mod scatter_allgather;

use super::{Algorithm, Schedule, Span, Team};

pub use binomial::binomial;
pub use chain::chain;
pub use scatter_allgather::scatter_allgather;

/// One rank's bytes to all, by one of a broadcast's algorithms.
pub fn build(algorithm: Algorithm, schedule: &mut Schedule, team: Team, root: usize, data: Span) {
    match algorithm {
        Algorithm::Binomial => binomial(schedule, team, root, data),
        Algorithm::ScatterAllgather => scatter_allgather(schedule, team, root, data),
        Algorithm::Chain { segment } => chain(schedule, team, root, data, segment),
        other => panic!("a broadcast has no algorithm {other}"),
    }
}
