//! What `sidelane ladder` is told.

use std::convert::Infallible;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use sidelane_bench::collectives::Collective;
use sidelane_bench::ladder::{NicKind, NoSuch, Rung};
use sidelane_nic::affinity;
use sidelane_nic::spec::{Spec, SpecError};

use crate::out_files::FileArgs;
use crate::variable::{self, VariableError};

pub const EXAMPLES: &str = "\
Examples:
  sidelane ladder --quick
  sidelane ladder --nic xdp,uring
  sidelane ladder --nic shm --sizes 8,1024 --patterns ping-pong
  sidelane ladder --real-frames --rounds 9 --csv ladder.csv
  sidelane ladder --patterns flood --depth 8 --rungs raw,proto,am
  sidelane ladder --breakdown --nic uring,shm
  sidelane ladder --nic shm --rungs mpi --mpi /opt/mpich,/opt/openmpi
  sidelane ladder --rungs mpi --mpi /opt/mpich --patterns ping-pong --sizes 8,1K,16K,64K,1M,4M

Rungs, from the kernel's to the highest of ours: tcp-block and tcp-poll, kernel TCP, asleep or busy-polling; \
udp-poll, kernel UDP; smoltcp-tcp, TCP in user space on our driver; raw, bare frames; proto, reliable messages, with \
-authenticated and -encrypted protected; am, Active Messages; mpi, MPI's messages; put and get, access to the other \
one's memory.

How to read the table: half round trip is the time of one message one way (of a get the whole round trip); the \
difference is to the rung below.
Default: the veth hands 64 KiB segments on uncut, to TCP as to us. --real-frames: every frame fits the MTU.

Between two machines:
  machine B$ sidelane ladder serve --nic uring:eth1
  machine A$ sidelane ladder --nic uring:eth1 --peer B
A and B each name their own interface, and both need the same version of sidelane. The kernel's rungs run between the \
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

