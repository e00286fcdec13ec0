//! The command line.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use sidelane::soak::SoakArgs;
use sidelane_bench::collectives::Cell;
use sidelane_mpi::coll::Table;
use sidelane_nic::spec::Spec;

use crate::lab_command::{self, LabCommand};
use crate::ladder::{self, LadderArgs, LadderCommand};
use crate::nic_command::NicCommand;
use crate::run_command::{self, RunArgs};
use crate::stat_command::{self, StatArgs};
use crate::study_command::StudyCommand;
use crate::tune_command::{self, TuneArgs};

/// Kernel-bypass user-level networking: what does each layer cost?
///
/// Without a subcommand the overhead ladder is run: the same ping-pong, flood and stream at every layer of the stack and
/// over kernel TCP and UDP, between two network namespaces joined by veth.
#[derive(Debug, Parser)]
#[command(name = "sidelane", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub ladder: LadderArgs,
}

impl Cli {
    /// What these words say. Where that makes no sense, or help was asked for, it is told, and the process ends.
    pub fn of(words: Vec<OsString>) -> Self {
        Self::try_parse_from(words).unwrap_or_else(|error| tell_and_exit(&without_hidden(error)))
    }
}

/// As clap does it, but help that cannot be written is a failure.
fn tell_and_exit(error: &clap::Error) -> ! {
    let printed = error.print().and_then(|()| io::stdout().flush());
    if let Err(unwritten) = printed
        && !error.use_stderr()
        && unwritten.kind() != io::ErrorKind::BrokenPipe
    {
        tell!("error: cannot write to standard output: {unwritten}");
        std::process::exit(1);
    }
    std::process::exit(error.exit_code())
}

/// True of a command that only this program itself starts.
pub fn is_hidden(command: &OsStr) -> bool {
    hidden(&Cli::command()).iter().any(|name| name.as_str() == command)
}

/// clap suggests also commands that its help does not show: those that only this program itself starts.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let hidden = hidden(&Cli::command());
        names.retain(|name| !hidden.contains(name));
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        } else if matches!(error.get(ContextKind::Suggested), Some(ContextValue::StyledStrs(tips)) if tips.is_empty()) {
            // It would be an empty line.
            error.remove(ContextKind::Suggested);
        }
    }
    error
}

/// Names of hidden commands, at every level.
fn hidden(command: &clap::Command) -> Vec<String> {
    let own = command.get_subcommands().filter(|each| each.is_hide_set()).map(|each| each.get_name().to_owned());
    own.chain(command.get_subcommands().flat_map(hidden)).collect()
}

const EXAMPLES: &str = "\
Examples:
  sidelane                                   the ladder on the driver uring, in at most a minute
  sidelane --quick --nic uring,shm           a shorter one, on two drivers
  sidelane --real-frames --json out.json     frames as a wire carries them; figures to a file
  sidelane doctor                            what can run here, and what to do about the rest
  sidelane lab run -- ip -stats addr         a command in a network of its own
  sidelane run -n 4 ./program                four ranks of a program

