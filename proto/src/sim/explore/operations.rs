//! One-sided operations of node 0 on node 1's memory, and what must come of each.

use sidelane_nic::Nic;

use crate::{Endpoint, Event, Op, OpError, PeerId, PutHow, Region, RemoteKey, Rights};

/// What node 0's user does before it sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// Bytes from a place on, which say by which connection they came.
    Put { at: usize, len: usize },
    /// Bytes that were put there before.
    Get { at: usize, len: usize },
    /// One more in the word.
    Add,
}

/// Memory of one life of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub region: Region,
    key: RemoteKey,
}

/// What is under way, and what is known of node 1's present life.
#[derive(Debug, Default)]
pub(super) struct Operations {
    /// Begun on the present connection.
    pub begun: usize,
    /// The present connection, counted from 1: what its puts write.
    stamp: u8,
    puts: Vec<(Op, usize, usize)>,
    gets: Vec<(Op, Region)>,
    adds: Vec<Op>,
    /// Additions that were begun, and those whose end is known.
    added: u64,
    told: u64,
    /// A life of node 1 ended with some under way.
    restarted: bool,
}

impl Memory {
    pub fn new(endpoint: &mut Endpoint<impl Nic>) -> Self {
        let region = endpoint.register(vec![0; WORD + 8]);
        let key = endpoint.publish(region, Rights::ALL, None).expect("just registered");
        Self { region, key }
    }
}

impl Operations {
    pub fn new() -> Self {
        Self { stamp: 1, ..Self::default() }
    }

    pub fn begin(&mut self, endpoint: &mut Endpoint<impl Nic>, peer: PeerId, operation: Operation, there: &Memory) {
        let key = &there.key;
        match operation {
            Operation::Put { at, len } => {
                let bytes = vec![self.stamp; len];
                let op = endpoint.put(peer, key, at as u64, &bytes, PutHow::default()).expect("room");
                self.puts.push((op, at, len));
            }
            Operation::Get { at, len } => {
                let landing = endpoint.register(vec![0; len]);
                self.gets.push((endpoint.get(peer, key, at as u64, landing, 0..len).expect("room"), landing));
            }
            Operation::Add => {
                self.adds.push(endpoint.fetch_add(peer, key, WORD as u64, 1).expect("room"));
                self.added += 1;
            }
        }
        self.begun += 1;
    }

    /// Takes in an event; false if it is none of an operation.
    pub fn on_event(&mut self, event: &Event, endpoint: &Endpoint<impl Nic>) -> Result<bool, String> {
        match *event {
            Event::Got { op } => {
                let at = self.gets.iter().position(|(get, _)| *get == op).ok_or("a get ended that nobody began")?;
                let (_, landing) = self.gets.swap_remove(at);
                let found = endpoint.region(landing).expect("it stays registered");
                if found.iter().any(|byte| *byte != self.stamp) {
                    return Err(format!("a get behind the put of {} brought {found:?}", self.stamp));
                }
            }
            Event::Fetched { op, value } => {
                let at = self.adds.iter().position(|add| *add == op).ok_or("an addition ended that nobody began")?;
                self.adds.swap_remove(at);
                if !self.restarted && !(self.told..self.added).contains(&value) {
                    return Err(format!("{value} was there before, and {} were told of {}", self.told, self.added));
                }
                self.told += 1;
            }
            Event::OpFailed { op, why } => {
                if why != OpError::PeerGone && !self.restarted {
                    return Err(format!("{op:?} failed with {why:?}, and the region is there"));
                }
                let before = self.puts.len() + self.gets.len() + self.adds.len();
                self.puts.retain(|(put, ..)| *put != op);
                self.gets.retain(|(get, _)| *get != op);
                self.adds.retain(|add| *add != op);
                if self.puts.len() + self.gets.len() + self.adds.len() != before - 1 {
                    return Err(format!("{op:?} failed, and nobody began it, or it was over"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Puts that are over, as far as the endpoint says, are in place.
    pub fn judge_puts(&mut self, endpoint: &mut Endpoint<impl Nic>, memory: &[u8]) -> Result<(), String> {
        let Self { puts, stamp, restarted, .. } = self;
        for (op, at, len) in puts.extract_if(.., |(op, ..)| endpoint.is_done(*op)) {
            if !*restarted && memory[at..at + len].iter().any(|byte| byte != stamp) {
                return Err(format!("{op:?} is done, and not in place"));
            }
        }
        Ok(())
    }

    /// A message has come that was sent behind them all.
    pub fn judge_message(&self, plan: &[Operation], memory: &[u8]) -> Result<(), String> {
        let missing = plan.iter().any(|operation| match *operation {
            Operation::Put { at, len } => memory[at..at + len].iter().any(|byte| *byte != self.stamp),
            Operation::Get { .. } | Operation::Add => false,
        });
        if missing { Err("a message overtook a put".into()) } else { Ok(()) }
    }

    /// The connection is over, and all that has to be told of it was told.
    pub fn judge_end(&self, memory: &[u8]) -> Result<(), String> {
        if !self.gets.is_empty() || !self.adds.is_empty() || !self.puts.is_empty() {
            return Err(format!("the connection ended, and nobody told of {self:?}"));
        }
        let Some(word) = memory.last_chunk() else { return Ok(()) };
        let word = u64::from_le_bytes(*word);
        // What was on its way when a connection was lost may count or not, but never twice.
        if !self.restarted && !(self.told..=self.added).contains(&word) {
            return Err(format!("the word is {word}: {self:?}"));
        }
        Ok(())
    }

    /// Another connection, which begins them anew.
    pub fn on_dial(&mut self) {
        self.begun = 0;
        self.stamp += 1;
    }

    /// Node 1 died with its memory.
    pub fn on_restart(&mut self) {
        self.restarted = true;
    }
}

/// Where the word stands, at the region's end.
const WORD: usize = 512;
