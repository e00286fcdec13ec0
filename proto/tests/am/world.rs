//! Two nodes with Active Messages on one fabric.

use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel, MemNic};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{ActiveMessages, Handlers};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

use crate::patience::{SUITE_PATIENCE, watch};
pub use crate::virtual_time::{VirtualTime, good_link};

pub struct Node<S> {
    pub am: ActiveMessages<MemNic, S>,
    pub state: S,
    /// Its name for the other one.
    pub peer: PeerId,
    /// It looks at what has come. Set to false, it lies.
    pub polls: bool,
}

pub struct World<S> {
    pub fabric: Fabric,
    pub nodes: [Node<S>; 2],
}

pub fn mtu(mtu: usize) -> NodeConfig {
    NodeConfig { mtu, mtu_safe: mtu, ..NodeConfig::default() }
}

/// FIFOs of `bytes`, or as small as the driver allows.
pub fn fifos(bytes: usize) -> Config {
    Config { send_fifo: bytes, recv_fifo: bytes, seed: Some(7), ..Config::default() }
}

impl<S: Default> World<S> {
    /// Two connected nodes with the same handlers.
    pub fn pair(link: LinkModel, seed: u64, nic: NodeConfig, config: Config, handlers: fn() -> Handlers<S>) -> Self {
        // What has to happen in virtual time may never.
        watch("it", SUITE_PATIENCE);
        let fabric = Fabric::new(seed);
        fabric.set_default_link(link);
        let node = |number: u64| {
            let config = Config { seed: config.seed.map(|base| base ^ seed << 8 ^ number), ..config };
            ActiveMessages::new(Endpoint::new(fabric.nic(nic), config), handlers())
        };
        let (mut a, mut b) = (node(0), node(1));
        let to: LinkAddr = b.endpoint().nic().caps().addr;
        let peer = a.connect(to).expect("room in the table");
        let (mut state_a, mut state_b) = (S::default(), S::default());
        let back = loop {
            a.poll(&mut state_a);
            b.poll(&mut state_b);
            if let Some(Event::Connected { peer, .. }) = b.poll_event() {
                break peer;
            }
            let timers = [a.endpoint().poll_timeout(), b.endpoint().poll_timeout()].into_iter().flatten();
            fabric.advance_to(timers.chain(fabric.next_arrival()).min().expect("they connect").max(fabric.now()));
        };
        let nodes = [
            Node { am: a, state: state_a, peer, polls: true },
            Node { am: b, state: state_b, peer: back, polls: true },
        ];
        let mut world = Self { fabric, nodes };
        let ready = world.run(Duration::from_millis(60_000), |world| {
            world.nodes.iter_mut().all(|node| node.am.room_max(node.peer) > sidelane_proto::am::ReplyRoom::NONE)
        });
        assert!(ready, "they do not learn of each other's room");
        world
    }
}

impl<S> VirtualTime for World<S> {
    fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    fn turn(&mut self) -> bool {
        let mut busy = false;
        for node in self.nodes.iter_mut().filter(|node| node.polls) {
            let frames = |node: &Node<S>| {
                let counters = node.am.endpoint().counters();
                counters.frames_sent + counters.frames_received + counters.rejected_total()
            };
            let before = frames(node);
            busy |= node.am.poll(&mut node.state) > 0 || before != frames(node);
        }
        busy
    }

    fn next_timeout(&self) -> Option<Instant> {
        let awake = self.nodes.iter().filter(|node| node.polls);
        awake.filter_map(|node| node.am.endpoint().poll_timeout()).min()
    }
}
