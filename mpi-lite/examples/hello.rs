//! Says hello, and passes messages around the ring of all ranks: each has to come round unaltered.
//!
//! `cargo build --release --example hello -p sidelane-mpi`, and then `sidelane run -n 4 target/release/examples/hello`.

use sidelane_mpi::comm::{Communicator, ErrorClass};
use sidelane_mpi::world::{self, WorldError};

fn main() -> Result<(), WorldError> {
    world::run_or_abort(hello)
}

fn hello(comm: &Communicator) -> Result<(), ErrorClass> {
    let (rank, size) = (comm.rank(), comm.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    for len in LENGTHS {
        // Every rank starts a message, and after `size` steps it has its own again.
        let own: Vec<u8> = (0..len).map(|at| (at * 7 + rank as usize) as u8).collect();
        let mut message = own.clone();
        for _ in 0..size {
            let mut room = vec![0; len];
            comm.sendrecv(&message, next, 0, &mut room, before, 0)?;
            message = room;
        }
        assert!(message == own, "rank {rank}: a message of {len} bytes came back altered");
    }
    println!("hello from rank {rank} of {size}: {} messages went round", LENGTHS.len());
    Ok(())
}

/// From nothing to what travels by announcement.
const LENGTHS: [usize; 5] = [0, 8, 1000, 20_000, 1_000_000];
