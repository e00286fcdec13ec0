//! Collective calls that are begun again and again, with the memory that they use.

use super::persistent::Persistent;
use super::{Equivalence, ErrorClass, Status};

/// A collective call with its arguments (MPI-4.1 6.13), inactive until [`Self::start`]. All ranks make the calls of a communicator in the
/// same order, and begin them in any: unless the communicator had the hint `mpi_assert_strict_persistent_collective_ordering`, `true`,
/// with which those on one host go by shared memory.
#[derive(Debug)]
pub struct Repeated<T> {
    /// Before the memory: what is active when this is dropped is waited for.
    call: Persistent,
    given: Vec<T>,
    room: Vec<T>,
}

impl<T: Equivalence> Repeated<T> {
    pub(super) const fn new(call: Persistent, given: Vec<T>, room: Vec<T>) -> Self {
        Self { call, given, room }
    }

    /// Begins it. `Request` when it is active already.
    pub fn start(&mut self) -> Result<(), ErrorClass> {
        self.call.start()
    }

    /// Waits until it is over.
    pub fn wait(&mut self) -> Result<Status, ErrorClass> {
        self.call.wait()
    }

    /// How it ended, if it has; it is inactive then.
    pub fn test(&mut self) -> Result<Option<Status>, ErrorClass> {
        self.call.test()
    }

    /// For waiting for any of several.
    pub const fn request(&mut self) -> &mut Persistent {
        &mut self.call
    }

    /// What this rank gives next time. `Request` while it is active.
    pub fn given(&mut self) -> Result<&mut [T], ErrorClass> {
        if self.call.is_active() { Err(ErrorClass::Request) } else { Ok(&mut self.given) }
    }

    /// What it got, or gives and gets in one place. `Request` while it is active.
    pub fn room(&mut self) -> Result<&mut [T], ErrorClass> {
        if self.call.is_active() { Err(ErrorClass::Request) } else { Ok(&mut self.room) }
    }
}
