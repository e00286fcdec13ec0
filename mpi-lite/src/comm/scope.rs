#![allow(unsafe_code)]
//! Non-blocking calls on borrowed memory: nothing that was begun in a scope outlives it.
//!
//! Unsafe within, since the raw calls are: the scope waits for what its user has not.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::pending::Pending;
use super::point::{Found, Mode};
use super::{Communicator, Destination, Equivalence, ErrorClass, Piece, Source, Status};

/// Where non-blocking calls are begun. Made by [`Communicator::scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    comm: &'scope Communicator,
    pending: RefCell<Vec<Pending>>,
    /// Invariant, so that nobody can pretend that the scope ends earlier than it does.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A call that was begun. Forgotten, it is waited for at the scope's end.
#[derive(Debug)]
pub struct Request<'scope> {
    comm: &'scope Communicator,
    pending: &'scope RefCell<Vec<Pending>>,
    index: usize,
}

impl Communicator {
    /// Runs `body`, which can begin non-blocking calls on memory borrowed from outside of it, and waits for all of them. When `body` fails
    /// or panics, messages that nobody has sent or received by then are cancelled (`MPI_Cancel`): no other rank may know that it should. A
    /// collective call is waited for, and of a long send the receiver's answer.
    ///
    /// The first error of a call that was not waited for is returned.
    pub fn scope<'env, T>(
        &self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<T, ErrorClass>,
    ) -> Result<T, ErrorClass> {
        let scope = Scope { comm: self, pending: RefCell::default(), scope: PhantomData, env: PhantomData };
        let end = End { comm: self, pending: &scope.pending };
        let result = body(&scope)?;
        let failed = end.wait_all();
        drop(end);
        match failed {
            None => Ok(result),
            Some(class) => Err(self.fail(class)),
        }
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Begins a send.
    pub fn send<T: Equivalence>(
        &'scope self,
        data: &'scope [T],
        to: impl Into<Destination>,
        tag: i32,
    ) -> Result<Request<'scope>, ErrorClass> {
        self.send_as(Mode::Standard, data, to, tag)
    }

    /// Begins a send in any mode.
    pub fn send_as<T: Equivalence>(
        &'scope self,
        mode: Mode,
        data: &'scope [T],
        to: impl Into<Destination>,
        tag: i32,
    ) -> Result<Request<'scope>, ErrorClass> {
        // SAFETY: `data` is borrowed for as long as the scope, at whose end the send is over.
        let pending =
            unsafe { self.comm.start_send(mode, data.as_ptr().cast(), data.len(), &T::datatype(), to.into(), tag) };
        Ok(self.add(pending?))
    }

    /// Begins a receive. `data` is seen again after the scope.
    pub fn recv<T: Equivalence>(
        &'scope self,
        data: &'scope mut [T],
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Request<'scope>, ErrorClass> {
        let (memory, count) = (data.as_mut_ptr().cast(), data.len());
        // SAFETY: `data` is borrowed for as long as the scope, at whose end the receive is over.
        let pending = unsafe { self.comm.start_recv(memory, count, &T::datatype(), from.into(), tag.into()) };
        Ok(self.add(pending?))
    }

    /// Begins [`Communicator::send_piece`].
    pub fn send_piece<T: Equivalence>(
        &'scope self,
        data: &'scope [T],
        piece: &Piece,
        to: impl Into<Destination>,
        tag: i32,
    ) -> Result<Request<'scope>, ErrorClass> {
        self.send_piece_as(Mode::Standard, data, piece, to, tag)
    }

    /// Begins [`Communicator::send_piece_as`].
    pub fn send_piece_as<T: Equivalence>(
        &'scope self,
        mode: Mode,
        data: &'scope [T],
        piece: &Piece,
        to: impl Into<Destination>,
        tag: i32,
    ) -> Result<Request<'scope>, ErrorClass> {
        let memory = self.comm.piece_of(data, piece)?;
        // SAFETY: as of `send_as`, and the piece is within `data`.
        let pending = unsafe { self.comm.start_send(mode, memory, piece.count, &piece.datatype, to.into(), tag) };
        Ok(self.add(pending?))
    }

    /// Begins [`Communicator::recv_piece`]. `room` is seen again after the scope.
    pub fn recv_piece<T: Equivalence>(
        &'scope self,
        room: &'scope mut [T],
        piece: &Piece,
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Request<'scope>, ErrorClass> {
        let memory = self.comm.piece_of_mut(room, piece)?;
        // SAFETY: as of `recv`, and the piece is within `room`.
        let pending = unsafe { self.comm.start_recv(memory, piece.count, &piece.datatype, from.into(), tag.into()) };
        Ok(self.add(pending?))
    }

    /// Begins [`Communicator::mrecv`]. `data` is seen again after the scope.
    pub fn mrecv<T: Equivalence>(
        &'scope self,
        found: Found,
        data: &'scope mut [T],
    ) -> Result<Request<'scope>, ErrorClass> {
        let (memory, count) = (data.as_mut_ptr().cast(), data.len());
        // SAFETY: as of `recv`.
        let pending = unsafe { self.comm.start_recv_found(found, memory, count, &T::datatype()) };
        Ok(self.add(pending?))
    }

    /// Waits for any one of what was begun and is not over; `None` when nothing is left. Of this and the next five calls an error is in
    /// its status, and the error handler is told, once a call: the scope's end does not tell of it again.
    pub fn wait_any(&'scope self) -> Option<(usize, Status)> {
        let over = self.comm.local().wait_any(&mut self.pending.borrow_mut());
        self.comm.tell_of(over.iter().map(|(_, status)| status));
        over
    }

    /// Waits for at least one of what is not over: which, and how they ended. `None` when nothing is left.
    pub fn wait_some(&'scope self) -> Option<Vec<(usize, Status)>> {
        let over = self.comm.local().wait_some(&mut self.pending.borrow_mut());
        self.comm.tell_of(over.iter().flatten().map(|(_, status)| status));
        over
    }

    /// Waits for everything that was begun so far. A status each, in the order in which they were begun; an empty one of what was
    /// waited for before.
    pub fn wait_all(&'scope self) -> Vec<Status> {
        let over = self.comm.local().wait_all(&mut self.pending.borrow_mut());
        self.comm.tell_of(&over);
        over
    }

    /// One that is over: `None` if none is, `Some(None)` when nothing is left.
    pub fn test_any(&'scope self) -> Option<Option<(usize, Status)>> {
        let over = self.comm.local().test_any(&mut self.pending.borrow_mut());
        self.comm.tell_of(over.iter().flatten().map(|(_, status)| status));
        over
    }

    /// Those that are over, none or several: which, and how they ended. `None` when nothing is left.
    pub fn test_some(&'scope self) -> Option<Vec<(usize, Status)>> {
        let over = self.comm.local().test_some(&mut self.pending.borrow_mut());
        self.comm.tell_of(over.iter().flatten().map(|(_, status)| status));
        over
    }

    /// As [`Self::wait_all`], if all are over; else nothing has changed.
    pub fn test_all(&'scope self) -> Option<Vec<Status>> {
        let over = self.comm.local().test_all(&mut self.pending.borrow_mut());
        self.comm.tell_of(over.iter().flatten());
        over
    }

    pub(super) const fn communicator(&self) -> &'scope Communicator {
        self.comm
    }

    pub(super) fn add(&'scope self, pending: Pending) -> Request<'scope> {
        let mut all = self.pending.borrow_mut();
        all.push(pending);
        Request { comm: self.comm, pending: &self.pending, index: all.len() - 1 }
    }
}