/// What the ladder shall measure.
#[derive(Debug, Clone, Args)]
pub struct LadderArgs {
    /// Drivers to climb, comma separated, those of one network side by side: uring, xdp, udp, shm, mem, and DPDK's memif
    /// and vhost; with --peer one as a string: uring:eth1 [default without --peer: uring, or where no lab can be made udp and shm] [env: SIDELANE_NIC]
    #[arg(long, value_name = "DRIVER")]
    pub nic: Vec<NicArg>,
    /// Measure with this machine, where `sidelane ladder serve` runs, instead of in a lab [env: SIDELANE_PEER]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub peer: Option<String>,
    /// The core that measures with a peer; the last one unless it is said, or the peer is on this machine and has it
    #[arg(long, value_name = "N", value_parser = core)]
    pub core: Option<usize>,
    /// Rungs to measure, comma separated: tcp-block, tcp-poll, udp-poll, smoltcp-tcp, raw, proto, am, mpi, put, get,
    /// proto-authenticated, proto-encrypted, proto-lossless, proto-lossy (behind a wrapper that loses no frame, and one in a
    /// thousand) [default: all but the last four]
    #[arg(long, value_delimiter = ',', value_name = "RUNG")]
    pub rungs: Vec<Rung>,
    /// Message sizes in bytes, comma separated: 8,1K,4M; K and M are 1024 and 1024 times that. Of ping-pong and flood; of the
    /// bandwidth, which else has messages of 1M, where --patterns names it alone [default: 8]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = bytes)]
    pub sizes: Vec<usize>,
    /// Patterns, comma separated [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PATTERN")]
    pub patterns: Vec<PatternArg>,
    /// Have the floods' messages answered, one by one, and so many unanswered at most: of the rungs tcp-poll, udp-poll, raw, proto and am
    #[arg(long, value_name = "N", value_parser = depth, conflicts_with_all = ["breakdown", "mpi"])]
    pub depth: Option<u16>,
    /// Show instead where each nanosecond of a half round trip goes, layer by layer, beside its time as a whole: of the rung
    /// proto, or of those of proto and am that --rungs names. MPIs of --mpi are left out. Not with --peer, --patterns, --quick,
    /// --real-frames, --rounds, --depth and --csv
    #[arg(long, conflicts_with_all = ["peer", "patterns", "quick", "real_frames", "rounds", "csv"])]
    pub breakdown: bool,
    /// MPI libraries to measure beside the rungs, comma separated: the folders that have bin/mpicc and bin/mpiexec.
    /// On the same hosts, over the kernel's TCP, or in shared memory beside shm; needs a lab [env: SIDELANE_MPI]
    #[arg(long, value_delimiter = ',', value_name = "PREFIX")]
    pub mpi: Vec<PathBuf>,
    /// Fewer and shorter rounds: a first impression in a few seconds
    #[arg(long)]
    pub quick: bool,
    /// Offloads off, frames of at most the MTU: as on a wire
    #[arg(long, conflicts_with = "peer")]
    pub real_frames: bool,
    /// Interleaved rounds [default: 7, with --quick 3]
    #[arg(long, value_name = "N", value_parser = rounds)]
    pub rounds: Option<u32>,
    #[command(flatten)]
    pub files: FileArgs,
    /// Write the table's main figures as CSV, `-` as with --json, which has all
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

impl LadderArgs {
    /// With what the environment says of what was not typed.
    pub fn with_variables(mut self) -> Result<Self, VariableError> {
        if self.nic.is_empty() {
            self.nic = variable::read("SIDELANE_NIC", str::parse)?.into_iter().collect();
        }
        let in_a_lab = self.breakdown || self.real_frames;
        self.peer = self.peer.filter(|peer| !peer.is_empty());
        if self.peer.is_none() && !in_a_lab {
            self.peer = variable::read("SIDELANE_PEER", str::parse)?;
        }
        if self.depth.is_none() && self.peer.is_none() {
            self.mpi = prefixes(self.mpi)?;
        }
        Ok(self)
    }
}

/// What was asked for, each once: nothing is measured twice.
pub fn distinct<T: Copy + PartialEq>(asked: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for one in asked {
        if !once.contains(one) {
            once.push(*one);
        }
    }
    once
}

/// The folders of `--mpi`, or else of the variable.
pub fn prefixes(typed: Vec<PathBuf>) -> Result<Vec<PathBuf>, VariableError> {
    if !typed.is_empty() {
        return Ok(typed);
    }
    let split = |text: &str| Ok::<_, Infallible>(text.split(',').map(PathBuf::from).collect());
    Ok(variable::read("SIDELANE_MPI", split)?.unwrap_or_default())
}

/// What `--nic` says: kinds of drivers, each of which finds its place in the lab, or one driver and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicArg {
    Kinds(Vec<NicKind>),
    Driver(Spec),
}

impl FromStr for NicArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::Kinds(Vec::new()));
        }
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

const COLLECTIVES_NOTES: &str = "\
Examples:
  sidelane ladder collectives --ranks 2,16 --sizes 8
  sidelane ladder collectives --mpi /opt/mpich,/opt/openmpi --json collectives.json
  sidelane ladder collectives --only allreduce,iallreduce --rounds 9

In each round every library has its turn with the same calls; ours with what is built in, unless SIDELANE_TUNING names \
a file of `sidelane tune`. A call is made back to back for some milliseconds, \
longer where a barrier takes long, ten times at least unless one takes 100 ms, and a barrier closes them. A table for \
each number of ranks: microseconds a call, ours and those of the best of the others (its initial behind), and how \
many times as fast ours is. Ranks may be more than cores; if not, each is bound to one. A full table takes a minute, \
with MPICH some: its ranks do not give way to each other.";

