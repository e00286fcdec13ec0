//! Launchers that others have made start our ranks: MPICH's `mpiexec.hydra`, and Slurm's `srun`.
//!
//! A rank is this program itself, running the test `part_of_a_rank`. What is not installed is skipped, with a word.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use sidelane_mpi::adi::{Envelope, Incoming, Mode, Outgoing, Pattern, Source};
use sidelane_mpi::comm::{self, ErrorClass};
use sidelane_mpi::world::{self, World};

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let mut world = match World::init() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(4);
        }
    };
    let (rank, size) = (world.rank() as u32, world.size() as u32);
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    for len in [8, 100_000] {
        let (message, mut room) = (vec![rank as u8; len], vec![0; len]);
        // SAFETY: Both are waited for at once, and not touched until then.
        let (out, into) = unsafe { (Outgoing::lend(&raw const *message), Incoming::lend(&raw mut *room)) };
        let source = Some(Source { rank: from, process: from });
        let receive = world.device().recv(Pattern { context: 0, source, tag: Some(0) }, into);
        let send = world.device().send(to, Envelope::new(0, rank, 0), out, Mode::Standard);
        world.device().wait(send);
        world.device().wait(receive);
        assert!(room.iter().all(|byte| *byte == from as u8));
    }
    println!("\ntold: {rank}/{size} heard {from}");
    world.finalize().unwrap();
}

/// One ends, and the others hear of it.
#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank_of_which_one_ends() {
    let heard = world::run(|world| {
        world.barrier().unwrap();
        if world.rank() == 1 {
            std::process::exit(5);
        }
        world.recv(&mut [0u8], 1, 0).map(drop)
    });
    println!("\ntold: {}", heard.unwrap().unwrap_err());
}

/// One ends, and others hear of it that have no connection to it.
#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank_that_is_told_of_an_end() {
    let heard = world::run(|world| {
        // Who comes to its end last hears of it there.
        let met = world.barrier();
        if world.rank() == 3 {
            std::process::exit(5);
        }
        met.and_then(|()| world.recv(&mut [0u8], comm::Source::Any, 0).map(drop))
    });
    println!("\ntold: {}", heard.unwrap().unwrap_err());
}

/// What makes this program a rank.
fn rank() -> Vec<String> {
    rank_of("part_of_a_rank")
}

fn rank_of(test: &str) -> Vec<String> {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&own, "--exact", test, "--ignored", "--nocapture", "--quiet"].map(str::to_owned).to_vec()
}

/// Runs a command that ends with us, however we end, and in a minute at most.
fn run(arguments: &[&str], rank: &[String]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "60"]).args(arguments).args(rank).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PMI") || name.starts_with("SLURM")) {
        command.env_remove(name);
    }
    // SAFETY: prctl takes numbers, and may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    command.output().unwrap()
}

fn is_installed(program: &str, package: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !found {
        println!("skipped: {program} is not installed (Debian: {package})");
    }
    found
}

fn said(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<_> =
        text.lines().filter_map(|line| line.split_once("told: ").map(|(_, rest)| rest.to_owned())).collect();
    lines.sort();
    lines
}

#[test]
fn hydra_starts_ranks_by_descriptor_and_by_port() {
    if !is_installed("mpiexec.hydra", "mpich") {
        return;
    }
    for how in [&["mpiexec.hydra", "-n", "3"][..], &["mpiexec.hydra", "-pmi-port", "-n", "3"]] {
        let output = run(how, &rank());
        assert_eq!(said(&output), ["0/3 heard 2", "1/3 heard 0", "2/3 heard 1"], "{how:?}: {output:?}");
        assert!(output.status.success(), "{output:?}");
    }
}

/// It tells all others by a signal of which they would die.
#[test]
fn hydra_goes_on_without_a_rank_that_has_ended() {
    if !is_installed("mpiexec.hydra", "mpich") {
        return;
    }
    let output =
        run(&["mpiexec.hydra", "-disable-auto-cleanup", "-n", "3"], &rank_of("part_of_a_rank_of_which_one_ends"));
    assert_eq!(said(&output), [(); 2].map(|()| ErrorClass::ProcFailed.to_string()), "{output:?}");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

/// Ranks that see no process numbers of each other's, most of which the last one was never connected to.
#[test]
fn hydra_tells_which_rank_has_ended() {
    if !is_installed("mpiexec.hydra", "mpich") {
        return;
    }
    let apart = ["unshare", "--time", "true"];
    if !Command::new(apart[0]).args(&apart[1..]).status().is_ok_and(|status| status.success()) {
        println!("skipped: {apart:?} is not possible here");
        return;
    }
    let hydra = ["mpiexec.hydra", "-disable-auto-cleanup", "-n", "8"];
    let output = run(&[&hydra[..], &apart[..2]].concat(), &rank_of("part_of_a_rank_that_is_told_of_an_end"));
    assert_eq!(said(&output), [(); 7].map(|()| ErrorClass::ProcFailed.to_string()), "{output:?}");
    // Of many ranks hydra's own code is 5 or, where it saw the end of a connection before that of the process, 1.
    assert!(matches!(output.status.code(), Some(1 | 5)), "{output:?}");
}

#[test]
fn slurm_starts_ranks_by_pmi2_and_without_it_they_refuse() {
    if !["slurmctld", "slurmd", "srun", "munged"]
        .iter()
        .all(|program| is_installed(program, "slurmctld slurmd slurm-client munge"))
    {
        return;
    }
    // SAFETY: Takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: not root, as which a Slurm of one node runs");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/launchers/slurm.sh");
    let inside = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", script];
    let both = "srun --mpi=pmi2 -n 4 \"$@\" && ! srun -n 2 \"$@\" && srun -n 1 \"$@\"";
    let srun = [&inside[..], &[folder.path().to_str().unwrap(), "bash", "-c", both, "-"]].concat();
    let output = run(&srun, &rank());
    let wanted = ["0/1 heard 0", "0/4 heard 3", "1/4 heard 0", "2/4 heard 1", "3/4 heard 2"];
    assert_eq!(said(&output), wanted, "{output:?}");
    assert!(output.status.success(), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("Slurm's srun has started 2 tasks") && errors.contains("srun --mpi=pmi2 PROGRAM"),
        "{errors}"
    );
}
