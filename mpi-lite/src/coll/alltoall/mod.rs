//! A block from everybody to everybody.
//!
//! Blocks of any length and place, as `MPI_Alltoallv` and, with packed elements (`comm::Piece`), `MPI_Alltoallw` have them, go
//! pairwise or linear; in place, the input is where the output is.

mod bruck;
mod linear;
mod pairwise;

use super::{Algorithm, Blocks, Schedule, Span, Team};

pub use bruck::bruck;
pub use linear::linear;
pub use pairwise::pairwise;

/// Blocks of `len` bytes, by one of an alltoall's algorithms. In place, `input` is `output`.
pub fn build(algorithm: Algorithm, schedule: &mut Schedule, team: Team, input: Span, output: Span, len: usize) {
    let blocks = Blocks::Equal(len);
    match algorithm {
        Algorithm::Bruck => bruck(schedule, team, input, output, len),
        Algorithm::Pairwise => pairwise(schedule, team, (input, blocks), (output, blocks)),
        Algorithm::Linear => linear(schedule, team, (input, blocks), (output, blocks)),
        other => panic!("an alltoall has no algorithm {other}"),
    }
}

/// The input, out of the way of the output.
fn set_apart(schedule: &mut Schedule, input: Span, output: Span) -> Span {
    if !input.overlaps(output) {
        return input;
    }
    let apart = schedule.scratch(input.len());
    schedule.copy(apart, input);
    schedule.next_round();
    apart
}
