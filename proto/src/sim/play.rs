//! Plays a scenario and judges it.

use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel, MemNic};
use sidelane_nic::rng::Rng;
use sidelane_nic::time::{Duration, Instant};

use super::one_sided::{Areas, Memory, Operations, Place};
use super::oracle::Oracle;
use super::outlet::{Outlet, feed, open, reopen};
use super::{Scenario, Violation};
use crate::{Config, Counters, Endpoint, Event, GoneReason};

/// What came of a run that kept to the rules.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Virtual time that it took.
    pub took: Duration,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages whose connection ended with an error before they were acknowledged, at the most.
    pub unfinished: u64,
    /// Connections that ended with an error.
    pub gone: u64,
    /// Counts of all endpoints that lived to the end.
    pub counters: Vec<Counters>,
}

/// Plays `scenario` to its end: everything delivered, or ended with an error.
pub fn run(scenario: &Scenario) -> Result<Outcome, Violation> {
    let mut game = Game::new(scenario);
    game.play()?;
    Ok(game.outcome())
}

struct Game<'a> {
    scenario: &'a Scenario,
    fabric: Fabric,
    rng: Rng,
    nodes: Vec<Option<Node>>,
    oracle: Oracle,
    areas: Areas,
    /// Draws of operations, apart, so that they change no other draw.
    operations_rng: Rng,
    /// Likewise whether a message is taken from where the driver has it.
    offers_rng: Rng,
    next_stream: u32,
    /// Of each node; of one that is dead, the next.
    lives: Vec<u32>,
    unfinished: u64,
    gone: u64,
    crashed: bool,
    restarted: bool,
    pause_begun: bool,
    partitions_begun: usize,
}

struct Node {
    endpoint: Endpoint<MemNic>,
    memory: Option<Memory>,
    outlets: Vec<Outlet>,
    /// Not before this does its user look at messages.
    receives_at: Instant,
}

const KEEP_ALIVE: Duration = Duration::from_millis(250);

