//! Random MPI programs as real processes: those that `mpi-lite/tests/programs` runs in simulations.
//!
//! A failure names its seed; `PROGRAM_SEED=N` repeats that one, and `PROGRAM_SEEDS=N` runs so many.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use sidelane_mpi::adi::host_identity;
use sidelane_mpi::world;

use crate::run::{job_of, own_stage, said, told};
use crate::stage::{Stage, for_each_user};

#[allow(dead_code, reason = "some of it is for simulations")]
#[path = "../../../mpi-lite/tests/programs/program/mod.rs"]
mod program;

use program::{Program, Scale};

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let done = world::run(|world| {
        let size = world.size();
        let mut hasher = DefaultHasher::new();
        host_identity().hash(&mut hasher);
        let host = hasher.finish();
        if std::env::var("PROGRAM").is_ok_and(|which| which == "collectives") {
            return Program::of_collectives(1, SHORT, size).run(world, host, &std::thread::yield_now);
        }
        // Much at once is lost in a UDP socket's buffer, and sent again late.
        let scale = if std::env::var("SIDELANE_NIC").is_ok_and(|nic| nic == "udp") { SHORT } else { Scale::USUAL };
        for seed in number("FIRST")..number("FIRST") + number("COUNT") {
            if world.rank() == 0 {
                eprintln!("PROGRAM_SEED={seed}, {size} ranks");
            }
            Program::new(seed, scale, Some(size)).run(world, host, &std::thread::yield_now);
        }
    });
    done.unwrap();
    println!("\ntold: done");
}

/// Runs as many programs as asked for, or `count`, one after another in one job of `ranks`.
fn run(stage: &Stage, ranks: usize, count: u64, options: &[&str]) {
    let number = |name| std::env::var(name).ok();
    let (first, count) = match number("PROGRAM_SEED") {
        Some(seed) => (seed, "1".to_owned()),
        None => ("0".to_owned(), number("PROGRAM_SEEDS").unwrap_or(count.to_string())),
    };
    let (first, count, size) = (format!("FIRST={first}"), format!("COUNT={count}"), ranks.to_string());
    let ours = ["-n", &size, "--timeout", "100", "-x", &first, "-x", &count];
    let arguments = job_of(stage, &[&ours[..], options].concat(), "programs::part_of_a_rank");
    let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let last: Vec<String> = told(&output).2.lines().rev().take(20).map(str::to_owned).collect();
    assert_eq!(said(&output).len(), ranks, "{options:?}: {last:#?}");
    assert!(output.status.success(), "{options:?}: {last:#?}");
}

#[test]
fn programs_do_what_the_model_does_over_shared_memory() {
    own_stage(|stage| {
        for ranks in [1, 2, 5, 17] {
            run(stage, ranks, 20, &[]);
        }
    });
}

#[test]
fn programs_do_what_the_model_does_between_hosts() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "3"]);
        // On hosts of their own, and with shared memory between some.
        for (ranks, count, driver) in [(3, 20, "uring"), (8, 10, "uring"), (17, 3, "uring"), (3, 5, "udp")] {
            run(stage, ranks, count, &["--hosts", "lab", "--nic", driver]);
        }
        stage.text(&["lab", "down"]);
    });
}

#[test]
fn sixty_four_ranks_make_every_collective_call_within_half_a_minute() {
    own_stage(|stage| {
        let options = ["-n", "64", "--timeout", "100", "-x", "PROGRAM=collectives"];
        let arguments = job_of(stage, &options, "programs::part_of_a_rank");
        let began = Instant::now();
        let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let took = began.elapsed();
        assert_eq!(said(&output).len(), 64, "{output:?}");
        assert!(output.status.success(), "{output:?}");
        println!("64 ranks, every collective call: {took:?}");
        assert!(took < Duration::from_secs(30), "{took:?}");
    });
}

/// With many ranks everybody's blocks are much together.
const SHORT: Scale = Scale { around: &[0, 20, 1_500], most: 4_000 };
