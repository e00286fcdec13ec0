//! What a network under load makes of it: goodput, queues and fairness, in virtual time.
//!
//! Nodes hang on a switch: each has an uplink and a downlink of one rate, and the switch holds a bounded queue before each
//! downlink, where an incast meets. Senders always have something to send. The same load is played with our protocol, with
//! it but without congestion control, and with go-back-N.

mod clocked;
mod descheduled;
mod go_back_n;
mod host;
mod table;
mod trouble;

use sidelane_nic::mem::{Config as NodeConfig, Fabric, LineModel, LinkModel};
use sidelane_nic::time::{Duration, Instant};

pub use descheduled::{Descheduled, Receiver};
pub use table::{LOADS, table};
pub use trouble::{Recovery, Trouble, Who};

use go_back_n::GoBackN;
use host::{Host, Ours};

/// Who sends to whom over what.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What stands in the table.
    pub name: &'static str,
    /// Senders and receivers.
    pub shape: Shape,
    /// Bytes of a message: one frame each.
    pub message: usize,
    /// Rate of every line, in bits a second.
    pub rate: u64,
    /// Rate of the first sender's uplink.
    pub first_rate: u64,
    /// Bytes that wait before a downlink at most.
    pub queue: usize,
    /// From end to end, one way.
    pub delay: Duration,
    /// Share of frames that are lost.
    pub loss: f64,
    /// The link between the first sender and its receiver is cut from a fifth of the time on, for so long.
    pub flap: Duration,
    /// Nobody runs from a fifth of the time on, for so long: a machine that sleeps, or a clock that jumps.
    pub jump: Duration,
    /// The first sender dies at a fifth of the time and lives anew at once.
    pub restart: bool,
    /// Every receiver looks at its messages once in so long.
    pub slow: Duration,
    /// Nodes of even and of odd number have a processor by turns, for so long each. Zero: all have one.
    pub slice: Duration,
    /// What is measured, after a tenth of it has passed.
    pub span: Duration,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// So many nodes to one more.
    ManyToOne(u32),
    /// So many nodes, each to each.
    AllToAll(u32),
}

/// How it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// As this crate does.
    Ours,
    /// As this crate does with [`crate::Config::congestion_control`] off.
    Uncontrolled,
    /// A window of 32 frames, one time-out of 5 ms, everything again from the first loss on: eRPC's defaults.
    GoBackN,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Payload taken at the receivers, as a share of what their lines carry in bits.
    pub goodput: f64,
    /// How long a frame that came then would have waited before a downlink: the median.
    pub queue_p50: Duration,
    /// The same, exceeded by one frame in a hundred.
    pub queue_p99: Duration,
    /// Jain's index over the goodput of all pairs: 1 when all are the same, 1/n when one has it all.
    pub fairness: f64,
    /// Frames that the network lost, as a share of those sent.
    pub lost: f64,
}

impl Load {
    /// Plays it once.
    pub fn play(&self, sender: Sender) -> Measured {
        match sender {
            Sender::GoBackN => Run::<GoBackN>::new(self, |nic, _| GoBackN::new(nic)).play(),
            _ => Run::<Ours>::new(self, move |nic, seed| Ours::new(nic, seed, sender == Sender::Ours)).play(),
        }
    }

    fn pairs(&self) -> Vec<(u32, u32)> {
        match self.shape {
            Shape::ManyToOne(senders) => (1..=senders).map(|from| (from, 0)).collect(),
            Shape::AllToAll(nodes) => (0..nodes)
                .flat_map(|from| (0..nodes).map(move |to| (from, to)))
                .filter(|(from, to)| from != to)
                .collect(),
        }
    }

    fn nodes(&self) -> u32 {
        match self.shape {
            Shape::ManyToOne(senders) => senders + 1,
            Shape::AllToAll(nodes) => nodes,
        }
    }
}

/// How often a node looks at its NIC: a loop that has other things to do.
const TURN: Duration = Duration::from_nanos(500);
/// Turns in which nothing happens are left out, but for so many that no node was away: half a time-out of `mem`.
const TURN_MAX: Duration = Duration::from_micros(50);

/// True when the node takes a turn now.
fn runs(still: Option<usize>, slice: Duration, node: usize, now: Instant) -> bool {
    still != Some(node)
        && now.as_nanos().checked_div(slice.as_nanos()).is_none_or(|slices| (slices + node as u64).is_multiple_of(2))
}

struct Run<'a, H> {
    load: &'a Load,
    fabric: Fabric,
    hosts: Vec<H>,
    begin: Box<dyn Fn(sidelane_nic::mem::MemNic, u64) -> H>,
    pairs: Vec<(u32, u32)>,
    /// By receiver and sender: bytes taken in the measured time.
    taken: Vec<u64>,
    /// When the first of them came, not counting those before `counts_from`.
    first: Vec<Instant>,
    counts_from: Instant,
    queues: Vec<u64>,
    next_look: Instant,
    /// Takes no turns.
    still: Option<usize>,
    lives: u64,
}

