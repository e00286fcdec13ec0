//! The command line.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sidelane::lab::LabSpec;
use sidelane::qemu::{Accel, Binding, Model, NICS_MAX};
use sidelane::soak::SoakArgs;
use sidelane_bench::collectives::{Cell, Collective};
use sidelane_bench::ladder::{NicKind, NoSuch, Rung};
use sidelane_nic::spec::{Spec, SpecError};

use crate::run_command::{self, RunArgs};
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

const EXAMPLES: &str = "\
Examples:
  sidelane                                   the ladder on all drivers, in at most a minute
  sidelane --quick --nic uring,shm           a shorter one, on two drivers
  sidelane --real-frames --json out.json     frames as a wire carries them; figures to a file
  sidelane doctor                            what can run here, and what to do about the rest
  sidelane lab run -- ip -stats addr         a command in a network of its own
  sidelane run -n 4 ./program                four ranks of a program

SIDELANE_LOG=debug writes what happens to standard error (filters as in tracing-subscriber's EnvFilter).";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure what each layer costs, beside kernel TCP and UDP (also: no subcommand)
    #[command(after_help = LADDER_EXAMPLES, args_conflicts_with_subcommands = true)]
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
    #[command(subcommand, after_help = LAB_EXAMPLES)]
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
    #[command(after_help = STAT_NOTES)]
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
        /// The driver as a string
        spec: Spec,
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
    /// Traffic that checks itself; started by tests
    #[command(hide = true)]
    Soak(SoakArgs),
}

const LADDER_EXAMPLES: &str = "\
Examples:
  sidelane ladder --quick
  sidelane ladder --nic xdp,uring
  sidelane ladder --nic shm --sizes 8,1024 --patterns ping-pong
  sidelane ladder --real-frames --rounds 9 --csv ladder.csv
  sidelane ladder --breakdown --nic uring,shm
  sidelane ladder --nic shm --rungs mpi --mpi /opt/mpich,/opt/openmpi
  sidelane ladder --rungs mpi --mpi /opt/mpich --patterns ping-pong --sizes 8,1K,16K,64K,1M,4M

How to read the table: half round trip is the time of one message one way (of a get the whole round trip); the difference is to the rung below.
Default: the veth hands 64 KiB segments on uncut, to TCP as to us. --real-frames: every frame fits the MTU.

Between two machines:
  machine B$ sidelane ladder serve --nic uring:eth1
  machine A$ sidelane ladder --nic uring:eth1 --peer B
A and B each name their own interface, and both need the same version of sidelane. The kernel's rungs run between the
addresses that --peer connects, so give B's address on the network that shall be compared.";

#[derive(Debug, Subcommand)]
pub enum LadderCommand {
    /// Be machine B of a ladder between two machines, until Ctrl-C
    #[command(after_help = SERVE_NOTES)]
    Serve(ServeArgs),
    /// Measure every MPI collective among ranks on this host, beside installed MPIs
    #[command(after_help = COLLECTIVES_NOTES)]
    Collectives(CollectivesArgs),
}

const COLLECTIVES_NOTES: &str = "\
Examples:
  sidelane ladder collectives --ranks 2,16 --sizes 8
  sidelane ladder collectives --mpi /opt/mpich,/opt/openmpi --json collectives.json
  sidelane ladder collectives --only allreduce,iallreduce --rounds 9

In each round every library has its turn with the same calls. A call is made back to back for some milliseconds, longer where a
barrier takes long, and a barrier closes them. A table for each number of ranks: microseconds a call, ours and those of the best
of the others (its initial behind), and how many times as fast ours is. Ranks may be more than cores; if not, each
is bound to one. A full table takes a minute, with MPICH some: its ranks do not give way to each other.";

/// Which collective calls, and beside whom.
#[derive(Debug, Args)]
pub struct CollectivesArgs {
    /// Calls, comma separated: barrier, broadcast, allreduce, ... [default: all]
    #[arg(long, value_delimiter = ',', value_name = "CALL")]
    pub only: Vec<Collective>,
    /// Numbers of ranks, comma separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [2, 4, 8, 16])]
    pub ranks: Vec<usize>,
    /// Bytes of a call, comma separated: of a block where every rank has one, of the whole array where it is reduced or broadcast
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_values_t = [8, 1 << 10, 16 << 10, 128 << 10, 1 << 20])]
    pub sizes: Vec<usize>,
    /// MPI libraries to measure beside ours, comma separated: the folders that have bin/mpicc and bin/mpiexec; needs a lab
    #[arg(long, value_delimiter = ',', value_name = "PREFIX", env = "SIDELANE_MPI")]
    pub mpi: Vec<PathBuf>,
    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

const SERVE_NOTES: &str = "\
One ladder at a time is served. Whoever can connect can have this machine send test traffic over the driver named here:
serve on networks you trust, and name the address that shall be listened at with --listen.";

