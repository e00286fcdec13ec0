//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sidelane::lab::LabSpec;
use sidelane::soak::SoakArgs;

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

const EXAMPLES: &str = "\
Examples:
  sidelane                                   the ladder on all drivers, in at most a minute
  sidelane --quick --nic uring,shm           a shorter one, on two drivers
  sidelane --real-frames --json out.json     frames as a wire carries them; figures to a file
  sidelane doctor                            what can run here, and what to do about the rest
  sidelane lab run -- ip -stats addr         a command in a network of its own

SIDELANE_LOG=debug writes what happens to standard error (filters as in tracing-subscriber's EnvFilter).";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure what each layer costs, beside kernel TCP and UDP (also: no subcommand)
    #[command(after_help = LADDER_EXAMPLES)]
    Ladder(LadderArgs),
    /// Make hosts out of network namespaces and run commands in them
    #[command(subcommand, after_help = LAB_EXAMPLES)]
    Lab(LabCommand),
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
    /// Opens a driver in the namespace it is started in; started by `doctor`
    #[command(hide = true)]
    Probe {
        /// The driver as a string
        spec: String,
    },
    /// Traffic that checks itself; started by tests
    #[command(hide = true)]
    Soak(SoakArgs),
}

const LADDER_EXAMPLES: &str = "\
Examples:
  sidelane ladder --quick
  sidelane ladder --nic shm --sizes 8,1024 --patterns ping-pong
  sidelane ladder --real-frames --rounds 9 --csv ladder.csv

How to read the table: half round trip is the time of one message one way; the difference is to the rung below.
Default: the veth hands 64 KiB segments on uncut, to TCP as to us. --real-frames: every frame fits the MTU.";

/// What the ladder shall measure.
#[derive(Debug, Clone, Args)]
pub struct LadderArgs {
    /// Drivers to climb, comma separated
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DRIVER", env = "SIDELANE_NIC")]
    pub nic: Vec<NicArg>,
    /// Message sizes in bytes, comma separated
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    pub sizes: Vec<usize>,
    /// Patterns, comma separated
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PATTERN")]
    pub patterns: Vec<PatternArg>,
    /// Fewer and shorter rounds: a first impression in a few seconds
    #[arg(long)]
    pub quick: bool,
    /// Offloads off, frames of at most the MTU: as on a wire
    #[arg(long)]
    pub real_frames: bool,
    /// Interleaved rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write all figures as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

/// A driver of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NicArg {
    /// AF_PACKET ring and io_uring, over veth
    Uring,
    /// UDP sockets through io_uring
    Udp,
    /// Shared memory
    Shm,
    /// Simulated fabric within one process
    Mem,
}

/// A pattern of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PatternArg {
    /// One message to and fro: latency
    PingPong,
    /// As many messages as go: rate
    Flood,
    /// Large messages one way: bandwidth
    Bandwidth,
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Make a lab and keep it until `down`
    Up {
        #[command(flatten)]
        spec: SpecArgs,
        #[command(flatten)]
        name: NameArg,
    },
    /// End a kept lab and every process inside
    Down {
        #[command(flatten)]
        name: NameArg,
    },
    /// Show the kept labs of this user
    Status {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a host of a kept lab
    Exec {
        /// The host: A, B, ...
        host: String,
        #[command(flatten)]
        name: NameArg,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Run a command in host A of a lab that ends with it
    Run {
        #[command(flatten)]
        spec: SpecArgs,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Holds a lab; started by `up`
    #[command(hide = true)]
    Keep {
        #[command(flatten)]
        spec: SpecArgs,
        #[command(flatten)]
        name: NameArg,
    },
}

const LAB_EXAMPLES: &str = "\
Examples:
  sidelane lab up --hosts 3 --name trio
  sidelane lab exec --name trio B -- ip addr
  sidelane lab status
  sidelane lab down --name trio
  sidelane lab run -- ip neighbour

Host A has the address 10.79.0.1, B 10.79.0.2 and so on; a command inside finds them in SIDELANE_A_IP, SIDELANE_A_MAC...
and its own name in SIDELANE_HOST. Root is not needed where user namespaces are allowed (`sidelane doctor` tells).";

/// What a lab shall be.
#[derive(Debug, Clone, Args)]
pub struct SpecArgs {
    /// How many hosts
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub hosts: usize,
    /// Largest IP packet in bytes
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    pub mtu: u32,
    /// Offloads off, frames of at most the MTU: as on a wire
    #[arg(long)]
    pub real_frames: bool,
}

/// Which kept lab.
#[derive(Debug, Clone, Args)]
pub struct NameArg {
    /// Name of the lab
    #[arg(long, default_value = "lab", value_parser = lab_name)]
    pub name: String,
}

impl SpecArgs {
    pub fn spec(&self) -> LabSpec {
        LabSpec { hosts: self.hosts, mtu: self.mtu, real_frames: self.real_frames }
    }
}

/// A name that is a file name and short enough for a socket's path (unix(7): 108 bytes with the directory).
fn lab_name(text: &str) -> Result<String, String> {
    let fits = (1..=NAME_MAX).contains(&text.len());
    if fits && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Ok(text.to_owned());
    }
    Err(format!("a lab's name has 1 to {NAME_MAX} of the characters a-z, 0-9 and -"))
}

const NAME_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_subcommand_takes_the_arguments_of_the_ladder() {
        let cli = Cli::parse_from(["sidelane", "--nic", "uring,shm", "--quick", "--sizes", "8,64"]);
        assert!(cli.command.is_none());
        assert_eq!(cli.ladder.nic, [NicArg::Uring, NicArg::Shm]);
        assert_eq!(cli.ladder.sizes, [8, 64]);
    }

    #[test]
    fn a_lab_name_is_a_plain_file_name() {
        assert!(lab_name("trio-2").is_ok());
        for bad in ["", "..", "a/b", "A", &"x".repeat(33)] {
            assert!(lab_name(bad).is_err(), "{bad}");
        }
    }
}
