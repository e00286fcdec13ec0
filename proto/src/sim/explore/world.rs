//! Two endpoints, their users, and the frames between them.

use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use sidelane_nic::LinkAddr;
use sidelane_nic::time::{Duration, Instant};

use super::wire::WireNic;
use super::{Budget, Plan};
use crate::sim::oracle::{Oracle, Stream, message};
use crate::wire::Header;
use crate::{Config, Endpoint, Event, GoneReason, PeerId};

/// One thing that happens. Frames are named by their place among those under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Arrive(usize),
    ArriveAndStay(usize),
    Lose(usize),
    Timer,
    /// The user of a node does the next thing that it wants.
    User(usize),
    Restart,
}

pub(super) struct World {
    plan: Plan,
    now: Instant,
    budget: Budget,
    nodes: [Node; 2],
    /// Who they are for, and what they are; oldest first.
    frames: Vec<(usize, Vec<u8>)>,
    oracle: Oracle,
}

struct Node {
    endpoint: Endpoint<WireNic>,
    life: u32,
    peer: Option<PeerId>,
    stream: Stream,
    /// Messages that the endpoint took.
    sent: u32,
    closed: bool,
    /// Connections that this life dialled.
    dialled: u32,
    /// How each connection ended that this node's user knew of, in order.
    ends: Vec<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Closed,
    Gone(GoneReason),
}

const KEEP_ALIVE: Duration = Duration::from_millis(20);

impl World {
    pub fn new(plan: &Plan) -> Self {
        let now = Instant::ZERO;
        let mut world = Self {
            plan: *plan,
            now,
            budget: plan.budget,
            nodes: [Node::new(0, 0, now), Node::new(1, 0, now)],
            frames: Vec::new(),
            oracle: Oracle::default(),
        };
        for (number, dials) in plan.dials.into_iter().enumerate() {
            if dials {
                world.nodes[number].dial(number);
                world.turn(number).expect("nothing has arrived yet");
            }
        }
        world
    }