SIDELANE_LOG=debug writes what happens to standard error (or of parts: sidelane_nic=debug,dpdk=info).";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure what each layer costs, beside kernel TCP and UDP (also: no subcommand)
    #[command(after_help = ladder::EXAMPLES, args_conflicts_with_subcommands = true)]
    Ladder {
        #[command(subcommand)]
        command: Option<LadderCommand>,
        #[command(flatten)]
        args: LadderArgs,
    },
    /// Run a program on several ranks, on this host or over the hosts of a lab
    #[command(after_help = run_command::EXAMPLES)]
    Run(RunArgs),
    /// Make hosts out of network namespaces and run commands in them
    #[command(subcommand, after_help = lab_command::EXAMPLES)]
    Lab(LabCommand),
    /// List NICs and try drivers on them
    #[command(subcommand)]
    Nic(NicCommand),
    /// Run a published study on our stack and print its tables in our terms
    #[command(subcommand)]
    Study(StudyCommand),
    /// Measure where MPI's protocols and collectives change on this machine, and write it to a file for all jobs
    #[command(after_help = tune_command::NOTES)]
    Tune(TuneArgs),
    /// Show what running processes count: messages, frames, retransmissions, stalls, drops
    #[command(after_help = stat_command::NOTES)]
    Stat(StatArgs),
    /// Show which drivers can run here, and the command that mends what cannot
    #[command(after_help = "Exits with 1 when no driver but the simulated one can run.")]
    Doctor {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// One side of a measurement; started by `ladder`
    #[command(hide = true)]
    Side,
    /// A rank of a measurement of collectives; started by `tune`
    #[command(hide = true)]
    TuneRank {
        /// Number of the rank
        rank: u32,
        /// How many there are
        ranks: usize,
        /// Rounds that count
        rounds: usize,
        /// Drivers as strings
        #[arg(required = true)]
        specs: Vec<Spec>,
        /// The table of one level to be compared with two; without it algorithms are
        #[arg(long)]
        rules: Option<Table>,
    },
    /// A rank that makes collective calls; started by `ladder collectives`
    #[command(hide = true)]
    CollectiveRank {
        /// Time for each call
        measure_ns: u64,
        /// COLLECTIVE:BYTES
        cells: Vec<Cell>,
    },
    /// Opens a driver in the namespace it is started in; started by `doctor`
    #[command(hide = true)]
    Probe {
        /// The driver as a string
        spec: String,
    },
    /// Ends a job's ranks when its command is killed; started by `run`
    #[command(hide = true)]
    RunGuard,
    /// Removes a ladder's socket when its command is killed; started by `ladder`
    #[command(hide = true)]
    SocketGuard {
        /// The socket
        file: PathBuf,
    },
    /// Traffic that checks itself; started by tests
    #[command(hide = true)]
    Soak(SoakArgs),
}

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = text.parse().ok().filter(|seconds| (0.01..=SECONDS_MAX).contains(seconds));
        let wanted = || format!("0.01 to {SECONDS_MAX} seconds");
        seconds.map(|seconds| Self(Duration::from_secs_f64(seconds))).ok_or_else(wanted)
    }
}

/// A year: jobs last for days.
const SECONDS_MAX: f64 = 365.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use sidelane_bench::ladder::NicKind;

    use super::*;
    use crate::ladder::NicArg;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_may_be_days() {
        let of = |text: &str| text.parse().map(|Seconds(time)| time);
        assert_eq!(of("604800"), Ok(Duration::from_secs(604_800)));
        for bad in ["0", "-1", "NaN", "inf", "1e9", "1d", ""] {
            assert_eq!(of(bad), Err("0.01 to 31536000 seconds".to_owned()), "{bad}");
        }
    }

    #[test]
    fn no_subcommand_takes_the_arguments_of_the_ladder() {
        let cli = Cli::parse_from(["sidelane", "--nic", "uring,shm", "--quick", "--sizes", "8,64"]);
        assert!(cli.command.is_none());
        assert_eq!(cli.ladder.nic, [NicArg::Kinds(vec![NicKind::Uring, NicKind::Shm])]);
        assert_eq!(cli.ladder.sizes, [8, 64]);
    }

    #[test]
    fn a_driver_that_says_where_it_is_keeps_its_commas() {
        let spec = "uring:eth1,endpoint=3,real-frames";
        let cli = Cli::parse_from(["sidelane", "ladder", "--peer", "b", "--nic", spec]);
        let Some(Command::Ladder { command: None, args }) = cli.command else { panic!("{cli:?}") };
        assert_eq!(args.nic, [NicArg::Driver(spec.parse().unwrap())]);
        let serve = Cli::parse_from(["sidelane", "ladder", "serve", "--nic", spec]);
        assert!(matches!(serve.command, Some(Command::Ladder { command: Some(LadderCommand::Serve(_)), .. })));
    }
}
