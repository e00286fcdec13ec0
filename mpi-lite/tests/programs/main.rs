//! Random programs against a sequential model: point to point with all its modes, wildcards and probes, derived datatypes, messages
//! sent and received in one call, partitioned messages, collectives blocking and not, persistent calls, communicators of every kind with
//! grids, graphs and two groups, windows in every kind of epoch. On the simulated network in virtual time, under faults; and over shared
//! memory, a thread for each rank. `tools/tests/command/programs.rs` runs them as real processes.
//!
//! A failure names its seed; `PROGRAM_SEED=N` repeats that one, and `PROGRAM_SEEDS=N` runs so many.

#![deny(unsafe_code)]

mod fibers;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
#[allow(dead_code, reason = "some of it is for real processes")]
mod program;
mod simulated;

use patience::{PATIENCE, SUITE_PATIENCE, watch};
use program::{Program, Scale};
use sidelane_mpi::op::Op;

#[test]
fn on_the_simulated_network() {
    for seed in seeds(300) {
        // Whoever waits without ever sleeping keeps virtual time from moving, and this from ending.
        watch(&format!("PROGRAM_SEED={seed}"), PATIENCE);
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

/// Each call that goes on two levels by the built-in rules gets through where only leaders reach other hosts, and nothing else does.
#[test]
fn where_hosts_have_several_ranks_only_their_leaders_speak_to_other_hosts() {
    watch("it", PATIENCE);
    let sum: fn(u32) -> u32 = |size| size * (size - 1) / 2;
    simulated::run_among_leaders(&[0, 1, 1, 0, 2, 0, 2], move |world| {
        let (rank, size, add) = (world.rank(), world.size(), &Op::Sum);
        let all: Vec<u32> = (0..size).collect();
        let mut one = [0];
        world.barrier().unwrap();
        // Rank 4 leads its host too.
        for root in [0, 4] {
            let mut told = [if rank == root { 9 } else { 0 }];
            world.broadcast(&mut told, root).unwrap();
            assert_eq!(told, [9]);
            world.reduce(&[rank], &mut one, add, root).unwrap();
            assert!(rank != root || one == [sum(size)]);
        }
        world.allreduce(&[rank], &mut one, add).unwrap();
        assert_eq!(one, [sum(size)]);
        world.reduce_scatter_block(&all, &mut one, add).unwrap();
        assert_eq!(one, [rank * size]);
        world.reduce_scatter(&all, &mut one, &vec![1; size as usize], add).unwrap();
        assert_eq!(one, [rank * size]);
        let mut gathered = vec![0; size as usize];
        world.allgather(&[rank], &mut gathered).unwrap();
        assert_eq!(gathered, all);
        gathered.fill(0);
        world.allgather_varying(&[rank], &mut gathered, &vec![1; size as usize]).unwrap();
        assert_eq!(gathered, all);
        world.alltoall(&vec![rank; size as usize], &mut gathered).unwrap();
        assert_eq!(gathered, all);
        // Also one that does not wait.
        let own = [rank];
        world.scope(|scope| scope.allreduce(&own, &mut one, add).map(drop)).unwrap();
        assert_eq!(one, [sum(size)]);
        let hosts: [&[u32]; 3] = [&[0, 3, 5], &[1, 2], &[4, 6]];
        let here = hosts.into_iter().find(|ranks| ranks.contains(&rank)).unwrap();
        assert_eq!(world.split_shared(0).unwrap().group().processes(), here);
    });
}

#[test]
fn over_shared_memory() {
    for seed in seeds(60) {
        watch(&format!("PROGRAM_SEED={seed}"), SUITE_PATIENCE);
        let program = Program::new(seed, Scale::USUAL, None);
        sidelane_mpi::comm::in_threads(program.ranks, &Default::default(), false, |world| {
            program.run(&world, 0, &std::thread::yield_now);
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
