//! `sidelane lab`: keeps labs, enters them, ends them.

mod args;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use sidelane::lab::guard::{self, Guard};
use sidelane::lab::keeper::{self, KeepError, Kept};
use sidelane::lab::process::{self, Process};
use sidelane::lab::{Lab, LabError, LabSpec};
use sidelane::qemu::QemuError;
use sidelane::table;
use signal_hook::consts::{SIGCHLD, SIGINT};
use signal_hook::iterator::Signals;

use crate::interrupt::{self, code_of, ending};
use crate::{qemu_command, say};
pub use args::{EXAMPLES, LabCommand, QemuArgs, SpecArgs, lab_name};

/// Why a `lab` command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error(transparent)]
    Qemu(#[from] QemuError),
    #[error("cannot run `{0}`: {1}")]
    Run(String, io::Error),
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    #[error("{0}")]
    Keeper(String),
}

/// Runs a `lab` command; returns how it ends, as [`code_of`] has it.
pub fn run(command: LabCommand) -> Result<i32, Failure> {
    match obey(command) {
        // As a shell has it.
        Err(Failure::Run(program, error)) => {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            tell!("error: {}", Failure::Run(program, error));
            Ok(code)
        }
        outcome => outcome,
    }
}

fn obey(command: LabCommand) -> Result<i32, Failure> {
    match command {
        LabCommand::Up { spec, name } => up(&spec, &name.name),
        LabCommand::Down { name } => down(&name.name),
        LabCommand::Status { json } => status(json),
        LabCommand::Exec { host, name, command } => exec(&name.name, &host, &command),
        LabCommand::Run { spec, command } => run_in(&spec.spec(), &command),
        LabCommand::Qemu(args) => Ok(qemu_command::run(&args)?),
        LabCommand::Guard => guard::stand().map_err(|e| Failure::System("guard the lab", e)).map(|()| 0),
        LabCommand::Keep { spec, name } => Ok(keep(&spec.spec(), &name.name)),
    }
}

