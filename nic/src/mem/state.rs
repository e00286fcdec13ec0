//! What the fabric consists of: nodes, paths between them, frames in flight.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;

use super::frame::{Frame, Pool};
use super::line::Line;
use super::{Config, LineModel, LinkModel, NODES_MAX};
use crate::fault::Lateness;
use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// What became of all frames. Every frame that was sent, or came to be by duplication, ends in one of the last six.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounters {
    /// Flushed onto the fabric.
    pub sent: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Held back while others passed.
    pub held_back: u64,
    /// Made late, together with those behind.
    pub delayed: u64,
    /// Changed or cut.
    pub damaged: u64,
    /// Put into a receive queue.
    pub delivered: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost to a partition.
    pub partitioned: u64,
    /// Too large for the link or the receiver.
    pub too_large: u64,
    /// Dropped because the queue of a link or a downlink, or the receive queue, was full.
    pub overflowed: u64,
    /// For a node that is not there.
    pub nobody: u64,
}

pub(super) struct State {
    now: Instant,
    rng: Rng,
    nodes: Vec<Node>,
    paths: Vec<Path>,
    path_of: HashMap<(u32, u32), u32>,
    default_link: LinkModel,
    /// Nothing was ever set: frames go straight to their receivers.
    plain: bool,
    partitions: Vec<Partition>,
    in_flight: BinaryHeap<InFlight>,
    /// Frames that were ever in flight: settles which of two frames due at one time comes first.
    flights: u64,
    pub(super) pool: Pool,
    pub(super) counters: FabricCounters,
    /// Who else runs while somebody waits.
    pub(super) others: Option<Others>,
}

/// Called with a node that waits, and its deadline.
pub(super) type Others = Rc<dyn Fn(u32, Option<Instant>)>;

#[derive(Default)]
struct Node {
    /// Lives that it has had, the present one among them.
    life: u32,
    up: bool,
    config: Config,
    rx: VecDeque<(u32, Frame)>,
    /// Of each life.
    rx_dropped: Vec<u64>,
    uplink: (LineModel, Line),
    downlink: (LineModel, Line),
}

struct Path {
    from: u32,
    to: u32,
    /// `None`: as the fabric's default says.
    model: Option<LinkModel>,
    line: Line,
    /// Arrival of the latest frame that was not held back: none may come before it.
    last_arrival: Instant,
}

struct Partition {
    a: u32,
    b: u32,
    until: Instant,
}

struct InFlight {
    at: Instant,
    flight: u64,
    from: u32,
    to: u32,
    stage: Stage,
    frame: Frame,
}

