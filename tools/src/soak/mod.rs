//! Traffic that checks itself, and an attacker: the processes of the end-to-end tests.
//!
//! `side` is one endpoint: it sends numbered messages of random sizes to every peer, checks every byte that it
//! receives, and tells as [`Line`]s what happened. `flood` throws random and mutated frames at an interface, among
//! them live ones that [`sniff`] wrote down on another host.

mod flood;
mod forge;
mod line;
mod message;
mod packet_socket;
mod side;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};

pub use flood::{FloodArgs, SniffArgs, sniff};
pub use line::{Counts, Ending, Flooded, Line};
pub use side::SideArgs;

/// What to be.
#[derive(Debug, Clone, Subcommand)]
pub enum SoakCommand {
    /// One endpoint that sends and checks
    Side(SideArgs),
    /// Throw random and mutated frames at an endpoint
    Flood(FloodArgs),
    /// Write every frame that an interface receives to standard output
    Sniff(SniffArgs),
}

/// The command `soak`, which only tests use.
#[derive(Debug, Clone, Args)]
pub struct SoakArgs {
    /// What to be.
    #[command(subcommand)]
    pub command: SoakCommand,
}

/// Runs until the work is done. 1 when something was delivered wrongly or the time was up, and said why.
pub fn run(args: &SoakArgs) -> ExitCode {
    let mut out = io::stdout().lock();
    let outcome = match &args.command {
        SoakCommand::Side(side) => side::run(side, &mut out),
        SoakCommand::Flood(attack) => flood::flood(attack, &mut out).map(Line::Flooded),
        SoakCommand::Sniff(args) => return end(sniff(args, &mut out)),
    };
    match outcome {
        Ok(last) => end(last.write(&mut out)),
        Err(reason) => {
            let _ = Line::Failed { reason: reason.clone() }.write(&mut out);
            end(Err(io::Error::other(reason)))
        }
    }
}

fn end(outcome: io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read is gone: nobody is left to be told.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
