//! Buffered sends: room that the program has allowed, and what waits in it (MPI-4.1 3.6).

use std::sync::{Arc, Mutex};

use crate::adi::{Device, lock};

use super::context::ContextIds;
use super::local::{Local, State};
use super::pending::{Pending, Transfer};
use super::running::Run;
use super::{Communicator, ErrorClass, Status};

/// What a message costs besides its bytes: the standard ABI's `MPI_BSEND_OVERHEAD`.
pub const OVERHEAD: usize = 512;

/// As much room as messages need (`MPI_BUFFER_AUTOMATIC`).
pub const AUTOMATIC: usize = usize::MAX;

/// Turns that a send without room takes at most: others may bring something for ever.
const TURNS: u32 = 1000;

/// Room for buffered messages, of a process, a session or a communicator. Clones are the same one. Locked after the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room(Arc<Mutex<Buffered>>);

/// Messages that were sent for the program, and the room for them.
#[derive(Debug, Default)]
pub(super) struct Buffered {
    capacity: Option<usize>,
    used: usize,
    /// Oldest first.
    sent: Vec<Sent>,
    /// Messages so far.
    count: u64,
    /// So many of `sent` are looked through for those that have gone.
    reap_at: usize,
}

#[derive(Debug)]
struct Sent {
    transfer: Transfer,
    bytes: usize,
    /// How many came before it.
    number: u64,
}

/// Waits for the messages before this number.
struct Flushing {
    room: Room,
    number: u64,
}

/// A message goes to the room of its communicator, if there is one; else to that of the session that the communicator was made of, if there
/// is one; else to the process's.
impl Communicator {
    /// Allows buffered sends of this process `capacity` bytes, of which each message takes [`super::BUFFERED_OVERHEAD`] besides its
    /// own; or [`super::BUFFER_AUTOMATIC`]. `Buffer` when that was done already.
    pub fn attach_buffer(&self, capacity: usize) -> Result<(), ErrorClass> {
        self.local().room().attach(capacity).map_err(|class| self.fail(class))
    }

    /// Waits until all buffered messages of this process have gone, and forbids more. Returns what was allowed.
    pub fn detach_buffer(&self) -> Result<usize, ErrorClass> {
        self.local().room().detach(self.local()).map_err(|class| self.fail(class))
    }

    /// Waits until all messages have gone that are in this process's room.
    pub fn flush_buffer(&self) {
        self.local().room().flush(self.local());
    }

    /// Begins what [`Self::flush_buffer`] does (`MPI_Buffer_iflush`).
    pub fn iflush_buffer(&self) -> Pending {
        self.local().room().iflush(self.local())
    }

    /// As [`Self::attach_buffer`], for this communicator's messages alone (`MPI_Comm_attach_buffer`). What is in it when the communicator
    /// is dropped goes on.
    pub fn attach_own_buffer(&self, capacity: usize) -> Result<(), ErrorClass> {
        self.0.room.attach(capacity).map_err(|class| self.fail(class))
    }

    /// As [`Self::detach_buffer`], of the communicator's own (`MPI_Comm_detach_buffer`).
    pub fn detach_own_buffer(&self) -> Result<usize, ErrorClass> {
        self.0.room.detach(self.local()).map_err(|class| self.fail(class))
    }

    /// As [`Self::flush_buffer`], of the communicator's own (`MPI_Comm_flush_buffer`).
    pub fn flush_own_buffer(&self) {
        self.0.room.flush(self.local());
    }

    /// As [`Self::iflush_buffer`], of the communicator's own (`MPI_Comm_iflush_buffer`).
    pub fn iflush_own_buffer(&self) -> Pending {
        self.0.room.iflush(self.local())
    }

    /// From now on its messages, and those of what is made of it, go to this one where they have none of their own.
    pub(crate) fn has_room_of_session(&self, room: &Room) {
        let first = self.0.session_room.set(room.clone());
        debug_assert!(first.is_ok(), "a communicator is made of one session");
    }

    /// Where a buffered message goes.
    pub(super) fn room(&self) -> &Room {
        let own = [Some(&self.0.room), self.0.session_room.get()];
        own.into_iter().flatten().find(|room| lock(&room.0).capacity.is_some()).unwrap_or_else(|| self.local().room())
    }
}

impl Room {
    /// Allows so many bytes. `Err` when there is room already.
    pub fn attach(&self, capacity: usize) -> Result<(), ErrorClass> {
        let mut buffered = lock(&self.0);
        if buffered.capacity.is_some() {
            return Err(ErrorClass::Buffer);
        }
        buffered.capacity = Some(capacity);
        Ok(())
    }

    /// Takes the room back, when nothing waits in it any more: how much it was.
    pub fn detach(&self, local: &Local) -> Result<usize, ErrorClass> {
        local.wait_for(|state| lock(&self.0).detach(&mut state.device))
    }

