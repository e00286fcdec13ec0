//! How fast datatypes pack and unpack, beside `memcpy` of as many bytes.
//!
//! `cargo run --release -p sidelane-mpi --example pack`

use std::hint::black_box;
use std::time::Instant;

use sidelane_mpi::datatype::{Datatype, Order, Predefined};

/// Rounds of each row, taken in turn so that a busy machine hurts all alike; the best counts.
const ROUNDS: usize = 15;

/// Bytes that each timing moves, in as many calls as it takes.
const MOVED: usize = 16 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let double = Predefined::Double.into();
    let float = Predefined::Float.into();
    // Every second of 16 Ki places, each moved on by some: irregular, as in a sparse matrix.
    let irregular: Vec<isize> = (0..8192).map(|index| 2 * index + (index * index) % 2).collect();
    let lengths: Vec<usize> = (0..8192).map(|index| 1 + index % 3).collect();
    let apart: Vec<isize> = (0..8192).map(|index| 4 * index).collect();
    let rows = [
        ("contiguous, 64 KiB", Datatype::contiguous(8192, &double)?),
        ("vector of 1 float, stride 2", Datatype::vector(16384, 1, 2, &float)?),
        ("vector of 1 double, stride 2", Datatype::vector(8192, 1, 2, &double)?),
        ("vector of 1 double, stride 128 (a column)", Datatype::vector(512, 1, 128, &double)?),
        ("vector of 5 doubles, stride 8", Datatype::vector(1638, 5, 8, &double)?),
        ("vector of 32 doubles, stride 64", Datatype::vector(256, 32, 64, &double)?),
        ("vector of 512 doubles, stride 1024", Datatype::vector(16, 512, 1024, &double)?),
        ("indexed blocks of 1 double", Datatype::indexed_block(1, &irregular, &double)?),
        ("indexed, 1 to 3 doubles", Datatype::indexed(&lengths, &apart, &double)?),
        ("face of a cube, y-z of 64^3", Datatype::subarray(&[64; 3], &[64, 64, 1], &[0; 3], Order::C, &double)?),
        ("face of a cube, x-z of 64^3", Datatype::subarray(&[64; 3], &[64, 1, 64], &[0; 3], Order::C, &double)?),
        ("inside of a cube, 62^3 of 64^3", Datatype::subarray(&[64; 3], &[62; 3], &[1; 3], Order::C, &double)?),
    ];
    let mut best = vec![[f64::MAX; 3]; rows.len()];
    for _ in 0..ROUNDS {
        for ((_, datatype), best) in rows.iter().zip(&mut best) {
            let times = measure(datatype)?;
            best.iter_mut().zip(times).for_each(|(best, time)| *best = best.min(time));
        }
    }
    println!("{:44} {:>9} {:>13} {:>13} {:>13}", "", "bytes", "memcpy GB/s", "pack GB/s", "unpack GB/s");
    for ((name, datatype), [copy, pack, unpack]) in rows.iter().zip(best) {
        println!("{name:44} {:>9} {:>13.2} {:>13.2} {:>13.2}", datatype.size(), 1.0 / copy, 1.0 / pack, 1.0 / unpack);
    }
    Ok(())
}

/// Nanoseconds a byte to copy, pack and unpack.
fn measure(datatype: &Datatype) -> Result<[f64; 3], Box<dyn std::error::Error>> {
    let size = datatype.size();
    let mut memory = vec![1; datatype.extent() as usize];
    let source = vec![2; size];
    let mut packed = vec![3; size];
    let calls = MOVED / size;
    let start = Instant::now();
    for _ in 0..calls {
        black_box(&mut packed).copy_from_slice(black_box(&source));
    }
    let copied = Instant::now();
    for _ in 0..calls {
        datatype.pack(black_box(&memory), 0, 1, 0, black_box(&mut packed))?;
    }
    let packed_at = Instant::now();
    for _ in 0..calls {
        datatype.unpack(black_box(&mut memory), 0, 1, 0, black_box(&packed))?;
    }
    let moved = (calls * size) as f64;
    let ns = [copied - start, packed_at - copied, packed_at.elapsed()];
    Ok(ns.map(|time| time.as_nanos() as f64 / moved))
}
