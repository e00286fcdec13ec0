//! Everybody's arrays combined, element by element, at one rank.

mod binomial;
mod rabenseifner;

pub use binomial::binomial;
pub use rabenseifner::rabenseifner;
