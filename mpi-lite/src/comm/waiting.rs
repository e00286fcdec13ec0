//! Waiting for what was begun: for one, and for any, some or all of several (MPI-4.1 3.7).

use crate::adi::{Device, Turns};

use super::awaited::{Await, Begun};
use super::local::{Local, State};
use super::pending::{Pending, Transfer};
use super::{ErrorClass, Status};

impl Local {
    /// Takes turns until `found` finds something.
    #[inline]
    pub(super) fn wait_for<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        self.hold().wait_until(|held| found(held.state()))
    }

    /// Begins a message and waits until it is over; it fails when it may never be, as `is_hopeless` says.
    #[inline]
    pub(super) fn run(
        &self,
        begin: impl FnOnce(&mut Device) -> Transfer,
        is_hopeless: impl Fn(&Device) -> bool,
    ) -> Status {
        let mut begin = Some(begin);
        let mut transfer = None;
        let mut given_up = false;
        let status = self.wait_for(|state| {
            if let Some(begin) = begin.take() {
                transfer = Some(begin(&mut state.device));
            }
            let transfer = transfer.as_mut()?;
            let status = transfer.poll(&mut state.device);
            if status.is_none() && is_hopeless(&state.device) {
                given_up = true;
                state.device.cancel(transfer.request);
                return transfer.poll(&mut state.device);
            }
            status
        });
        unless_given_up(status, given_up)
    }

    /// One look, with a turn if need be.
    pub(super) fn try_for<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        state.device.flush();
        found(&mut state).or_else(|| {
            state.turn();
            let it = found(&mut state);
            if it.is_none() {
                state.device.pass_by();
            }
            it
        })
    }

    /// Waits until it is over, and it is null then; or until it is known that it may never be, of a receive from anybody: that stays what
    /// it is, and its status is `ProcFailedPending`.
    pub fn wait(&self, pending: &mut Pending) -> Status {
        self.wait_for(|state| state.poll(pending))
    }

    /// Waits until it is over, in any case. What may never be fails, with `ProcFailed`.
    ///
    /// # Panics
    ///
    /// Goes on with the panic of an operator of the program's, of a collective call, which is over then.
    pub fn finish(&self, pending: &mut Pending) -> Status {
        if matches!(pending, Pending::Null) {
            return Status::EMPTY;
        }
        let mut given_up = false;
        let status = self.wait_for(|state| {
            let status = state.poll(pending)?;
            match std::mem::take(pending) {
                Pending::FromAnybody(transfer, _) => {
                    given_up = true;
                    state.device.cancel(transfer.request);
                    *pending = Pending::Transfer(transfer);
                    state.poll(pending)
                }
                _ => Some(status),
            }
        });
        unless_given_up(status, given_up)
    }

    /// How it ended, if it has, as [`Self::wait`] says it.
    pub fn test(&self, pending: &mut Pending) -> Option<Status> {
        self.try_for(|state| state.poll(pending))
    }

    /// How it ended, if it has, and it is still to be waited for (`MPI_Request_get_status`): that is over at once then, with the same status.
    /// Of this and the next nine calls all are this process's, or the call panics; no error handler is told.
    pub fn look<T: Await>(&self, one: &mut T) -> Option<Status> {
        self.check_whose(std::slice::from_ref(one));
        let pending = one.pending();
        let is_null = matches!(pending, Pending::Null);
        let status = self.test(pending)?;
        if !is_null {
            keep(pending, status);
        }
        Some(status)
    }

    /// As [`Self::test_any`], and it is still to be waited for (`MPI_Request_get_status_any`).
    pub fn look_any<T: Await>(&self, all: &mut [T]) -> Option<Option<(usize, Status)>> {
        let found = self.test_any(all)?;
        found.iter().for_each(|(index, status)| keep(all[*index].pending(), *status));
        Some(found)
    }

    /// As [`Self::test_some`], and they are still to be waited for (`MPI_Request_get_status_some`).
    pub fn look_some<T: Await>(&self, all: &mut [T]) -> Option<Vec<(usize, Status)>> {
        let found = self.test_some(all)?;
        found.iter().for_each(|(index, status)| keep(all[*index].pending(), *status));
        Some(found)
    }

    /// As [`Self::test_all`], and they are still to be waited for (`MPI_Request_get_status_all`).
    pub fn look_all<T: Await>(&self, all: &mut [T]) -> Option<Vec<Status>> {
        let are_null: Vec<bool> = all.iter_mut().map(|each| matches!(each.pending(), Pending::Null)).collect();
        let found = self.test_all(all)?;
        let those = all.iter_mut().zip(are_null).zip(&found).filter(|((_, is_null), _)| !is_null);
        those.for_each(|((each, _), status)| keep(each.pending(), *status));
        Some(found)
    }

    /// Waits for one of them; `None` when all are null, or inactive.
    pub fn wait_any<T: Await>(&self, all: &mut [T]) -> Option<(usize, Status)> {
        self.check_whose(all);
        self.wait_for(|state| any(state, all))
    }

    /// One that is over: `None` if none is, `Some(None)` when all are null.
    pub fn test_any<T: Await>(&self, all: &mut [T]) -> Option<Option<(usize, Status)>> {
        self.check_whose(all);
        self.try_for(|state| any(state, all))
    }

    /// Waits for at least one of them; `None` when all are null.
    pub fn wait_some<T: Await>(&self, all: &mut [T]) -> Option<Vec<(usize, Status)>> {
        self.check_whose(all);
        self.wait_for(|state| some(state, all))
    }

    /// Those that are over: none or several; `None` when all are null.
    pub fn test_some<T: Await>(&self, all: &mut [T]) -> Option<Vec<(usize, Status)>> {
        self.check_whose(all);
        self.try_for(|state| some(state, all)).unwrap_or_else(|| Some(Vec::new()))
    }

    /// Waits for all of them.
    pub fn wait_all<T: Await>(&self, all: &mut [T]) -> Vec<Status> {
        self.check_whose(all);
        all.iter_mut().map(|each| self.wait(each.pending())).collect()
    }

    /// How all ended, if all have. Else none has changed. What may never be over counts as [`Self::wait`] says.
    pub fn test_all<T: Await>(&self, all: &mut [T]) -> Option<Vec<Status>> {
        self.check_whose(all);
        self.try_for(|state| {
            let over = all.iter_mut().map(Begun::pending).all(|each| match each {
                Pending::Null | Pending::Done(_) => true,
                Pending::Transfer(transfer) => state.device.is_complete(transfer.request),
                Pending::FromAnybody(transfer, acknowledged) => {
                    state.device.is_complete(transfer.request) || acknowledged.is_behind(state.device.gone())
                }
                Pending::Running(handle) => state.runs.is_over(*handle),
            });
            over.then(|| all.iter_mut().filter_map(|each| state.poll(each.pending())).collect())
        })
    }

    /// # Panics
    ///
    /// Where they are not all of this process, as among the threads of a test: nothing of any has changed.
    fn check_whose<T: Await>(&self, all: &[T]) {
        assert!(all.iter().all(|each| each.is_of(self)), "calls of several processes are waited for at once");
    }

    /// Lets it go on without anybody who waits for it.
    pub fn free(&self, pending: Pending) {
        let mut state = self.lock();
        match pending {
            Pending::Null | Pending::Done(_) => {}
            Pending::Transfer(transfer) | Pending::FromAnybody(transfer, _) => state.orphans.push(transfer),
            Pending::Running(handle) => state.runs.free(handle),
        }
    }

    /// Asks for a message to be cancelled. It has to be waited for in any case, and its status says whether it was.
    pub fn cancel(&self, pending: &Pending) -> Result<(), ErrorClass> {
        match pending {
            Pending::Null | Pending::Running(_) => Err(ErrorClass::Request),
            Pending::Done(_) => Ok(()),
            Pending::Transfer(transfer) | Pending::FromAnybody(transfer, _) => {
                self.lock().device.cancel(transfer.request);
                Ok(())
            }
        }
    }
}

