//! What happens in one simulated run, drawn from its seed.

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{LineModel, LinkModel};
use sidelane_nic::rng::Rng;
use sidelane_nic::time::{Duration, Instant};

use crate::{JobKey, Protection};

/// One run: the network, what goes wrong, and what is sent.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Everything else follows from this.
    pub seed: u64,
    /// Nodes; each sends to each.
    pub nodes: u32,
    /// Largest frame of each node.
    pub mtu: Vec<usize>,
    /// The same way between all nodes.
    pub link: LinkModel,
    /// Bytes of the FIFOs.
    pub fifo: usize,
    /// Messages from each node to each other one.
    pub messages: u32,
    /// One-sided operations of each node on each other one's memory.
    pub operations: u32,
    /// Longest message; most are short.
    pub longest: usize,
    /// How long a receiver lets messages lie between two looks.
    pub receiver_pause: Duration,
    /// Times without a way between two nodes.
    pub partitions: Vec<Partition>,
    /// A node that dies and lives again.
    pub crash: Option<Crash>,
    /// A time in which nodes take no turns.
    pub pause: Option<Pause>,
    /// What protects the frames.
    pub protection: Protection,
    /// Ends with an error when there is still something to do by then.
    pub time_limit: Duration,
}

/// No way between two nodes for a while.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// One node.
    pub a: u32,
    /// The other.
    pub b: u32,
    /// When it begins.
    pub from: Instant,
    /// When it ends.
    pub until: Instant,
}

/// A node that dies at once, with all that it holds.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// Which.
    pub node: u32,
    /// When it dies.
    pub at: Instant,
    /// When a new process begins in its place.
    pub restart_at: Instant,
}

/// Nodes that stand still for a while and then go on, as after SIGSTOP and SIGCONT. Frames come to them meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// Which; `None`: all of them.
    pub node: Option<u32>,
    /// When it begins.
    pub from: Instant,
    /// When it ends.
    pub until: Instant,
}

/// Any: the simulated attackers do not guess.
const KEY: JobKey = JobKey::from_bytes([0x4b; JobKey::LEN]);

impl Scenario {
    /// Two nodes on a good link, `messages` each way.
    pub fn calm(seed: u64, messages: u32) -> Self {
        Self {
            seed,
            nodes: 2,
            mtu: vec![1500; 2],
            link: LinkModel {
                line: LineModel { rate_bits_per_s: Some(10_000_000_000), queue_limit_bytes: None },
                delay: Duration::from_micros(5),
                mtu: None,
                faults: Faults::NONE,
            },
            fifo: 256 << 10,
            messages,
            operations: 0,
            longest: 1000,
            receiver_pause: Duration::ZERO,
            partitions: Vec::new(),
            crash: None,
            pause: None,
            protection: Protection::Checked,
            time_limit: Duration::from_millis(120_000),
        }
    }

    /// A run with faults of every kind, each up to 30 %.
    pub fn stormy(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut probability = |often: f64| if rng.chance(often) { rng.below(3001) as f64 / 10_000.0 } else { 0.0 };
        let faults = Faults {
            loss: probability(0.7),
            duplicate: probability(0.5),
            reorder: probability(0.5),
            corrupt: probability(0.4),
            truncate: probability(0.2),
            delay: probability(0.5),
            reorder_span: Duration::ZERO,
            delay_span: Duration::ZERO,
        };
        let delay = Duration::from_nanos(100 + rng.below(50_000));
        let faults = Faults {
            reorder_span: Duration::from_nanos(1 + rng.below(delay.as_nanos() * 4)),
            delay_span: Duration::from_nanos(1 + rng.below(delay.as_nanos() * 8)),
            ..faults
        };
        let nodes = 2 + rng.below(3) as u32;
        let mtus = [128, 512, 1500, 9000, 61_000];
        let common = mtus[rng.below(5) as usize];
        let mtu: Vec<usize> =
            (0..nodes).map(|_| if rng.chance(0.9) { common } else { mtus[rng.below(5) as usize] }).collect();
        let smallest = mtu.iter().copied().min().unwrap_or(common);
        // A message of a hundred frames is long enough to see everything, and ends in time on the worst of links.
        let longest = [16, 200, 3_000, 100_000][rng.below(4) as usize].min(100 * smallest);
        let mut scenario = Self {
            nodes,
            mtu,
            link: LinkModel {
                line: LineModel {
                    rate_bits_per_s: rng.chance(0.5).then(|| 100_000_000 << rng.below(10)),
                    queue_limit_bytes: rng.chance(0.3).then(|| 130_000 + rng.below(500_000) as usize),
                },
                delay,
                mtu: None,
                faults,
            },
            fifo: 1 << (8 + rng.below(10)),
            messages: 5 + rng.below(if longest > 10_000 { 10 } else { 60 }) as u32,
            longest,
            // These are not drawn: an added draw would make another run of every seed.
            operations: if seed % 3 == 1 { 30 } else { 0 },
            protection: if seed % 5 == 4 { Protection::Encrypted(KEY) } else { Protection::Checked },
            receiver_pause: if rng.chance(0.3) { Duration::from_micros(rng.below(2_000)) } else { Duration::ZERO },
            ..Self::calm(seed, 0)
        };
        let horizon = 20_000_000;
        for _ in 0..rng.below(3) {
            let from = Instant::from_nanos(rng.below(horizon));
            let longest = if rng.chance(0.2) { 2_000_000_000 } else { 100_000_000 };
            let until = from + Duration::from_nanos(rng.below(longest));
            let a = rng.below(u64::from(nodes)) as u32;
            scenario.partitions.push(Partition { a, b: (a + 1) % nodes, from, until });
        }
        if rng.chance(0.2) {
            let at = Instant::from_nanos(rng.below(horizon));
            let longest = if rng.chance(0.5) { 1_000_000 } else { 3_000_000_000 };
            let restart_at = at + Duration::from_nanos(rng.below(longest));
            scenario.crash = Some(Crash { node: rng.below(u64::from(nodes)) as u32, at, restart_at });
        }
        // Drawn apart, as above. With a death, whose silence is whose would be hard to judge.
        if seed % 7 == 3 && scenario.crash.is_none() {
            let mut rng = Rng::new(seed ^ 0x57a7);
            let from = Instant::from_nanos(rng.below(horizon));
            let longest = [10_000_000, 500_000_000, 5_000_000_000][rng.below(3) as usize];
            let node = rng.chance(0.7).then(|| rng.below(u64::from(nodes)) as u32);
            scenario.pause = Some(Pause { node, from, until: from + Duration::from_nanos(rng.below(longest)) });
        }
        scenario
    }
}
