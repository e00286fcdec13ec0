//! A rank dies by SIGKILL, in whatever all are doing: the job ends with a message that names it, or, if the user wants that,
//! the others see the error and end well. Nothing of the job is left.

use std::io::Write;

use sidelane_mpi::adi;
use sidelane_mpi::comm::{Communicator, ErrorClass, ErrorHandler, Held};
use sidelane_mpi::datatype::{Datatype, Predefined};
use sidelane_mpi::op::Op;
use sidelane_mpi::rma::{Lent, Lock, RmaError, Room, Target, Window};
use sidelane_mpi::world;

use crate::run::{job_of, own_stage, said, told};
use crate::stage::{Stage, for_each_user};

/// What all do when one dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Startup,
    Send,
    Recv,
    RecvAny,
    Probe,
    WaitAny,
    Persistent,
    Barrier,
    Broadcast,
    Allreduce,
    Alltoall,
    Split,
    Fence,
    Lock,
    Get,
    Finalize,
}

/// Whose death.
const VICTIM: u32 = 2;
const RANKS: u32 = 4;
/// Rounds that it goes through before.
const ROUNDS: usize = 3;

impl What {
    const ALL: [Self; 16] = [
        Self::Startup,
        Self::Send,
        Self::Recv,
        Self::RecvAny,
        Self::Probe,
        Self::WaitAny,
        Self::Persistent,
        Self::Barrier,
        Self::Broadcast,
        Self::Allreduce,
        Self::Alltoall,
        Self::Split,
        Self::Fence,
        Self::Lock,
        Self::Get,
        Self::Finalize,
    ];

    fn of_environment() -> Self {
        let name = std::env::var("WHAT").unwrap();
        Self::ALL.into_iter().find(|what| format!("{what:?}") == name).unwrap()
    }
}

#[test]
#[ignore = "run as a rank by other tests"]
fn part_of_a_rank() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    let (what, returns, amid) = (What::of_environment(), is("ERRORS", "return"), is("DEATH", "amid"));
    if what == What::Startup && is("PMI_RANK", &VICTIM.to_string()) {
        die();
    }
    let seen = world::run(|world| {
        world.set_error_handler(if returns { ErrorHandler::Return } else { ErrorHandler::Abort });
        if what == What::Finalize {
            // Who is still in here when it dies may be told of it.
            let _ = world.barrier();
            if world.rank() == VICTIM {
                die();
            }
            return None;
        }
        // It waits for nobody where it only sends, and may be gone through all its rounds when others begin.
        let mut part = match Part::new(world, what) {
            Ok(part) => part,
            Err(error) => return Some(error),
        };
        for round in 0.. {
            if world.rank() == VICTIM && round == ROUNDS {
                if amid {
                    std::thread::spawn(die);
                } else {
                    die();
                }
            }
            if let Err(error) = part.round() {
                // A window's end is all ranks' matter.
                std::mem::forget(part);
                return Some(error);
            }
        }
        unreachable!("rounds have no end")
    });
    if let Some(error) = seen.unwrap() {
        println!("\ntold: {error}");
        std::io::stdout().flush().unwrap();
    }
}

fn die() {
    sidelane::lab::process::Process::open(std::process::id()).unwrap().signal(libc::SIGKILL).unwrap();
    std::thread::park();
}

/// One rank's part in what all do again and again.
struct Part<'a> {
    world: &'a Communicator,
    kept: Communicator,
    what: What,
    window: Option<Window>,
    memory: Vec<u64>,
}

/// What can't go eagerly.
const LONG: usize = 100_000;

