//! One rank's bytes to all.

mod binomial;
mod chain;
mod scatter_allgather;

pub use binomial::binomial;
pub use chain::chain;
pub use scatter_allgather::scatter_allgather;
