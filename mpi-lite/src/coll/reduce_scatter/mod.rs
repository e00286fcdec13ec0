//! Everybody's arrays combined, element by element, and a block of the result to each.

mod pairwise;
mod recursive_halving;

pub use pairwise::pairwise;
pub use recursive_halving::recursive_halving;
