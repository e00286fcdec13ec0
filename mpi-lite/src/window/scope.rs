//! Operations that were begun, on borrowed memory: nothing that was begun in a scope outlives it.
#![allow(unsafe_code)] // The raw calls take memory by address: the scope waits for what its user has not.

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::comm::{Destination, Equivalence, ErrorClass, Held};
use crate::op::Op;
use crate::rma::{self, Operation, RmaError};

use super::{Epoch, Kind, Window, begin};

/// Where operations are begun. Made by [`Epoch::scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope, T: Equivalence> {
    window: &'scope Window<T>,
    /// `None` of those that were waited for.
    begun: RefCell<Vec<Option<Operation>>>,
    /// Invariant, so that nobody can pretend that the scope ends earlier than it does.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// An operation that was begun (`MPI_Rput` and its kin). Forgotten, it is waited for at the scope's end.
#[derive(Debug)]
pub struct Request<'scope, T: Equivalence> {
    window: &'scope Window<T>,
    begun: &'scope RefCell<Vec<Option<Operation>>>,
    index: usize,
}

impl<T: Equivalence, K: Kind> Epoch<'_, T, K> {
    /// Runs `body`, which can begin operations on memory borrowed from outside of it, and waits for all of them, as the calls of the same
    /// names in [`Epoch`] do: also when `body` panics.
    ///
    /// The first error of an operation that was not waited for is returned.
    pub fn scope<'env, R>(
        &self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, T>) -> Result<R, ErrorClass>,
    ) -> Result<R, ErrorClass> {
        let scope = Scope { window: self.window, begun: RefCell::default(), scope: PhantomData, env: PhantomData };
        let end = End { window: self.window, begun: &scope.begun };
        let result = body(&scope)?;
        self.window.call(|raw, turns| end.wait_all(raw, turns))?;
        Ok(result)
    }
}

impl<'scope, T: Equivalence> Scope<'scope, '_, T> {
    /// Begins [`Epoch::put`].
    pub fn put(
        &'scope self,
        data: &'scope [T],
        rank: impl Into<Destination>,
        at: usize,
    ) -> Result<Request<'scope, T>, ErrorClass> {
        let rank = rank.into();
        // SAFETY: `data` is borrowed for as long as the scope, at whose end the operation is over.
        self.add(|raw, turns| unsafe { begin::put(raw, turns, data, rank, at) })
    }

    /// Begins [`Epoch::get`]. `into` is seen again after the scope.
    pub fn get(
        &'scope self,
        into: &'scope mut [T],
        rank: impl Into<Destination>,
        at: usize,
    ) -> Result<Request<'scope, T>, ErrorClass> {
        let rank = rank.into();
        // SAFETY: `into` is borrowed for as long as the scope, at whose end the operation is over.
        self.add(|raw, turns| unsafe { begin::get(raw, turns, into, rank, at) })
    }

    /// Begins [`Epoch::accumulate`].
    pub fn accumulate(
        &'scope self,
        data: &'scope [T],
        rank: impl Into<Destination>,
        at: usize,
        op: &Op,
    ) -> Result<Request<'scope, T>, ErrorClass> {
        let rank = rank.into();
        self.add(|raw, turns| begin::accumulate(raw, turns, data, rank, at, op))
    }

    /// Begins [`Epoch::get_accumulate`]. `before` is seen again after the scope.
    pub fn get_accumulate(
        &'scope self,
        data: &'scope [T],
        before: &'scope mut [T],
        rank: impl Into<Destination>,
        at: usize,
        op: &Op,
    ) -> Result<Request<'scope, T>, ErrorClass> {
        let rank = rank.into();
        // SAFETY: as of `get`.
        self.add(|raw, turns| unsafe { begin::get_accumulate(raw, turns, (data, before), rank, at, op) })
    }

    fn add(
        &'scope self,
        begin: impl FnOnce(&rma::Window, &mut Held) -> Result<Operation, RmaError>,
    ) -> Result<Request<'scope, T>, ErrorClass> {
        let operation = self.window.call(begin)?;
        let mut all = self.begun.borrow_mut();
        all.push(Some(operation));
        Ok(Request { window: self.window, begun: &self.begun, index: all.len() - 1 })
    }
}

impl<T: Equivalence> Request<'_, T> {
    /// Waits until it is over.
    pub fn wait(self) -> Result<(), ErrorClass> {
        let Some(operation) = self.begun.borrow()[self.index] else { return Ok(()) };
        let ended = self.window.call(|raw, turns| raw.wait(turns, operation));
        self.begun.borrow_mut()[self.index] = None;
        ended
    }

    /// Whether it is over, and how it ended; later calls tell nothing but that any more.
    pub fn test(&mut self) -> Result<bool, ErrorClass> {
        let Some(operation) = self.begun.borrow()[self.index] else { return Ok(true) };
        let ended = self.window.call(|raw, turns| raw.test(turns, operation).transpose());
        if ended != Ok(None) {
            self.begun.borrow_mut()[self.index] = None;
        }
        ended.map(|over| over.is_some())
    }
}

/// Waits for what is left, in whatever way a scope ends.
struct End<'a, T: Equivalence> {
    window: &'a Window<T>,
    begun: &'a RefCell<Vec<Option<Operation>>>,
}

impl<T: Equivalence> End<'_, T> {
    /// The first error.
    fn wait_all(&self, raw: &rma::Window, turns: &mut Held) -> Result<(), RmaError> {
        let (mut first, count) = (Ok(()), self.begun.borrow().len());
        for index in 0..count {
            let begun = self.begun.borrow()[index];
            if let Some(operation) = begun {
                first = first.and(raw.wait(turns, operation));
                self.begun.borrow_mut()[index] = None;
            }
        }
        first
    }
}

impl<T: Equivalence> Drop for End<'_, T> {
    fn drop(&mut self) {
        let _ = self.window.call_quietly(|raw, turns| self.wait_all(raw, turns));
    }
}
