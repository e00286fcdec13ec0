//! What is to be measured, in which order, and how long.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelane_nic::mem::MemNic;

use crate::machine::congestion_controls;
use crate::pattern::{Kind, Pattern};
use crate::transport::{Am, Get, Mpi, Proto, Put, Raw, Smoltcp, Tcp, Transport, Udp};

/// A layer of the ladder, from the top of what the kernel offers to the top of what we do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Kernel TCP, calls that sleep.
    TcpBlock,
    /// Kernel TCP, busy-polling.
    TcpPoll,
    /// Kernel UDP, busy-polling.
    UdpPoll,
    /// smoltcp's TCP on our driver.
    SmoltcpTcp,
    /// Bare frames on our driver.
    Raw,
    /// Our protocol on our driver.
    Proto,
    /// Our protocol with a tag on every frame.
    ProtoAuthenticated,
    /// Our protocol with tags and encrypted messages.
    ProtoEncrypted,
    /// Our protocol behind a wrapper of the driver that copies each frame, and loses none: what `ProtoLossy` is to be held against.
    ProtoLossless,
    /// Our protocol behind that wrapper, which loses one frame in a thousand, each way.
    ProtoLossy,
    /// Active Messages on our protocol.
    Am,
    /// MPI's messages on our protocol.
    Mpi,
    /// Puts with a signal, on our protocol.
    Put,
    /// Gets, on our protocol. Its round trips are whole ones: half a get is nothing.
    Get,
}

/// Which driver our rungs run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicKind {
    /// AF_PACKET through io_uring.
    Uring,
    /// AF_XDP sockets.
    Xdp,
    /// DPDK: a NIC between two machines, a memif pair on one.
    Dpdk,
    /// UDP sockets.
    Udp,
    /// Shared memory.
    Shm,
    /// DPDK's memif between two processes.
    Memif,
    /// DPDK's vhost and virtio-user between two processes.
    Vhost,
    /// The simulated fabric: both sides in one thread, so that only the software costs.
    Mem,
}

/// How large the frames on the wire may be. Large-message figures of the two differ eightfold, so each is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// As interfaces come: both TCP and we move super-packets of 64 KiB, which a virtual wire never cuts.
    DefaultOffloads,
    /// Offloads off for TCP, at most MTU-sized frames for us.
    RealFrames,
    /// Between two machines: offloads as their interfaces have them, and a wire that carries no frame above its MTU.
    Wire,
}

/// Everything that a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is compared.
    pub rungs: Vec<Rung>,
    /// What our rungs run on: once on each of these, beside kernel rungs that are measured once. All of them on the same
    /// hosts.
    pub nics: Vec<NicKind>,
    /// Which patterns in which regime.
    pub regimes: Vec<(Regime, Vec<Kind>)>,
    /// Message sizes of ping-pong and flood.
    pub sizes: Vec<usize>,
    /// Messages of a flood that may be unanswered; then only rungs that can answer have floods. `None`: none is answered.
    pub depth: Option<usize>,
    /// Message size of the bandwidth, which stands beside the first of `sizes` in the report; `None`: all of `sizes`.
    pub bandwidth_size: Option<usize>,
    /// Times that everything is measured, one thing after another each time.
    pub rounds: usize,
    /// Time of one measurement that does not count.
    pub warm: Duration,
    /// Time of one measurement that counts.
    pub measure: Duration,
}

/// One thing that every round measures once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Frame sizes on the wire.
    pub regime: Regime,
    /// What carries the messages.
    pub rung: Rung,
    /// What the rung runs on; `None` for the kernel's own stack.
    pub nic: Option<NicKind>,
    /// What is measured.
    pub kind: Kind,
    /// Bytes of a message.
    pub size: usize,
    /// What differs from the rung's other cells of the same pattern.
    pub variant: Variant,
}

/// Ways to run kernel TCP, of which the best counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The only one.
    Plain,
    /// TCP with this congestion control.
    Congestion(String),
    /// TCP that gathers small writes (Nagle's algorithm, RFC 896).
    Gathered,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("anything else"),
            Self::Congestion(name) => write!(f, "the congestion control {name}"),
            Self::Gathered => f.write_str("gathered writes"),
        }
    }
}

