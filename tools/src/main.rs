//! The command `sidelane`.

#![deny(unsafe_code)]

mod args;
mod interrupt;
mod lab_command;
mod ladder;
mod nic_command;
mod out_file;
mod qemu_command;
mod run;
mod run_command;
mod stat_command;
mod study_command;
mod tune_command;

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use sidelane::doctor::Report;
use tracing_subscriber::EnvFilter;

use args::{Cli, Command};
use ladder::LadderCommand;

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("SIDELANE_LOG").unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let outcome: Result<i32, Box<dyn std::error::Error>> = match cli.command {
        None => ladder::run(&cli.ladder).map_err(Into::into),
        Some(Command::Ladder { command: None, args }) => ladder::run(&args).map_err(Into::into),
        Some(Command::Ladder { command: Some(LadderCommand::Serve(args)), .. }) => {
            ladder::serve(&args).map_err(Into::into)
        }
        Some(Command::Ladder { command: Some(LadderCommand::Collectives(args)), .. }) => {
            ladder::collectives(&args).map_err(Into::into)
        }
        Some(Command::Lab(command)) => lab_command::run(command).map_err(Into::into),
        Some(Command::Nic(command)) => Ok(nic_command::run(&command)),
        Some(Command::Study(command)) => study_command::run(&command).map_err(Into::into),
        Some(Command::Tune(args)) => tune_command::run(&args).map_err(Into::into),
        Some(Command::Stat(args)) => stat_command::run(&args).map_err(Into::into),
        Some(Command::Run(args)) => Ok(run_command::run(args)),
        Some(Command::RunGuard) => run::guard::stand().map(|()| 0).map_err(Into::into),
        Some(Command::Doctor { json }) => Ok(show_doctor(json)),
        Some(Command::CollectiveRank { measure_ns, cells }) => {
            return sidelane_bench::collectives::rank::main(measure_ns, &cells);
        }
        Some(Command::Side) => return sidelane_bench::side::main(),
        Some(Command::TuneRank { rank, ranks, rounds, spec }) => {
            sidelane_bench::tune::collectives::rank(rank, ranks, &spec, rounds).map(|()| 0)
        }
        Some(Command::Probe { spec }) => Ok(sidelane::doctor::probe(&spec)),
        Some(Command::Soak(args)) => return sidelane::soak::run(&args),
    };
    match outcome {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
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

/// Prints a line. A reader that has seen enough (`| head`) is no failure, and no reason to leave other work undone.
fn say(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
