//! When memory may be accessed: fences, post-start-complete-wait, locks (MPI-4.1 12.5).
//!
//! A call that closes an epoch returns when all operations that it has to wait for are done. Puts and accumulates are not answered
//! one by one: their target is asked for its verdict on all of them.

use std::sync::MutexGuard;
use std::sync::atomic::{Ordering, fence};

use crate::adi::{Incoming, Outgoing, Request, Turns};

use super::lock_table::{Lock, Wish};
use super::members::tag;
use super::request::Kind;
use super::window::State;
use super::words::Words;
use super::{RmaError, Window};

/// Which targets this process may access.
///
/// ```text
///            fence               start              lock, lock_all
///   Fence <---------> None <---------------> Started  ...  Locked, AllLocked
///           fence(last)        complete             unlock, unlock_all
/// ```
///
/// Between two fences a process may open another epoch, as long as it accesses nothing before. On its way from one to another, while a
/// call of one thread waits for others, it is `Changing`, or one of its locks is: other threads access nothing of that, and change nothing.
#[derive(Debug)]
pub(super) enum Epoch {
    None,
    Fence,
    Started(Vec<usize>),
    /// Each once, while its lock is waited for, is there, or is given back; never none.
    Locked(Vec<(usize, Stage)>),
    AllLocked,
    Changing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Open,
    Changing,
}

/// Who may access this process's memory, after a post.
#[derive(Debug)]
pub(super) enum Exposed {
    No,
    /// Until the others are done.
    Posted(Words),
    /// One thread waits for them.
    Waited,
}

impl Epoch {
    pub fn allows(&self, rank: usize) -> bool {
        match self {
            Self::None | Self::Changing => false,
            Self::Fence | Self::AllLocked => true,
            Self::Started(ranks) => ranks.contains(&rank),
            Self::Locked(ranks) => ranks.contains(&(rank, Stage::Open)),
        }
    }

    /// With a lock.
    fn is_locked(&self, rank: usize) -> bool {
        self.has_locks() && self.allows(rank)
    }

    const fn has_locks(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::AllLocked)
    }

    /// Another one can be opened.
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::None | Self::Fence)
    }

    /// Adds a rank whose lock is asked for.
    fn add(&mut self, rank: usize) -> Result<(), RmaError> {
        match self {
            Self::None | Self::Fence => *self = Self::Locked(vec![(rank, Stage::Changing)]),
            Self::Locked(ranks) if ranks.iter().all(|(locked, _)| *locked != rank) => {
                ranks.push((rank, Stage::Changing));
            }
            _ => return Err(RmaError::Sync),
        }
        Ok(())
    }

    /// From one stage of a rank's lock to the other.
    fn go_on(&mut self, rank: usize, from: Stage, to: Stage) -> Result<(), RmaError> {
        let Self::Locked(ranks) = self else { return Err(RmaError::Sync) };
        let it = ranks.iter_mut().find(|it| **it == (rank, from)).ok_or(RmaError::Sync)?;
        it.1 = to;
        Ok(())
    }

    /// Takes out a rank whose lock was given back.
    fn remove(&mut self, rank: usize) {
        let Self::Locked(ranks) = self else { return };
        ranks.retain(|(locked, _)| *locked != rank);
        if ranks.is_empty() {
            *self = Self::None;
        }
    }
}

impl Window {
    /// Ends the epoch between this and the last fence, when all ranks have called it; `last`: none follows
    /// (`MPI_MODE_NOSUCCEED`).
    pub fn fence(&self, turns: &mut impl Turns, last: bool) -> Result<(), RmaError> {
        self.change_from(Epoch::is_closed)?;
        self.sync();
        let flushed = self.flush_ranks(turns, 0..self.size());
        let met = self.barrier(turns);
        let fenced = flushed.and(met);
        self.change_to(if last || fenced.is_err() { Epoch::None } else { Epoch::Fence });
        fenced
    }

    /// Whether a fence was the last to open an epoch.
    pub fn is_fenced(&self) -> bool {
        matches!(self.state().epoch, Epoch::Fence)
    }