impl<'a, H: Host> Run<'a, H> {
    fn new(load: &'a Load, begin: impl Fn(sidelane_nic::mem::MemNic, u64) -> H + 'static) -> Self {
        let fabric = Fabric::new(1);
        let faults = sidelane_nic::fault::Faults { loss: load.loss, ..Default::default() };
        fabric.set_default_link(LinkModel { delay: load.delay, faults, ..LinkModel::default() });
        let nodes = load.nodes();
        let run = Self {
            load,
            fabric,
            hosts: Vec::new(),
            begin: Box::new(begin),
            pairs: load.pairs(),
            taken: vec![0; (nodes * nodes) as usize],
            first: vec![Instant::FAR_FUTURE; (nodes * nodes) as usize],
            counts_from: Instant::ZERO,
            queues: Vec::new(),
            next_look: Instant::ZERO,
            still: None,
            lives: 0,
        };
        for node in 0..nodes {
            let rate_bits_per_s = Some(if node == 1 { load.first_rate } else { load.rate });
            // A NIC's own queue pushes back: two bursts of frames.
            run.fabric.set_uplink(node, LineModel { rate_bits_per_s, queue_limit_bytes: Some(UPLINK) });
            let rate_bits_per_s = Some(load.rate);
            run.fabric.set_downlink(node, LineModel { rate_bits_per_s, queue_limit_bytes: Some(load.queue) });
        }
        run
    }

    fn start_all(&mut self) {
        for node in 0..self.load.nodes() {
            let host = self.start(node);
            self.hosts.push(host);
        }
    }

    fn start(&mut self, node: u32) -> H {
        self.lives += 1;
        let config = NodeConfig { tx_frames: 64, ..NodeConfig::default() };
        let mut host = (self.begin)(self.fabric.nic_at(node, config), self.lives);
        for &(from, to) in self.pairs.iter().filter(|(from, _)| *from == node) {
            host.dial(from, to, self.load.message);
        }
        host
    }

    fn play(mut self) -> Measured {
        let Load { span, flap, jump, restart, .. } = *self.load;
        let fifth = |parts: u64| Instant::ZERO + Duration::from_nanos(span.as_nanos() * parts / 5);
        let warm = Instant::ZERO + Duration::from_nanos(span.as_nanos() / 10);
        let end = warm + span;
        let mut trouble = flap != Duration::ZERO || jump != Duration::ZERO || restart;
        self.start_all();
        while self.fabric.now() < end {
            let now = self.fabric.now();
            if trouble && now >= fifth(1) {
                trouble = false;
                if flap != Duration::ZERO {
                    self.fabric.partition(1, 0, now + flap);
                }
                if restart {
                    self.hosts[1] = self.start(1);
                }
                self.fabric.advance_to(now + jump);
            }
            self.step(end, now >= warm);
        }
        self.measured()
    }

    fn step_until(&mut self, end: Instant, measures: bool) {
        while self.fabric.now() < end {
            self.step(end, measures);
        }
    }

    /// One turn of everybody, and time moves on to what comes next; `end`, if nothing does.
    fn step(&mut self, end: Instant, measures: bool) {
        let now = self.fabric.now();
        let looks = now >= self.next_look;
        if looks {
            self.next_look = now + self.load.slow;
        }
        let Self { taken, first, counts_from, still, .. } = self;
        let nodes = self.load.nodes() as usize;
        let slice = self.load.slice;
        for (node, host) in self.hosts.iter_mut().enumerate().filter(|(node, _)| runs(*still, slice, *node, now)) {
            host.turn(looks, |from, bytes| {
                if measures {
                    let pair = node * nodes + from as usize;
                    taken[pair] += bytes as u64;
                    if now >= *counts_from {
                        first[pair] = first[pair].min(now);
                    }
                }
            });
        }
        if measures {
            let receivers = if matches!(self.load.shape, Shape::ManyToOne(_)) { 1 } else { self.load.nodes() };
            self.queues.extend((0..receivers).map(|node| self.fabric.downlink_wait(node).as_nanos()));
        }
        let awake = self.hosts.iter().enumerate().filter(|(node, _)| runs(self.still, slice, *node, now));
        let timers = awake.filter_map(|(_, host)| host.next_timeout());
        let next = timers.chain(self.fabric.next_arrival()).min().unwrap_or(end);
        self.fabric.advance_to(next.clamp(now + TURN, now + TURN_MAX));
    }

    fn measured(&mut self) -> Measured {
        let nodes = self.load.nodes() as usize;
        let of_pairs: Vec<f64> =
            self.pairs.iter().map(|&(from, to)| self.taken[to as usize * nodes + from as usize] as f64).collect();
        let sum: f64 = of_pairs.iter().sum();
        let squares: f64 = of_pairs.iter().map(|taken| taken * taken).sum();
        let receivers = if matches!(self.load.shape, Shape::ManyToOne(_)) { 1 } else { nodes };
        let carried = self.load.rate as f64 / 8.0 * self.load.span.as_nanos() as f64 / 1e9 * receivers as f64;
        self.queues.sort_unstable();
        let quantile =
            |share: f64| Duration::from_nanos(self.queues[((self.queues.len() - 1) as f64 * share) as usize]);
        let counters = self.fabric.counters();
        Measured {
            goodput: sum / carried,
            queue_p50: quantile(0.5),
            queue_p99: quantile(0.99),
            fairness: if squares > 0.0 { sum * sum / (squares * of_pairs.len() as f64) } else { 0.0 },
            lost: (counters.lost + counters.overflowed + counters.partitioned) as f64 / counters.sent.max(1) as f64,
        }
    }
}

/// Bytes that wait in a NIC before its line.
const UPLINK: usize = 32 << 10;