impl Plan {
    /// Bytes that may be unanswered in a flood with a depth: what both ends have room for, and what they send in seconds.
    pub const UNANSWERED_MAX: usize = 256 << 20;

    /// What `sidelane ladder` does unless told otherwise: under a minute on one driver.
    pub fn new(nics: &[NicKind]) -> Self {
        let all = vec![Kind::PingPong, Kind::Flood, Kind::Bandwidth];
        let mut regimes = vec![(Regime::DefaultOffloads, all)];
        if nics.iter().any(|nic| nic.crosses_a_wire()) {
            regimes.push((Regime::RealFrames, vec![Kind::Bandwidth]));
        }
        Self {
            rungs: Rung::ALL.into_iter().filter(|rung| rung.is_usual()).collect(),
            nics: nics.to_vec(),
            regimes,
            sizes: vec![8],
            depth: None,
            bandwidth_size: Some(1 << 20),
            rounds: 7,
            warm: Duration::from_millis(30),
            measure: Duration::from_millis(65),
        }
    }

    /// The same in a quarter of that: good for a look, not for a comparison.
    pub fn quick(mut self) -> Self {
        self.rounds = 3;
        self.warm = Duration::from_millis(5);
        self.measure = Duration::from_millis(12);
        self
    }

    /// Each rung with what it runs on: the kernel's first, then ours on one driver after the other.
    pub fn steps(&self) -> Vec<(Rung, Option<NicKind>)> {
        let kernel = self.rungs.iter().filter(|rung| rung.is_kernel()).map(|rung| (*rung, None));
        let ours = self.nics.iter().flat_map(|nic| {
            let carried = self.rungs.iter().filter(|rung| !rung.is_kernel() && nic.carries(**rung));
            carried.map(|rung| (*rung, Some(*nic)))
        });
        kernel.chain(ours).collect()
    }

    /// The cells of a round, in the order in which they are measured.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (regime, kinds) in &self.regimes {
            for &kind in kinds {
                for &size in self.sizes_of(kind) {
                    for (rung, nic) in self.steps() {
                        if kind == Kind::Flood && self.depth.is_some() && !rung.answers_many() {
                            continue;
                        }
                        let cell = |variant| Cell { regime: *regime, rung, nic, kind, size, variant };
                        cells.extend(variants(rung, kind).into_iter().map(cell));
                    }
                }
            }
        }
        cells
    }

    /// Everything that is measured in `regime`, whatever carries it.
    pub fn patterns(&self, regime: Regime) -> Vec<Pattern> {
        let kinds = self.regimes.iter().filter(|(one, _)| *one == regime).flat_map(|(_, kinds)| kinds);
        kinds.flat_map(|kind| self.sizes_of(*kind).iter().map(|size| self.pattern(*kind, *size))).collect()
    }

    /// What the sides are told for one kind and size.
    pub fn pattern(&self, kind: Kind, size: usize) -> Pattern {
        let (warm_ns, measure_ns) = (self.warm.as_nanos() as u64, self.measure.as_nanos() as u64);
        let unanswered = self.depth.filter(|_| kind == Kind::Flood).unwrap_or(0) as u64;
        let messages = MESSAGES_AT_LEAST + FLOODS_AT_LEAST * unanswered;
        let limit_ns = warm_ns + measure_ns + GRACE.as_nanos() as u64 + messages * size as u64 * SLOW_NS_A_BYTE;
        Pattern { kind, size, depth: self.depth, warm_ns, measure_ns, limit_ns }
    }

    fn sizes_of(&self, kind: Kind) -> &[usize] {
        match &self.bandwidth_size {
            Some(size) if kind == Kind::Bandwidth => std::slice::from_ref(size),
            _ => &self.sizes,
        }
    }
}