    /// Lets ranks access our memory (`MPI_Win_post`).
    pub fn post(&self, turns: &mut impl Turns, to: &[usize]) -> Result<(), RmaError> {
        let mut state = self.state();
        if !matches!(state.exposed, Exposed::No) {
            return Err(RmaError::Sync);
        }
        self.check_ranks(to)?;
        self.sync();
        let mut ends = Vec::new();
        for rank in to {
            ends.push(self.members.hear(turns.device(), *rank, tag::COMPLETE, Incoming::EMPTY));
            let sent = self.members.say(turns.device(), *rank, tag::POST, Outgoing::EMPTY);
            turns.device().free(sent);
        }
        turns.device().flush();
        state.exposed = Exposed::Posted(Words::of(ends));
        Ok(())
    }

    /// Opens an epoch for the memory of ranks, and waits until they have posted it (`MPI_Win_start`).
    pub fn start(&self, turns: &mut impl Turns, at: &[usize]) -> Result<(), RmaError> {
        self.check_ranks(at)?;
        self.change_from(Epoch::is_closed)?;
        let hear = |rank: &usize| self.members.hear(turns.device(), *rank, tag::POST, Incoming::EMPTY);
        let posts = Words::of(at.iter().map(hear).collect());
        let started = posts.wait(turns);
        self.change_to(Epoch::Started(at.to_vec()));
        started
    }

    /// Ends what [`Self::start`] has opened: all is done at the targets (`MPI_Win_complete`).
    pub fn complete(&self, turns: &mut impl Turns) -> Result<(), RmaError> {
        let epoch = self.change_from(|epoch| matches!(epoch, Epoch::Started(_)))?;
        let Epoch::Started(ranks) = epoch else { unreachable!("it is one that was started") };
        self.sync();
        let flushed = self.flush_ranks(turns, ranks.iter().copied());
        for rank in ranks {
            let sent = self.members.say(turns.device(), rank, tag::COMPLETE, Outgoing::EMPTY);
            turns.device().free(sent);
        }
        turns.device().flush();
        self.change_to(Epoch::None);
        flushed
    }

    /// Waits until all ranks that [`Self::post`] has let in are done (`MPI_Win_wait`).
    pub fn wait_exposed(&self, turns: &mut impl Turns) -> Result<(), RmaError> {
        let mut state = self.state();
        let Exposed::Posted(ends) = &mut state.exposed else { return Err(RmaError::Sync) };
        let ends = std::mem::take(ends);
        state.exposed = Exposed::Waited;
        drop(state);
        let over = ends.wait(turns);
        self.sync();
        self.state().exposed = Exposed::No;
        over
    }

    /// As [`Self::wait_exposed`] if they are done; false if they are not (`MPI_Win_test`).
    pub fn test_exposed(&self, turns: &mut impl Turns) -> Result<bool, RmaError> {
        turns.device().flush();
        turns.turn();
        let mut state = self.state();
        let Exposed::Posted(ends) = &mut state.exposed else { return Err(RmaError::Sync) };
        let Some(over) = ends.poll(turns.device()) else {
            turns.device().pass_by();
            return Ok(false);
        };
        state.exposed = Exposed::No;
        self.sync();
        over.map(|()| true)
    }

    /// Opens an epoch for one rank's memory (`MPI_Win_lock`).
    pub fn lock(&self, turns: &mut impl Turns, rank: usize, lock: Lock) -> Result<(), RmaError> {
        self.check_ranks(&[rank])?;
        self.state().epoch.add(rank)?;
        let granted = self.ask_for_lock(turns, rank, Wish::One(lock));
        let locked = wait_for_all(turns, [granted]);
        self.state().epoch.go_on(rank, Stage::Changing, Stage::Open)?;
        locked
    }

    /// Ends what [`Self::lock`] has opened: all is done at the target (`MPI_Win_unlock`).
    pub fn unlock(&self, turns: &mut impl Turns, rank: usize) -> Result<(), RmaError> {
        self.state().epoch.go_on(rank, Stage::Open, Stage::Changing)?;
        self.sync();
        let end = self.ask_for_verdict(turns, rank, Kind::Unlock);
        let unlocked = self.await_end(turns, rank, end);
        self.state().epoch.remove(rank);
        unlocked
    }

