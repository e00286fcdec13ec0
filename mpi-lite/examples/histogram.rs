//! Counts how often each sum of twelve dice falls. Whoever is free takes the next throws, and nobody gives them out: their numbers come
//! from a counter that all fetch and raise. The counts are dealt among the ranks, who add to one another's while all go on.
//!
//! `cargo build --release --example histogram -p sidelane-mpi`, and then `sidelane run -n 4 target/release/examples/histogram`. The
//! counts that are printed do not depend on the number of ranks.

use sidelane_mpi::comm::{Communicator, ErrorClass};
use sidelane_mpi::op::Op;
use sidelane_mpi::window::{AllLocked, Epoch};
use sidelane_mpi::world::{self, WorldError};

fn main() -> Result<(), WorldError> {
    world::run_or_abort(histogram)
}

/// Throws in all, and those that are taken at a time.
const THROWS: u64 = 400_000;
const TAKEN: u64 = 2_000;

/// Dice of a throw, and their sums, from 0 on.
const DICE: u64 = 12;
const SUMS: usize = 6 * DICE as usize + 1;

/// Rank 0 has the counter, and says how often each sum has fallen.
pub fn histogram(comm: &Communicator) -> Result<(), ErrorClass> {
    let share = SUMS.div_ceil(comm.size() as usize);
    let next = comm.window::<u64>(usize::from(comm.rank() == 0))?;
    let counts = comm.window::<u64>(share)?;
    // Others' counts change at any time, and every change is whole: all may have all locks.
    let (taking, counting) = (next.lock_all()?, counts.lock_all()?);
    loop {
        let first = taking.fetch_and_op(TAKEN, 0, 0, &Op::Sum)?;
        if first >= THROWS {
            break;
        }
        let mut fallen = [0; SUMS];
        (first..first + TAKEN).for_each(|throw| fallen[sum(throw)] += 1);
        for (owner, part) in (0..).zip(fallen.chunks(share)) {
            counting.accumulate(part, owner, 0, &Op::Sum)?;
        }
    }
    taking.end()?;
    // What this rank has added is there; when all are here, what all have.
    counting.flush_all()?;
    comm.barrier()?;
    if comm.rank() == 0 {
        say(&gathered(&counting, share)?);
    }
    counting.end()?;
    counts.free()?;
    next.free()
}

/// All counts, from all ranks at once.
fn gathered(counting: &Epoch<'_, u64, AllLocked>, share: usize) -> Result<[u64; SUMS], ErrorClass> {
    let mut all = [0; SUMS];
    counting.scope(|scope| {
        for (owner, part) in (0..).zip(all.chunks_mut(share)) {
            scope.get(part, owner, 0)?;
        }
        Ok(())
    })?;
    Ok(all)
}

fn say(all: &[u64; SUMS]) {
    assert_eq!(all.iter().sum::<u64>(), THROWS);
    let most = all.iter().max().expect("there are sums");
    for (sum, count) in all.iter().enumerate().filter(|(_, count)| **count > most / 100) {
        println!("{sum:2} {}", "#".repeat((60 * count / most) as usize));
    }
    let total: u64 = all.iter().zip(0..).map(|(count, sum)| count * sum).sum();
    println!("{THROWS} throws of {DICE} dice come to {total}, {most} of them to the same");
}

/// What the dice of a throw come to, the same whoever throws them.
fn sum(throw: u64) -> usize {
    (0..DICE).map(|die| 1 + (scattered(throw * DICE + die) % 6) as usize).sum()
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014), as in the reference code of SplitMix64.
const fn scattered(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
