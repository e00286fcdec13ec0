//! A rank dies by SIGKILL, in whatever all are doing: the job ends with a message that names it, or, if the user wants that,
//! the others see the error and end well. Nothing of the job is left.

#[path = "../../../mpi-lite/tests/deaths/operations.rs"]
mod operations;

use std::cell::Cell;
use std::io::Write;

use sidelane_mpi::comm::{Communicator, ErrorClass, ErrorHandler};
use sidelane_mpi::world;

use crate::run::{job_of, own_stage, said, told};
use crate::stage::{Stage, shared_out};
use operations::{Operation, RANKS, VICTIM};

/// What is done once: then one dies.
const STARTUP: &str = "startup";
const FINALIZE: &str = "finalize";

/// Rounds of an operation that it goes through before.
const ROUNDS: usize = 3;

/// All that one may die in, but the startup.
fn all() -> impl Iterator<Item = &'static str> {
    operations::ALL.iter().map(|(name, _)| *name).chain([FINALIZE])
}

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    let (what, returns, amid) = (std::env::var("WHAT").unwrap(), is("ERRORS", "return"), is("DEATH", "amid"));
    if what == STARTUP && is("PMI_RANK", &VICTIM.to_string()) {
        die();
    }
    let seen = world::run(|world| {
        world.set_error_handler(if returns { ErrorHandler::Return } else { ErrorHandler::Abort });
        if what == FINALIZE {
            // Who is still in here when it dies may be told of it.
            let _ = world.barrier();
            if world.rank() == VICTIM {
                die();
            }
            return None;
        }
        let operation = operations::ALL.iter().find(|(name, _)| *name == what).map(|(_, operation)| *operation);
        operation.and_then(|operation| until_one_dies(world, operation, amid).err())
    });
    if let Some(error) = seen.unwrap() {
        println!("\ntold: {error}");
        std::io::stdout().flush().unwrap();
    }
}

/// It waits for nobody where it only sends, and may be gone through all its rounds when others begin.
fn until_one_dies(world: &Communicator, operation: Operation, amid: bool) -> Result<(), ErrorClass> {
    let round = Cell::new(0);
    let next = || {
        if world.rank() == VICTIM && round.get() == ROUNDS {
            if amid {
                std::thread::spawn(die);
            } else {
                die();
            }
        }
        round.set(round.get() + 1);
    };
    operation(world, &next)
}

fn die() {
    sidelane::lab::process::Process::open(std::process::id()).unwrap().signal(libc::SIGKILL).unwrap();
    std::thread::park();
}

/// Runs a job in which one dies; its exit code, what the others said, and the errors.
fn job(stage: &Stage, what: &str, options: &[&str]) -> (Option<i32>, Vec<String>, String) {
    let (ranks, what) = (RANKS.to_string(), format!("WHAT={what}"));
    let ours = ["-n", &ranks, "--timeout", "60", "-x", &what];
    let arguments = job_of(stage, &[&ours[..], options].concat(), "killed::part_of_a_rank");
    let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    (output.status.code(), said(&output), told(&output).2)
}

/// The job ends, and says of whom.
fn ends(stage: &Stage, what: &str, options: &[&str]) {
    let (code, _, errors) = job(stage, what, options);
    let last = errors.lines().last().unwrap_or_default().to_owned();
    let names = last.starts_with(&format!("sidelane run: rank {VICTIM} on host "));
    assert!(names && last.ends_with("was killed by SIGKILL (signal 9); the job is ended"), "{what}: {errors}");
    assert_eq!(code, Some(128 + libc::SIGKILL), "{what}: {errors}");
}

/// Who dies before it was there leaves the others without a job, whatever the user wants; the blame is its own.
fn ends_at_startup(stage: &Stage, options: &[&str]) {
    ends(stage, STARTUP, &[&["--keep-going"], options].concat());
}

/// The others see the error, and end well.
fn survives(stage: &Stage, what: &str, options: &[&str]) {
    let (code, said, errors) = job(stage, what, &[&["--keep-going", "-x", "ERRORS=return"], options].concat());
    let line = errors.lines().find(|line| line.starts_with("sidelane run: ")).unwrap_or_default().to_owned();
    let names = line.starts_with(&format!("sidelane run: rank {VICTIM} on host "));
    assert!(names && line.ends_with("was killed by SIGKILL (signal 9); the others go on"), "{what}: {errors}");
    assert_eq!(errors.lines().filter(|line| line.starts_with("sidelane run: ")).count(), 1, "{what}: {errors}");
    assert_eq!(code, Some(128 + libc::SIGKILL), "{what}: {errors}");
    let expected = if what == FINALIZE { Vec::new() } else { vec![ErrorClass::ProcFailed.to_string(); 3] };
    assert_eq!(said, expected, "{what}: {errors}");
}

#[test]
fn a_killed_rank_ends_the_job_whatever_is_under_way() {
    own_stage(|stage| {
        for what in all().chain([STARTUP]) {
            ends(stage, what, &[]);
            ends(stage, what, &["-x", "DEATH=amid"]);
        }
    });
}

#[test]
fn the_others_see_the_error_whatever_is_under_way() {
    own_stage(|stage| {
        for what in all() {
            survives(stage, what, &[]);
        }
        ends_at_startup(stage, &[]);
    });
}

#[test]
fn a_killed_rank_ends_the_job_between_hosts() {
    shared_out(&all().collect::<Vec<_>>(), |stage, whats| {
        stage.text(&["lab", "up", "--hosts", "3"]);
        for what in whats.iter().copied().chain([STARTUP]) {
            ends(stage, what, &["--hosts", "lab"]);
        }
        stage.text(&["lab", "down"]);
    });
}

/// Nothing on the wire tells that a process on another host is gone: the launcher does.
#[test]
fn the_others_see_the_error_between_hosts() {
    shared_out(&all().collect::<Vec<_>>(), |stage, whats| {
        stage.text(&["lab", "up", "--hosts", "4"]);
        for what in whats {
            survives(stage, what, &["--hosts", "lab"]);
        }
        // Two on each host, of which the one that dies leads.
        for what in ["barrier", "allreduce", "alltoall"] {
            survives(stage, what, &["--hosts", "A,B", "-x", "DEATH=amid"]);
        }
        ends_at_startup(stage, &["--hosts", "lab"]);
        stage.text(&["lab", "down"]);
    });
}
