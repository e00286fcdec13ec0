#![allow(unsafe_code)]
//! The sender's side: what says which partitions are ready. Unsafe, since their memory is lent.

use std::sync::{Arc, Mutex};

use crate::adi::{self, Device, Envelope};

use super::super::context::ContextIds;
use super::super::pending::Transfer;
use super::super::point::{Mode, outgoing};
use super::super::running::Run;
use super::super::{Communicator, ErrorClass, Status};
use super::word::tag;
use super::{Array, lock};

/// Says which partitions are ready to be sent: from any thread, also from several at the same time.
#[derive(Debug, Clone)]
pub struct Partitions {
    pub(super) comm: Communicator,
    pub(super) sending: Arc<Mutex<Sending>>,
}

#[derive(Debug)]
pub struct Sending {
    pub array: Array,
    /// `None` to the null process.
    pub to: Option<(u32, Envelope)>,
    pub round: Round,
}

/// ```text
///           start                       all are ready and gone
/// Inactive -------> Active: partitions ------------------------> Inactive
/// ```
#[derive(Debug)]
pub enum Round {
    Inactive,
    /// Which are ready, how many are not, and what is under way.
    Active {
        ready: Vec<bool>,
        missing: usize,
        under_way: Vec<Transfer>,
        error: Option<ErrorClass>,
    },
}

impl Partitions {
    /// Sends a partition: its data is complete (`MPI_Pready`). `Arg` if it was ready already or is none, `Request` if the message
    /// was not begun, or has failed meanwhile.
    pub fn ready(&self, partition: usize) -> Result<(), ErrorClass> {
        let mut state = self.comm.local().lock();
        let result = lock(&self.sending).ready(&mut state.device, partition);
        state.device.flush();
        drop(state);
        result.map_err(|class| self.comm.fail(class))
    }

    /// The same of all partitions of a range (`MPI_Pready_range`).
    pub fn ready_range(&self, partitions: std::ops::RangeInclusive<usize>) -> Result<(), ErrorClass> {
        self.ready_list(partitions)
    }

    /// The same of all of these (`MPI_Pready_list`).
    pub fn ready_list(&self, partitions: impl IntoIterator<Item = usize>) -> Result<(), ErrorClass> {
        partitions.into_iter().try_for_each(|partition| self.ready(partition))
    }
}

impl Sending {
    fn ready(&mut self, device: &mut Device, partition: usize) -> Result<(), ErrorClass> {
        let Round::Active { ready, missing, under_way, .. } = &mut self.round else { return Err(ErrorClass::Request) };
        match ready.get_mut(partition) {
            Some(ready) if !*ready && *missing > 0 => *ready = true,
            _ => return Err(ErrorClass::Arg),
        }
        *missing -= 1;
        let Some((process, envelope)) = self.to else { return Ok(()) };
        let (at, count) = (self.array.at(partition), self.array.count);
        // SAFETY: who made it has promised that the data stays, and is not written, from now until the message is over.
        let (bytes, stage) = unsafe { outgoing(Mode::Standard, at, count, &self.array.datatype) }?;
        let envelope = envelope.with_tag(tag(envelope.tag(), partition));
        let request = device.send(process, envelope, bytes, adi::Mode::Standard);
        under_way.push(Transfer { request, stage });
        Ok(())
    }

    fn turn(&mut self, device: &mut Device) -> Option<Status> {
        let Round::Active { missing, under_way, error, .. } = &mut self.round else { return Some(Status::EMPTY) };
        under_way.retain_mut(|transfer| match transfer.poll(device) {
            None => true,
            Some(status) => {
                *error = error.or(status.error);
                false
            }
        });
        if let Some((process, envelope)) = &self.to
            && *missing > 0
        {
            *error = error.or_else(|| hopeless(device, *process, envelope.context()));
        }
        // Those that are not ready are not waited for when they, or the others, can't be sent.
        if !under_way.is_empty() || (*missing > 0 && error.is_none()) {
            return None;
        }
        let status = Status { error: *error, ..Status::EMPTY };
        self.round = Round::Inactive;
        Some(status)
    }
}

/// Why nothing more can be sent there.
fn hopeless(device: &Device, process: u32, context: u32) -> Option<ErrorClass> {
    if device.is_revoked(context) {
        return Some(ErrorClass::Revoked);
    }
    device.gone().contains(&process).then_some(ErrorClass::ProcFailed)
}

pub struct SendRun(pub Arc<Mutex<Sending>>);

impl Run for SendRun {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        lock(&self.0).turn(device)
    }

    fn context(&self) -> Option<u32> {
        lock(&self.0).to.map(|(_, envelope)| envelope.context())
    }
}
