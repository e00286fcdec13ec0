//! When memory may be accessed: fences, post-start-complete-wait, locks (MPI-4.1 12.5).
//!
//! A call that closes an epoch returns when all operations that it has to wait for are done. Puts and accumulates are not answered
//! one by one: their target is asked for its verdict on all of them.

use std::sync::atomic::{Ordering, fence};

use crate::adi::{Incoming, Outgoing, Turns};

use super::lock_table::Lock;
use super::members::tag;
use super::request::Kind;
use super::{RmaError, Window};

/// Which targets this process may access.
///
/// ```text
///            fence               start              lock, lock_all
///   Fence <---------> None <---------------> Started  ...  Locked, AllLocked
///           fence(last)        complete             unlock, unlock_all
/// ```
///
/// Between two fences a process may open another epoch, as long as it accesses nothing before.
#[derive(Debug)]
pub(super) enum Epoch {
    None,
    Fence,
    Started(Vec<usize>),
    Locked(Vec<usize>),
    AllLocked,
}

impl Epoch {
    pub fn allows(&self, rank: usize) -> bool {
        match self {
            Self::None => false,
            Self::Fence | Self::AllLocked => true,
            Self::Started(ranks) | Self::Locked(ranks) => ranks.contains(&rank),
        }
    }

    /// Another one can be opened.
    fn is_closed(&self) -> bool {
        matches!(self, Self::None | Self::Fence)
    }
}

impl Window {
    /// Ends the epoch between this and the last fence, when all ranks have called it; `last`: none follows
    /// (`MPI_MODE_NOSUCCEED`).
    pub fn fence(&mut self, turns: &mut impl Turns, last: bool) -> Result<(), RmaError> {
        if !self.epoch.is_closed() {
            return Err(RmaError::Sync);
        }
        self.sync();
        let flushed = self.flush_ranks(turns, 0..self.size());
        let met = self.barrier(turns);
        let fenced = flushed.and(met);
        self.epoch = if last || fenced.is_err() { Epoch::None } else { Epoch::Fence };
        fenced
    }

    /// Whether a fence was the last to open an epoch.
    pub fn is_fenced(&self) -> bool {
        matches!(self.epoch, Epoch::Fence)
    }

