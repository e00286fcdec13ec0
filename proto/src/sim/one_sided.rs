//! One-sided operations in a run: what each node does to a part of each other node's memory that is its alone, and what must come
//! of it: a put that is done is in place, a get brings what is there, and a word counts each addition once.

use std::collections::{HashMap, VecDeque};

use sidelane_nic::mem::MemNic;
use sidelane_nic::rng::Rng;

use super::Violation;
use crate::{Endpoint, Event, Op, PeerId, PutHow, Region, RemoteKey, Rights, RmaError};

/// Memory of a node that all others may reach, and room for what it gets from them.
pub(super) struct Memory {
    shared: Region,
    pub key: RemoteKey,
    landing: Region,
}

/// What is known of the nodes' memory: by who writes it, and whose it is.
#[derive(Default)]
pub(super) struct Areas {
    known: HashMap<(u32, u32), Area>,
    stamps: u32,
}

/// One node's part of another's memory, in one life of that one.
#[derive(Clone, Copy)]
struct Area {
    life: u32,
    slots: [Slot; SLOTS],
    /// The word's count, as far as additions were told of; and how many failed, which may have happened.
    told: u64,
    untold: u64,
}

#[derive(Clone, Copy)]
enum Slot {
    /// So many bytes that follow from a stamp.
    Holds { stamp: u32, len: usize },
    /// A put may or may not have happened, or half of it.
    Unsure,
}

/// What one node does to one other by one connection.
pub(super) struct Operations {
    from: u32,
    to: u32,
    /// The other node's life when the connection was begun.
    life: u32,
    left: u32,
    busy: [bool; SLOTS],
    puts: Vec<Transfer>,
    gets: Vec<Transfer>,
    adds: VecDeque<Op>,
}

#[derive(Clone, Copy)]
struct Transfer {
    op: Op,
    slot: usize,
    stamp: u32,
    len: usize,
}

const SLOTS: usize = 4;
/// Longer than all but the largest frames.
const SLOT: usize = 2048;
const AREA: usize = SLOTS * SLOT + 8;
const WORD: usize = SLOTS * SLOT;

impl Memory {
    pub fn new(endpoint: &mut Endpoint<MemNic>, nodes: u32) -> Self {
        let shared = endpoint.register(vec![0; nodes as usize * AREA]);
        let key = endpoint.publish(shared, Rights::ALL, None).expect("just registered");
        let landing = endpoint.register(vec![0; nodes as usize * AREA]);
        Self { shared, key, landing }
    }
}

impl Areas {
    /// A node died with these under way: whether they happen, nobody will tell.
    pub fn abandon(&mut self, operations: &Operations) {
        self.area(operations.from, operations.to, operations.life).untold += operations.adds.len() as u64;
    }

    /// Everything that must be in the nodes' memory.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.known.iter().flat_map(|(&(from, to), area)| {
            let held = area.slots.iter().enumerate();
            held.filter_map(move |(slot, held)| match *held {
                Slot::Holds { stamp, len } => Some(Place { from, to, life: area.life, slot, stamp, len }),
                Slot::Unsure => None,
            })
        })
    }

    fn area(&mut self, from: u32, to: u32, life: u32) -> &mut Area {
        let fresh = Area { life, slots: [Slot::Holds { stamp: 0, len: 0 }; SLOTS], told: 0, untold: 0 };
        let area = self.known.entry((from, to)).or_insert(fresh);
        if area.life != life {
            *area = fresh;
        }
        area
    }
}

impl Operations {
    /// None yet, of `left`, on a connection that `from` begins to `to`, which is in its `life`.
    pub fn new(from: u32, to: u32, life: u32, left: u32) -> Self {
        Self { from, to, life, left, busy: [false; SLOTS], puts: Vec::new(), gets: Vec::new(), adds: VecDeque::new() }
    }

    /// As many as there were, for a connection that takes this one's place.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// True when nothing is left or under way.
    pub fn is_idle(&self) -> bool {
        self.left == 0 && self.puts.is_empty() && self.gets.is_empty() && self.adds.is_empty()
    }

    /// Begins operations as far as they are taken. `life`: that of the node whose memory `key` opens.
    pub fn feed(
        &mut self,
        endpoint: &mut Endpoint<MemNic>,
        peer: PeerId,
        (key, life): (&RemoteKey, u32),
        own: &Memory,
        areas: &mut Areas,
        rng: &mut Rng,
    ) -> bool {
        let mut fed = false;
        // It may be connected to either life: nothing could be said of what comes of it.
        if life != self.life {
            self.left = 0;
        }
        while self.left > 0 && rng.chance(0.8) {
            match self.begin(endpoint, peer, key, own, areas, rng) {
                Ok(()) => {
                    self.left -= 1;
                    fed = true;
                }
                Err(RmaError::Full | RmaError::NoPeer) => break,
                Err(error) => unreachable!("all is within bounds: {error}"),
            }
        }
        fed
    }

