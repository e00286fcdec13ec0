//! Says hello, and passes messages around the ring of all ranks: each has to come round unaltered.
//!
//! `cargo build --release --example hello -p sidelane-mpi`, and then `sidelane run -n 4 target/release/examples/hello`.

use std::process::ExitCode;

use sidelane_mpi::adi::{Envelope, Incoming, Mode, Outgoing, Pattern, Source};
use sidelane_mpi::world::{World, WorldError};

fn main() -> ExitCode {
    match hello() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hello() -> Result<(), WorldError> {
    let mut world = World::init()?;
    let (rank, size) = (world.rank(), world.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    for len in LENGTHS {
        // Every rank starts a message, and after `size` steps it has its own again.
        let mut message: Vec<u8> = (0..len).map(|at| (at * 7 + rank) as u8).collect();
        for _ in 0..size {
            message = pass(&mut world, to, from, &message);
        }
        let unaltered = message.iter().enumerate().all(|(at, byte)| *byte == (at * 7 + rank) as u8);
        assert!(unaltered && message.len() == len, "rank {rank}: a message of {len} bytes came back altered");
    }
    println!("hello from rank {rank} of {size}: {} messages went round", LENGTHS.len());
    world.finalize()
}

/// Sends `message` to rank `to` and returns what comes from rank `from`, which is as long.
fn pass(world: &mut World, to: usize, from: usize, message: &[u8]) -> Vec<u8> {
    let rank = world.rank() as u32;
    let mut room = vec![0; message.len()];
    let device = world.device();
    let source = Some(Source { rank: from as u32, process: from as u32 });
    // SAFETY: Both are waited for before this returns, and `room` is not touched until then.
    let (out, into) = unsafe { (Outgoing::lend(message), Incoming::lend(&raw mut *room)) };
    let receive = device.recv(Pattern { context: 0, source, tag: Some(0) }, into);
    let send = device.send(to as u32, Envelope { context: 0, source: rank, tag: 0 }, out, Mode::Standard);
    for (what, request) in [("send", send), ("receive", receive)] {
        if let Some(error) = device.wait(request).error {
            panic!("rank {rank}: the {what} failed: {error}");
        }
    }
    room
}

/// From nothing to what travels by announcement.
const LENGTHS: [usize; 5] = [0, 8, 1000, 20_000, 1_000_000];
