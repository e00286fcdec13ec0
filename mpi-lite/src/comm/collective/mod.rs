//! Collective calls on a communicator: by shared memory where all its ranks are on one host and long enough together in a
//! call, by messages otherwise; and on two levels by both, where hosts have several ranks.

mod between;
mod course;
mod execution;
mod few;
mod on_host;
mod queue;
mod ranks;
#[cfg(test)]
mod tests;

pub use between::NOBODY;
pub use course::Course;
pub use execution::{Execution, Lent};
pub use few::Look;
pub use queue::{KeptCombine, Queue, Queued};
pub use ranks::{Combine, Ranks};