#[derive(Clone, Copy)]
enum Stage {
    /// Comes to the receiver's downlink.
    Downlink,
    /// Comes to the receiver.
    Receiver,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            rng: Rng::new(seed),
            nodes: Vec::new(),
            paths: Vec::new(),
            path_of: HashMap::new(),
            default_link: LinkModel::default(),
            plain: true,
            partitions: Vec::new(),
            in_flight: BinaryHeap::new(),
            flights: 0,
            pool: Pool::default(),
            counters: FabricCounters::default(),
            others: None,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.peek().map(|next| next.at)
    }

    pub(super) fn advance_to(&mut self, time: Instant) {
        while self.in_flight.peek().is_some_and(|next| next.at <= time) {
            let InFlight { at, from, to, stage, frame, .. } = self.in_flight.pop().expect("peeked");
            self.now = at;
            self.arrive(from, to, stage, frame);
        }
        self.now = self.now.max(time);
    }

    // Nodes.

    pub(super) fn next_node(&self) -> u32 {
        self.nodes.iter().position(|node| node.life == 0).unwrap_or(self.nodes.len()) as u32
    }

    /// Starts a node; returns the number of its new life.
    pub(super) fn bring_up(&mut self, node: u32, config: Config) -> u32 {
        self.crash(node);
        let node = self.node_mut(node);
        node.life += 1;
        node.up = true;
        node.config = config;
        node.rx_dropped.push(0);
        node.life
    }

    pub(super) fn crash(&mut self, node: u32) {
        let node = self.node_mut(node);
        node.up = false;
        node.rx = VecDeque::new();
    }

    pub(super) fn lives(&self, node: u32, life: u32) -> bool {
        let node = &self.nodes[node as usize];
        node.up && node.life == life
    }

    pub(super) fn set_uplink(&mut self, node: u32, model: LineModel) {
        self.plain = false;
        self.node_mut(node).uplink.0 = model;
    }

    pub(super) fn set_downlink(&mut self, node: u32, model: LineModel) {
        self.plain = false;
        self.node_mut(node).downlink.0 = model;
    }

    pub(super) fn uplink_has_room(&self, node: u32, len: usize) -> bool {
        let (model, line) = &self.nodes[node as usize].uplink;
        line.has_room(model, self.now, len)
    }

    pub(super) fn downlink_wait(&self, node: u32) -> Duration {
        self.nodes.get(node as usize).map_or(Duration::ZERO, |node| node.downlink.1.wait(self.now))
    }

    pub(super) fn receive(&mut self, node: u32) -> Option<(u32, Frame)> {
        self.nodes[node as usize].rx.pop_front()
    }

    pub(super) fn has_received(&self, node: u32) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| !node.rx.is_empty())
    }

    /// Frames that found the receive queue of a node full in one of its lives.
    pub(super) fn rx_dropped(&self, node: u32, life: u32) -> u64 {
        self.nodes[node as usize].rx_dropped[life as usize - 1]
    }

    fn node_mut(&mut self, node: u32) -> &mut Node {
        assert!(node < NODES_MAX, "a fabric has at most {NODES_MAX} nodes");
        let index = node as usize;
        if index >= self.nodes.len() {
            self.nodes.resize_with(index + 1, Node::default);
        }
        &mut self.nodes[index]
    }

    // Paths.

    /// The path between two nodes, made when it is first asked for.
    pub(super) fn path(&mut self, from: u32, to: u32) -> u32 {
        if let Some(&path) = self.path_of.get(&(from, to)) {
            return path;
        }
        self.node_mut(from);
        self.node_mut(to);
        let path = self.paths.len() as u32;
        self.paths.push(Path { from, to, model: None, line: Line::default(), last_arrival: Instant::ZERO });
        self.path_of.insert((from, to), path);
        path
    }

    pub(super) fn set_default_link(&mut self, model: LinkModel) {
        self.plain = false;
        self.default_link = model;
    }

    pub(super) fn set_link(&mut self, from: u32, to: u32, model: LinkModel) {
        self.plain = false;
        let path = self.path(from, to);
        self.paths[path as usize].model = Some(model);
    }

    pub(super) fn partition(&mut self, a: u32, b: u32, until: Instant) {
        self.plain = false;
        let now = self.now;
        self.partitions.retain(|partition| partition.until > now);
        self.partitions.push(Partition { a, b, until });
    }

    fn partitioned(&self, from: u32, to: u32) -> bool {
        self.partitions.iter().any(|partition| {
            self.now < partition.until && [(from, to), (to, from)].contains(&(partition.a, partition.b))
        })
    }

    // The way of a frame.

    /// Puts a frame on the wire.
    pub(super) fn send(&mut self, path_index: u32, frame: Frame) {
        self.counters.sent += 1;
        let Path { from, to, .. } = self.paths[path_index as usize];
        if self.plain {
            return self.deliver(from, to, frame);
        }
        self.send_modelled(path_index, frame);
    }

    fn send_modelled(&mut self, path_index: u32, frame: Frame) {
        let Path { from, to, model, .. } = self.paths[path_index as usize];
        let model = model.unwrap_or(self.default_link);
        let (uplink, line) = &mut self.nodes[from as usize].uplink;
        // Whether there is room was asked before the buffer was lent.
        let uplink = LineModel { queue_limit_bytes: None, ..*uplink };
        let departs = line.pass(&uplink, self.now, frame.len()).unwrap_or(self.now);
        if self.partitioned(from, to) {
            self.counters.partitioned += 1;
            return self.pool.give_back(frame);
        }
        if model.mtu.is_some_and(|mtu| frame.len() > mtu) {
            self.counters.too_large += 1;
            return self.pool.give_back(frame);
        }
        if model.faults.is_none() {
            self.travel(path_index, &model, departs, frame);
        } else {
            self.travel_faulty(path_index, &model, departs, frame);
        }
    }

    /// Over the link, as all is well.
    fn travel(&mut self, path: u32, model: &LinkModel, departs: Instant, frame: Frame) {
        let path = &mut self.paths[path as usize];
        let Some(left) = path.line.pass(&model.line, departs, frame.len()) else {
            self.counters.overflowed += 1;
            return self.pool.give_back(frame);
        };
        path.last_arrival = path.last_arrival.max(left + model.delay);
        let (from, to, at) = (path.from, path.to, path.last_arrival);
        self.fly(from, to, at, frame);
    }

    /// Over the link, with what chance adds.
    #[cold]
    fn travel_faulty(&mut self, path_index: u32, model: &LinkModel, departs: Instant, frame: Frame) {
        let copies = model.faults.copies(&mut self.rng);
        self.counters.lost += u64::from(copies == 0);
        self.counters.duplicated += copies.saturating_sub(1) as u64;
        for _ in 0..copies {
            let mut copy = self.pool.copy(&frame);
            if let Some(left) = model.faults.damage(&mut copy, &mut self.rng) {
                self.counters.damaged += 1;
                copy.truncate(left);
            }
            let path = &mut self.paths[path_index as usize];
            let Some(left) = path.line.pass(&model.line, departs, copy.len()) else {
                self.counters.overflowed += 1;
                self.pool.give_back(copy);
                continue;
            };
            let in_time = path.last_arrival.max(left + model.delay);
            let at = match model.faults.lateness(&mut self.rng) {
                Lateness::HeldBack(by) => {
                    self.counters.held_back += 1;
                    in_time + by
                }
                Lateness::Delayed(by) => {
                    self.counters.delayed += 1;
                    path.last_arrival = in_time.max(left + model.delay + by);
                    path.last_arrival
                }
                Lateness::OnTime => {
                    path.last_arrival = in_time;
                    in_time
                }
            };
            let (from, to) = (path.from, path.to);
            self.fly(from, to, at, copy);
        }
        self.pool.give_back(frame);
    }

    /// From the end of the link on; at once, when nothing is in between.
    fn fly(&mut self, from: u32, to: u32, at: Instant, frame: Frame) {
        let stage = match self.nodes[to as usize].downlink.0.rate_bits_per_s {
            Some(_) => Stage::Downlink,
            None => Stage::Receiver,
        };
        if at <= self.now {
            self.arrive(from, to, stage, frame);
        } else {
            self.launch(InFlight { at, flight: 0, from, to, stage, frame });
        }
    }

    fn launch(&mut self, mut flying: InFlight) {
        self.flights += 1;
        flying.flight = self.flights;
        self.in_flight.push(flying);
    }

    fn arrive(&mut self, from: u32, to: u32, stage: Stage, frame: Frame) {
        match stage {
            Stage::Downlink => {
                let (model, line) = &mut self.nodes[to as usize].downlink;
                match line.pass(&model.clone(), self.now, frame.len()) {
                    Some(at) => self.launch(InFlight { at, flight: 0, from, to, stage: Stage::Receiver, frame }),
                    None => {
                        self.counters.overflowed += 1;
                        self.pool.give_back(frame);
                    }
                }
            }
            Stage::Receiver => self.deliver(from, to, frame),
        }
    }

    fn deliver(&mut self, from: u32, to: u32, frame: Frame) {
        let node = &mut self.nodes[to as usize];
        let fate = if !node.up {
            &mut self.counters.nobody
        } else if frame.len() > node.config.mtu {
            &mut self.counters.too_large
        } else if node.rx.len() >= node.config.rx_frames {
            *node.rx_dropped.last_mut().expect("a node that is up has a life") += 1;
            &mut self.counters.overflowed
        } else {
            node.rx.push_back((from, frame));
            self.counters.delivered += 1;
            return;
        };
        *fate += 1;
        self.pool.give_back(frame);
    }
}

// The heap gives its greatest first: that is the earliest arrival.
impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.flight).cmp(&(self.at, self.flight))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for InFlight {}
