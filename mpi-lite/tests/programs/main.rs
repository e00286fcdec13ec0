//! Random programs against a sequential model: point to point with all its modes, wildcards and probes, derived datatypes,
//! collectives blocking and not, communicators of every kind, windows. On the simulated network in virtual time, under faults;
//! and over shared memory, a thread for each rank. `tools/tests/command/programs.rs` runs them as real processes.
//!
//! A failure names its seed; `PROGRAM_SEED=N` repeats that one, and `PROGRAM_SEEDS=N` runs so many.

#![deny(unsafe_code)]

mod fibers;
#[allow(dead_code, reason = "some of it is for real processes")]
mod program;
mod simulated;

use program::{Program, Scale};

#[test]
fn on_the_simulated_network() {
    for seed in seeds(300) {
        let program = Program::new(seed, Scale::LOW, None);
        if std::env::var_os("PROGRAM_SEED").is_some() {
            println!("{program:#?}");
        }
        let run = std::panic::catch_unwind(|| simulated::run(program));
        assert!(
            run.is_ok(),
            "failed: repeat with PROGRAM_SEED={seed} cargo test -p sidelane-mpi --test programs simulated"
        );
    }
}

#[test]
fn over_shared_memory() {
    for seed in seeds(60) {
        let program = Program::new(seed, Scale::USUAL, None);
        // A rank that panics ends the process: its seed is said before.
        println!("PROGRAM_SEED={seed} cargo test -p sidelane-mpi --test programs shared");
        sidelane_mpi::comm::in_threads(program.ranks, &Default::default(), false, |world| {
            program.run(&world, &std::thread::yield_now);
        });
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("PROGRAM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PROGRAM_SEEDS").unwrap_or(count),
    }
}
