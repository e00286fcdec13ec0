#![allow(unsafe_code)]
//! Point to point on slices. Unsafe within, since the raw calls are.

use super::point::{Found, Mode};
use super::{Communicator, Destination, Equivalence, ErrorClass, Piece, Source, Status};

impl Communicator {
    /// Sends, and returns when `data` is free again: at once, or when it was received.
    #[inline]
    pub fn send<T: Equivalence>(&self, data: &[T], to: impl Into<Destination>, tag: i32) -> Result<(), ErrorClass> {
        self.send_as(Mode::Standard, data, to, tag)
    }

    /// Sends, and returns when a receive has found the message.
    pub fn ssend<T: Equivalence>(&self, data: &[T], to: impl Into<Destination>, tag: i32) -> Result<(), ErrorClass> {
        self.send_as(Mode::Synchronous, data, to, tag)
    }

    /// Copies the message into room that was attached, and returns. `Buffer` when that is full.
    pub fn bsend<T: Equivalence>(&self, data: &[T], to: impl Into<Destination>, tag: i32) -> Result<(), ErrorClass> {
        self.send_as(Mode::Buffered, data, to, tag)
    }

    /// Sends to a receive that is there already.
    pub fn rsend<T: Equivalence>(&self, data: &[T], to: impl Into<Destination>, tag: i32) -> Result<(), ErrorClass> {
        self.send_as(Mode::Ready, data, to, tag)
    }

    /// Sends in any mode.
    #[inline]
    pub fn send_as<T: Equivalence>(
        &self,
        mode: Mode,
        data: &[T],
        to: impl Into<Destination>,
        tag: i32,
    ) -> Result<(), ErrorClass> {
        // SAFETY: `data` is borrowed until this returns, and is what the type says.
        unsafe { self.send_raw(mode, data.as_ptr().cast(), data.len(), &T::datatype(), to.into(), tag) }
    }

    /// Receives a message of at most `data.len()` elements: the status says how many bytes. Of a longer one the front is
    /// received, with `Truncate`.
    #[inline]
    pub fn recv<T: Equivalence>(
        &self,
        data: &mut [T],
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status, ErrorClass> {
        // SAFETY: `data` is borrowed until this returns, and any bytes make valid elements.
        unsafe { self.recv_raw(data.as_mut_ptr().cast(), data.len(), &T::datatype(), from.into(), tag.into()) }
    }

    /// Sends a piece of `data`. `Buffer` if that is not all within it; `Type` of elements with gaps, which have no value.
    pub fn send_piece<T: Equivalence>(
        &self,
        data: &[T],
        piece: &Piece,
        to: impl Into<Destination>,
        tag: i32,
    ) -> Result<(), ErrorClass> {
        self.send_piece_as(Mode::Standard, data, piece, to, tag)
    }

    /// As [`Self::send_piece`], in any mode.
    pub fn send_piece_as<T: Equivalence>(
        &self,
        mode: Mode,
        data: &[T],
        piece: &Piece,
        to: impl Into<Destination>,
        tag: i32,
    ) -> Result<(), ErrorClass> {
        let memory = self.piece_of(data, piece)?;
        // SAFETY: the piece is within `data`, which is borrowed until this returns.
        unsafe { self.send_raw(mode, memory, piece.count, &piece.datatype, to.into(), tag) }
    }

    /// Receives into a piece of `room`, which is refused as by [`Self::send_piece`]. What is beside it stays as it is.
    pub fn recv_piece<T: Equivalence>(
        &self,
        room: &mut [T],
        piece: &Piece,
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status, ErrorClass> {
        let memory = self.piece_of_mut(room, piece)?;
        // SAFETY: the piece is within `room`, which is borrowed until this returns, and any bytes make valid elements.
        unsafe { self.recv_raw(memory, piece.count, &piece.datatype, from.into(), tag.into()) }
    }

    /// Receives a message of any length.
    pub fn recv_vec<T: Equivalence + Default>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<(Vec<T>, Status), ErrorClass> {
        let (found, status) = self.mprobe(from, tag)?;
        let size = T::datatype().size().max(1);
        let mut data = vec![T::default(); status.bytes.div_ceil(size)];
        let status = self.mrecv(found, &mut data)?;
        data.truncate(status.bytes / size);
        Ok((data, status))
    }

    /// Receives the message that a matched probe has found.
    pub fn mrecv<T: Equivalence>(&self, found: Found, data: &mut [T]) -> Result<Status, ErrorClass> {
        // SAFETY: `data` is borrowed until this returns, which it does when the receive is over.
        let pending = unsafe { self.start_recv_found(found, data.as_mut_ptr().cast(), data.len(), &T::datatype()) };
        self.status(self.local().finish(&mut pending?))
    }
}