impl<'a> Part<'a> {
    fn new(world: &'a Communicator, what: What) -> Result<Self, String> {
        let kept = world.dup().map_err(|class| class.to_string())?;
        let mut memory = vec![0u64; 1_000];
        let shown: *mut [u8] = std::ptr::slice_from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len() * 8);
        let mut part = Self { world, kept, what, window: None, memory };
        if matches!(what, What::Fence | What::Lock | What::Get) {
            // SAFETY: The memory stays until this process ends, and nobody else uses it.
            let window =
                unsafe { part.kept.with_device(|device| Window::create(device, part.kept.members(), shown, 8)) };
            part.window = Some(window.map_err(named)?);
        }
        Ok(part)
    }

    fn round(&mut self) -> Result<(), String> {
        let is_victim = self.world.rank() == VICTIM;
        let done = match self.what {
            What::Startup | What::Finalize => unreachable!("not while it runs"),
            What::Fence | What::Lock | What::Get => return self.one_sided().map_err(named),
            What::Barrier => self.world.barrier(),
            What::Broadcast => self.world.broadcast(&mut vec![1u8; LONG], VICTIM),
            What::Allreduce => self.world.allreduce_in_place(&mut [1u64; 1_000], &Op::Sum),
            What::Alltoall => self.world.alltoall(&vec![1u8; 4_000], &mut vec![0; 4_000]),
            What::Split => self.world.split(Some(0), 0).map(drop),
            _ if is_victim => self.serve(),
            _ => self.ask(),
        };
        done.map_err(|class| class.to_string())
    }

    /// What the others do with the one.
    fn ask(&self) -> Result<(), ErrorClass> {
        let (world, mut room) = (self.world, [0u8; 8]);
        match self.what {
            What::Send => world.ssend(&vec![1u8; LONG], VICTIM, 1),
            What::Recv => world.recv(&mut room, VICTIM, 1).map(drop),
            What::RecvAny => world.recv(&mut room, sidelane_mpi::comm::Source::Any, 1).map(drop),
            What::Probe => world.probe(VICTIM, 1).and_then(|_| world.recv(&mut room, VICTIM, 1)).map(drop),
            What::WaitAny => {
                let mut other = [0u8; 8];
                world.scope(|scope| {
                    scope.recv(&mut room, VICTIM, 1)?;
                    scope.recv(&mut other, VICTIM, 2)?;
                    let (_, status) = scope.wait_any().expect("two were begun");
                    status.ok().map(drop)
                })
            }
            _ => {
                // SAFETY: The room stays until the message is dropped.
                let mut again = unsafe {
                    let datatype = Predefined::Byte.into();
                    world.recv_init_raw(room.as_mut_ptr(), 8, &datatype, VICTIM.into(), Some(1))
                };
                again.start()?;
                again.wait().map(drop)
            }
        }
    }

    /// What the one does for the others.
    fn serve(&self) -> Result<(), ErrorClass> {
        for other in (0..RANKS).filter(|other| *other != VICTIM) {
            match self.what {
                What::Send => drop(self.world.recv(&mut vec![0u8; LONG], other, 1)?),
                What::WaitAny => {
                    self.world.send(&[1u8; 8], other, 2)?;
                    self.world.send(&[1u8; 8], other, 1)?;
                }
                _ => self.world.send(&[1u8; 8], other, 1)?,
            }
        }
        Ok(())
    }

    fn one_sided(&self) -> Result<(), RmaError> {
        let (what, window) = (self.what, self.window.as_ref().expect("it was made"));
        let datatype: Datatype = Predefined::Uint64.into();
        let (mut words, own) = ([1u64; 100], self.world.rank());
        let at = Target { rank: VICTIM as usize, displacement: i64::from(own) * 100, count: 100, datatype: &datatype };
        let given = Lent { address: words.as_ptr().cast(), count: 100, datatype: &datatype };
        let room = Room { address: words.as_mut_ptr().cast(), count: 100, datatype: &datatype };
        let epoch = |turns: &mut Held| {
            // SAFETY: The words stay until the epoch is over, or this process.
            unsafe {
                match what {
                    What::Fence => {
                        window.fence(turns, false)?;
                        window.put(turns, given, at)?;
                        window.fence(turns, false)
                    }
                    What::Lock => {
                        window.lock(turns, VICTIM as usize, Lock::Exclusive)?;
                        window.put(turns, given, at)?;
                        window.unlock(turns, VICTIM as usize)
                    }
                    _ => {
                        window.lock(turns, VICTIM as usize, Lock::Shared)?;
                        window.get(turns, room, at)?;
                        window.unlock(turns, VICTIM as usize)
                    }
                }
            }
        };
        // SAFETY: The device stays where it is.
        unsafe { self.kept.with_device(epoch) }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        // Lent to the window as long as that is there.
        std::mem::forget(std::mem::take(&mut self.memory));
    }
}

