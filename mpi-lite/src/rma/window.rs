//! A window: memory of every rank that all can access.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::adi::{self, Device, Incoming, Turns};
use crate::attribute::{Attributes, Name};
use crate::coll::Call;
use crate::comm::collective::Ranks;
use crate::giving_way::Turnless;

use super::direct::Mapped;
use super::epoch::{Epoch, Exposed};
use super::exposure::Exposure;
use super::lent::Bytes;
use super::lock_table::Wish;
use super::members::{Members, tag};
use super::queue::{Answer, End, Operation, Queue, What};
use super::request::{Head, Kind};
use super::runs::Run;
use super::{RmaError, lock};

/// One process's part in a window (MPI-4.1 12.2). Its calls are those of the standard; each takes the device that the window
/// was made with, or who has that and moves on more than it while the call waits ([`Turns`]).
///
/// Several threads may be in calls at once, as far as who has the device lets others have it while a call waits. Each waits for what
/// itself has asked; what opens or ends an epoch keeps others out of that alone, with `Sync`.
///
/// A target does what others ask of it whenever its device is used: in any call that waits or tests, on whatever. A process
/// that computes without one answers when it comes to one.
#[derive(Debug)]
pub struct Window {
    pub(super) members: Members,
    pub(super) exposure: Arc<Mutex<Exposure>>,
    pub(super) flavor: Flavor,
    pub(super) name: Name,
    pub(super) attributes: Attributes<Self>,
    /// Locked throughout a barrier, by whoever has made the epoch [`Epoch::Changing`] or has the window alone: nobody waits for it.
    ranks: Mutex<Ranks>,
    state: Mutex<State>,
}

