#![allow(unsafe_code)]
//! The receiver's side: what tells which partitions have come. Unsafe, since their memory is lent.

use std::ptr::slice_from_raw_parts_mut;
use std::sync::{Arc, Mutex};

use crate::adi::{self, Device, Incoming, Pattern};

use super::super::context::ContextIds;
use super::super::pending::Packed;
use super::super::running::{Handle, Run};
use super::super::{Communicator, ErrorClass, Status};
use super::word::{Word, tag};
use super::{Array, lock};

/// Tells which partitions have come.
#[derive(Debug, Clone)]
pub struct Arrivals {
    pub(super) comm: Communicator,
    pub(super) receiving: Arc<Mutex<Receiving>>,
}

#[derive(Debug)]
pub struct Receiving {
    pub array: Array,
    pub context: u32,
    /// `None` from the null process.
    pub from: Option<(adi::Source, i32)>,
    pub match_: Match,
    /// Room for all data where it does not lie in one piece.
    pub packed: Option<Box<[u8]>>,
    pub active: bool,
    /// The last round, and why it has failed.
    pub round: Option<Handle>,
    pub failed: Option<ErrorClass>,
    /// Of this round's partitions as the sender has them: what is under way, or how it ended.
    pub parts: Vec<Part>,
    /// All before this one are over.
    pub over: usize,
    /// Of our own partitions, those that were brought to their place.
    pub unpacked: Vec<bool>,
}

/// Whether the sender is known.
#[derive(Debug)]
pub enum Match {
    Asked { request: adi::Request, word: Packed },
    Known(Word),
    Failed(ErrorClass),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    UnderWay(adi::Request),
    Here,
    Failed(ErrorClass),
}

impl Arrivals {
    /// Whether all data of a partition is here (`MPI_Parrived`). True while the message is inactive; an error if it has failed, until
    /// it is waited for.
    pub fn arrived(&self, partition: usize) -> Result<bool, ErrorClass> {
        let arrived = self.comm.local().try_for(|state| {
            let mut receiving = lock(&self.receiving);
            if !receiving.round.is_some_and(|round| state.runs.knows(round)) {
                receiving.failed = None;
            }
            let arrived = receiving.arrived(&mut state.device, partition);
            (arrived != Ok(false)).then_some(arrived)
        });
        arrived.unwrap_or(Ok(false)).map_err(|class| self.comm.fail(class))
    }
}

impl Receiving {
    fn turn(&mut self, device: &mut Device) -> Option<Status> {
        self.meet(device)?;
        let word = match self.match_ {
            Match::Known(word) => word,
            Match::Failed(class) => {
                (self.active, self.failed) = (false, Some(class));
                return Some(Status { error: Some(class), ..Status::EMPTY });
            }
            Match::Asked { .. } => return None,
        };
        if self.parts.is_empty() && word.partitions > 0 {
            self.post(device, word);
        }
        // Each that is over is looked at once, however many turns others take.
        while let Some(part) = self.parts.get_mut(self.over) {
            if part.poll(device) {
                return None;
            }
            self.over += 1;
        }
        let error = self.parts.iter().find_map(|part| if let Part::Failed(class) = part { Some(*class) } else { None });
        if error.is_none() {
            (0..self.array.partitions).for_each(|partition| self.unpack(partition));
        }
        (self.active, self.failed, self.parts, self.over, self.unpacked) = (false, error, Vec::new(), 0, Vec::new());
        let Some((source, tag)) = self.from else { return Some(Status::EMPTY) };
        Some(Status { source: Some(source.rank), tag: Some(tag), bytes: self.array.len(), error, ..Status::EMPTY })
    }

    /// Looks for the sender's word. `None` while it has not come.
    fn meet(&mut self, device: &mut Device) -> Option<()> {
        let Match::Asked { request, .. } = &self.match_ else { return Some(()) };
        let status = device.poll(*request)?;
        let Match::Asked { word, .. } = std::mem::replace(&mut self.match_, Match::Failed(ErrorClass::Intern)) else {
            unreachable!("it was just asked for")
        };
        // SAFETY: the receive is over.
        let bytes = unsafe { word.into_box() };
        self.match_ = match (status.error, Word::read(&bytes[..status.bytes])) {
            (Some(error), _) => Match::Failed(error.into()),
            (None, Some(word)) if word.partitions * word.bytes == self.array.len() => Match::Known(word),
            (None, _) => Match::Failed(ErrorClass::Truncate),
        };
        Some(())
    }

    /// Receives everything, as the sender has cut it.
    fn post(&mut self, device: &mut Device, word: Word) {
        let Some((source, _)) = self.from else { return };
        let start = match &mut self.packed {
            Some(packed) => packed.as_mut_ptr(),
            None => self.array.run().expect("it is in one piece where nothing is packed"),
        };
        self.unpacked = vec![self.packed.is_none(); self.array.partitions];
        self.parts = (0..word.partitions)
            .map(|partition| {
                let room = slice_from_raw_parts_mut(start.wrapping_add(partition * word.bytes), word.bytes);
                // SAFETY: a part of all data's room, which stays, and which nobody else uses, until it has come: as who made it
                // has promised, or as our own. `drop` waits.
                let room = unsafe { Incoming::lend(room) };
                let tag = Some(tag(word.tag, partition));
                Part::UnderWay(device.recv(Pattern { context: self.context, source: Some(source), tag }, room))
            })
            .collect();
    }

    fn arrived(&mut self, device: &mut Device, partition: usize) -> Result<bool, ErrorClass> {
        if partition >= self.array.partitions {
            return Err(ErrorClass::Arg);
        }
        if !self.active {
            return self.failed.map_or(Ok(true), Err);
        }
        let (Match::Known(word), false) = (&self.match_, self.parts.is_empty()) else { return Ok(false) };
        if self.array.bytes > 0 {
            let (first, end) = (partition * self.array.bytes, (partition + 1) * self.array.bytes);
            let parts = &mut self.parts[first / word.bytes..end.div_ceil(word.bytes)];
            if parts.iter_mut().any(|part| part.poll(device) || *part != Part::Here) {
                return Ok(false);
            }
        }
        self.unpack(partition);
        Ok(true)
    }

    /// Brings what has come to its place.
    fn unpack(&mut self, partition: usize) {
        let (Some(packed), Some(done)) = (&self.packed, self.unpacked.get_mut(partition)) else { return };
        if std::mem::replace(done, true) {
            return;
        }
        let (at, bytes) = (self.array.at(partition), self.array.bytes);
        let part = &packed[partition * bytes..(partition + 1) * bytes];
        // SAFETY: all messages into this part are over; who made it has lent memory for the partition's elements.
        unsafe { self.array.datatype.unpack_raw(at, self.array.count, 0, part) };
    }
}

impl Part {
    /// Sees whether it is over. True while it is under way.
    fn poll(&mut self, device: &mut Device) -> bool {
        let Self::UnderWay(request) = *self else { return false };
        let Some(status) = device.poll(request) else { return true };
        *self = match status.error {
            _ if status.cancelled => Self::Failed(ErrorClass::Request),
            None => Self::Here,
            Some(error) => Self::Failed(error.into()),
        };
        false
    }
}

pub struct ReceiveRun(pub Arc<Mutex<Receiving>>);

impl Run for ReceiveRun {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        lock(&self.0).turn(device)
    }

    fn context(&self) -> Option<u32> {
        Some(lock(&self.0).context)
    }
}
