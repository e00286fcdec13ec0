#![allow(unsafe_code)]
//! Messages that are begun again and again (MPI-4.1 3.9). Unsafe, since their memory is lent for all times that they are.

use crate::datatype::Datatype;

use super::pending::{Memory, Pending};
use super::point::Mode;
use super::{Communicator, Destination, ErrorClass, Source, Status};

/// A send or receive with all its arguments, and what was begun of it: inactive, or active from [`Self::start`] to the end of
/// a wait.
#[derive(Debug)]
pub struct Persistent {
    comm: Communicator,
    memory: Memory,
    count: usize,
    datatype: Datatype,
    way: Way,
    active: Pending,
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
    pub unsafe fn send_init(
        &self,
        mode: Mode,
        memory: *const u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        tag: i32,
    ) -> Persistent {
        self.persistent(memory.cast_mut(), count, datatype, Way::Send { mode, to, tag })
    }

    /// A receive into `count` elements, inactive.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` stays while this lives, and nobody else uses it while it is active.
    pub unsafe fn recv_init(
        &self,
        memory: *mut u8,
        count: usize,
        datatype: &Datatype,
        from: Source,
        tag: Option<i32>,
    ) -> Persistent {
        self.persistent(memory, count, datatype, Way::Recv { from, tag })
    }

    fn persistent(&self, memory: *mut u8, count: usize, datatype: &Datatype, way: Way) -> Persistent {
        let (comm, datatype) = (self.clone(), datatype.clone());
        Persistent { comm, memory: Memory(memory), count, datatype, way, active: Pending::Null }
    }
}

impl Persistent {
    /// Begins it. `Request` when it is active already.
    pub fn start(&mut self) -> Result<(), ErrorClass> {
        if self.is_active() {
            return Err(self.comm.fail(ErrorClass::Request));
        }
        let (memory, count, datatype) = (self.memory.0, self.count, &self.datatype);
        // SAFETY: who made it has lent the memory for as long as it is active, and `drop` waits.
        self.active = unsafe {
            match self.way {
                Way::Send { mode, to, tag } => self.comm.start_send(mode, memory, count, datatype, to, tag)?,
                Way::Recv { from, tag } => self.comm.start_recv(memory, count, datatype, from, tag)?,
            }
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
}

/// Its memory is free afterwards: a message that is active is cancelled, or waited for if that comes too late.
impl Drop for Persistent {
    fn drop(&mut self) {
        if self.is_active() {
            let _ = self.comm.local().cancel(&self.active);
            self.comm.local().finish(&mut self.active);
        }
    }
}