fn up(spec: &SpecArgs, name: &str) -> Result<i32, Failure> {
    let start = |error| Failure::System("start the lab's keeper", error);
    match Kept::find(name) {
        Err(KeepError::NotUp(_)) => {}
        Ok(_) => return Err(KeepError::Up(name.to_owned()).into()),
        Err(error) => return Err(error.into()),
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(["lab", "keep", "--name", name, "--hosts", &spec.hosts.to_string(), "--mtu", &spec.mtu.to_string()]);
    command.args(spec.real_frames.then_some("--real-frames"));
    // Its error stream too is not ours: who captures our output waits for the last process that holds it.
    let streams = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut keeper = streams.spawn().map_err(start)?;
    let mut line = String::new();
    let told = keeper.stdout.take().expect("its output is a pipe");
    BufReader::new(told).read_line(&mut line).map_err(start)?;
    if line.trim_end() != READY {
        let _ = keeper.wait();
        return Err(Failure::Keeper(if line.is_empty() {
            "the lab's keeper ended".into()
        } else {
            line.trim().into()
        }));
    }
    print_labs(&[Kept::find(name)?]);
    Ok(0)
}

/// The life of the keeper. Its first line of output is [`READY`] or the reason why there is no lab.
fn keep(spec: &LabSpec, name: &str) -> i32 {
    let tell = |text: &dyn fmt::Display| {
        let mut out = io::stdout();
        writeln!(out, "{text}").and_then(|()| out.flush())
    };
    let guarded = || {
        process::detach().map_err(|e| Failure::System("detach", e))?;
        let lab = Lab::build(spec)?;
        let guard = Guard::post(&lab).map_err(|e| Failure::System("guard the lab", e))?;
        Ok::<_, Failure>((lab, guard))
    };
    let (lab, _guard) = match guarded() {
        Ok(guarded) => guarded,
        Err(error) => {
            let _ = tell(&error);
            return 1;
        }
    };
    if let Err(error) = keeper::keep(&lab, name, || tell(&READY)) {
        let _ = tell(&error);
        return 1;
    }
    0
}

const READY: &str = "ready";

fn down(name: &str) -> Result<i32, Failure> {
    let ended = Kept::find(name)?.end()?;
    let also = match ended {
        0 => String::new(),
        1 => ", and one process inside".to_owned(),
        n => format!(", and {n} processes inside"),
    };
    say(format_args!("ended lab `{name}`{also}"));
    Ok(0)
}

fn status(json: bool) -> Result<i32, Failure> {
    let (mut labs, mut failures) = (Vec::new(), Vec::new());
    for found in Kept::all()? {
        match found {
            Ok(lab) => labs.push(lab),
            Err(error) => failures.push(error),
        }
    }
    if json {
        let labs: Vec<_> = labs.iter().map(|lab| &lab.description).collect();
        say(serde_json::json!({ "schema": "sidelane-labs/1", "labs": labs }));
    } else if labs.is_empty() && failures.is_empty() {
        say("no lab is up; make one with `sidelane lab up`");
    } else {
        print_labs(&labs);
    }
    failures.iter().for_each(|error| tell!("error: {error}"));
    Ok(i32::from(!failures.is_empty()))
}

fn print_labs(labs: &[Kept]) {
    for Kept { description: lab, .. } in labs {
        let frames = if lab.real_frames { "real frames" } else { "default offloads" };
        let owner = if lab.user_namespace { ", in a user namespace" } else { "" };
        say(format_args!("lab `{}`: MTU {}, {frames}{owner}, kept by process {}", lab.name, lab.mtu, lab.pid));
        let mut table = table::begin();
        table.set_header(["host", "address", "MAC", "interface", "processes"]);
        for host in &lab.hosts {
            let processes: Vec<String> = host.processes.iter().map(u32::to_string).collect();
            let cells = [host.name.to_string(), host.ip.to_string(), host.mac.clone(), host.interface.clone()];
            table.add_row(cells.into_iter().chain([processes.join(" ")]));
        }
        say(table);
    }
}

/// Becomes the command, so that its terminal, signals and exit code are its own.
fn exec(name: &str, host: &str, command: &[OsString]) -> Result<i32, Failure> {
    let (program, arguments) = split(command);
    let mut inside = Kept::find(name)?.command(host, program)?;
    Err(Failure::Run(program.to_string_lossy().into_owned(), inside.args(arguments).exec()))
}

fn run_in(spec: &LabSpec, command: &[OsString]) -> Result<i32, Failure> {
    let signals = |error| Failure::System("watch for signals", error);
    let typed = interrupt::typed().map_err(signals)?;
    let mut watched = Signals::new(ending().chain([SIGCHLD])).map_err(signals)?;
    let lab = Lab::build(spec)?;
    let _guard = Guard::post(&lab).map_err(|e| Failure::System("guard the lab", e))?;
    let (program, arguments) = split(command);
    let mut inside = lab.host(0).command(program);
    inside.args(arguments).envs(keeper::environment(&keeper::describe_hosts(&lab), 0));
    let mut child = inside.spawn().map_err(|e| Failure::Run(program.to_string_lossy().into_owned(), e))?;
    let code = watch(&mut child, &mut watched, &typed).map_err(signals)?;
    match lab.end_inhabitants() {
        Ok(_) => Ok(code),
        // The command's own failure says more.
        Err(error) if code != 0 => {
            tell!("error: {}", Failure::System("end what the command left running", error));
            Ok(code)
        }
        Err(error) => Err(Failure::System("end what the command left running", error)),
    }
}

/// Waits for the command. The first ending signal is handed on, and what the command makes of it, and for how long, is its own
/// affair; the second one kills it. Ctrl-C at a terminal reaches it by itself: a shell goes on.
fn watch(child: &mut Child, signals: &mut Signals, typed: &AtomicBool) -> io::Result<i32> {
    let inside = Process::open(child.id());
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(code(status));
        }
        for signal in signals.wait() {
            match signal {
                SIGCHLD => {}
                SIGINT if typed.load(Ordering::Relaxed) && process::is_in_own_group(child.id()) => {}
                _ if is_told => {
                    child.kill()?;
                    child.wait()?;
                    return Ok(code_of(signal));
                }
                _ => {
                    is_told = true;
                    inside.iter().try_for_each(|inside| inside.signal(signal))?;
                }
            }
        }
    }
}

/// As [`code_of`] has it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| code_of(status.signal().unwrap_or(0)))
}

fn split(command: &[OsString]) -> (&OsString, &[OsString]) {
    command.split_first().expect("the command line requires a command")
}