    /// Everything that can happen now.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let budget = self.budget;
        for (place, frame) in self.frames.iter().enumerate() {
            let older = &self.frames[..place];
            // Of two frames that are the same one is enough.
            if older.contains(frame) {
                continue;
            }
            if budget.losses > 0 {
                steps.push(Step::Lose(place));
            }
            if budget.overtakings > 0 || older.iter().all(|(to, _)| *to != frame.0) {
                steps.push(Step::Arrive(place));
                if budget.copies > 0 {
                    steps.push(Step::ArriveAndStay(place));
                }
            }
        }
        steps.extend((0..2).filter(|&number| self.wants(number)).map(Step::User));
        let idle = self.frames.is_empty();
        if (idle || budget.early_timers > 0) && self.next_timer().is_some() {
            // Users are never slower than a timer: there would be no end of keep-alives.
            if !(idle && steps.iter().any(|step| matches!(step, Step::User(_)))) {
                steps.push(Step::Timer);
            }
        }
        if budget.restarts > 0 && !steps.is_empty() {
            steps.push(Step::Restart);
        }
        steps
    }

    /// Lets `step` happen, and judges what comes of it.
    pub fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Lose(place) => {
                self.frames.remove(place);
                self.budget.losses -= 1;
                Ok(())
            }
            Step::Arrive(place) => {
                let to = self.frames[place].0;
                if self.frames[..place].iter().any(|(other, _)| *other == to) {
                    self.budget.overtakings -= 1;
                }
                let (to, frame) = self.frames.remove(place);
                self.nodes[to].endpoint.nic_mut().arriving = Some(frame);
                self.turn(to)
            }
            Step::ArriveAndStay(place) => {
                let (to, frame) = self.frames[place].clone();
                self.budget.copies -= 1;
                self.nodes[to].endpoint.nic_mut().arriving = Some(frame);
                self.turn(to)
            }
            Step::Timer => {
                if !self.frames.is_empty() {
                    self.budget.early_timers -= 1;
                }
                self.now = self.now.max(self.next_timer().expect("only where one runs"));
                for number in 0..2 {
                    let due = self.nodes[number].endpoint.poll_timeout();
                    if due.is_some_and(|due| due <= self.now) {
                        self.turn(number)?;
                    }
                }
                Ok(())
            }
            Step::User(number) => {
                self.act(number);
                self.turn(number)
            }
            Step::Restart => {
                self.budget.restarts -= 1;
                self.oracle.forget_node(1);
                self.nodes[1] = Node::new(1, self.nodes[1].life + 1, self.now);
                Ok(())
            }
        }
    }

    /// Nothing can happen any more: is all as it should be?
    pub fn judge_end(&self) -> Result<(), String> {
        let restarted = self.nodes[1].life > 0;
        for (number, node) in self.nodes.iter().enumerate() {
            let arrived = self.oracle.delivered_of(node.stream);
            if node.peer.is_some() || (node.ends.is_empty() && !restarted) {
                return Err(format!("node {number} waits for ever"));
            }
            if node.ends.last() == Some(&End::Closed) && arrived != node.sent {
                return Err(format!("node {number}: closed, and {arrived} of {} messages arrived", node.sent));
            }
            // A peer that closes does not wait for what we send, and then forgets us, so that our own last acks may be
            // asked for in vain. Any other loss needs a death.
            const OVERTAKEN: End = End::Gone(GoneReason::ClosedByPeer);
            let lost = node.ends.iter().any(|&end| end != End::Closed && end != OVERTAKEN);
            if lost && !restarted && !self.nodes[1 - number].ends.contains(&OVERTAKEN) {
                return Err(format!("node {number} lost a peer that lives: {:?}", node.ends));
            }
            if node.endpoint.peers() > 0 {
                return Err(format!("node {number} keeps a connection for ever"));
            }
        }
        Ok(())
    }

    /// A number for all that the future depends on.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest(DefaultHasher::new());
        for node in &self.nodes {
            write!(digest, "{:?}", node.endpoint).expect("a digest takes all");
            (node.life, node.peer, node.sent, node.closed, node.dialled, &node.ends).hash(&mut digest.0);
            self.oracle.delivered_of(node.stream).hash(&mut digest.0);
        }
        let mut frames: Vec<_> = self.frames.iter().collect();
        if self.budget.overtakings > 0 {
            frames.sort();
        } else {
            // Only the order within a direction counts.
            frames.sort_by_key(|(to, _)| *to);
        }
        frames.hash(&mut digest.0);
        write!(digest, "{:?} {:?} {}", self.now, self.budget, self.oracle.delivered).expect("a digest takes all");
        digest.0.finish()
    }

    /// One turn of a node's loop. Its user takes everything at once.
    fn turn(&mut self, number: usize) -> Result<(), String> {
        let node = &mut self.nodes[number];
        node.endpoint.nic_mut().now = self.now;
        node.endpoint.poll();
        while let Some(verdict) =
            node.endpoint.recv(|peer, bytes| self.oracle.deliver(number as u32, node.life, peer, bytes))
        {
            verdict.map_err(|violation| violation.to_string())?;
        }
        while let Some(event) = node.endpoint.poll_event() {
            match event {
                Event::Connected { peer, .. } if node.peer.is_none() => node.peer = Some(peer),
                Event::Closed { peer } if node.peer == Some(peer) => node.end(End::Closed),
                Event::Gone { peer, reason } if node.peer == Some(peer) => node.end(End::Gone(reason)),
                Event::Connected { peer, .. } if node.peer == Some(peer) => {}
                other => return Err(format!("node {number}: {other:?} of a peer that nobody knows")),
            }
        }
        // Who lost its peer tries once more.
        let lost = node.peer.is_none() && matches!(node.ends[..], [End::Gone(_)]);
        if lost && node.dialled == 1 {
            node.dial_again(number);
        }
        node.endpoint.poll();
        let sent = std::mem::take(&mut node.endpoint.nic_mut().sent);
        self.frames.extend(sent.into_iter().map(|frame| (1 - number, frame)));
        Ok(())
    }

    fn wants(&self, number: usize) -> bool {
        let node = &self.nodes[number];
        let more = node.sent < self.plan.messages[number].len() as u32;
        node.peer.is_some() && !node.closed && (more || self.plan.closes[number])
    }

    fn act(&mut self, number: usize) {
        let lengths = self.plan.messages[number];
        let node = &mut self.nodes[number];
        let Some(peer) = node.peer else { return };
        if let Some(&len) = lengths.get(node.sent as usize) {
            let bytes = message(node.stream, node.sent, len);
            node.endpoint.send(peer, &bytes).expect("FIFOs are larger than all of it");
            node.sent += 1;
        } else {
            node.endpoint.close(peer);
            node.closed = true;
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(|node| node.endpoint.poll_timeout()).min()
    }
}

/// Time, and the frames under way: for whom, what, number, ack.
impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.now)?;
        for (to, frame) in &self.frames {
            let Ok(header) = Header::parse(frame, false) else { continue };
            write!(f, " | to {to}: {:?} {} ack {}", header.kind, header.seq.0, header.ack.0)?;
        }
        self.nodes.iter().try_for_each(|node| write!(f, " | {:?}", node.ends))
    }
}

impl Node {
    fn new(number: u32, life: u32, now: Instant) -> Self {
        let config = Config {
            send_fifo: 1024,
            recv_fifo: 1024,
            keep_alive: KEEP_ALIVE,
            connect_timeout: Duration::from_millis(40),
            seed: u64::from(number) << 8 | u64::from(life),
            ..Config::default()
        };
        Self {
            endpoint: Endpoint::new(WireNic::new(number, now), config),
            life,
            peer: None,
            stream: Stream { from: number, to: 1 - number, number: number << 16 | life << 8 },
            sent: 0,
            closed: false,
            dialled: 0,
            ends: Vec::new(),
        }
    }

    fn dial(&mut self, number: usize) {
        let to = LinkAddr::Mem { node: 1 - number as u32 };
        self.peer = Some(self.endpoint.connect(to).expect("the table has room"));
        self.dialled += 1;
    }

    fn end(&mut self, how: End) {
        self.ends.push(how);
        self.peer = None;
    }

    /// Another connection, for the same messages again.
    fn dial_again(&mut self, number: usize) {
        self.dial(number);
        self.stream.number += 1;
        self.sent = 0;
        self.closed = false;
    }
}

struct Digest(DefaultHasher);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
