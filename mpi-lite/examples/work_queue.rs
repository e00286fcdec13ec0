//! Rank 0 gives out tasks to whoever is free: counts the primes below a million, in pieces that take unequally long.
//!
//! `cargo build --release --example work_queue -p sidelane-mpi`, and then `sidelane run -n 4 target/release/examples/work_queue`.

use sidelane_mpi::comm::{Communicator, ErrorClass, Source};
use sidelane_mpi::world::{self, WorldError};

fn main() -> Result<(), WorldError> {
    world::run_or_abort(work_queue)
}

/// Numbers in all, and of one task.
const NUMBERS: u64 = 1_000_000;
const TASK: u64 = 10_000;

/// Tags: a task, a result, and the end.
const TASKS: i32 = 1;
const RESULTS: i32 = 2;
const END: i32 = 3;

/// Rank 0 says how many there are.
pub fn work_queue(comm: &Communicator) -> Result<(), ErrorClass> {
    if comm.rank() == 0 { give_out(comm) } else { work(comm) }
}

fn give_out(comm: &Communicator) -> Result<(), ErrorClass> {
    let mut tasks = (0..NUMBERS).step_by(TASK as usize);
    let mut done = vec![0; comm.size() as usize];
    let mut primes = 0;
    let mut busy = 0;
    for worker in 1..comm.size() {
        match tasks.next() {
            Some(task) => {
                comm.send(&[task], worker, TASKS)?;
                busy += 1;
            }
            None => comm.send::<u64>(&[], worker, END)?,
        }
    }
    while busy > 0 {
        let mut found = [0u64];
        let worker = comm.recv(&mut found, Source::Any, RESULTS)?.source.expect("a worker");
        primes += found[0];
        done[worker as usize] += 1;
        match tasks.next() {
            Some(task) => comm.send(&[task], worker, TASKS)?,
            None => {
                comm.send::<u64>(&[], worker, END)?;
                busy -= 1;
            }
        }
    }
    // Without workers the work is ours.
    for task in tasks {
        primes += count(task);
        done[0] += 1;
    }
    println!("{primes} primes below {NUMBERS}; tasks by rank: {done:?}");
    assert_eq!(primes, 78_498);
    Ok(())
}

fn work(comm: &Communicator) -> Result<(), ErrorClass> {
    loop {
        let mut task = [0u64];
        if comm.recv(&mut task, 0, None)?.tag == Some(END) {
            return Ok(());
        }
        comm.send(&[count(task[0])], 0, RESULTS)?;
    }
}

/// Primes of one task, by trial.
fn count(first: u64) -> u64 {
    let prime = |number: &u64| {
        *number > 1 && (2..).take_while(|part| part * part <= *number).all(|part| !number.is_multiple_of(part))
    };
    (first..first + TASK).filter(prime).count() as u64
}
