//! Communicators of several ranks: threads of this process, over shared memory.

mod agreeing;
mod collective;
mod create;
mod failure;
mod failure_on_host;
mod forms;
mod groups;
mod misfits;
mod multiple;
mod panics;
mod partitioned;
mod persistent;
mod pieces;
mod point;
mod pulse;

use crate::adi::Config;

use super::*;

/// Runs `each` as every rank.
fn job(size: u32, each: impl Fn(Communicator) + Sync) {
    in_threads(size, &Config::default(), false, each);
}