/// Of one that was over, and not null before; what may never be over stays what it is.
fn keep(pending: &mut Pending, status: Status) {
    if matches!(pending, Pending::Null) {
        *pending = Pending::Done(status);
    }
}

/// What was cancelled because it would never be over has failed.
pub(super) const fn unless_given_up(status: Status, given_up: bool) -> Status {
    if given_up && status.cancelled { Status { error: Some(ErrorClass::ProcFailed), ..Status::EMPTY } } else { status }
}

/// One that is over. `Some(None)`: there was none to wait for.
fn any<T: Await>(state: &mut State, all: &mut [T]) -> Option<Option<(usize, Status)>> {
    let mut waiting = false;
    for (index, each) in all.iter_mut().map(Begun::pending).enumerate() {
        if matches!(each, Pending::Null) {
            continue;
        }
        waiting = true;
        if let Some(status) = state.poll(each) {
            return Some(Some((index, status)));
        }
    }
    if waiting { None } else { Some(None) }
}

fn some<T: Await>(state: &mut State, all: &mut [T]) -> Option<Option<Vec<(usize, Status)>>> {
    let mut active: Vec<_> =
        all.iter_mut().map(Begun::pending).enumerate().filter(|(_, each)| !matches!(each, Pending::Null)).collect();
    if active.is_empty() {
        return Some(None);
    }
    let active = active.iter_mut();
    let over: Vec<_> = active.filter_map(|(index, each)| Some((*index, state.poll(each)?))).collect();
    if over.is_empty() { None } else { Some(Some(over)) }
}
