//! When others' parts may be accessed (MPI-4.1 12.5): an epoch is a guard.

use std::mem::ManuallyDrop;

use crate::comm::{Equivalence, ErrorClass, Held};
use crate::rma::{self, Lock, RmaError};

use super::Window;
use ends::Ends;

/// Access to others' parts of a window, until it is ended. What was put and accumulated is there then; what was refused at a target that
/// had to be asked is told then, if not before.
///
/// Kinds are not mixed: who opens another epoch within one, but a second lock of another rank, is told by `RmaSync`. With several locks an
/// operation may go to any of their ranks by each of their epochs, and is done when its own rank's ends. An operation is
/// refused with `Rank`, `RmaRange`, `Op` (operators and elements that the standard does not combine), `Truncate` (more than there is room
/// for); whatever needs a process that is gone with `ProcFailed`. Where a target was asked, an operation's error is told once more
/// by the next call that waits for all at that target, or by all that wait there when it comes, of several threads.
///
/// Dropped, it gives locks back and completes what was started, since others wait for that, and nobody is told of errors. What fences
/// have opened needs all ranks to end, and stays open until the next fence: whoever leaves it by an error leaves the others waiting there.
#[must_use = "what is dropped is ended without its errors, or, between fences, stays open"]
#[derive(Debug)]
pub struct Epoch<'w, T: Equivalence, K: Kind> {
    pub(super) window: &'w Window<T>,
    kind: K,
}

/// What kind of epoch it is: one of those here.
pub trait Kind: Ends {}

/// Between two fences, of all ranks.
#[derive(Debug)]
pub struct Fenced(());

/// For ranks that have posted their parts.
#[derive(Debug)]
pub struct Started(());

/// With one rank's lock.
#[derive(Debug)]
pub struct Locked(usize);

/// With every rank's lock, shared.
#[derive(Debug)]
pub struct AllLocked(());

impl Kind for Fenced {}
impl Kind for Started {}
impl Kind for Locked {}
impl Kind for AllLocked {}

impl<T: Equivalence> Window<T> {
    /// Begins an epoch of all ranks, which all call it (`MPI_Win_fence`). Nothing else is opened by this process before its end.
    pub fn fence(&mut self) -> Result<Epoch<'_, T, Fenced>, ErrorClass> {
        self.call(|raw, turns| raw.fence(turns, false))?;
        Ok(Epoch { window: self, kind: Fenced(()) })
    }

    /// Waits until these ranks have [posted](Self::post) their parts to this one, and begins an epoch for them (`MPI_Win_start`). Once one of
    /// them is gone, the others are not waited for either: they may have been told, and have left. If they have not, their word opens the next
    /// epoch; so make a new window of those who are left.
    pub fn start(&self, at: &[u32]) -> Result<Epoch<'_, T, Started>, ErrorClass> {
        let ranks: Vec<usize> = at.iter().map(|rank| *rank as usize).collect();
        self.open(Started(()), |raw, turns| raw.start(turns, &ranks))
    }

    /// Begins an epoch for one rank's part, with its lock (`MPI_Win_lock`): waits for those who asked for it before, and for those who
    /// lock all meanwhile. A process may have locks of several ranks at a time, in an order that the program's others can agree with.
    pub fn lock(&self, rank: u32, lock: Lock) -> Result<Epoch<'_, T, Locked>, ErrorClass> {
        let rank = rank as usize;
        self.open(Locked(rank), |raw, turns| raw.lock(turns, rank, lock))
    }

    /// Begins an epoch for every rank's part, which others may access too (`MPI_Win_lock_all`). It waits for exclusive locks that are held,
    /// and not for those that are waited for.
    pub fn lock_all(&self) -> Result<Epoch<'_, T, AllLocked>, ErrorClass> {
        self.open(AllLocked(()), |raw, turns| raw.lock_all(turns))
    }

    fn open<K: Kind>(
        &self,
        kind: K,
        open: impl FnOnce(&rma::Window, &mut Held) -> Result<(), RmaError>,
    ) -> Result<Epoch<'_, T, K>, ErrorClass> {
        self.call(|raw, turns| {
            if raw.is_fenced() {
                return Err(RmaError::Sync);
            }
            let opened = open(raw, turns);
            // What was refused before it began has left the window as it was; else there is something to end.
            if opened.is_err_and(|error| !matches!(error, RmaError::Sync | RmaError::Rank)) {
                let _ = kind.end(raw, turns);
            }
            opened
        })?;
        Ok(Epoch { window: self, kind })
    }
}

impl<'w, T: Equivalence, K: Kind> Epoch<'w, T, K> {
    /// Its window: this process's own part may be read and written meanwhile.
    pub const fn window(&self) -> &'w Window<T> {
        self.window
    }

    /// Ends it, when all of its operations are done at their targets. Of fences: when all ranks have called this.
    pub fn end(self) -> Result<(), ErrorClass> {
        let ended = ManuallyDrop::new(self);
        ended.window.call(|raw, turns| ended.kind.end(raw, turns))
    }
}

impl<T: Equivalence> Epoch<'_, T, Fenced> {
    /// Ends this epoch and begins the next one (`MPI_Win_fence`): what was put by all ranks is there, and may be read.
    pub fn fence(&self) -> Result<(), ErrorClass> {
        self.window.call(|raw, turns| raw.fence(turns, false))
    }
}

impl<T: Equivalence> Epoch<'_, T, Locked> {
    /// Waits until all operations are done at the target, and tells the first error (`MPI_Win_flush`).
    pub fn flush(&self) -> Result<(), ErrorClass> {
        self.window.call(|raw, turns| raw.flush(turns, self.kind.0))
    }
}

impl<T: Equivalence> Epoch<'_, T, AllLocked> {
    /// Waits until all operations are done at a target, and tells the first error (`MPI_Win_flush`).
    pub fn flush(&self, rank: u32) -> Result<(), ErrorClass> {
        self.window.call(|raw, turns| raw.flush(turns, rank as usize))
    }

    /// The same of all targets (`MPI_Win_flush_all`).
    pub fn flush_all(&self) -> Result<(), ErrorClass> {
        self.window.call(|raw, turns| raw.flush_all(turns))
    }
}

impl<T: Equivalence, K: Kind> Drop for Epoch<'_, T, K> {
    fn drop(&mut self) {
        if !K::NEEDS_ALL {
            let _ = self.window.call_quietly(|raw, turns| self.kind.end(raw, turns));
        }
    }
}

/// How epochs end: not for others to implement.
mod ends {
    use super::{AllLocked, Fenced, Held, Locked, RmaError, Started, rma};

    pub trait Ends {
        /// All ranks have to call its end.
        const NEEDS_ALL: bool = false;

        fn end(&self, raw: &rma::Window, turns: &mut Held) -> Result<(), RmaError>;
    }

    impl Ends for Fenced {
        const NEEDS_ALL: bool = true;

        fn end(&self, raw: &rma::Window, turns: &mut Held) -> Result<(), RmaError> {
            raw.fence(turns, true)
        }
    }

    impl Ends for Started {
        fn end(&self, raw: &rma::Window, turns: &mut Held) -> Result<(), RmaError> {
            raw.complete(turns)
        }
    }

    impl Ends for Locked {
        fn end(&self, raw: &rma::Window, turns: &mut Held) -> Result<(), RmaError> {
            raw.unlock(turns, self.0)
        }
    }

    impl Ends for AllLocked {
        fn end(&self, raw: &rma::Window, turns: &mut Held) -> Result<(), RmaError> {
            raw.unlock_all(turns)
        }
    }
}
