//! Rank 2 of four is killed in each kind of operation that the launcher's own tests go through, and nobody tells the others.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sidelane_mpi::comm::ErrorClass;
use sidelane_mpi::world;

use crate::killed::die;
use crate::launcher;
use crate::operations::{self, RANKS, VICTIM};

/// Rounds of an operation that the one goes through before.
const ROUNDS: usize = 3;

/// As of other calls: twice 0.4 s until it is known, a tenth to wake up, and a busy machine.
const BOUND: Duration = Duration::from_secs(5);

/// Jobs at a time, which mostly wait.
const JOBS: usize = 3;

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let what = std::env::var("WHAT").unwrap();
    let (_, operation) = operations::ALL.into_iter().find(|(name, _)| *name == what).expect("one of those");
    world::run(|world| {
        let (round, begun) = (Cell::new(0), Cell::new(Instant::now()));
        let next = || {
            if world.rank() == VICTIM && round.get() == ROUNDS {
                die();
            }
            round.set(round.get() + 1);
            begun.set(Instant::now());
        };
        let error = operation(world, &next).expect_err("it goes on until it fails");
        println!("\ntold: {} {error}", begun.get().elapsed().as_millis());
    })
    .unwrap();
}

fn all_are_told(what: &str) {
    let said = launcher::run(RANKS as usize, "under_way::part_of_a_rank", &[("WHAT", what)], true);
    for (rank, said) in (0..).zip(said) {
        let Some(said) = said else {
            assert_eq!(rank, VICTIM, "{what}: rank {rank} said nothing");
            continue;
        };
        let (took, error) = said.split_once(' ').unwrap();
        let took = Duration::from_millis(took.parse().unwrap());
        println!("{what}: rank {rank}: {error} after {took:?}");
        assert_eq!(error, ErrorClass::ProcFailed.to_string(), "{what}: rank {rank}");
        assert!(took < BOUND, "{what}: rank {rank} was told after {took:?}");
    }
}

#[test]
fn the_others_are_told_of_a_death_whatever_is_under_way() {
    let next = AtomicUsize::new(0);
    let take = || operations::ALL.get(next.fetch_add(1, Ordering::Relaxed));
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| std::iter::from_fn(take).for_each(|(what, _)| all_are_told(what)));
        }
    });
}
