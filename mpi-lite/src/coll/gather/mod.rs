//! Everybody's block to one rank.

mod binomial;
mod linear;

pub use binomial::binomial;
pub(super) use binomial::up_tree;
pub use linear::linear;