    /// Opens an epoch for every rank's memory, which others may access too (`MPI_Win_lock_all`).
    pub fn lock_all(&self, turns: &mut impl Turns) -> Result<(), RmaError> {
        self.change_from(Epoch::is_closed)?;
        let granted: Vec<_> = (0..self.size()).map(|rank| self.ask_for_lock(turns, rank, Wish::All)).collect();
        let locked = wait_for_all(turns, granted);
        self.change_to(Epoch::AllLocked);
        locked
    }

    /// Ends what [`Self::lock_all`] has opened (`MPI_Win_unlock_all`).
    pub fn unlock_all(&self, turns: &mut impl Turns) -> Result<(), RmaError> {
        self.change_from(|epoch| matches!(epoch, Epoch::AllLocked))?;
        self.sync();
        let ask = |rank| (rank, self.ask_for_verdict(turns, rank, Kind::Unlock));
        let ends: Vec<_> = (0..self.size()).map(ask).collect();
        let unlocked = self.await_ends(turns, &ends);
        self.change_to(Epoch::None);
        unlocked
    }

    /// Waits until all operations are done at a target (`MPI_Win_flush`).
    pub fn flush(&self, turns: &mut impl Turns, rank: usize) -> Result<(), RmaError> {
        let mut state = self.check_passive(rank)?;
        let queue = &mut state.queues[rank];
        let end = queue.end();
        // Mostly nothing is under way at memory that is mapped here.
        if !queue.dirty
            && let Some(flushed) = queue.poll_all(turns.device(), end)
        {
            turns.device().flush();
            self.serve_now_and_then(turns, state);
            return flushed;
        }
        let end = self.ask_for_flush(state, turns, rank);
        self.await_end(turns, rank, end)
    }

    /// Waits until all operations are done at all targets (`MPI_Win_flush_all`).
    pub fn flush_all(&self, turns: &mut impl Turns) -> Result<(), RmaError> {
        self.check_locks()?;
        self.flush_ranks(turns, 0..self.size())
    }

    /// Waits until the buffers of all operations at a target are ours again (`MPI_Win_flush_local`).
    pub fn flush_local(&self, turns: &mut impl Turns, rank: usize) -> Result<(), RmaError> {
        let end = self.check_passive(rank)?.queues[rank].end();
        self.await_end(turns, rank, end)
    }

    /// As [`Self::flush_local`], for all targets (`MPI_Win_flush_local_all`).
    pub fn flush_local_all(&self, turns: &mut impl Turns) -> Result<(), RmaError> {
        self.check_locks()?;
        self.drain(turns)
    }

    /// What was written before is seen by who reads later, of memory that processes share (`MPI_Win_sync`).
    pub fn sync(&self) {
        fence(Ordering::SeqCst);
    }

    /// Begins to open or to end an epoch, which nobody else does before [`Self::change_to`]. What the epoch was.
    fn change_from(&self, is_right: impl FnOnce(&Epoch) -> bool) -> Result<Epoch, RmaError> {
        let epoch = &mut self.state().epoch;
        if is_right(epoch) { Ok(std::mem::replace(epoch, Epoch::Changing)) } else { Err(RmaError::Sync) }
    }

    fn change_to(&self, epoch: Epoch) {
        self.state().epoch = epoch;
    }

    fn check_locks(&self) -> Result<(), RmaError> {
        if self.state().epoch.has_locks() { Ok(()) } else { Err(RmaError::Sync) }
    }

    fn check_passive(&self, rank: usize) -> Result<MutexGuard<'_, State>, RmaError> {
        self.check_ranks(&[rank])?;
        let state = self.state();
        if state.epoch.is_locked(rank) { Ok(state) } else { Err(RmaError::Sync) }
    }

    fn check_ranks(&self, ranks: &[usize]) -> Result<(), RmaError> {
        // A group has nobody twice.
        let fits = |(at, rank): (usize, &usize)| *rank < self.size() && !ranks[..at].contains(rank);
        if ranks.iter().enumerate().all(fits) { Ok(()) } else { Err(RmaError::Rank) }
    }
}

/// Waits for all of them, and tells the first failure.
fn wait_for_all(turns: &mut impl Turns, requests: impl IntoIterator<Item = Request>) -> Result<(), RmaError> {
    let errors = requests.into_iter().map(|request| turns.wait_for(request).error);
    errors.fold(None, Option::or).map_or(Ok(()), |error| Err(error.into()))
}
