//! A number goes round a ring of all ranks, and each adds its own rank to it.
//!
//! `cargo build --release --example ring -p sidelane-mpi`, and then `sidelane run -n 4 target/release/examples/ring`. Alone it is
//! a ring of one.

use sidelane_mpi::comm::{Communicator, ErrorClass};
use sidelane_mpi::world::{self, WorldError};

fn main() -> Result<(), WorldError> {
    world::run_or_abort(ring)
}

/// Rank 0 says what came of it.
pub fn ring(comm: &Communicator) -> Result<(), ErrorClass> {
    let (rank, size) = (comm.rank(), comm.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut sum = [0u64];
    for round in 0..ROUNDS {
        if rank > 0 {
            comm.recv(&mut sum, before, round)?;
        }
        sum[0] += u64::from(rank);
        let so_far = sum;
        // Rank 0 has begun, and what it gets now has been everywhere.
        if rank == 0 {
            comm.sendrecv(&so_far, next, round, &mut sum, before, round)?;
        } else {
            comm.send(&so_far, next, round)?;
        }
    }
    if rank == 0 {
        let ranks = u64::from(size);
        assert_eq!(sum[0], ROUNDS as u64 * ranks * (ranks - 1) / 2);
        println!("{ROUNDS} times round {size} ranks: {}", sum[0]);
    }
    Ok(())
}

/// Also the messages' tags.
const ROUNDS: i32 = 1_000;
