//! One rank's blocks, one to each.

mod binomial;
mod linear;

pub use binomial::binomial;
pub(super) use binomial::down_tree;
pub use linear::linear;