impl Rung {
    /// From the top of the table to its bottom.
    pub const ALL: [Self; 14] = [
        Self::TcpBlock,
        Self::TcpPoll,
        Self::UdpPoll,
        Self::SmoltcpTcp,
        Self::Raw,
        Self::Proto,
        Self::Am,
        Self::Mpi,
        Self::Put,
        Self::Get,
        Self::ProtoAuthenticated,
        Self::ProtoEncrypted,
        Self::ProtoLossless,
        Self::ProtoLossy,
    ];

    /// True of what is measured unless somebody asks for others.
    pub fn is_usual(self) -> bool {
        !matches!(self, Self::ProtoAuthenticated | Self::ProtoEncrypted | Self::ProtoLossless | Self::ProtoLossy)
    }

    /// The rung that this one adds to.
    pub fn below(self) -> Option<Self> {
        match self {
            Self::TcpBlock => Some(Self::TcpPoll),
            Self::TcpPoll => Some(Self::UdpPoll),
            Self::SmoltcpTcp | Self::Proto => Some(Self::Raw),
            Self::ProtoAuthenticated
            | Self::ProtoEncrypted
            | Self::ProtoLossless
            | Self::Am
            | Self::Mpi
            | Self::Put => Some(Self::Proto),
            Self::ProtoLossy => Some(Self::ProtoLossless),
            Self::UdpPoll | Self::Raw | Self::Get => None,
        }
    }

    /// True where what a ping-pong measures is a whole round trip.
    pub fn takes_whole_round_trips(self) -> bool {
        self == Self::Get
    }

    /// What its transport says, on whichever driver.
    fn answers_many(self) -> bool {
        match self {
            Self::TcpBlock => Tcp::<true>::ANSWERS_MANY,
            Self::TcpPoll => Tcp::<false>::ANSWERS_MANY,
            Self::UdpPoll => Udp::ANSWERS_MANY,
            Self::SmoltcpTcp => Smoltcp::<MemNic>::ANSWERS_MANY,
            Self::Raw => Raw::<MemNic>::ANSWERS_MANY,
            Self::Proto | Self::ProtoAuthenticated | Self::ProtoEncrypted | Self::ProtoLossless | Self::ProtoLossy => {
                Proto::<MemNic>::ANSWERS_MANY
            }
            Self::Am => Am::<MemNic>::ANSWERS_MANY,
            Self::Mpi => Mpi::ANSWERS_MANY,
            Self::Put => Put::<MemNic>::ANSWERS_MANY,
            Self::Get => Get::<MemNic>::ANSWERS_MANY,
        }
    }

    /// True of the kernel's own stack.
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::TcpBlock | Self::TcpPoll | Self::UdpPoll)
    }
}

impl NicKind {
    /// True of drivers of a network, whose ends are on two hosts of a lab, with frames on the wire between them.
    pub fn crosses_a_wire(self) -> bool {
        matches!(self, Self::Uring | Self::Xdp | Self::Udp)
    }

    fn carries(self, rung: Rung) -> bool {
        match rung {
            Rung::SmoltcpTcp => self != Self::Mem,
            // Nothing is sealed there.
            Rung::ProtoAuthenticated | Rung::ProtoEncrypted => self != Self::Shm,
            _ => true,
        }
    }
}

/// Large transfers depend on congestion control, so every one that is commonly in use is tried.
fn variants(rung: Rung, kind: Kind) -> Vec<Variant> {
    match (rung, kind) {
        (Rung::TcpBlock | Rung::TcpPoll, Kind::Bandwidth) => {
            let tried = congestion_controls().into_iter().filter(|name| CONGESTION_TRIED.contains(&name.as_str()));
            let variants: Vec<_> = tried.map(Variant::Congestion).collect();
            if variants.is_empty() { vec![Variant::Plain] } else { variants }
        }
        // Its rate is that of requests that are bounded, which says little.
        (Rung::Get, Kind::Flood) => Vec::new(),
        (Rung::TcpPoll, Kind::Flood) => vec![Variant::Plain, Variant::Gathered],
        _ => vec![Variant::Plain],
    }
}