impl Request<'_> {
    /// Which of the scope's calls it is, counted from 0: what [`Scope::wait_any`] and the others tell.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Waits until it is over.
    pub fn wait(self) -> Result<Status, ErrorClass> {
        let status = self.comm.local().finish(&mut self.pending.borrow_mut()[self.index]);
        self.comm.status(status)
    }

    /// How it ended, if it has; later calls tell nothing any more.
    pub fn test(&mut self) -> Result<Option<Status>, ErrorClass> {
        let status = self.comm.local().test(&mut self.pending.borrow_mut()[self.index]);
        status.map(|status| self.comm.status(status)).transpose()
    }

    /// Asks for the message to be cancelled; to be waited for in any case.
    pub fn cancel(&self) -> Result<(), ErrorClass> {
        let asked = self.comm.local().cancel(&self.pending.borrow()[self.index]);
        asked.map_err(|class| self.comm.fail(class))
    }
}

/// Waits for what is left, in whatever way a scope ends: cancelled first, where it is dropped before it has waited.
struct End<'a> {
    comm: &'a Communicator,
    pending: &'a RefCell<Vec<Pending>>,
}

impl End<'_> {
    /// The first error. All are over also when one goes on with the panic of its operator: then so does this.
    fn wait_all(&self) -> Option<ErrorClass> {
        let (mut error, mut panicked) = (None, None);
        for each in self.pending.borrow_mut().iter_mut() {
            match catch_unwind(AssertUnwindSafe(|| self.comm.local().finish(each))) {
                Ok(status) => error = error.or(status.error),
                Err(panic) => panicked = panicked.or(Some(panic)),
            }
        }
        match panicked {
            Some(panic) if !std::thread::panicking() => resume_unwind(panic),
            _ => error,
        }
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        for each in self.pending.borrow().iter() {
            // A collective call cannot be, and ends with the others'.
            let _ = self.comm.local().cancel(each);
        }
        self.wait_all();
    }
}
