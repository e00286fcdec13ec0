//! Calls that are begun again and again, with the memory that they use.
#![allow(unsafe_code)] // The raw calls take memory by address.

use std::fmt;

use super::persistent::{Persistent, PersistentRef};
use super::point::Mode;
use super::{Communicator, Destination, Equivalence, ErrorClass, Piece, Source, Status};

/// A call with its arguments (MPI-4.1 3.9, 6.13), inactive until [`Self::start`]. All ranks make the collective calls of a communicator in
/// the same order, and begin them in any: unless the communicator had the hint `mpi_assert_strict_persistent_collective_ordering`, `true`,
/// with which those on one host go by shared memory.
pub struct Repeated<T> {
    /// Before the memory: what is active when this is dropped is waited for.
    call: Persistent,
    given: Vec<T>,
    room: Vec<T>,
}

/// Without its memory, which another thread may be writing.
impl<T> fmt::Debug for Repeated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeated").field("call", &self.call).finish_non_exhaustive()
    }
}

impl Communicator {
    /// A send of `data` in any mode, to be begun again and again.
    pub fn send_init<T: Equivalence>(
        &self,
        mode: Mode,
        data: Vec<T>,
        to: impl Into<Destination>,
        tag: i32,
    ) -> Repeated<T> {
        let (memory, count) = (data.as_ptr().cast(), data.len());
        // SAFETY: `Repeated` keeps `data`, where it is, until no send is under way any more.
        let call = unsafe { self.send_init_raw(mode, memory, count, &T::datatype(), to.into(), tag) };
        Repeated::new(call, data, Vec::new())
    }

    /// A receive into `room`, to be begun again and again.
    pub fn recv_init<T: Equivalence>(
        &self,
        mut room: Vec<T>,
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Repeated<T> {
        let (memory, count) = (room.as_mut_ptr().cast(), room.len());
        // SAFETY: as in `send_init`, and any bytes make valid elements.
        let call = unsafe { self.recv_init_raw(memory, count, &T::datatype(), from.into(), tag.into()) };
        Repeated::new(call, Vec::new(), room)
    }

    /// [`Self::send_piece`] in any mode, to be begun again and again.
    pub fn send_piece_init<T: Equivalence>(
        &self,
        mode: Mode,
        data: Vec<T>,
        piece: &Piece,
        to: impl Into<Destination>,
        tag: i32,
    ) -> Result<Repeated<T>, ErrorClass> {
        let memory = self.piece_of(&data, piece)?;
        // SAFETY: as in `send_init`, and the piece is within `data`.
        let call = unsafe { self.send_init_raw(mode, memory, piece.count, &piece.datatype, to.into(), tag) };
        Ok(Repeated::new(call, data, Vec::new()))
    }

    /// [`Self::recv_piece`], to be begun again and again.
    pub fn recv_piece_init<T: Equivalence>(
        &self,
        mut room: Vec<T>,
        piece: &Piece,
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Repeated<T>, ErrorClass> {
        let memory = self.piece_of_mut(&mut room, piece)?;
        // SAFETY: as in `recv_init`, and the piece is within `room`.
        let call = unsafe { self.recv_init_raw(memory, piece.count, &piece.datatype, from.into(), tag.into()) };
        Ok(Repeated::new(call, Vec::new(), room))
    }
}

impl<T: Equivalence> Repeated<T> {
    pub(super) const fn new(call: Persistent, given: Vec<T>, room: Vec<T>) -> Self {
        Self { call, given, room }
    }

    /// Begins it. `Request` when it is active already.
    pub fn start(&mut self) -> Result<(), ErrorClass> {
        self.call.start()
    }

    /// Waits until it is over; at once if it is inactive. It stays active when the error is `ProcFailedPending`, until that failure is
    /// acknowledged or this is dropped.
    pub fn wait(&mut self) -> Result<Status, ErrorClass> {
        self.call.wait()
    }

    /// How it ended, if it has; it is inactive then.
    pub fn test(&mut self) -> Result<Option<Status>, ErrorClass> {
        self.call.test()
    }

    /// Asks for a message that is active to be cancelled; to be waited for in any case, and its status says whether it was. `Request`
    /// while it is inactive, and for collective calls.
    pub fn cancel(&self) -> Result<(), ErrorClass> {
        self.call.cancel()
    }

    /// For beginning several, and waiting for any of them.
    pub const fn request(&mut self) -> PersistentRef<'_> {
        self.call.by_ref()
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
