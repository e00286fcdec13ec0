#![allow(unsafe_code)]
//! Calls that are begun again and again (MPI-4.1 3.9, 4.2 and 6.13). Unsafe, since their memory is lent for all times that they are.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::datatype::Datatype;

use super::awaited::Begun;
use super::local::Local;
use super::partitioned::Partitioned;
use super::pending::{Memory, Pending};
use super::point::Mode;
use super::repeated_call::RepeatedCall;
use super::{Communicator, Destination, ErrorClass, Source, Status};

/// A call with all its arguments, and what was begun of it: inactive, or active from [`Self::start`] to the end of a wait.
#[derive(Debug)]
pub struct Persistent {
    comm: Communicator,
    what: What,
    active: Pending,
}

/// A call that is begun or waited for with others. It stays where its memory is:
///
/// ```compile_fail
/// # use sidelane_mpi::comm::{Persistent, Repeated};
/// fn exchange(a: &mut Repeated<u8>, b: &mut Repeated<u8>) {
///     let _: &mut Persistent = &mut *a.request();
/// }
/// ```
#[derive(Debug)]
pub struct PersistentRef<'a>(&'a mut Persistent);

#[derive(Debug)]
enum What {
    Message { memory: Memory, count: usize, datatype: Datatype, way: Way },
    Partitioned(Partitioned),
    Collective(Box<RepeatedCall>),
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Send { mode: Mode, to: Destination, tag: i32 },
    Recv { from: Source, tag: Option<i32> },
}

impl Communicator {
    /// A send of `count` elements, inactive.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` stays while this lives, and is not written while it is active.
    pub unsafe fn send_init_raw(
        &self,
        mode: Mode,
        memory: *const u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        tag: i32,
    ) -> Persistent {
        self.persistent_message(memory.cast_mut(), count, datatype, Way::Send { mode, to, tag })
    }

    /// A receive into `count` elements, inactive.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` stays while this lives, and nobody else uses it while it is active.
    pub unsafe fn recv_init_raw(
        &self,
        memory: *mut u8,
        count: usize,
        datatype: &Datatype,
        from: Source,
        tag: Option<i32>,
    ) -> Persistent {
        self.persistent_message(memory, count, datatype, Way::Recv { from, tag })
    }

    fn persistent_message(&self, memory: *mut u8, count: usize, datatype: &Datatype, way: Way) -> Persistent {
        let what = What::Message { memory: Memory(memory), count, datatype: datatype.clone(), way };
        Persistent { comm: self.clone(), what, active: Pending::Null }
    }

    pub(super) fn persistent_partitions(&self, partitioned: Partitioned) -> Persistent {
        Persistent { comm: self.clone(), what: What::Partitioned(partitioned), active: Pending::Null }
    }

    pub(super) fn persistent_call(&self, call: RepeatedCall) -> Persistent {
        Persistent { comm: self.clone(), what: What::Collective(Box::new(call)), active: Pending::Null }
    }
}

impl Persistent {
    /// Begins it. `Request` when it is active already.
    pub fn start(&mut self) -> Result<(), ErrorClass> {
        if self.is_active() {
            return Err(self.comm.fail(ErrorClass::Request));
        }
        let comm = &self.comm;
        self.active = match &mut self.what {
            What::Message { memory, count, datatype, way } => {
                // SAFETY: who made it has lent the memory for as long as it is active, and `drop` waits.
                unsafe {
                    match *way {
                        Way::Send { mode, to, tag } => comm.start_send(mode, memory.0, *count, datatype, to, tag)?,
                        Way::Recv { from, tag } => comm.start_recv(memory.0, *count, datatype, from, tag)?,
                    }
                }
            }
            What::Partitioned(partitioned) => partitioned.start(comm),
            // SAFETY: as above.
            What::Collective(call) => unsafe { call.start(comm) }.map_err(|class| comm.fail(class))?,
        };
        Ok(())
    }

    /// Whether it was begun and not waited for.
    pub const fn is_active(&self) -> bool {
        !matches!(self.active, Pending::Null)
    }

    /// Waits until it is over; at once if it is inactive. It stays active when the error is `ProcFailedPending`.
    pub fn wait(&mut self) -> Result<Status, ErrorClass> {
        let status = self.comm.local().wait(&mut self.active);
        self.comm.status(status)
    }

    /// How it ended, if it has; it is inactive then.
    pub fn test(&mut self) -> Result<Option<Status>, ErrorClass> {
        let status = self.comm.local().test(&mut self.active);
        status.map(|status| self.comm.status(status)).transpose()
    }

    /// Asks for a message that is active to be cancelled (MPI-4.1 3.8.4); to be waited for in any case, and its status says whether it was.
    /// It may be begun again. `Request` while it is inactive, and for collective calls and partitioned messages.
    pub fn cancel(&self) -> Result<(), ErrorClass> {
        let cancelled = match self.what {
            // Also when it was over as it began.
            What::Collective(_) | What::Partitioned(_) => Err(ErrorClass::Request),
            What::Message { .. } => self.comm.local().cancel(&self.active),
        };
        cancelled.map_err(|class| self.comm.fail(class))
    }

