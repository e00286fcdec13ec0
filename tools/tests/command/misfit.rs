//! Collective calls of ranks on several hosts that do not fit, or whose operator panics: an error for all, also where only one
//! host's ranks can see why.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sidelane_mpi::comm::{Communicator, ErrorClass, ErrorHandler};
use sidelane_mpi::op::{Op, UserOp};
use sidelane_mpi::world;

use crate::run::{job_of, said};
use crate::stage::for_each_user;

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let error = world::run(|world| {
        world.set_error_handler(ErrorHandler::Return);
        let mut room = vec![0u8; if world.rank() == 3 { 9 } else { 8 }];
        // Ranks of the other host get through this, and so may who has shown its host what it has.
        let _ = world.barrier().and_then(|()| world.broadcast(&mut room, 0));
        loop {
            if let Err(error) = world.barrier() {
                return error;
            }
        }
    });
    println!("\ntold: {}", error.unwrap());
}

#[test]
fn a_length_that_does_not_fit_on_one_host_ends_the_calls_of_all() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "2"]);
        let options = ["-n", "4", "--hosts", "lab", "--timeout", "60"];
        let arguments = job_of(stage, &options, "misfit::part_of_a_rank");
        let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success() && said(&output).len() == 4, "{output:?}");
        stage.text(&["lab", "down"]);
    });
}

#[test]
#[ignore = "run as a rank by other tests"]
fn part_with_an_operator() {
    let ended = world::run(|world| {
        world.set_error_handler(ErrorHandler::Return);
        let mut ended = Vec::new();
        for values in [1, 100_000] {
            let comm = world.dup().unwrap();
            let (given, mut sums) = (vec![1u64; values], vec![0; values]);
            let root = comm.size() - 1;
            let op = sum_or_panic(comm.rank() == root);
            // The root combines.
            let reduced = catch_unwind(AssertUnwindSafe(|| comm.reduce(&given, &mut sums, &op, root)));
            assert_eq!(reduced.is_err(), comm.rank() == root, "{reduced:?}");
            ended.push(comm.barrier().unwrap_err());
            ended.push(begun(&world.dup().unwrap(), &op, root));
        }
        world.barrier().unwrap();
        ended
    });
    println!("\ntold: {:?}", ended.unwrap());
}

/// How a barrier ends behind a call that is begun, and waited for, and whose operator panics at `root`.
fn begun(comm: &Communicator, op: &Op, root: u32) -> ErrorClass {
    let mut sum = [0u64];
    let reduced = catch_unwind(AssertUnwindSafe(|| {
        comm.scope(|scope| scope.reduce(&[1u64], &mut sum, op, root)?.wait().map(drop))
    }));
    assert_eq!(reduced.is_err(), comm.rank() == root, "{reduced:?}");
    comm.barrier().unwrap_err()
}

fn sum_or_panic(panics: bool) -> Op {
    Op::User(UserOp::new(true, move |_, _, into: &mut [u8], from: &[u8]| {
        assert!(!panics, "the operator");
        for (into, from) in into.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0) {
            *into = (u64::from_ne_bytes(*into) + u64::from_ne_bytes(*from)).to_ne_bytes();
        }
    }))
}

/// Of two hosts with several ranks each, and of three with one.
#[test]
fn an_operator_that_panics_on_one_host_ends_the_calls_of_all() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "3"]);
        for (ranks, hosts) in [("4", "A,B"), ("3", "lab")] {
            let options = ["-n", ranks, "--hosts", hosts, "--timeout", "60"];
            let arguments = job_of(stage, &options, "misfit::part_with_an_operator");
            let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(output.status.success(), "{output:?}");
            let said = said(&output);
            assert_eq!(said.len().to_string(), ranks, "{output:?}");
            let known = |word: &str| matches!(word, "Revoked" | "ProcFailed");
            assert!(said.iter().all(|said| said.trim_matches(['[', ']']).split(", ").all(known)), "{said:?}");
        }
        stage.text(&["lab", "down"]);
    });
}
