//! Two endpoints on one fabric.

use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel, MemNic};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

use crate::patience::{SUITE_PATIENCE, watch};
pub use crate::virtual_time::{VirtualTime, good_link};

pub struct Side<N: Nic> {
    pub endpoint: Endpoint<N>,
    /// The other side.
    pub peer: PeerId,
    pub events: Vec<Event>,
}

pub struct Pair<N: Nic> {
    pub fabric: Fabric,
    pub sides: [Side<N>; 2],
}

impl Pair<MemNic> {
    /// On a good link.
    pub fn calm() -> Self {
        Self::new(1, good_link(), 1500, Config::default(), |nic| nic)
    }
}

impl<N: Nic> Pair<N> {
    /// Two that are connected before the link becomes what it is to be.
    pub fn new(seed: u64, link: LinkModel, mtu: usize, config: Config, wrap: impl Fn(MemNic) -> N) -> Self {
        // What has to happen in virtual time may never.
        watch("it", SUITE_PATIENCE);
        let fabric = Fabric::new(seed);
        fabric.set_default_link(good_link());
        let node = |number| {
            let nic = fabric.nic_at(number, NodeConfig { mtu, mtu_safe: mtu, ..Default::default() });
            Endpoint::new(wrap(nic), Config { seed: Some(seed << 8 | u64::from(number)), ..config })
        };
        let (mut a, b) = (node(0), node(1));
        let peer = a.connect(LinkAddr::Mem { node: 1 }).unwrap();
        let side = |endpoint| Side { endpoint, peer, events: Vec::new() };
        let mut pair = Self { fabric, sides: [side(a), side(b)] };
        assert!(pair.run(Duration::from_millis(1_000), |pair| pair.sides.iter().all(|side| !side.events.is_empty())));
        for side in &mut pair.sides {
            let Event::Connected { peer, .. } = side.events.remove(0) else { panic!("connected first") };
            side.peer = peer;
        }
        pair.pass(Duration::from_millis(5));
        pair.fabric.set_link(0, 1, link);
        pair.fabric.set_link(1, 0, link);
        pair
    }

    pub fn a(&mut self) -> &mut Side<N> {
        &mut self.sides[0]
    }

    pub fn b(&mut self) -> &mut Side<N> {
        &mut self.sides[1]
    }

    /// As [`Self::run`], of what has to happen within a virtual second.
    pub fn until(&mut self, done: impl FnMut(&mut Self) -> bool) {
        assert!(self.run(Duration::from_millis(1_000), done), "it never happens");
    }
}

impl<N: Nic> VirtualTime for Pair<N> {
    fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    fn turn(&mut self) -> bool {
        let mut busy = false;
        for side in &mut self.sides {
            busy |= side.turn();
        }
        busy
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.sides.iter().filter_map(|side| side.endpoint.poll_timeout()).min()
    }

    /// What is owed is said a turn later.
    fn at_rest(&mut self) {
        self.turn();
    }
}

impl<N: Nic> Side<N> {
    fn turn(&mut self) -> bool {
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.poll_event() {
            self.events.push(event);
            busy = true;
        }
        busy
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}
