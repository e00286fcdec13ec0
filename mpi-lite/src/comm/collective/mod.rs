//! Collective calls on a communicator: by shared memory where all its ranks are on one host and long enough together in a
//! call, by messages otherwise.

mod between;
mod execution;
mod ranks;
#[cfg(test)]
mod tests;

pub use between::NOBODY;
pub use execution::{Execution, Lent};
pub use ranks::{Combine, Course, Ranks, Turns};
