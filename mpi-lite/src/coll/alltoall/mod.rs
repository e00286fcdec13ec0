//! A block from everybody to everybody.
//!
//! Blocks of any length and place, as `MPI_Alltoallv` and, with packed elements, `MPI_Alltoallw` have them, go pairwise or
//! linear; in place, the input is where the output is.

mod bruck;
mod linear;
mod pairwise;

use super::{Schedule, Span};

pub use bruck::bruck;
pub use linear::linear;
pub use pairwise::pairwise;

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