    /// Waits until what is in it now has gone.
    pub fn flush(&self, local: &Local) {
        let number = lock(&self.0).count;
        local.wait_for(|state| lock(&self.0).is_flushed(&mut state.device, number).then_some(()));
    }

    /// Begins that.
    pub fn iflush(&self, local: &Local) -> Pending {
        let number = lock(&self.0).count;
        Pending::Running(local.lock().begin_run(Box::new(Flushing { room: self.clone(), number })))
    }

    /// Sends a message of so many bytes from it, if it has room.
    pub(super) fn send(
        &self,
        state: &mut State,
        bytes: usize,
        begin: impl FnOnce(&mut Device) -> Result<Transfer, ErrorClass>,
    ) -> Result<Status, ErrorClass> {
        let (device, mut buffered) = (&mut state.device, lock(&self.0));
        buffered.reserve(device, bytes)?;
        let mut transfer = begin(device)?;
        // Of those that wait in the room nobody will be told.
        if let Some(status) = transfer.poll(device) {
            return Ok(status);
        }
        buffered.add(device, transfer, bytes);
        Ok(Status::EMPTY)
    }

    /// What waits until all in it has gone, if there is anything.
    pub(super) fn flushing(&self) -> Option<Box<dyn Run>> {
        let buffered = lock(&self.0);
        let flushing = || -> Box<dyn Run> { Box::new(Flushing { room: self.clone(), number: buffered.count }) };
        (!buffered.sent.is_empty()).then(flushing)
    }
}

impl Buffered {
    fn detach(&mut self, device: &mut Device) -> Option<Result<usize, ErrorClass>> {
        let Some(capacity) = self.capacity else { return Some(Err(ErrorClass::Buffer)) };
        self.reap(device);
        self.sent.is_empty().then(|| {
            self.capacity = None;
            Ok(capacity)
        })
    }

    fn is_flushed(&mut self, device: &mut Device, number: u64) -> bool {
        self.reap(device);
        self.sent.first().is_none_or(|oldest| oldest.number >= number)
    }

    /// Whether a message of so many bytes has room; those that have gone make some, as far as their receivers were heard.
    fn reserve(&mut self, device: &mut Device, bytes: usize) -> Result<(), ErrorClass> {
        let fits =
            |used: usize, capacity: usize| bytes.checked_add(used + OVERHEAD).is_some_and(|needed| needed <= capacity);
        let capacity = self.capacity.ok_or(ErrorClass::Buffer)?;
        if !fits(self.used, capacity) {
            device.flush();
            self.reap(device);
            for _ in 0..TURNS {
                // A receiver may have said already that it has taken one, behind what others have said.
                if fits(self.used, capacity) || !device.progress() {
                    break;
                }
                self.reap(device);
            }
        }
        if fits(self.used, capacity) { Ok(()) } else { Err(ErrorClass::Buffer) }
    }

    /// A message in reserved room.
    fn add(&mut self, device: &mut Device, transfer: Transfer, bytes: usize) {
        // In unbounded room none would ever be looked for. Twice what was left the last time, so each is looked at a few times.
        if self.sent.len() >= self.reap_at {
            self.reap(device);
            self.reap_at = REAP_LEAST.max(2 * self.sent.len());
        }
        self.used += bytes + OVERHEAD;
        self.sent.push(Sent { transfer, bytes, number: self.count });
        self.count += 1;
    }

    fn reap(&mut self, device: &mut Device) {
        let used = &mut self.used;
        self.sent.retain_mut(|Sent { transfer, bytes, .. }| {
            let under_way = transfer.poll(device).is_none();
            if !under_way {
                *used -= *bytes + OVERHEAD;
            }
            under_way
        });
    }
}

/// Fewer wait without being looked through.
const REAP_LEAST: usize = 64;

impl Run for Flushing {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        lock(&self.room.0).is_flushed(device, self.number).then_some(Status::EMPTY)
    }

    fn context(&self) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::Config;
    use crate::comm::{BUFFER_AUTOMATIC, in_threads};

    #[test]
    fn what_was_received_out_of_unbounded_room_is_given_back() {
        in_threads(2, &Config::default(), false, |world| {
            let (mut long, mut word) = (vec![7u8; 100_000], [0u8]);
            if world.rank() == 0 {
                world.attach_buffer(BUFFER_AUTOMATIC).unwrap();
            }
            for _ in 0..5 * REAP_LEAST {
                if world.rank() == 0 {
                    world.bsend(&long, 1, 0).unwrap();
                    world.recv(&mut word, 1, 1).unwrap();
                    assert!(lock(&world.local().room().0).sent.len() <= REAP_LEAST);
                } else {
                    world.recv(&mut long, 0, 0).unwrap();
                    world.send(&word, 0, 1).unwrap();
                }
            }
            if world.rank() == 0 {
                assert_eq!(world.detach_buffer(), Ok(BUFFER_AUTOMATIC));
            }
        });
    }
}