/// Which collective calls, and beside whom.
#[derive(Debug, Args)]
pub struct CollectivesArgs {
    /// Calls, comma separated: barrier, broadcast, allreduce, ... [default: all]
    #[arg(long, value_delimiter = ',', value_name = "CALL")]
    pub only: Vec<Collective>,
    /// Numbers of ranks, comma separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "2,4,8,16", value_parser = ranks)]
    pub ranks: Vec<usize>,
    /// Bytes of a call, multiples of 4, comma separated; K and M as usual: of a block where every rank has one, of the whole array where it is reduced or broadcast
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_value = "8,1K,16K,128K,1M", value_parser = words)]
    pub sizes: Vec<usize>,
    /// MPI libraries to measure beside ours, comma separated: the folders that have bin/mpicc and bin/mpiexec; needs a lab
    /// [env: SIDELANE_MPI]
    #[arg(long, value_delimiter = ',', value_name = "PREFIX")]
    pub mpi: Vec<PathBuf>,
    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = rounds)]
    pub rounds: u32,
    #[command(flatten)]
    pub files: FileArgs,
}

const SERVE_NOTES: &str = "\
One ladder at a time is served. Whoever can connect can have this machine send test traffic over the driver named here:
serve on networks you trust, and name the address that shall be listened at with --listen.";

/// What a serving machine offers.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The driver to measure with, as a string: uring:eth1 [env: SIDELANE_NIC]
    #[arg(long, value_name = "DRIVER")]
    pub nic: Option<Spec>,
    /// Where to listen
    #[arg(long, value_name = "IP:PORT", default_value_t = (Ipv4Addr::UNSPECIFIED, PORT).into())]
    pub listen: SocketAddr,
    /// The core that measures; the last one unless it is said
    #[arg(long, value_name = "N", value_parser = core)]
    pub core: Option<usize>,
}

/// Where machines of a ladder meet unless it is said. No service of Debian's /etc/services has this port.
pub const PORT: u16 = 7474;

/// A message's size, at least one byte: `4096`, `4K`, `1M`.
pub fn bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let size = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| (1..=MESSAGE_MAX).contains(size)).ok_or_else(|| "1 to 1024M, such as 4096, 4K or 1M".to_owned())
}

/// Bytes of a collective call, whose elements are of 4.
fn words(text: &str) -> Result<usize, String> {
    let size = bytes(text)?;
    if size.is_multiple_of(4) { Ok(size) } else { Err("a multiple of 4 bytes".to_owned()) }
}

fn rounds(text: &str) -> Result<u32, String> {
    number(text, 1..=1000)
}

/// Messages of a flood that are unanswered.
fn depth(text: &str) -> Result<u16, String> {
    number(text, 1..=64)
}

/// As clap's own parser, which names the range only to who has typed a number.
fn number<N: FromStr + PartialOrd + Display>(text: &str, range: RangeInclusive<N>) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
}

/// Ranks of a job.
fn ranks(text: &str) -> Result<usize, String> {
    let ranks = text.parse().ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    ranks.ok_or_else(|| format!("1 to {RANKS_MAX} ranks"))
}

/// A core that this process may run on.
fn core(text: &str) -> Result<usize, String> {
    let cores = affinity::cores();
    text.parse().ok().filter(|core| cores.contains(core)).ok_or_else(|| {
        let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
        format!("this process may run on {}", cores.join(", "))
    })
}

/// All of them are on this host, where each is a process with two buffers of every rank's size.
const RANKS_MAX: usize = 256;
/// The patterns' C program counts bytes in an `int`.
const MESSAGE_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let of = |text: &str| bytes(text).ok();
        assert_eq!([of("8"), of("64K"), of("1k"), of("4M")], [8, 64 << 10, 1 << 10, 4 << 20].map(Some));
        for bad in ["", "0", "K", "-1", "1G", "1.5K", "2048M", "99999999999999999999M"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_empty_driver_is_none() {
        assert_eq!("".parse(), Ok(NicArg::Kinds(Vec::new())));
        assert!(",".parse::<NicArg>().is_err());
    }

    #[test]
    fn cores_and_ranks_are_those_that_there_can_be() {
        let own = affinity::cores();
        assert_eq!(core(&own[0].to_string()), Ok(own[0]));
        assert!(core("100000").unwrap_err().contains(&own[0].to_string()) && core("x").is_err());
        assert_eq!((ranks("16"), ranks("0").is_err(), ranks("257").is_err()), (Ok(16), true, true));
    }
}
