//! Jobs of real processes.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `talk` | ranks hear each other, on one host and between hosts |
//! | `streams` | what goes in and comes out |
//! | `ends` | how jobs end by themselves, and what is said of it |
//! | `terminal` | the same at a terminal |
//! | `signals` | how they are ended, and that nothing of them is left |
//! | `protected` | that nobody else on the network reads along, if so asked |
//! | `settings` | variables, cores, and the help |
//! | `others` | with programs and launchers that others have made |

mod ends;
mod others;
mod protected;
mod settings;
mod signals;
mod streams;
mod talk;
mod terminal;

use std::io::{Read, Write};
use std::process::{Child, Output};

use sidelane_mpi::adi::{Envelope, Incoming, Mode, Outgoing, Pattern, Source};
use sidelane_mpi::comm::{Communicator, ErrorHandler};
use sidelane_mpi::launch::Launch;
use sidelane_mpi::world::{self, World};

use crate::stage::{Stage, as_a_shell_has_it};

/// The command that runs `part_of_a_rank` with `PART=part` on several ranks.
pub fn job<'a>(stage: &'a Stage, options: &'a [&'a str], part: &'a str) -> Vec<String> {
    job_of(stage, &[&["-x", part], options].concat(), "run::part_of_a_rank")
}

/// The command that runs a test of this program, that others ignore, as several ranks.
pub fn job_of(stage: &Stage, options: &[&str], test: &str) -> Vec<String> {
    let ours = ["run"].into_iter().chain(options.iter().copied()).map(str::to_owned);
    let rank = ["--exact", test, "--ignored", "--nocapture", "--quiet"].map(str::to_owned);
    ours.chain([stage.test_program()]).chain(rank).collect()
}

pub fn output(stage: &Stage, options: &[&str], part: &str) -> Output {
    let arguments = job(stage, options, part);
    stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What a job of shells did: of bash, since Debian's `sh` knows no descriptor of two digits, as a rank's socket may have.
pub fn shells(stage: &Stage, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    told(&stage.output(&[&["run"], options, &["bash", "-c", script]].concat()))
}

/// Exit code, output, errors.
pub fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (as_a_shell_has_it(output.status), text(&output.stdout), text(&output.stderr))
}

/// What the ranks said, each behind `told: `.
pub fn said(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().filter_map(said_in).map(str::to_owned).collect()
}

/// What a rank said in this line, maybe behind the point that another rank's test harness printed without an end of its line.
pub fn said_in(line: &str) -> Option<&str> {
    line.split_once("told: ").map(|(_, said)| said)
}

/// Runs `case` as this user, and looks for leftovers after it.
pub fn own_stage(case: impl Fn(&Stage)) {
    let stage = Stage::own_user();
    case(&stage);
    stage.assert_nothing_is_left();
}

pub fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let part = std::env::var("PART").unwrap();
    if let "ring" | "endless ring" = part.as_str() {
        return part_of_a_ring(part == "endless ring");
    }
    if part == "secret" {
        return protected::part_of_a_rank();
    }
    if part == "abort in a call" {
        return world::run(|world| {
            if world.rank() == 2 {
                world.abort(7, "lost my way");
            }
            world.barrier().unwrap();
        })
        .unwrap();
    }
    if part == "error" {
        let main = |world: &Communicator| {
            if world.rank() == 2 {
                world.send(&[0u8], 99, 0)?;
            }
            world.barrier()
        };
        return world::run_or_abort(main).unwrap();
    }
    if let "wrong rank" | "crash" = part.as_str() {
        return world::run(|world| {
            world.set_error_handler(ErrorHandler::Abort);
            world.barrier().unwrap();
            match (world.rank(), part.as_str()) {
                (2, "crash") => std::process::exit(5),
                (2, _) => _ = world.send(&[0u8], 99, 0),
                // Of whoever is gone the others hear in their own time.
                _ => _ = world.recv(&mut [0u8], 2, 0),
            }
        })
        .unwrap();
    }
    if std::env::var("PMI_RANK").is_ok_and(|rank| rank == "1") {
        match part.as_str() {
            "absent" => return,
            "refused" => std::process::exit(5),
            _ => {}
        }
    }
    let mut launch = Launch::find().unwrap();
    let (rank, size) = (launch.rank(), launch.size());
    match part.as_str() {
        "exchange" => {
            let host = std::env::var("SIDELANE_HOST").unwrap_or_default();
            let texts = launch.exchange(&format!("{rank}{host}")).unwrap();
            let again = launch.exchange(&"long ".repeat(2000)).unwrap();
            assert!(again.len() == size && again.iter().all(|text| text.len() == 10_000));
            println!("\ntold: {rank}/{size} {}", texts.join(","));
            launch.finalize().unwrap();
        }
        "abort" => {
            if rank == 2 {
                launch.to_abort().unwrap().ask(7, "lost my way");
                std::process::exit(3);
            }
            let _ = launch.barrier();
        }
        "early" | "absent" | "refused" => {
            if rank == 1 {
                std::process::exit(0);
            }
            let _ = launch.barrier();
        }
        "wait" => {
            println!("\ntold: {rank} {}", std::process::id());
            std::io::stdout().flush().unwrap();
            if rank != 0 {
                let _ = launch.barrier();
            }
            std::thread::park();
        }
        other => panic!("there is no part `{other}`"),
    }
}

/// Passes messages from rank to rank until each is back where it began.
fn part_of_a_ring(endless: bool) {
    let mut world = World::init().unwrap_or_else(|error| panic!("{error}"));
    let (rank, size) = (world.rank(), world.size());
    loop {
        for len in [0, 8, 5_000, 300_000] {
            let message: Vec<u8> = (0..len).map(|at| (at * 7 + rank) as u8).collect();
            let back = (0..size).fold(message.clone(), |message, _| pass(&mut world, &message));
            assert_eq!(back, message);
        }
        if !endless {
            break;
        }
        println!("\ntold: {rank} {}", std::process::id());
    }
    println!("\ntold: {rank}/{size} round");
    world.finalize().unwrap();
}

/// Sends `message` to the next rank, and returns what comes from the one before.
fn pass(world: &mut World, message: &[u8]) -> Vec<u8> {
    let (rank, size) = (world.rank() as u32, world.size() as u32);
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut room = vec![0; message.len()];
    // SAFETY: Both are waited for before this returns, and `room` is not touched until then.
    let (out, into) = unsafe { (Outgoing::lend(message), Incoming::lend(&raw mut *room)) };
    let source = Some(Source { rank: from, process: from });
    let device = world.device();
    let receive = device.recv(Pattern { context: 0, source, tag: Some(0) }, into);
    let send = device.send(to, Envelope::new(0, rank, 0), out, Mode::Standard);
    assert_eq!(device.wait(send).error, None);
    assert_eq!(device.wait(receive).error, None);
    room
}