impl<'a> Game<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let fabric = Fabric::new(scenario.seed);
        fabric.set_default_link(scenario.link);
        let mut game = Self {
            scenario,
            fabric,
            rng: Rng::new(scenario.seed ^ 0x5eed),
            nodes: (0..scenario.nodes).map(|_| None).collect(),
            oracle: Oracle::default(),
            areas: Areas::default(),
            operations_rng: Rng::new(scenario.seed ^ 0x09e5),
            offers_rng: Rng::new(scenario.seed ^ 0x0ffe),
            next_stream: 0,
            lives: vec![1; scenario.nodes as usize],
            unfinished: 0,
            gone: 0,
            crashed: false,
            restarted: false,
            pause_begun: false,
            partitions_begun: 0,
        };
        for node in 0..scenario.nodes {
            game.start(node, scenario.messages, scenario.operations);
        }
        game
    }

    fn start(&mut self, number: u32, messages: u32, operations: u32) {
        let mtu = self.scenario.mtu[number as usize];
        let nic = self.fabric.nic_at(number, NodeConfig { mtu, mtu_safe: mtu, rx_frames: 256, ..Default::default() });
        let config = Config {
            send_fifo: self.scenario.fifo,
            recv_fifo: self.scenario.fifo,
            keep_alive: KEEP_ALIVE,
            seed: Some(self.rng.next_u64()),
            protection: self.scenario.protection,
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(nic, config);
        let memory = (self.scenario.operations > 0).then(|| Memory::new(&mut endpoint, self.scenario.nodes));
        let mut node = Node { endpoint, memory, outlets: Vec::new(), receives_at: Instant::ZERO };
        for to in (0..self.scenario.nodes).filter(|&to| to != number) {
            let operations = Operations::new(number, to, self.lives[to as usize], operations);
            let outlet = open(&mut node.endpoint, number, to, &mut self.next_stream, messages, operations);
            node.outlets.push(outlet);
        }
        self.nodes[number as usize] = Some(node);
    }

    fn play(&mut self) -> Result<(), Violation> {
        let mut idle_steps = 0;
        loop {
            self.strike();
            let mut busy = true;
            let mut turns = 0;
            while busy {
                busy = false;
                for number in 0..self.scenario.nodes {
                    busy |= self.turn(number)?;
                }
                turns += 1;
                if turns > TURNS_MAX {
                    return Err(self.fail("the endpoints never come to rest at one point in time"));
                }
            }
            if self.is_done() {
                return self.judge_end();
            }
            let now = self.fabric.now();
            self.oracle.check_silences(now)?;
            if now.since(Instant::ZERO) > self.scenario.time_limit {
                return Err(self.fail("not everything is delivered or ended with an error in time"));
            }
            let Some(next) = self.next_time() else {
                return Err(self.fail("nothing will ever happen again, and not everything is delivered"));
            };
            idle_steps = if next <= now { idle_steps + 1 } else { 0 };
            if idle_steps > TURNS_MAX {
                return Err(self.fail("a timer is due, and nothing comes of it"));
            }
            self.fabric.advance_to(next.max(now));
        }
    }

    /// One turn of one node; true when something moved.
    fn turn(&mut self, number: u32) -> Result<bool, Violation> {
        let now = self.fabric.now();
        if self.stands_still(number) {
            return Ok(false);
        }
        let Some(node) = &mut self.nodes[number as usize] else { return Ok(false) };
        let mut busy = false;
        for outlet in &mut node.outlets {
            let life = self.lives[number as usize];
            busy |= feed(&mut node.endpoint, outlet, &mut self.rng, self.scenario.longest, |outlet| {
                self.oracle.lend(number, life, outlet.peer, outlet.stream, outlet.next);
            });
        }
        busy |= self.operate(number);
        let Some(node) = &mut self.nodes[number as usize] else { return Ok(false) };
        let life = self.lives[number as usize];
        let (oracle, offers_rng, receives) = (&mut self.oracle, &mut self.offers_rng, now >= node.receives_at);
        let mut verdict = Ok(());
        busy |= node.endpoint.poll_offering(&mut |peer, bytes| {
            let taken = receives && verdict.is_ok() && offers_rng.chance(0.5);
            if taken {
                verdict = oracle.deliver(number, life, peer, bytes);
            }
            taken
        }) > 0;
        verdict?;
        if receives {
            // Some one by one, the rest at once.
            while offers_rng.chance(0.5)
                && let Some(verdict) = node.endpoint.recv(|peer, bytes| oracle.deliver(number, life, peer, bytes))
            {
                verdict?;
                busy = true;
            }
            let mut verdict = Ok(());
            busy |= node.endpoint.recv_each(|peer, bytes| {
                verdict = oracle.deliver(number, life, peer, bytes);
                verdict.is_ok()
            }) > 0;
            verdict?;
            if busy && self.scenario.receiver_pause != Duration::ZERO {
                node.receives_at = now + self.scenario.receiver_pause;
            }
        }
        Ok(busy | self.take_events(number)?)
    }

    /// Takes the events of a node; true if there were any.
    fn take_events(&mut self, number: u32) -> Result<bool, Violation> {
        let Some(node) = &mut self.nodes[number as usize] else { return Ok(false) };
        let life = self.lives[number as usize];
        let mut busy = false;
        let mut places = Vec::new();
        while let Some(event) = node.endpoint.poll_event() {
            busy = true;
            let (peer, reason) = match event {
                Event::Gone { peer, reason } => (peer, reason),
                Event::Sent { peer, buffer } | Event::Unsent { peer, buffer } => {
                    self.oracle.give_back(number, life, peer, &buffer)?;
                    continue;
                }
                Event::Connected { peer, .. } => {
                    node.outlets.iter_mut().filter(|outlet| outlet.peer == peer).for_each(|o| o.connected = true);
                    continue;
                }
                Event::Got { op } | Event::Fetched { op, .. } | Event::OpFailed { op, .. } => {
                    let outlet = node.outlets.iter_mut().find(|outlet| outlet.peer == op.peer);
                    let (Some(outlet), Some(memory)) = (outlet, &node.memory) else {
                        return Err(Violation(format!("node {number}: {event:?}, and nobody began it")));
                    };
                    outlet.operations.on_event(&event, &node.endpoint, memory, &mut self.areas)?;
                    continue;
                }
                Event::Unregistered { .. } => {
                    return Err(Violation(format!("node {number}: nobody unregistered anything")));
                }
                Event::Closed { peer } => {
                    return Err(Violation(format!("node {number}: {peer:?} is closed, and nobody closed it")));
                }
            };
            self.oracle.end(number, life, peer)?;
            self.gone += 1;
            let all_are_there =
                self.scenario.crash.is_none() && self.scenario.partitions.is_empty() && self.scenario.pause.is_none();
            if reason == GoneReason::NoAnswer && all_are_there {
                return Err(Violation(format!("node {number}: nobody answered, though everybody is there")));
            }
            for outlet in node.outlets.iter_mut().filter(|outlet| outlet.peer == peer && !outlet.over) {
                self.unfinished += u64::from(outlet.count);
                places.extend(outlet.operations.end(&mut node.endpoint, &mut self.areas)?);
                *outlet = reopen(&mut node.endpoint, number, outlet, &mut self.next_stream, &self.lives);
            }
        }
        for outlet in &mut node.outlets {
            places.extend(outlet.operations.finished(&mut node.endpoint, &mut self.areas));
        }
        self.judge_places(places.into_iter())?;
        Ok(busy)
    }

    /// Lets a node begin operations on others' memory; true if it did.
    fn operate(&mut self, number: u32) -> bool {
        let keys: Vec<_> = self.nodes.iter().map(|node| Some(node.as_ref()?.memory.as_ref()?.key)).collect();
        let Some(node) = &mut self.nodes[number as usize] else { return false };
        let Node { endpoint, memory: Some(memory), outlets, .. } = node else { return false };
        let mut busy = false;
        for outlet in outlets.iter_mut().filter(|outlet| !outlet.over) {
            let to = outlet.to as usize;
            let Some(key) = &keys[to] else { continue };
            let key = (key, self.lives[to]);
            let (areas, rng) = (&mut self.areas, &mut self.operations_rng);
            busy |= outlet.operations.feed(endpoint, outlet.peer, key, memory, areas, rng);
        }
        busy
    }

    /// Looks whether bytes are where they must be, in those nodes that have not died since.
    fn judge_places(&self, mut places: impl Iterator<Item = Place>) -> Result<(), Violation> {
        let wrong = places.find(|place| {
            let node = self.nodes[place.to as usize].as_ref().filter(|_| self.lives[place.to as usize] == place.life);
            let memory = node.and_then(|node| Some((node, node.memory.as_ref()?)));
            memory.is_some_and(|(node, memory)| !place.is_right(&node.endpoint, memory))
        });
        wrong.map_or(Ok(()), |Place { from, to, .. }| {
            Err(Violation(format!("a put of node {from} is done, and not in place at node {to}")))
        })
    }

    /// Partitions, pauses and crashes whose time has come.
    fn strike(&mut self) {
        let now = self.fabric.now();
        let mut partitions = self.scenario.partitions.clone();
        partitions.sort_by_key(|partition| partition.from);
        while let Some(partition) = partitions.get(self.partitions_begun).filter(|partition| partition.from <= now) {
            self.fabric.partition(partition.a, partition.b, partition.until);
            self.partitions_begun += 1;
            if partition.until > self.silence_deadline() {
                self.expect_silence(partition.a, partition.b);
                self.expect_silence(partition.b, partition.a);
            }
        }
        if let Some(pause) = self.scenario.pause.filter(|pause| pause.from <= now && !self.pause_begun) {
            self.pause_begun = true;
            if let Some(still) = pause.node.filter(|_| pause.until > self.silence_deadline()) {
                for node in (0..self.scenario.nodes).filter(|&node| node != still) {
                    self.expect_silence(node, still);
                }
            }
        }
        if let Some(crash) = self.scenario.crash {
            if !self.crashed && now >= crash.at {
                self.crashed = true;
                self.lives[crash.node as usize] += 1;
                self.fabric.crash(crash.node);
                let dead = self.nodes[crash.node as usize].take();
                dead.iter().flat_map(|node| &node.outlets).for_each(|outlet| self.areas.abandon(&outlet.operations));
                self.oracle.forget_node(crash.node);
                for node in 0..self.scenario.nodes {
                    self.expect_silence(node, crash.node);
                }
            }
            if !self.restarted && now >= crash.restart_at {
                self.restarted = true;
                self.start(crash.node, self.scenario.messages / 2, self.scenario.operations / 2);
            }
        }
    }

    /// True while `node` takes no turns.
    fn stands_still(&self, node: u32) -> bool {
        let now = self.fabric.now();
        let pause = self.scenario.pause.filter(|pause| pause.node.is_none_or(|paused| paused == node));
        pause.is_some_and(|pause| pause.from <= now && now < pause.until)
    }

    /// `node` hears nothing of its connection with `silent` from now on.
    fn expect_silence(&mut self, node: u32, silent: u32) {
        // Who stands still meanwhile notices when it goes on.
        let still = self.scenario.pause.filter(|pause| pause.node.is_none_or(|paused| paused == node));
        let deadline = self.silence_deadline() + still.map_or(Duration::ZERO, |pause| pause.until.since(pause.from));
        let outlets = self.nodes[node as usize].iter().flat_map(|node| &node.outlets);
        for outlet in outlets.filter(|outlet| outlet.to == silent && outlet.connected && !outlet.over) {
            self.oracle.silence(deadline, node, outlet.peer);
        }
    }

    /// By when a silence that begins now must be noticed: what is still on its way, four keep-alives, and the time in
    /// which a frame with its repetitions may be late.
    fn silence_deadline(&self) -> Instant {
        let LinkModel { line, delay, faults, .. } = self.scenario.link;
        let mtu = self.scenario.mtu.iter().max().copied().unwrap_or_default() as u64;
        let queued = line.rate_bits_per_s.map_or(0, |rate| 4 * 256 * mtu * 8 * 1_000_000_000 / rate);
        let late = delay + faults.delay_span + faults.reorder_span + Duration::from_nanos(queued);
        self.fabric.now() + late + KEEP_ALIVE.saturating_mul(4) + Duration::from_millis(1)
    }

    /// What was acknowledged and is not lost with a crash was delivered, and what was lent is back.
    fn judge_end(&self) -> Result<(), Violation> {
        self.judge_places(self.areas.places())?;
        for (number, node) in self.nodes.iter().enumerate() {
            for outlet in node.iter().flat_map(|node| &node.outlets).filter(|outlet| !outlet.over) {
                let stream = outlet.stream;
                let still_lent = self.oracle.still_lent(number as u32, self.lives[number], outlet.peer);
                if still_lent > 0 {
                    return Err(Violation(format!("{stream:?}: settled, and {still_lent} buffers are not back")));
                }
                let crashed = self.crashed && self.scenario.crash.is_some_and(|crash| crash.node == outlet.to);
                let delivered = self.oracle.delivered_of(stream);
                if !crashed && delivered != outlet.count {
                    return Err(Violation(format!("{stream:?}: {delivered} of {} settled arrived", outlet.count)));
                }
            }
        }
        Ok(())
    }

    fn next_time(&self) -> Option<Instant> {
        let now = self.fabric.now();
        let awake = self.nodes.iter().enumerate().filter(|&(number, _)| !self.stands_still(number as u32));
        let timers = awake.filter_map(|(_, node)| node.as_ref()?.endpoint.poll_timeout());
        let users = self.nodes.iter().flatten().map(|node| node.receives_at).filter(|&at| at > now);
        let pauses = self.scenario.pause.iter().flat_map(|pause| [pause.from, pause.until]).filter(|&at| at > now);
        let partitions = self.scenario.partitions.iter().map(|partition| partition.from).filter(|&at| at > now);
        let crashes = self.scenario.crash.iter().flat_map(|crash| [crash.at, crash.restart_at]).filter(|&at| at > now);
        timers.chain(users).chain(pauses).chain(partitions).chain(crashes).chain(self.fabric.next_arrival()).min()
    }

    /// Everything was sent, acknowledged and taken. A crash that is still to come is not waited for.
    fn is_done(&mut self) -> bool {
        let crash_over = self.scenario.crash.is_none_or(|_| self.restarted == self.crashed);
        crash_over
            && self.nodes.iter_mut().flatten().all(|node| {
                let Node { endpoint, outlets, .. } = node;
                outlets
                    .iter()
                    .all(|o| o.over || (o.next == o.count && o.operations.is_idle() && endpoint.is_settled(o.peer)))
                    && !endpoint.has_messages()
            })
    }

    fn fail(&mut self, what: &str) -> Violation {
        let now = self.fabric.now();
        let mut text = format!("{what} (at {now:?}; {} delivered)", self.oracle.delivered);
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            text += &format!("\n  node {number}: {:?}", node.endpoint.counters());
            for outlet in &node.outlets {
                text +=
                    &format!("\n    to {}: {} of {} sent, over: {}", outlet.to, outlet.next, outlet.count, outlet.over);
            }
        }
        Violation(text)
    }

    fn outcome(self) -> Outcome {
        Outcome {
            took: self.fabric.now().since(Instant::ZERO),
            delivered: self.oracle.delivered,
            unfinished: self.unfinished,
            gone: self.gone,
            counters: self.nodes.iter().flatten().map(|node| *node.endpoint.counters()).collect(),
        }
    }
}

/// Turns at one point in time. A storm that feeds itself would never end.
const TURNS_MAX: u32 = 10_000;
