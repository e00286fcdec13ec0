//! Plays many seeds of the protocol's simulation; a failure prints its seed and the command that repeats it.
//!
//! `cargo run --release -p sidelane-proto --example simulate -- --seeds 20000`

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sidelane_proto::sim::{Scenario, run};

fn main() -> ExitCode {
    let (mut first, mut count) = (0u64, 1000u64);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|value| value.parse().ok());
        match (arg.as_str(), value) {
            ("--seeds", Some(n)) => count = n,
            ("--first", Some(n)) => first = n,
            ("--seed", Some(n)) => return play_one(n),
            _ => {
                eprintln!("usage: simulate [--seeds COUNT] [--first SEED] | --seed SEED");
                return ExitCode::from(2);
            }
        }
    }
    let (next, failed, delivered, gone) =
        (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    match run(&Scenario::stormy(seed)) {
                        Ok(outcome) => {
                            delivered.fetch_add(outcome.delivered, Ordering::Relaxed);
                            gone.fetch_add(outcome.gone, Ordering::Relaxed);
                        }
                        Err(violation) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("seed {seed} FAILED: {violation}");
                            println!(
                                "repeat it: cargo run --release -p sidelane-proto --example simulate -- --seed {seed}"
                            );
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!(
        "{count} seeds from {first}: {} passed, {failed} failed; {} messages delivered, {} connections ended with an error",
        count - failed,
        delivered.into_inner(),
        gone.into_inner()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play_one(seed: u64) -> ExitCode {
    let scenario = Scenario::stormy(seed);
    println!("{scenario:#?}");
    match run(&scenario) {
        Ok(outcome) => {
            println!("passed: {outcome:#?}");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("FAILED: {violation}");
            ExitCode::FAILURE
        }
    }
}