/// What calls change. Locked after the device, if at all, and not while they wait: so nobody waits for it long, and what a call relies on
/// beyond a wait is in here.
#[derive(Debug)]
pub(super) struct State {
    pub queues: Vec<Queue>,
    /// What of every rank's memory can be accessed directly.
    pub mapped: Mapped,
    pub epoch: Epoch,
    pub exposed: Exposed,
    /// Operations of all targets, by which answers are told apart.
    numbers: u32,
    /// Calls in a row that took no turn.
    turnless: Turnless,
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
        let state = State {
            queues,
            mapped,
            epoch: Epoch::None,
            exposed: Exposed::No,
            numbers: 0,
            turnless: Turnless::default(),
        };
        let (name, attributes) = Default::default();
        Self { members, exposure, flavor, name, attributes, ranks: Mutex::new(ranks), state: Mutex::new(state) }
    }

    /// For a moment: nobody waits with it.
    #[inline]
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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

    /// Ends the window, when all ranks have called this; no epoch is open, and attributes were [deleted](Self::delete_attributes) before:
    /// what is still there is dropped, and no callback called.
    pub fn free(self, turns: &mut impl Turns) -> Result<(), RmaError> {
        let closed = self.state().is_closed();
        let flushed = self.flush_ranks(turns, 0..self.size());
        // A rank alone waits for nobody, also where it has revoked the window.
        let met = if self.size() == 1 { Ok(()) } else { self.barrier(turns) };
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
    pub fn test(&self, turns: &mut impl Turns, operation: Operation) -> Option<Result<(), RmaError>> {
        turns.device().flush();
        self.poll(turns.device(), operation).or_else(|| {
            turns.turn();
            let ended = self.poll(turns.device(), operation);
            if ended.is_none() {
                turns.device().pass_by();
            }
            ended
        })
    }

    /// Waits until an operation is over, as [`Self::test`] says it.
    pub fn wait(&self, turns: &mut impl Turns, operation: Operation) -> Result<(), RmaError> {
        turns.wait_until(|turns| self.poll(turns.device(), operation))
    }

    /// As [`Self::test`], without a turn: for who takes turns.
    pub fn poll(&self, device: &mut Device, operation: Operation) -> Option<Result<(), RmaError>> {
        if operation.is_done() {
            return Some(Ok(()));
        }
        self.state().queues[operation.rank].poll_operation(device, operation)
    }

    /// Waits until all operations at some ranks are done there.
    pub(super) fn flush_ranks(
        &self,
        turns: &mut impl Turns,
        ranks: impl Iterator<Item = usize>,
    ) -> Result<(), RmaError> {
        let ends: Vec<_> = ranks.map(|rank| (rank, self.ask_for_flush(self.state(), turns, rank))).collect();
        self.await_ends(turns, &ends)
    }

    /// Asks a target whether all is done there, unless that is known.
    pub(super) fn ask_for_flush(&self, state: MutexGuard<'_, State>, turns: &mut impl Turns, rank: usize) -> End {
        let queue = &state.queues[rank];
        if !queue.dirty {
            return queue.end();
        }
        drop(state);
        self.ask_for_verdict(turns, rank, Kind::Flush)
    }

    /// Waits until nothing at some ranks needs anything of ours any more.
    pub(super) fn drain(&self, turns: &mut impl Turns) -> Result<(), RmaError> {
        let ends: Vec<_> = self.state().queues.iter().map(Queue::end).enumerate().collect();
        self.await_ends(turns, &ends)
    }

    /// Waits for all of them, and tells the first failure.
    pub(super) fn await_ends(&self, turns: &mut impl Turns, ends: &[(usize, End)]) -> Result<(), RmaError> {
        let errors = ends.iter().map(|(rank, end)| self.await_end(turns, *rank, *end).err());
        errors.fold(None, Option::or).map_or(Ok(()), Err)
    }

    pub(super) fn await_end(&self, turns: &mut impl Turns, rank: usize, end: End) -> Result<(), RmaError> {
        turns.device().flush();
        let mut state = self.state();
        if let Some(ended) = state.queues[rank].poll_all(turns.device(), end) {
            self.serve_now_and_then(turns, state);
            return ended;
        }
        drop(state);
        turns.wait_until(|turns| self.state().queues[rank].poll_all(turns.device(), end))
    }

    /// Of calls that need no turn a few take one: who only looks at memory that is mapped, again and again, has to serve others too.
    #[inline]
    pub(super) fn serve_now_and_then(&self, turns: &mut impl Turns, mut state: MutexGuard<'_, State>) {
        if state.turnless.is_turn_due() {
            drop(state);
            turns.turn();
        }
    }

    pub(super) fn ask_for_verdict(&self, turns: &mut impl Turns, rank: usize, kind: Kind) -> End {
        let (_, end) = self.ask(turns, (rank, 0), head(kind), &[], &[], |device, number| {
            let mut room = Bytes::zeros(1);
            let request = self.members.hear(device, rank, number, room.incoming());
            Some(Answer { request, len: 1, what: What::Verdict { room } })
        });
        end
    }

    /// What comes when it is granted. That is for others to bring about, so it is in no queue, where it would be waited for by whoever
    /// flushes all.
    pub(super) fn ask_for_lock(&self, turns: &mut impl Turns, rank: usize, wish: Wish) -> adi::Request {
        let head = Head { detail: wish.to_wire(), ..head(Kind::Lock) };
        let mut granted = None;
        self.ask(turns, (rank, 0), head, &[], &[], |device, number| {
            granted = Some(self.members.hear(device, rank, number, Incoming::EMPTY));
            None
        });
        granted.expect("it was asked for")
    }

    /// Sends a rank a request of an operation, or of none (0); waits before if too many are under way. The request is given a number,
    /// and by that `hear` awaits its answer. Says the number, and what has to be waited for.
    pub(super) fn ask(
        &self,
        turns: &mut impl Turns,
        (rank, operation): (usize, u64),
        head: Head,
        runs: &[Run],
        data: &[&[u8]],
        hear: impl FnOnce(&mut Device, i32) -> Option<Answer>,
    ) -> (i32, End) {
        let mut state = self.state();
        if state.queues[rank].is_full() {
            drop(state);
            turns.wait_until(|turns| {
                let queue = &mut self.state().queues[rank];
                queue.poll(turns.device());
                (!queue.is_full()).then_some(())
            });
            state = self.state();
        }
        // No others' calls are let in from here on.
        let number = state.next_number();
        let answer = hear(turns.device(), number);
        let mut bytes = Vec::new();
        Head { number, ..head }.write(runs, data, &mut bytes);
        let bytes = Bytes::from(bytes);
        let sent = self.members.ask(turns.device(), rank, bytes.outgoing());
        let queue = &mut state.queues[rank];
        queue.push(turns.device(), operation, head.kind, vec![(sent, bytes)], answer);
        (number, queue.end())
    }

    /// Returns when all ranks have called it.
    pub(super) fn barrier(&self, turns: &mut impl Turns) -> Result<(), RmaError> {
        Ok(lock(&self.ranks).call(turns, Call::Barrier, None, &mut [], &mut |_, _| ())?)
    }
}

impl State {
    /// No epoch is open.
    fn is_closed(&self) -> bool {
        self.epoch.is_closed() && matches!(self.exposed, Exposed::No)
    }

    const fn next_number(&mut self) -> i32 {
        self.numbers = (self.numbers + 1) % tag::NUMBERS;
        self.numbers as i32
    }
}

/// One that was not freed may have lent its requests and rooms for answers to the device: they are lost, since peers may still read
/// and write them. The exposure lives on in the device, and serves the others.
impl Drop for Window {
    fn drop(&mut self) {
        let mut state = self.state();
        if state.queues.iter().any(|queue| !queue.is_empty()) {
            std::mem::forget(std::mem::take(&mut state.queues));
        }
    }
}

/// Of a request that accesses nothing.
const fn head(kind: Kind) -> Head {
    Head { kind, detail: 0, element: None, number: 0, displacement: 0, bytes: 0 }
}
