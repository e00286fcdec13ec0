//! Some endpoints on one fabric.

use std::cell::RefCell;
use std::rc::Rc;

use sidelane_nic::LinkAddr;
use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel};
use sidelane_nic::time::{Duration, Instant};
use sidelane_proto::{Config, Counters, Endpoint, Event, PeerId};

use crate::patience::{SUITE_PATIENCE, watch};
use crate::tap::{Controls, Tap};
pub use crate::virtual_time::{VirtualTime, good_link};

pub struct Node {
    pub endpoint: Endpoint<Tap>,
    pub controls: Rc<RefCell<Controls>>,
    /// Its user takes messages; set to false, they lie.
    pub reads: bool,
    pub got: Vec<(PeerId, Vec<u8>)>,
    pub events: Vec<Event>,
}

pub struct World {
    pub fabric: Fabric,
    pub nodes: Vec<Option<Node>>,
}

/// The good link, losing frames with a probability.
pub fn lossy_link(loss: f64) -> LinkModel {
    LinkModel { faults: Faults { loss, ..Faults::NONE }, ..good_link() }
}

/// What kernel drivers claim, and what bypassing ones do.
pub const KERNEL_FLOOR: Duration = Duration::from_millis(1);
pub const BYPASS_FLOOR: Duration = Duration::from_micros(100);

impl World {
    pub fn new(seed: u64, link: LinkModel) -> Self {
        // What has to happen in virtual time may never.
        watch("it", SUITE_PATIENCE);
        let fabric = Fabric::new(seed);
        fabric.set_default_link(link);
        Self { fabric, nodes: Vec::new() }
    }

    /// Two nodes with default settings on a good link, connected; both sides' names for each other.
    pub fn pair() -> (Self, PeerId, PeerId) {
        let mut world = Self::new(1, good_link());
        world.add(NodeConfig::default(), config());
        world.add(NodeConfig::default(), config());
        let (a, b) = world.join(0, 1);
        (world, a, b)
    }

    pub fn add(&mut self, nic: NodeConfig, config: Config) -> u32 {
        self.nodes.push(None);
        let number = self.nodes.len() as u32 - 1;
        self.start(number, nic, config);
        number
    }

    /// Begins a life at a node number, whatever was there before, with a seed of its own.
    pub fn start(&mut self, number: u32, nic: NodeConfig, config: Config) {
        let life = self.now().as_nanos() << 8 | u64::from(number);
        self.start_as(number, nic, Config { seed: config.seed.map(|seed| seed ^ life), ..config });
    }

    /// The same with just these settings.
    pub fn start_as(&mut self, number: u32, nic: NodeConfig, config: Config) {
        let (tap, controls) = Tap::new(self.fabric.nic_at(number, nic));
        let endpoint = Endpoint::new(tap, config);
        let node = Node { endpoint, controls, reads: true, got: Vec::new(), events: Vec::new() };
        self.nodes[number as usize] = Some(node);
    }

    pub fn crash(&mut self, number: u32) {
        self.fabric.crash(number);
        self.nodes[number as usize] = None;
    }

    pub fn node(&mut self, number: u32) -> &mut Node {
        self.nodes[number as usize].as_mut().expect("it lives")
    }

    pub fn counters(&mut self, number: u32) -> Counters {
        *self.node(number).endpoint.counters()
    }

    pub fn connect(&mut self, from: u32, to: u32) -> PeerId {
        self.node(from).endpoint.connect(addr(to)).expect("room in the table")
    }

    /// Connects, and waits until both sides know. Takes the events away.
    pub fn join(&mut self, from: u32, to: u32) -> (PeerId, PeerId) {
        let peer = self.connect(from, to);
        let connected = |node: &Node, to: u32| {
            node.events.iter().find_map(|event| match event {
                Event::Connected { peer, addr: from } if *from == addr(to) => Some(*peer),
                _ => None,
            })
        };
        let mut back = None;
        let joined = self.run(Duration::from_millis(1_000), |world| {
            back = connected(world.node(to), from);
            connected(world.node(from), to).is_some() && back.is_some()
        });
        assert!(joined, "node {from} and node {to} do not come together");
        self.node(from).events.clear();
        self.node(to).events.clear();
        (peer, back.expect("just seen"))
    }

    pub fn send(&mut self, from: u32, peer: PeerId, message: &[u8]) {
        self.node(from).endpoint.send(peer, message).expect("room in the FIFO");
    }

    /// Sends `count` messages of `len` bytes as fast as they are taken, and waits until all have come. Returns how long
    /// that took.
    pub fn flood(&mut self, from: u32, to: u32, peer: PeerId, count: u32, len: usize) -> Duration {
        let (begun, mut sent, mut got) = (self.now(), 0u32, 0u32);
        let arrived = self.run(Duration::from_millis(60_000), |world| {
            for (_, message) in std::mem::take(&mut world.node(to).got) {
                assert_eq!(message, numbered(got, len), "message {got}");
                got += 1;
            }
            while sent < count && world.node(from).endpoint.send(peer, &numbered(sent, len)).is_ok() {
                sent += 1;
            }
            world.node(from).endpoint.flush();
            got == count
        });
        assert!(arrived, "{got} of {count} messages came in a minute");
        self.now().since(begun)
    }
}

impl VirtualTime for World {
    fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    fn turn(&mut self) -> bool {
        let mut busy = false;
        for node in self.nodes.iter_mut().flatten() {
            busy |= node.endpoint.poll() > 0;
            while node.reads
                && let Some(message) = node.endpoint.recv(|peer, bytes| (peer, bytes.to_vec()))
            {
                node.got.push(message);
                busy = true;
            }
            while let Some(event) = node.endpoint.poll_event() {
                node.events.push(event);
                busy = true;
            }
        }
        busy
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.nodes.iter().flatten().filter_map(|node| node.endpoint.poll_timeout()).min()
    }
}

/// Settings that repeat.
pub fn config() -> Config {
    Config { seed: Some(7), ..Config::default() }
}

pub fn addr(node: u32) -> LinkAddr {
    LinkAddr::Mem { node }
}

/// Message `number`: its number, and then bytes that follow from it.
pub fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8 ^ 0x5a; len];
    let head = len.min(4);
    bytes[..head].copy_from_slice(&number.to_le_bytes()[..head]);
    bytes
}