    fn begin(
        &mut self,
        endpoint: &mut Endpoint<MemNic>,
        peer: PeerId,
        key: &RemoteKey,
        own: &Memory,
        areas: &mut Areas,
        rng: &mut Rng,
    ) -> Result<(), RmaError> {
        let base = self.from as usize * AREA;
        let slot = rng.below(SLOTS as u64) as usize;
        let at = base + slot * SLOT;
        let stamp = areas.stamps + 1;
        let area = areas.area(self.from, self.to, self.life);
        match rng.below(3) {
            0 if !self.busy[slot] => {
                let len = if rng.chance(0.5) { rng.below(64) } else { rng.below(SLOT as u64 + 1) } as usize;
                let how = PutHow { signal: rng.chance(0.2), silent: false, backwards: rng.chance(0.5) };
                let op = endpoint.put(peer, key, at as u64, &content(stamp, len), how)?;
                // What was there before may be in part what is there after.
                area.slots[slot] = Slot::Unsure;
                self.busy[slot] = true;
                self.puts.push(Transfer { op, slot, stamp, len });
                areas.stamps = stamp;
            }
            1 if !self.busy[slot] => {
                let Slot::Holds { stamp, len } = area.slots[slot] else { return Ok(()) };
                let landing = self.to as usize * AREA + slot * SLOT;
                let op = endpoint.get(peer, key, at as u64, own.landing, landing..landing + len)?;
                self.busy[slot] = true;
                self.gets.push(Transfer { op, slot, stamp, len });
            }
            2 => {
                self.adds.push_back(endpoint.fetch_add(peer, key, (base + WORD) as u64, 1)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Something is told of one of them.
    pub fn on_event(
        &mut self,
        event: &Event,
        endpoint: &Endpoint<MemNic>,
        own: &Memory,
        areas: &mut Areas,
    ) -> Result<(), Violation> {
        let (from, to) = (self.from, self.to);
        let wrong = |what: String| Err(Violation(format!("operations of node {from} on {to}: {what}")));
        match *event {
            Event::Got { op } => {
                let Some(get) = take(&mut self.gets, op) else { return wrong(format!("{op:?} was no get")) };
                self.busy[get.slot] = false;
                let at = to as usize * AREA + get.slot * SLOT;
                let landed = &endpoint.region(own.landing).expect("it is never unregistered")[at..at + get.len];
                if landed != content(get.stamp, get.len) {
                    return wrong(format!("{op:?} got something else"));
                }
                Ok(())
            }
            Event::Fetched { op, value } => {
                if self.adds.pop_front() != Some(op) {
                    return wrong(format!("{op:?} is told of out of turn, or twice"));
                }
                let area = areas.area(from, to, self.life);
                let Area { told, untold, .. } = *area;
                if value < told || value > told + untold {
                    return wrong(format!("a word counts {value}, where {told} were told of and {untold} failed"));
                }
                (area.told, area.untold) = (value + 1, untold - (value - told));
                Ok(())
            }
            Event::OpFailed { op, .. } => {
                if let Some(put) = take(&mut self.puts, op) {
                    self.busy[put.slot] = false;
                } else if let Some(get) = take(&mut self.gets, op) {
                    self.busy[get.slot] = false;
                } else if let Some(place) = self.adds.iter().position(|add| *add == op) {
                    self.adds.remove(place);
                    areas.area(from, to, self.life).untold += 1;
                } else {
                    return wrong(format!("{op:?} failed, and was none, or over"));
                }
                Ok(())
            }
            ref other => wrong(format!("{other:?}")),
        }
    }

    /// Puts that are done by now: where their bytes must be.
    pub fn finished(&mut self, endpoint: &mut Endpoint<MemNic>, areas: &mut Areas) -> Vec<Place> {
        let mut places = Vec::new();
        let (from, to, life) = (self.from, self.to, self.life);
        let Self { puts, busy, .. } = self;
        puts.retain(|put| {
            let is_done = endpoint.is_done(put.op);
            if is_done {
                busy[put.slot] = false;
                areas.area(from, to, life).slots[put.slot] = Slot::Holds { stamp: put.stamp, len: put.len };
                places.push(Place { from, to, life, slot: put.slot, stamp: put.stamp, len: put.len });
            }
            !is_done
        });
        places
    }

    /// The connection has ended with an error: what did not fail was done before.
    pub fn end(&mut self, endpoint: &mut Endpoint<MemNic>, areas: &mut Areas) -> Result<Vec<Place>, Violation> {
        if !self.gets.is_empty() || !self.adds.is_empty() {
            let Self { from, to, gets, adds, .. } = self;
            let [gets, adds] = [gets.len(), adds.len()];
            return Err(Violation(format!("node {from} lost {to}, and {gets} gets and {adds} additions have no end")));
        }
        Ok(self.finished(endpoint, areas))
    }
}

/// Bytes that must be in a node's memory, as long as it is in the same life.
pub(super) struct Place {
    pub from: u32,
    pub to: u32,
    pub life: u32,
    slot: usize,
    stamp: u32,
    len: usize,
}

impl Place {
    /// Whether they are.
    pub fn is_right(&self, endpoint: &Endpoint<MemNic>, memory: &Memory) -> bool {
        let at = self.from as usize * AREA + self.slot * SLOT;
        let memory = endpoint.region(memory.shared).expect("it is never unregistered");
        memory[at..at + self.len] == content(self.stamp, self.len)
    }
}

fn take(transfers: &mut Vec<Transfer>, op: Op) -> Option<Transfer> {
    let place = transfers.iter().position(|transfer| transfer.op == op)?;
    Some(transfers.swap_remove(place))
}

fn content(stamp: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(u64::from(stamp) << 20).fill(&mut bytes);
    bytes
}