    /// Lets ranks access our memory (`MPI_Win_post`).
    pub fn post(&mut self, turns: &mut impl Turns, to: &[usize]) -> Result<(), RmaError> {
        if self.exposed.is_some() {
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
        self.exposed = Some(ends);
        Ok(())
    }

    /// Opens an epoch for the memory of ranks, and waits until they have posted it (`MPI_Win_start`).
    pub fn start(&mut self, turns: &mut impl Turns, at: &[usize]) -> Result<(), RmaError> {
        if !self.epoch.is_closed() {
            return Err(RmaError::Sync);
        }
        self.check_ranks(at)?;
        let hear = |rank: &usize| self.members.hear(turns.device(), *rank, tag::POST, Incoming::EMPTY);
        let posts: Vec<_> = at.iter().map(hear).collect();
        let ends = posts.into_iter().map(|post| turns.wait_for(post).error);
        let error = ends.fold(None, Option::or);
        self.epoch = Epoch::Started(at.to_vec());
        error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Ends what [`Self::start`] has opened: all is done at the targets (`MPI_Win_complete`).
    pub fn complete(&mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        let Epoch::Started(ranks) = std::mem::replace(&mut self.epoch, Epoch::None) else {
            return Err(RmaError::Sync);
        };
        self.sync();
        let flushed = self.flush_ranks(turns, ranks.iter().copied());
        for rank in ranks {
            let sent = self.members.say(turns.device(), rank, tag::COMPLETE, Outgoing::EMPTY);
            turns.device().free(sent);
        }
        turns.device().flush();
        flushed
    }

    /// Waits until all ranks that [`Self::post`] has let in are done (`MPI_Win_wait`).
    pub fn wait_exposed(&mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        let ends = self.exposed.take().ok_or(RmaError::Sync)?;
        let errors = ends.into_iter().map(|end| turns.wait_for(end).error);
        let error = errors.fold(None, Option::or);
        self.sync();
        error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// As [`Self::wait_exposed`] if they are done; false if they are not (`MPI_Win_test`).
    pub fn test_exposed(&mut self, turns: &mut impl Turns) -> Result<bool, RmaError> {
        turns.device().flush();
        turns.turn();
        let ends = self.exposed.as_ref().ok_or(RmaError::Sync)?;
        if !ends.iter().all(|end| turns.device().is_complete(*end)) {
            turns.device().pass_by();
            return Ok(false);
        }
        self.wait_exposed(turns).map(|()| true)
    }

    /// Opens an epoch for one rank's memory (`MPI_Win_lock`).
    pub fn lock(&mut self, turns: &mut impl Turns, rank: usize, lock: Lock) -> Result<(), RmaError> {
        self.check_ranks(&[rank])?;
        match &mut self.epoch {
            Epoch::None | Epoch::Fence => self.epoch = Epoch::Locked(vec![rank]),
            Epoch::Locked(ranks) if !ranks.contains(&rank) => ranks.push(rank),
            _ => return Err(RmaError::Sync),
        }
        self.ask_for_lock(turns, rank, lock == Lock::Exclusive);
        self.drain(turns, std::iter::once(rank))
    }

    /// Ends what [`Self::lock`] has opened: all is done at the target (`MPI_Win_unlock`).
    pub fn unlock(&mut self, turns: &mut impl Turns, rank: usize) -> Result<(), RmaError> {
        let Epoch::Locked(ranks) = &mut self.epoch else { return Err(RmaError::Sync) };
        let at = ranks.iter().position(|locked| *locked == rank).ok_or(RmaError::Sync)?;
        ranks.swap_remove(at);
        if ranks.is_empty() {
            self.epoch = Epoch::None;
        }
        self.unlock_ranks(turns, rank..rank + 1)
    }

    /// Opens an epoch for every rank's memory, which others may access too (`MPI_Win_lock_all`).
    pub fn lock_all(&mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        if !self.epoch.is_closed() {
            return Err(RmaError::Sync);
        }
        self.epoch = Epoch::AllLocked;
        for rank in 0..self.size() {
            self.ask_for_lock(turns, rank, false);
        }
        self.drain(turns, 0..self.size())
    }

    /// Ends what [`Self::lock_all`] has opened (`MPI_Win_unlock_all`).
    pub fn unlock_all(&mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        if !matches!(self.epoch, Epoch::AllLocked) {
            return Err(RmaError::Sync);
        }
        self.epoch = Epoch::None;
        self.unlock_ranks(turns, 0..self.size())
    }

    /// Waits until all operations are done at a target (`MPI_Win_flush`).
    pub fn flush(&mut self, turns: &mut impl Turns, rank: usize) -> Result<(), RmaError> {
        self.check_passive(rank)?;
        self.flush_ranks(turns, std::iter::once(rank))
    }

    /// Waits until all operations are done at all targets (`MPI_Win_flush_all`).
    pub fn flush_all(&mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        self.has_locks().ok_or(RmaError::Sync)?;
        self.flush_ranks(turns, 0..self.size())
    }

    /// Waits until the buffers of all operations at a target are ours again (`MPI_Win_flush_local`).
    pub fn flush_local(&mut self, turns: &mut impl Turns, rank: usize) -> Result<(), RmaError> {
        self.check_passive(rank)?;
        self.drain(turns, std::iter::once(rank))
    }

    /// As [`Self::flush_local`], for all targets (`MPI_Win_flush_local_all`).
    pub fn flush_local_all(&mut self, turns: &mut impl Turns) -> Result<(), RmaError> {
        self.has_locks().ok_or(RmaError::Sync)?;
        self.drain(turns, 0..self.size())
    }

    /// What was written before is seen by who reads later, of memory that processes share (`MPI_Win_sync`).
    pub fn sync(&self) {
        fence(Ordering::SeqCst);
    }

    fn unlock_ranks(&mut self, turns: &mut impl Turns, ranks: std::ops::Range<usize>) -> Result<(), RmaError> {
        self.sync();
        for rank in ranks.clone() {
            self.queues[rank].dirty = false;
            self.ask_for_verdict(turns, rank, Kind::Unlock);
        }
        self.drain(turns, ranks)
    }

    fn has_locks(&self) -> Option<()> {
        matches!(self.epoch, Epoch::Locked(_) | Epoch::AllLocked).then_some(())
    }

    fn check_passive(&self, rank: usize) -> Result<(), RmaError> {
        self.check_ranks(&[rank])?;
        self.has_locks().filter(|()| self.epoch.allows(rank)).ok_or(RmaError::Sync)
    }

    fn check_ranks(&self, ranks: &[usize]) -> Result<(), RmaError> {
        // A group has nobody twice.
        let fits = |(at, rank): (usize, &usize)| *rank < self.size() && !ranks[..at].contains(rank);
        if ranks.iter().enumerate().all(fits) { Ok(()) } else { Err(RmaError::Rank) }
    }
}
