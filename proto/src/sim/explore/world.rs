//! Two endpoints, their users, and the frames between them.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use sidelane_nic::LinkAddr;
use sidelane_nic::time::{Duration, Instant};

use super::operations::{Memory, Operations};
use super::talk::Talk;
use super::wire::WireNic;
use super::{Budget, Plan};
use crate::sim::oracle::{Oracle, Stream, message};
use crate::wire::{Header, PlainHeader};
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
    /// One that is lazy takes the next message, or comes to the peer's close.
    Take(usize),
    Restart,
}

pub(super) struct World<const RELIABLE: bool> {
    plan: Plan,
    now: Instant,
    budget: Budget,
    nodes: [Node<RELIABLE>; 2],
    /// Nodes that the last step changed.
    turned: [bool; 2],
    /// Who they are for, and what they are; oldest first.
    frames: Vec<(usize, Vec<u8>)>,
    oracle: Oracle,
    operations: Operations,
}

struct Node<const RELIABLE: bool> {
    talk: Talk<RELIABLE>,
    /// That of node 1, where node 0 has operations to do on it.
    memory: Option<Memory>,
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

/// The peer closed before it had taken all that was sent to it.
const OVERTAKEN: End = End::Gone(GoneReason::ClosedByPeer);
/// Those of an endpoint on a reliable driver.
const CLOCK_TURNS: u64 = 32;
const KEEP_ALIVE: Duration = Duration::from_millis(20);

impl<const RELIABLE: bool> World<RELIABLE> {
    pub fn new(plan: &Plan) -> Self {
        let now = Instant::ZERO;
        let mut world = Self {
            plan: *plan,
            now,
            budget: plan.budget,
            nodes: [Node::new(0, 0, now, plan), Node::new(1, 0, now, plan)],
            turned: [false; 2],
            frames: Vec::new(),
            oracle: Oracle::default(),
            operations: Operations::new(),
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
        let leaves = |number: &usize| self.plan.lazy && self.nodes[*number].talk.endpoint().has_messages();
        steps.extend((0..2).filter(leaves).map(Step::Take));
        let idle = self.frames.is_empty();
        if (idle || budget.early_timers > 0) && self.next_timer().is_some() {
            // Users are never slower than a timer: there would be no end of keep-alives.
            if !(idle && steps.iter().any(|step| matches!(step, Step::User(_) | Step::Take(_)))) {
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
        self.turned = [false; 2];
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
                self.nodes[to].talk.endpoint_mut().nic_mut().arriving = Some(frame);
                self.turn(to)
            }
            Step::ArriveAndStay(place) => {
                let (to, frame) = self.frames[place].clone();
                self.budget.copies -= 1;
                self.nodes[to].talk.endpoint_mut().nic_mut().arriving = Some(frame);
                self.turn(to)
            }
            Step::Timer => {
                if !self.frames.is_empty() {
                    self.budget.early_timers -= 1;
                }
                self.now = self.now.max(self.next_timer().expect("only where one runs"));
                for number in 0..2 {
                    let due = self.nodes[number].talk.endpoint().poll_timeout();
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
            Step::Take(number) => {
                self.take_one(number)?;
                self.turn(number)
            }
            Step::Restart => {
                self.budget.restarts -= 1;
                self.oracle.forget_node(1);
                self.operations.on_restart();
                self.turned[1] = true;
                self.nodes[1] = Node::new(1, self.nodes[1].life + 1, self.now, &self.plan);
                Ok(())
            }
        }
    }

    /// Nothing can happen any more: is all as it should be?
    pub fn judge_end(&self) -> Result<(), String> {
        let restarted = self.nodes[1].life > 0;
        let refuses = self.plan.longest != usize::MAX;
        for (number, node) in self.nodes.iter().enumerate() {
            let arrived = self.oracle.delivered_of(node.stream);
            // Who only answered hears nothing of a connection that ends before it was confirmed.
            let unheard = restarted || refuses && !self.plan.dials[number];
            if node.peer.is_some() || (node.ends.is_empty() && !unheard) {
                return Err(format!("node {number} waits for ever"));
            }
            // On a reliable driver what comes behind the peer's close may find nobody.
            let may_miss = RELIABLE && self.plan.closes[1 - number];
            if node.ends.last() == Some(&End::Closed) && arrived != node.sent && !may_miss {
                return Err(format!("node {number}: closed, and {arrived} of {} messages arrived", node.sent));
            }
            // A peer that closes does not wait for what we send. Any other loss needs a death; but on a reliable driver who was
            // overtaken keeps nothing that would answer us.
            let lost = node.ends.iter().any(|&end| end != End::Closed && end != OVERTAKEN);
            let unanswered = RELIABLE && self.nodes[1 - number].ends.contains(&OVERTAKEN);
            if lost && !restarted && !refuses && !unanswered {
                return Err(format!("node {number} lost a peer that lives: {:?}", node.ends));
            }
            if node.talk.endpoint().peers() > 0 {
                return Err(format!("node {number} keeps a connection for ever"));
            }
        }
        Ok(())
    }

    /// A number for all of each node that the future depends on.
    pub fn digests_of_nodes(&self) -> [u64; 2] {
        [0, 1].map(|number| self.digest_of_node(number))
    }

    /// The same, where they were `before` ahead of the last step.
    pub fn digests_after_step(&self, before: [u64; 2]) -> [u64; 2] {
        [0, 1].map(|number| if self.turned[number] { self.digest_of_node(number) } else { before[number] })
    }

    fn digest_of_node(&self, number: usize) -> u64 {
        let node = &self.nodes[number];
        let mut digest = Digest::default();
        write!(digest, "{:?}", node.talk).expect("a digest takes all");
        if !self.plan.operations.is_empty() {
            write!(digest, "{:?}", node.talk.endpoint().router.turn.rma).expect("a digest takes all");
        }
        (node.life, node.peer, node.sent, node.closed, node.dialled, &node.ends).hash(&mut digest);
        digest.finish()
    }

    /// A number for all that the future depends on, of nodes with these digests.
    pub fn digest(&self, nodes: [u64; 2]) -> u64 {
        let mut digest = Digest::default();
        nodes.hash(&mut digest);
        for node in &self.nodes {
            self.oracle.delivered_of(node.stream).hash(&mut digest);
        }
        let mut frames: Vec<_> = self.frames.iter().collect();
        if self.budget.overtakings > 0 {
            frames.sort();
        } else {
            // Only the order within a direction counts.
            frames.sort_by_key(|(to, _)| *to);
        }
        frames.hash(&mut digest);
        write!(digest, "{:?} {:?} {:?} {}", self.now, self.budget, self.operations, self.oracle.delivered)
            .expect("a digest takes all");
        digest.finish()
    }

    /// One turn of a node's loop. Its user takes everything at once.
    fn turn(&mut self, number: usize) -> Result<(), String> {
        self.turned[number] = true;
        self.nodes[number].talk.endpoint_mut().nic_mut().now = self.now;
        self.nodes[number].poll();
        while !self.plan.lazy && self.take_one(number)? {}
        let node = &mut self.nodes[number];
        if let Some((stream, sent)) = node.talk.replied() {
            (node.stream, node.sent) = (stream, sent);
        }
        while let Some(event) = self.nodes[number].talk.poll_event() {
            self.on_event(number, event)?;
        }
        if number == 0 {
            self.judge_puts()?;
        }
        let node = &mut self.nodes[number];
        // Who lost its peer tries once more.
        let lost = node.peer.is_none() && matches!(node.ends[..], [End::Gone(_)]);
        if lost && node.dialled == 1 {
            node.dial_again(number);
            self.operations.on_dial();
        }
        node.poll();
        let sent = std::mem::take(&mut node.talk.endpoint_mut().nic_mut().sent);
        self.frames.extend(sent.into_iter().map(|frame| (1 - number, frame)));
        Ok(())
    }

    /// The user of a node takes a message, if one waits.
    fn take_one(&mut self, number: usize) -> Result<bool, String> {
        let Self { nodes, oracle, operations, plan, .. } = self;
        let [first, second] = nodes;
        let (node, stream) = if number == 0 { (&mut *first, None) } else { (&mut *second, Some(first.stream)) };
        let mut behind = false;
        let taken = node.talk.recv(|peer, bytes| {
            behind = stream.is_some_and(|stream| bytes.starts_with(&message(stream, 0, 0)[..12]));
            oracle.deliver(number as u32, node.life, peer, bytes)
        });
        let Some(verdict) = taken else { return Ok(false) };
        verdict.map_err(|violation| violation.to_string())?;
        if behind {
            operations.judge_message(plan.operations, second.memory().unwrap_or(&[]))?;
        }
        Ok(true)
    }

    fn on_event(&mut self, number: usize, event: Event) -> Result<(), String> {
        if number == 0 && self.operations.on_event(&event, self.nodes[0].talk.endpoint())? {
            return Ok(());
        }
        let node = &mut self.nodes[number];
        let end = match event {
            Event::Connected { peer, .. } if node.peer.is_none() => {
                node.peer = Some(peer);
                return Ok(());
            }
            Event::Connected { peer, .. } if node.peer == Some(peer) => return Ok(()),
            Event::Closed { peer } if node.peer == Some(peer) => End::Closed,
            Event::Gone { peer, reason } if node.peer == Some(peer) => End::Gone(reason),
            other => return Err(format!("node {number}: {other:?} of a peer that nobody knows")),
        };
        // Where nothing is acknowledged, only what could not be sent is lost by the peer's close.
        let all_arrived = self.oracle.delivered_of(node.stream) == node.sent && self.plan.operations.is_empty();
        if RELIABLE && end == OVERTAKEN && all_arrived {
            return Err(format!("node {number}: {end:?}, and all that it sent has arrived"));
        }
        node.end(end);
        if number == 1 {
            return Ok(());
        }
        self.judge_puts()?;
        self.operations.judge_end(self.nodes[1].memory().unwrap_or(&[]))
    }

    /// Of those that are over. Whose failure was told is no more among them.
    fn judge_puts(&mut self) -> Result<(), String> {
        let [first, second] = &mut self.nodes;
        self.operations.judge_puts(first.talk.endpoint_mut(), second.memory().unwrap_or(&[]))
    }

    fn wants(&self, number: usize) -> bool {
        let node = &self.nodes[number];
        let more = self.has_operations(number) || node.sent < self.plan.messages[number].len() as u32;
        let wants = node.peer.is_some() && !node.closed && (more || self.plan.closes[number]);
        wants && node.peer.is_some_and(|peer| !more || node.talk.has_room(peer))
    }

    fn has_operations(&self, number: usize) -> bool {
        number == 0 && self.operations.begun < self.plan.operations.len()
    }

    fn act(&mut self, number: usize) {
        let lengths = self.plan.messages[number];
        let has_operations = self.has_operations(number);
        let [node, there] = &mut self.nodes;
        let node = if number == 0 { node } else { &mut *there };
        let Some(peer) = node.peer else { return };
        if has_operations {
            let operation = self.plan.operations[self.operations.begun];
            let memory = self.nodes[1].memory.expect("there are operations");
            self.operations.begin(self.nodes[0].talk.endpoint_mut(), peer, operation, &memory);
        } else if let Some(&len) = lengths.get(node.sent as usize) {
            let bytes = message(node.stream, node.sent, len);
            if node.talk.send(peer, &bytes) {
                node.sent += 1;
            } else {
                // It has had enough.
                node.talk.close(peer);
                node.closed = true;
            }
        } else {
            node.talk.close(peer);
            node.closed = true;
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(|node| node.talk.endpoint().poll_timeout()).min()
    }
}

/// Time, and the frames under way: for whom, what, number, ack.
impl<const RELIABLE: bool> fmt::Display for World<RELIABLE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.now)?;
        for (to, frame) in &self.frames {
            if RELIABLE && let Ok(header) = PlainHeader::parse(frame) {
                write!(f, " | to {to}: {:?} of {}", header.kind, frame.len())?;
            } else if let Ok(header) = Header::parse(frame, false) {
                write!(f, " | to {to}: {:?} {} ack {}", header.kind, header.seq.0, header.ack.0)?;
            }
        }
        self.nodes.iter().try_for_each(|node| write!(f, " | {:?}", node.ends))
    }
}

impl<const RELIABLE: bool> Node<RELIABLE> {
    fn new(number: u32, life: u32, now: Instant, plan: &Plan) -> Self {
        let config = Config {
            send_fifo: plan.fifo,
            recv_fifo: plan.fifo,
            keep_alive: KEEP_ALIVE,
            connect_timeout: Duration::from_millis(40),
            message_max: if number == 1 { plan.longest } else { usize::MAX },
            seed: Some(u64::from(number) << 8 | u64::from(life)),
            ..Config::default()
        };
        let stream = Stream { from: number, to: 1 - number, number: number << 16 | life << 8 };
        let mut talk = Talk::new(Endpoint::new(WireNic::new(number, now), config), stream, plan.active);
        let has_memory = number == 1 && !plan.operations.is_empty();
        Self {
            memory: has_memory.then(|| Memory::new(talk.endpoint_mut())),
            talk,
            life,
            peer: None,
            stream,
            sent: 0,
            closed: false,
            dialled: 0,
            ends: Vec::new(),
        }
    }

    /// What is in the memory that the other node operates on.
    fn memory(&self) -> Option<&[u8]> {
        self.talk.endpoint().region(self.memory?.region)
    }

    /// A turn; or as many as it takes until the clock is read.
    fn poll(&mut self) {
        for _ in 0..if RELIABLE { CLOCK_TURNS } else { 1 } {
            self.talk.poll();
        }
    }

    fn dial(&mut self, number: usize) {
        let to = LinkAddr::Mem { node: 1 - number as u32 };
        self.peer = Some(self.talk.connect(to).expect("the table has room"));
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

/// Gathers kilobytes in pieces of a few bytes, and makes a number of them at once (CRC-64/NVME): `sim::explore::loss_and_late_acks` took
/// 11.2 s of a processor so, and 12.6 where std's hasher is fed each piece (medians of three by turns, when every step made all anew).
#[derive(Default)]
struct Digest(Vec<u8>);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &self.0)
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes());
        Ok(())
    }
}
