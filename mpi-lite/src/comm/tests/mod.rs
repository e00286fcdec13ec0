//! Communicators of several ranks: threads of this process, over shared memory.

mod agreeing;
mod awaited;
mod collective;
mod create;
mod duplicates;
mod ending;
mod equivalence;
mod exchange;
mod failure;
mod failure_between;
mod failure_on_host;
mod forms;
mod groups;
mod handlers;
mod ids;
mod in_place;
mod leaders;
mod misfits;
mod modes;
mod multiple;
mod panics;
mod partitioned;
mod persistent;
mod pieces;
mod point;
mod pulse;
mod reduce_local;
mod split;

use crate::adi::Config;

use super::*;

/// Runs `each` as every rank.
fn job(size: u32, each: impl Fn(Communicator) + Sync) {
    in_threads(size, &Config::default(), false, each);
}

/// Runs `each` with ranks that share memory, and with ranks whose calls go by messages, as between hosts.
fn both_ways(size: u32, each: impl Fn(Communicator) + Sync) {
    for by_messages in [false, true] {
        in_threads(size, &Config::default(), by_messages, &each);
    }
}

/// Everybody's number in the world, by the ranks of a communicator.
fn who(comm: &Communicator, number: u32) -> Vec<u32> {
    let mut all = vec![0; comm.size() as usize];
    comm.allgather(&[number], &mut all).unwrap();
    all
}
