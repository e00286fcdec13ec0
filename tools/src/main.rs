//! The command `sidelane`.

#![deny(unsafe_code)]

/// As `eprintln!`, but nobody who reads it is no reason to panic.
macro_rules! tell {
    ($($text:tt)*) => { $crate::tell(format_args!($($text)*)) };
}

mod args;
mod interrupt;
mod lab_command;
mod ladder;
mod nic_command;
mod out_file;
mod out_files;
mod qemu_command;
mod run;
mod run_command;
mod stat_command;
mod study_command;
mod tune_command;
mod variable;

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use sidelane::doctor::Report;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::prelude::*;

use args::{Cli, Command};
use ladder::LadderCommand;

fn main() -> ExitCode {
    interrupt::hear_of_children();
    let cli = Cli::of(run_command::with_np(std::env::args_os()));
    let log =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(has_colours()).log_internal_errors(false);
    tracing_subscriber::registry().with(log).with(log_filter()).init();
    let outcome: Result<i32, Box<dyn std::error::Error>> = match cli.command {
        None => ladder::run(cli.ladder).map_err(Into::into),
        Some(Command::Ladder { command: None, args }) => ladder::run(args).map_err(Into::into),
        Some(Command::Ladder { command: Some(LadderCommand::Serve(args)), .. }) => {
            ladder::serve(&args).map_err(Into::into)
        }
        Some(Command::Ladder { command: Some(LadderCommand::Collectives(args)), .. }) => {
            ladder::collectives(args).map_err(Into::into)
        }
        Some(Command::Lab(command)) => lab_command::run(command).map_err(Into::into),
        Some(Command::Nic(command)) => Ok(nic_command::run(&command)),
        Some(Command::Study(command)) => study_command::run(&command).map_err(Into::into),
        Some(Command::Tune(args)) => tune_command::run(&args).map_err(Into::into),
        Some(Command::Stat(args)) => stat_command::run(&args).map_err(Into::into),
        Some(Command::Run(args)) => Ok(run_command::run(args)),
        Some(Command::RunGuard) => run::guard::stand().map(|()| 0).map_err(Into::into),
        Some(Command::SocketGuard { file }) => ladder::guard_socket(&file).map(|()| 0).map_err(Into::into),
        Some(Command::Doctor { json }) => Ok(show_doctor(json)),
        Some(Command::CollectiveRank { measure_ns, cells }) => {
            return sidelane_bench::collectives::rank::main(measure_ns, &cells);
        }
        Some(Command::Side) => return sidelane_bench::side::main(),
        Some(Command::TuneRank { rank, ranks, rounds, specs, rules }) => {
            sidelane_bench::tune::collectives::rank(rank, ranks, &specs, rounds, rules.as_ref()).map(|()| 0)
        }
        Some(Command::Probe { spec }) => Ok(sidelane::doctor::probe(&spec)),
        Some(Command::Soak(args)) => return sidelane::soak::run(&args),
    };
    drop(interrupt::remove_unfinished());
    let outcome = match UNWRITTEN.get() {
        Some(error) if matches!(outcome, Ok(0)) => Err(format!("cannot write to standard output: {error}").into()),
        _ => outcome,
    };
    match outcome {
        Ok(code @ ..0) => interrupt::exit(code),
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            tell!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What `SIDELANE_LOG` says is written to standard error.
fn log_filter() -> Targets {
    let wanted = std::env::var_os("SIDELANE_LOG").unwrap_or_default();
    let wanted = wanted.to_string_lossy();
    filter_of(&wanted).unwrap_or_else(|error| {
        // Whoever has started a part of this program has told it.
        if !std::env::args_os().nth(1).is_some_and(|command| args::is_hidden(&command)) {
            tell!("SIDELANE_LOG=`{wanted}` is no filter ({error}); warnings alone are shown");
        }
        warnings()
    })
}

/// A level, or parts and theirs, comma separated. Of nothing: warnings.
fn filter_of(wanted: &str) -> Result<Targets, ParseError> {
    // To the parser nothing is a level too, and blanks are of a name.
    let parts: Vec<&str> = wanted.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { Ok(warnings()) } else { parts.join(",").parse() }
}

fn warnings() -> Targets {
    Targets::new().with_default(LevelFilter::WARN)
}

/// Whether what is written to standard error may be coloured: by a terminal that can, of a user who wants it (no-color.org).
fn has_colours() -> bool {
    draws() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether standard error is a terminal that does more than to show line after line.
fn draws() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

/// Prints the doctor's report; 0 when there is a driver to work with.
fn show_doctor(json: bool) -> i32 {
    let report = Report::make();
    if json {
        say(serde_json::to_string(&report).expect("a report has no maps and only finite numbers"));
    } else {
        say(&report);
    }
    i32::from(!report.ready)
}

/// Prints a line. A reader that has seen enough (`| head`) is no failure, and no reason to leave other work undone; what else
/// keeps it from being written is the command's failure at its end.
fn say(text: impl Display) {
    if let Err(error) = writeln!(io::stdout(), "{text}")
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = UNWRITTEN.set(error);
    }
}

/// Why output is missing.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// Prints a line beside the output. Nobody misses it who does not read it.
fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_filter_leaves_empty_asks_for_nothing() {
        for (wanted, as_if) in
            [("", "warn"), (" ,", "warn"), ("debug,", "debug"), ("nic=debug, dpdk=info", "nic=debug,dpdk=info")]
        {
            assert_eq!(filter_of(wanted).unwrap(), as_if.parse().unwrap(), "`{wanted}`");
        }
        assert!(filter_of("nic=verbose").is_err());
    }
}