/// What a serving machine offers.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The driver to measure with, as a string: uring:eth1
    #[arg(long, value_name = "DRIVER", env = "SIDELANE_NIC")]
    pub nic: Spec,
    /// Where to listen
    #[arg(long, value_name = "IP:PORT", default_value_t = (Ipv4Addr::UNSPECIFIED, PORT).into())]
    pub listen: SocketAddr,
    /// The core that measures; the last one unless it is said
    #[arg(long, value_name = "N")]
    pub core: Option<usize>,
}

/// Where machines of a ladder meet unless it is said. No service of Debian's /etc/services has this port.
pub const PORT: u16 = 7474;

/// Which processes to look at, and how.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Process ids; all that use Sidelane unless some are said
    #[arg(value_name = "PID")]
    pub pids: Vec<u32>,
    /// Print JSON, an object a reading, instead of lines
    #[arg(long)]
    pub json: bool,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    pub interval: Seconds,
    /// Show what was counted until now, and end
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,
}

const STAT_NOTES: &str = "\
Examples:
  sidelane stat                       rates of every endpoint on this machine, each second
  sidelane stat 1234 --interval 0.2   those of one process
  sidelane stat --once --json         totals for a program

Ends when the processes have; exits with 1 when there is none. Processes in other network namespaces (labs, containers)
are seen too, those of other users only by root. `turns` are calls of poll: one that falls to 0 no longer polls.";

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
        seconds.map(|seconds| Self(Duration::from_secs_f64(seconds))).ok_or_else(|| "0.01 to 86400 seconds".to_owned())
    }
}

/// What the ladder shall measure.
#[derive(Debug, Clone, Args)]
pub struct LadderArgs {
    /// Drivers to climb, comma separated, those of one network side by side: uring, xdp, udp, shm, mem, and DPDK's memif
    /// and vhost; with --peer one as a string: uring:eth1
    #[arg(long, value_name = "DRIVER", env = "SIDELANE_NIC")]
    pub nic: Vec<NicArg>,
    /// Measure with this machine, where `sidelane ladder serve` runs, instead of in a lab
    #[arg(long, value_name = "HOST[:PORT]", env = "SIDELANE_PEER")]
    pub peer: Option<String>,
    /// The core that measures with a peer; the last one unless it is said
    #[arg(long, value_name = "N", requires = "peer")]
    pub core: Option<usize>,
    /// Rungs to measure, comma separated: tcp-block, tcp-poll, udp-poll, smoltcp-tcp, raw, proto, am, mpi, put, get,
    /// proto-authenticated, proto-encrypted
    #[arg(long, value_delimiter = ',', value_name = "RUNG")]
    pub rungs: Vec<Rung>,
    /// Message sizes in bytes, comma separated: 8,1K,4M; K and M are 1024 and 1024 times that
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = bytes)]
    pub sizes: Vec<usize>,
    /// Patterns, comma separated
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PATTERN")]
    pub patterns: Vec<PatternArg>,
    /// Show instead where each nanosecond of a half round trip goes, layer by layer, beside its time as a whole: of the rung
    /// proto, or of those of proto and am that --rungs names
    #[arg(long, conflicts_with_all = ["peer", "patterns", "quick", "real_frames", "rounds", "csv"])]
    pub breakdown: bool,
    /// MPI libraries to measure beside the rungs, comma separated: the folders that have bin/mpicc and bin/mpiexec.
    /// On the same hosts, over the kernel's TCP, or in shared memory beside shm; needs a lab
    #[arg(long, value_delimiter = ',', value_name = "PREFIX", env = "SIDELANE_MPI")]
    pub mpi: Vec<PathBuf>,
    /// Fewer and shorter rounds: a first impression in a few seconds
    #[arg(long)]
    pub quick: bool,
    /// Offloads off, frames of at most the MTU: as on a wire
    #[arg(long, conflicts_with = "peer")]
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

/// A message's size, at least one byte: `4096`, `4K`, `1M`.
pub fn bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let size = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| (1..=MESSAGE_MAX).contains(size)).ok_or_else(|| "1 to 1024M, such as 4096, 4K or 1M".to_owned())
}

/// The patterns' C program counts bytes in an `int`.
const MESSAGE_MAX: usize = 1 << 30;

/// What `--nic` says: kinds of drivers, each of which finds its place in the lab, or one driver and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicArg {
    Kinds(Vec<NicKind>),
    Driver(Spec),
}