/// The three that Linux systems come with.
pub(crate) const CONGESTION_TRIED: [&str; 3] = ["cubic", "reno", "bbr"];
/// What a side may take beyond its time, for connecting and for what the machine does meanwhile. Nothing waits for its end but a
/// measurement that fails: a machine with many more busy threads than cores takes seconds for what is over at once elsewhere, and
/// so do two that are emulated on a third.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// To and fro for the warm-up, the sample and the last one, and as many again.
const MESSAGES_AT_LEAST: u64 = 12;
/// All that may be unanswered, to and fro, and once more while the last of it is waited for.
const FLOODS_AT_LEAST: u64 = 4;
/// Gigabit Ethernet, about.
const SLOW_NS_A_BYTE: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_measures_a_pattern_on_every_rung_before_the_next_pattern() {
        let plan = Plan { rungs: vec![Rung::UdpPoll, Rung::Raw], ..Plan::new(&[NicKind::Uring]) };
        let order: Vec<_> = plan.cells().iter().map(|cell| (cell.regime, cell.kind, cell.rung)).collect();
        let (default, real) = (Regime::DefaultOffloads, Regime::RealFrames);
        assert_eq!(
            order,
            [
                (default, Kind::PingPong, Rung::UdpPoll),
                (default, Kind::PingPong, Rung::Raw),
                (default, Kind::Flood, Rung::UdpPoll),
                (default, Kind::Flood, Rung::Raw),
                (default, Kind::Bandwidth, Rung::UdpPoll),
                (default, Kind::Bandwidth, Rung::Raw),
                (real, Kind::Bandwidth, Rung::UdpPoll),
                (real, Kind::Bandwidth, Rung::Raw),
            ]
        );
    }

    #[test]
    fn several_drivers_stand_beside_kernel_rungs_that_are_measured_once() {
        let rungs = vec![Rung::Raw, Rung::TcpPoll, Rung::SmoltcpTcp];
        let plan = Plan { rungs, ..Plan::new(&[NicKind::Xdp, NicKind::Mem]) };
        assert_eq!(
            plan.steps(),
            [
                (Rung::TcpPoll, None),
                (Rung::Raw, Some(NicKind::Xdp)),
                (Rung::SmoltcpTcp, Some(NicKind::Xdp)),
                (Rung::Raw, Some(NicKind::Mem)),
            ]
        );
    }

    #[test]
    fn a_flood_with_a_depth_is_of_rungs_that_answer() {
        let plan = Plan { depth: Some(8), ..Plan::new(&[NicKind::Shm]) };
        let floods: Vec<_> = plan.cells().into_iter().filter(|cell| cell.kind == Kind::Flood).collect();
        assert!(floods.iter().any(|cell| cell.rung == Rung::Am) && floods.iter().all(|cell| cell.rung != Rung::Put));
        assert!(floods.iter().all(|cell| plan.pattern(cell.kind, cell.size).is_answered()));
    }

    #[test]
    fn the_limit_grows_with_what_may_be_unanswered() {
        let limit = |depth, kind| Plan { depth, ..Plan::new(&[NicKind::Shm]) }.pattern(kind, 1 << 20).limit_ns;
        assert!(limit(Some(64), Kind::Flood) > limit(None, Kind::Flood) + 2 * 2 * 64 * (1 << 20) * SLOW_NS_A_BYTE / 2);
        assert_eq!(limit(Some(64), Kind::PingPong), limit(None, Kind::PingPong));
    }

    #[test]
    fn the_default_plan_stays_under_a_minute() {
        // What opening, connecting and closing add to a measurement (NOTES.md).
        const OVERHEAD: Duration = Duration::from_millis(60);
        for (plan, limit) in [(Plan::new(&[NicKind::Uring]), 60), (Plan::new(&[NicKind::Uring]).quick(), 15)] {
            let each = plan.warm + plan.measure + OVERHEAD;
            let rounds = u32::try_from((plan.rounds + 1) * plan.cells().len()).unwrap();
            assert!(each * rounds < Duration::from_secs(limit), "{:?}", each * rounds);
        }
    }
}