fn named(error: RmaError) -> String {
    match error {
        RmaError::Device(adi::Error::ProcFailed) => ErrorClass::ProcFailed.to_string(),
        other => other.to_string(),
    }
}

/// Runs a job in which one dies; its exit code, what the others said, and the errors.
fn job(stage: &Stage, what: What, options: &[&str]) -> (Option<i32>, Vec<String>, String) {
    let (ranks, what) = (RANKS.to_string(), format!("WHAT={what:?}"));
    let ours = ["-n", &ranks, "--timeout", "60", "-x", &what];
    let arguments = job_of(stage, &[&ours[..], options].concat(), "killed::part_of_a_rank");
    let output = stage.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    (output.status.code(), said(&output), told(&output).2)
}

/// The job ends, and says of whom.
fn ends(stage: &Stage, what: What, options: &[&str]) {
    let (code, _, errors) = job(stage, what, options);
    let last = errors.lines().last().unwrap_or_default().to_owned();
    let names = last.starts_with(&format!("sidelane run: rank {VICTIM} on host "));
    assert!(names && last.ends_with("was killed by SIGKILL (signal 9); the job is ended"), "{what:?}: {errors}");
    assert_eq!(code, Some(128 + libc::SIGKILL), "{what:?}: {errors}");
}

/// Who dies before it was there leaves the others without a job, whatever the user wants; the blame is its own.
fn ends_at_startup(stage: &Stage, options: &[&str]) {
    ends(stage, What::Startup, &[&["--keep-going"], options].concat());
}

/// The others see the error, and end well.
fn survives(stage: &Stage, what: What, options: &[&str]) {
    let (code, said, errors) = job(stage, what, &[&["--keep-going", "-x", "ERRORS=return"], options].concat());
    let line = errors.lines().find(|line| line.starts_with("sidelane run: ")).unwrap_or_default().to_owned();
    let names = line.starts_with(&format!("sidelane run: rank {VICTIM} on host "));
    assert!(names && line.ends_with("was killed by SIGKILL (signal 9); the others go on"), "{what:?}: {errors}");
    assert_eq!(errors.lines().filter(|line| line.starts_with("sidelane run: ")).count(), 1, "{what:?}: {errors}");
    assert_eq!(code, Some(128 + libc::SIGKILL), "{what:?}: {errors}");
    let expected = if what == What::Finalize { Vec::new() } else { vec![ErrorClass::ProcFailed.to_string(); 3] };
    assert_eq!(said, expected, "{what:?}: {errors}");
}

#[test]
fn a_killed_rank_ends_the_job_whatever_is_under_way() {
    own_stage(|stage| {
        for what in What::ALL {
            ends(stage, what, &[]);
            ends(stage, what, &["-x", "DEATH=amid"]);
        }
    });
}

#[test]
fn the_others_see_the_error_whatever_is_under_way() {
    own_stage(|stage| {
        for what in What::ALL.into_iter().filter(|what| *what != What::Startup) {
            survives(stage, what, &[]);
        }
        ends_at_startup(stage, &[]);
    });
}

#[test]
fn a_killed_rank_ends_the_job_between_hosts() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "3"]);
        for what in What::ALL {
            ends(stage, what, &["--hosts", "lab"]);
        }
        stage.text(&["lab", "down"]);
    });
}

/// Nothing on the wire tells that a process on another host is gone: the launcher does.
#[test]
fn the_others_see_the_error_between_hosts() {
    for_each_user(|stage| {
        stage.text(&["lab", "up", "--hosts", "4"]);
        for what in What::ALL.into_iter().filter(|what| *what != What::Startup) {
            survives(stage, what, &["--hosts", "lab"]);
        }
        // Two on each host, of which the one that dies leads.
        for what in [What::Barrier, What::Allreduce, What::Alltoall] {
            survives(stage, what, &["--hosts", "A,B", "-x", "DEATH=amid"]);
        }
        ends_at_startup(stage, &["--hosts", "lab"]);
        stage.text(&["lab", "down"]);
    });
}
