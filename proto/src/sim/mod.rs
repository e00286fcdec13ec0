//! Endpoints on a simulated fabric in virtual time, with an oracle: everything about a run follows from its seed.
//!
//! A [`Scenario`] draws nodes, links, faults, partitions, crashes, pauses and traffic from a seed; [`run`] plays it and judges:
//! each message exactly once, in order, unaltered, and every silence ends with an error in bounded time.

#[cfg(test)]
mod explore;
pub mod load;
mod one_sided;
mod oracle;
mod outlet;
mod play;
mod scenario;

pub use oracle::Violation;
pub use play::{Outcome, run};
pub use scenario::{Crash, Partition, Pause, Scenario};