    /// Gives it up. A message that is active goes on, with nobody who waits for it (`MPI_Request_free`); else as when it is dropped.
    ///
    /// # Safety
    ///
    /// The memory of a message stays lent until that is over, as the program knows otherwise.
    pub unsafe fn free(mut self) {
        if let What::Message { .. } = self.what {
            self.comm.local().free(std::mem::take(&mut self.active));
        }
    }

    /// This call among others.
    pub const fn by_ref(&mut self) -> PersistentRef<'_> {
        PersistentRef(self)
    }

    /// Begins all of them (`MPI_Startall`).
    pub fn start_all<'a>(all: impl IntoIterator<Item = PersistentRef<'a>>) -> Result<(), ErrorClass> {
        all.into_iter().try_for_each(|each| each.0.start())
    }

    /// Waits for one of them: which, and how it ended. `None` when all are inactive. Of this and the next five calls an error is in its
    /// status, and the error handler of the first that has one is told. All are one process's, or the call panics.
    pub fn wait_any(all: &mut [PersistentRef<'_>]) -> Option<(usize, Status)> {
        let local = process_of(all)?;
        let over = local.wait_any(all);
        tell_of(all, over);
        over
    }

    /// Waits for at least one of them; `None` when all are inactive.
    pub fn wait_some(all: &mut [PersistentRef<'_>]) -> Option<Vec<(usize, Status)>> {
        let local = process_of(all)?;
        let over = local.wait_some(all);
        tell_of(all, over.iter().flatten().copied());
        over
    }

    /// One that is over: `None` if none is, `Some(None)` when all are inactive.
    pub fn test_any(all: &mut [PersistentRef<'_>]) -> Option<Option<(usize, Status)>> {
        let Some(local) = process_of(all) else { return Some(None) };
        let over = local.test_any(all);
        tell_of(all, over.flatten());
        over
    }

    /// Those that are over, none or several. `None` when all are inactive.
    pub fn test_some(all: &mut [PersistentRef<'_>]) -> Option<Vec<(usize, Status)>> {
        let local = process_of(all)?;
        let over = local.test_some(all);
        tell_of(all, over.iter().flatten().copied());
        over
    }

    /// How all ended, if all have; else nothing has changed.
    pub fn test_all(all: &mut [PersistentRef<'_>]) -> Option<Vec<Status>> {
        let Some(local) = process_of(all) else { return Some(Vec::new()) };
        let over = local.test_all(all);
        tell_of(all, over.iter().flatten().copied().enumerate());
        over
    }

    /// Waits for all of them.
    pub fn wait_all(all: &mut [PersistentRef<'_>]) -> Vec<Status> {
        let over: Vec<_> = all.iter_mut().map(|each| each.0.comm.local().wait(&mut each.0.active)).collect();
        tell_of(all, over.iter().copied().enumerate());
        over
    }
}

impl PersistentRef<'_> {
    /// As [`Persistent::wait`].
    pub fn wait(&mut self) -> Result<Status, ErrorClass> {
        self.0.wait()
    }

    /// As [`Persistent::test`].
    pub fn test(&mut self) -> Result<Option<Status>, ErrorClass> {
        self.0.test()
    }

    /// As [`Persistent::cancel`].
    pub fn cancel(&self) -> Result<(), ErrorClass> {
        self.0.cancel()
    }

    /// The same, for less long.
    pub const fn again(&mut self) -> PersistentRef<'_> {
        PersistentRef(self.0)
    }
}

impl Begun for PersistentRef<'_> {
    fn pending(&mut self) -> &mut Pending {
        &mut self.0.active
    }

    fn is_of(&self, local: &Local) -> bool {
        std::ptr::eq(&raw const **self.0.comm.local(), local)
    }
}

/// Whose the first is, if there is one.
fn process_of(all: &[PersistentRef<'_>]) -> Option<Arc<Local>> {
    all.first().map(|first| Arc::clone(first.0.comm.local()))
}

/// Runs the error handler of the first of these that has failed.
fn tell_of(all: &[PersistentRef<'_>], over: impl IntoIterator<Item = (usize, Status)>) {
    if let Some((index, status)) = over.into_iter().find(|(_, status)| status.error.is_some()) {
        all[index].0.comm.tell_of([&status]);
    }
}

/// Its memory is free afterwards: a message that is active is cancelled, or waited for if that comes too late; so is a collective
/// call, in any case.
impl Drop for Persistent {
    fn drop(&mut self) {
        let local = self.comm.local();
        if let What::Partitioned(partitioned) = &self.what {
            partitioned.give_up(local);
        }
        if self.is_active() {
            let _ = local.cancel(&self.active);
            // A panic of its operator's was for who would have waited.
            let _ = catch_unwind(AssertUnwindSafe(|| local.finish(&mut self.active)));
        }
    }
}
