//! A window: memory of every rank that all can access.

use std::sync::{Arc, Mutex};

use crate::adi::{Incoming, Turns};
use crate::coll::Call;
use crate::comm::collective::Ranks;

use super::direct::Mapped;
use super::epoch::Epoch;
use super::exposure::Exposure;
use super::lent::Bytes;
use super::members::{Members, tag};
use super::queue::{Answer, Operation, Queue, What};
use super::request::{Head, Kind};
use super::runs::Run;
use super::{RmaError, lock};

/// One process's part in a window (MPI-4.1 12.2). Its calls are those of the standard; each takes the device that the window
/// was made with, or who has that and moves on more than it while the call waits ([`Turns`]).
///
/// A target does what others ask of it whenever its device is used: in any call that waits or tests, on whatever. A process
/// that computes without one answers when it comes to one.
#[derive(Debug)]
pub struct Window {
    pub(super) members: Members,
    pub(super) exposure: Arc<Mutex<Exposure>>,
    pub(super) ranks: Ranks,
    pub(super) queues: Vec<Queue>,
    /// What of every rank's memory can be accessed directly.
    pub(super) mapped: Mapped,
    pub(super) flavor: Flavor,
    pub(super) epoch: Epoch,
    /// Ends of other ranks' accesses that are waited for, of an exposure epoch.
    pub(super) exposed: Option<Vec<crate::adi::Request>>,
    /// Operations of all targets, by which answers are told apart.
    numbers: u32,
}

/// How a window was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as in the standard")]
pub enum Flavor {
    Create,
    Allocate,
    Dynamic,
    Shared,
}

impl Window {
    pub(super) fn new(
        members: Members,
        exposure: Arc<Mutex<Exposure>>,
        ranks: Ranks,
        mapped: Mapped,
        flavor: Flavor,
    ) -> Self {
        let queues = members.processes.iter().map(|_| Queue::default()).collect();
        Self { members, exposure, ranks, queues, mapped, flavor, epoch: Epoch::None, exposed: None, numbers: 0 }
    }

    /// This process's rank.
    pub const fn rank(&self) -> usize {
        self.members.rank
    }

    /// How many ranks it has.
    pub fn size(&self) -> usize {
        self.members.size()
    }

    /// How it was made.
    pub const fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Ends the window, when all ranks have called this; no epoch is open.
    pub fn free(mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        let closed = matches!(self.epoch, Epoch::None | Epoch::Fence) && self.exposed.is_none();
        let flushed = self.flush_ranks(turns, 0..self.size());
        let met = self.barrier(turns);
        self.end(turns, met.is_ok());
        if closed { flushed.and(met) } else { Err(RmaError::Sync) }
    }

    /// Waits until nobody accesses this rank's memory. Where ranks have not met, others may still ask for some: who does is refused, as
    /// long as the device lives, and does not wait in vain.
    pub(super) fn end(&self, turns: &mut impl Turns, met: bool) {
        if !met {
            lock(&self.exposure).close();
        }
        turns.wait_until(|_| lock(&self.exposure).is_idle().then_some(()));
        if met {
            turns.device().end_service(self.members.contexts.requests);
        } else {
            lock(&self.exposure).release();
        }
    }

    /// How an operation has ended, of those that the standard calls request-based: its buffers are the caller's again. `None`
    /// while it has not; then the device has had a turn.
    pub fn test(&mut self, turns: &mut impl Turns, operation: Operation) -> Option<Result<(), RmaError>> {
        turns.device().flush();
        let queue = &mut self.queues[operation.rank];
        queue.poll_operation(turns.device(), operation.number).or_else(|| {
            turns.turn();
            let ended = queue.poll_operation(turns.device(), operation.number);
            if ended.is_none() {
                turns.device().pass_by();
            }
            ended
        })
    }

