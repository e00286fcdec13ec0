//! Two nodes with Active Messages, and the loop that moves time on.

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LineModel, LinkModel, MemNic};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{ActiveMessages, Handlers};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

use crate::patience::{SUITE_PATIENCE, watch};

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

/// 10 Gbit/s, 5 us each way.
pub fn good_link() -> LinkModel {
    LinkModel {
        line: LineModel { rate_bits_per_s: Some(10_000_000_000), queue_limit_bytes: None },
        delay: Duration::from_micros(5),
        mtu: None,
        faults: Faults::NONE,
    }
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

impl<S> World<S> {
    /// Moves on until `done` says so, at most for `span`; whether it did.
    pub fn run(&mut self, span: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let until = self.fabric.now() + span;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            if self.fabric.now() >= until {
                return false;
            }
            self.advance(until);
        }
    }

    /// Moves on to when something is due next. Compiled once, not for each `done`.
    fn advance(&mut self, until: Instant) {
        let awake = self.nodes.iter().filter(|node| node.polls);
        let timers = awake.filter_map(|node| node.am.endpoint().poll_timeout());
        let next = timers.chain(self.fabric.next_arrival()).min().unwrap_or(until);
        self.fabric.advance_to(next.max(self.fabric.now()).min(until));
    }

    pub fn pass(&mut self, span: Duration) {
        self.run(span, |_| false);
    }

    /// Lets everybody do what can be done now.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let mut busy = false;
            for node in self.nodes.iter_mut().filter(|node| node.polls) {
                let frames = |node: &Node<S>| {
                    let counters = node.am.endpoint().counters();
                    counters.frames_sent + counters.frames_received + counters.rejected_total()
                };
                let before = frames(node);
                busy |= node.am.poll(&mut node.state) > 0 || before != frames(node);
            }
            if !busy {
                return;
            }
        }
        panic!("the nodes never come to rest at one point in time");
    }
}