impl FromStr for NicArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(':') {
            return text.parse().map(Self::Driver).map_err(|error: SpecError| error.to_string());
        }
        let kinds = text.split(',').map(|kind| kind.parse().map_err(|error: NoSuch| error.to_string()));
        kinds.collect::<Result<_, _>>().map(Self::Kinds)
    }
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
pub enum StudyCommand {
    /// SP Active Messages (Chang and others, 1996): round trips by words over the raw driver; what request, reply and poll cost
    Chang {
        /// The driver: uring, xdp, udp, shm, memif, vhost
        #[arg(long, value_name = "DRIVER", env = "SIDELANE_NIC", default_value_t = NicKind::Uring)]
        nic: NicKind,
        /// Fewer and shorter rounds
        #[arg(long)]
        quick: bool,
        /// Write all figures as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum NicCommand {
    /// Show the NICs: driver, PCI address, NUMA node, MTU, offloads, XDP, and what to open them as
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run the conformance suite: everything that a driver promises, tried on the NICs that are named
    #[command(after_help = TEST_EXAMPLES)]
    Test {
        /// Two or three drivers of one kind that reach each other, as strings; three for all cases
        #[arg(value_name = "DRIVER", env = "SIDELANE_NICS", value_delimiter = ' ', required = true, num_args = 1..)]
        nics: Vec<Spec>,
        /// Frames overtake one another on this wire, and that is no fault of the driver's
        #[arg(long)]
        overtaking: bool,
    },
}

const TEST_EXAMPLES: &str = "\
Examples:
  sidelane nic test udp:127.0.0.1:0 udp:127.0.0.1:0 udp:127.0.0.1:0
  sidelane nic test uring:lo,endpoint=1 uring:lo,endpoint=2 uring:lo,endpoint=3
  sidelane nic test uring:eth1 uring:eth2           two interfaces on one cable or switch

Exits with 1 when a promise is broken. Nothing else may use these endpoints meanwhile. Give --overtaking where a wire
does not keep order: QEMU's queues let new frames pass those that wait for a receiver whose ring was full.";

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
    /// Run a command beside emulated PCI NICs, or prove all drivers on them
    #[command(after_help = QEMU_EXAMPLES)]
    Qemu(QemuArgs),
    /// Ends what is inside a lab when its tool is killed; started by `run`
    #[command(hide = true)]
    Guard {
        /// The tool's descriptors of the namespaces
        namespaces: Vec<i32>,
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

/// Guests of QEMU, and what they shall do.
#[derive(Debug, Args)]
pub struct QemuArgs {
    /// NIC model, or several, comma separated [default: all; with a command e1000e]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODEL")]
    pub model: Vec<Model>,
    /// What the NICs are bound to
    #[arg(long, value_enum, value_name = "DRIVER", default_value = "uio_pci_generic")]
    pub driver: Binding,
    /// Guests for the command: 1, or 2 of which the other serves ladders
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = small(2))]
    pub hosts: usize,
    /// NICs in each guest for the command
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = small(NICS_MAX))]
    pub nics: usize,
    /// How the guests are executed
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub accel: Accel,
    /// A folder with an unpacked Debian kernel package [default: downloaded once to ~/.cache/sidelane]
    #[arg(long, value_name = "FOLDER")]
    pub kernel: Option<PathBuf>,
    /// Longest time of one run of the guests, boot included
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u64,
    /// The command for guest A and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const QEMU_EXAMPLES: &str = "\
Examples:
  sidelane lab qemu                                     the conformance suite and a ladder on all models
  sidelane lab qemu --model vmxnet3 --driver vfio-pci   the same on one, behind an IOMMU
  sidelane lab qemu --model e1000e -- sidelane ladder --quick
  sidelane lab qemu --driver kernel -- sidelane ladder --quick --rungs tcp-poll,raw,proto
  sidelane lab qemu --hosts 1 --nics 3 -- sidelane nic test
  sidelane lab qemu --hosts 1 -- sh -c 'ip addr; cat /proc/meminfo'

Needs QEMU, busybox and, but for --driver kernel, DPDK, all of this machine:
  sudo apt-get install --no-install-recommends qemu-system-x86 busybox-static libdpdk-dev
No root, and nothing of this machine is touched: the guests have a kernel of their own, this program and its libraries.

Inside, SIDELANE_NIC names the driver of the guest's first NIC (dpdk:0000:00:04.0), SIDELANE_NICS those of all, and
SIDELANE_PEER the other guest; so the commands need no options for it. On a real NIC they are typed:
  echo vfio-pci > /sys/bus/pci/devices/0000:04:00.0/driver_override
  echo 0000:04:00.0 > /sys/bus/pci/devices/0000:04:00.0/driver/unbind
  echo 0000:04:00.0 > /sys/bus/pci/drivers_probe
  sidelane ladder --nic dpdk:0000:04:00.0 --peer HOST";

fn small(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("a number from 1 to {most}")),
    }
}

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
        assert_eq!(cli.ladder.nic, [NicArg::Kinds(vec![NicKind::Uring, NicKind::Shm])]);
        assert_eq!(cli.ladder.sizes, [8, 64]);
    }

    #[test]
    fn sizes_have_units() {
        let of = |text: &str| bytes(text).ok();
        assert_eq!([of("8"), of("64K"), of("1k"), of("4M")], [8, 64 << 10, 1 << 10, 4 << 20].map(Some));
        for bad in ["", "0", "K", "-1", "1G", "1.5K", "2048M", "99999999999999999999M"] {
            assert_eq!(of(bad), None, "{bad}");
        }
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

    #[test]
    fn a_lab_name_is_a_plain_file_name() {
        assert!(lab_name("trio-2").is_ok());
        for bad in ["", "..", "a/b", "A", &"x".repeat(33)] {
            assert!(lab_name(bad).is_err(), "{bad}");
        }
    }
}