    /// Waits until an operation is over, as [`Self::test`] says it.
    pub fn wait(&mut self, turns: &mut impl Turns, operation: Operation) -> Result<(), RmaError> {
        let queue = &mut self.queues[operation.rank];
        turns.wait_until(|turns| queue.poll_operation(turns.device(), operation.number))
    }

    /// Waits until all operations at some ranks are done there.
    pub(super) fn flush_ranks(
        &mut self,
        turns: &mut impl Turns,
        ranks: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), RmaError> {
        for rank in ranks.clone() {
            if std::mem::take(&mut self.queues[rank].dirty) {
                self.ask_for_verdict(turns, rank, Kind::Flush);
            }
        }
        self.drain(turns, ranks)
    }

    /// Waits until nothing at some ranks needs anything of ours any more.
    pub(super) fn drain(
        &mut self,
        turns: &mut impl Turns,
        ranks: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), RmaError> {
        let queues = &mut self.queues;
        let mut waiting = ranks.clone();
        let mut now = waiting.next();
        turns.wait_until(|turns| {
            while now.is_some_and(|rank| queues[rank].poll(turns.device())) {
                now = waiting.next();
            }
            now.is_none().then_some(())
        });
        let mut first = None;
        for rank in ranks {
            let error = self.queues[rank].take_error();
            first = first.or(error);
        }
        first.map_or(Ok(()), Err)
    }

    pub(super) fn ask_for_verdict(&mut self, turns: &mut impl Turns, rank: usize, kind: Kind) {
        let number = self.next_number();
        let mut room = Bytes::zeros(1);
        let request = self.members.hear(turns.device(), rank, number, room.incoming());
        let answer = Answer { request, len: 1, what: What::Verdict { room } };
        self.ask(turns, rank, head(kind, number), &[], &[], Some(answer));
    }

    pub(super) fn ask_for_lock(&mut self, turns: &mut impl Turns, rank: usize, exclusive: bool) {
        let number = self.next_number();
        let request = self.members.hear(turns.device(), rank, number, Incoming::EMPTY);
        let answer = Answer { request, len: 0, what: What::InPlace };
        let head = Head { detail: exclusive.into(), ..head(Kind::Lock, number) };
        self.ask(turns, rank, head, &[], &[], Some(answer));
    }

    /// Sends a request, whose answer is awaited already; waits before if too many are under way.
    pub(super) fn ask(
        &mut self,
        turns: &mut impl Turns,
        rank: usize,
        head: Head,
        runs: &[Run],
        data: &[&[u8]],
        answer: Option<Answer>,
    ) {
        let queue = &mut self.queues[rank];
        if queue.is_full() {
            turns.wait_until(|turns| {
                queue.poll(turns.device());
                (!queue.is_full()).then_some(())
            });
        }
        let mut bytes = Vec::new();
        head.write(runs, data, &mut bytes);
        let bytes = Bytes::from(bytes);
        let sent = self.members.ask(turns.device(), rank, bytes.outgoing());
        self.queues[rank].push(turns.device(), vec![(sent, bytes)], answer);
    }

    pub(super) const fn next_number(&mut self) -> i32 {
        self.numbers = (self.numbers + 1) % tag::NUMBERS;
        self.numbers as i32
    }

    /// Returns when all ranks have called it.
    pub(super) fn barrier(&mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        Ok(self.ranks.call(turns, Call::Barrier, None, &mut [], &mut |_, _| ())?)
    }
}

/// One that was not freed may have lent its requests and rooms for answers to the device: they are lost, since peers may still read
/// and write them. The exposure lives on in the device, and serves the others.
impl Drop for Window {
    fn drop(&mut self) {
        if self.queues.iter().any(|queue| !queue.is_empty()) {
            std::mem::forget(std::mem::take(&mut self.queues));
        }
    }
}

/// Of a request that accesses nothing.
const fn head(kind: Kind, number: i32) -> Head {
    Head { kind, detail: 0, element: None, number, displacement: 0, bytes: 0 }
}
