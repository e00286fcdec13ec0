//! Two endpoints on one fabric, and the loop that moves time on.

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LineModel, LinkModel, MemNic};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

use crate::patience::{SUITE_PATIENCE, watch};

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

/// 10 Gbit/s, 5 us each way.
pub fn good_link() -> LinkModel {
    LinkModel {
        line: LineModel { rate_bits_per_s: Some(10_000_000_000), queue_limit_bytes: None },
        delay: Duration::from_micros(5),
        mtu: None,
        faults: Faults::NONE,
    }
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

    pub fn now(&self) -> Instant {
        self.fabric.now()
    }

    /// Moves on until `done` says so, at most for `span`; whether it did.
    pub fn run(&mut self, span: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let until = self.now() + span;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            if self.now() >= until {
                return false;
            }
            self.advance(until);
        }
    }

    /// Moves on to when something is due next. Compiled once, not for each `done`.
    fn advance(&mut self, until: Instant) {
        let timers = self.sides.iter().filter_map(|side| side.endpoint.poll_timeout());
        let next = timers.chain(self.fabric.next_arrival()).min().unwrap_or(until);
        self.fabric.advance_to(next.max(self.now()).min(until));
    }

    /// Lets `span` pass.
    pub fn pass(&mut self, span: Duration) {
        self.run(span, |_| false);
    }

    /// As [`Self::run`], of what has to happen within a virtual second.
    pub fn until(&mut self, done: impl FnMut(&mut Self) -> bool) {
        assert!(self.run(Duration::from_millis(1_000), done), "it never happens");
    }

    /// Lets both do what can be done now.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let mut busy = false;
            for side in &mut self.sides {
                busy |= side.turn();
            }
            let now = self.fabric.now();
            busy |= self.sides.iter().any(|side| side.endpoint.poll_timeout().is_some_and(|due| due <= now));
            if !busy {
                // What is owed is said a turn later.
                self.sides.iter_mut().for_each(|side| side.turn_again());
                return;
            }
        }
        panic!("the endpoints never come to rest at one point in time");
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

    fn turn_again(&mut self) {
        self.turn();
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}
