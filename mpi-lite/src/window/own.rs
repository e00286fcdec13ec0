//! A window of elements of one type: memory of every rank that all can access.
#![allow(unsafe_code)] // The raw calls take memory by address, and the device.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Mutex;

use crate::adi::lock;
use crate::attribute::{Keyval, Value};
use crate::comm::{Communicator, Equivalence, ErrorClass, ErrorCode, ErrorHandler, Held};
use crate::rma::{self, Operation, RmaError};

use super::begin::{displacement, lent, room};

/// One process's part in a window, and its access to the others' parts (MPI-4.1 12.2). Places are counted in elements. Made by
/// [`Communicator::window`].
///
/// Others' parts are accessed in an [`Epoch`](super::Epoch). One's own part is read and written by [`Self::read`] and [`Self::write`],
/// which copy: others may change it at any time, so it is never borrowed. Which accesses conflict is for the program to see to (MPI-4.1
/// 12.7): what is written by two at once, or read while it is written, is any mixture of their bytes.
///
/// A rank does what others ask of it in its own calls, of this window or of any communicator.
///
/// Several threads may be in calls of it at once (`MPI_THREAD_MULTIPLE`), where the job's communicator allows that: while one waits, for a
/// lock, for posts, in a fence, others go on, and each waits for nothing but what itself has to. An epoch is the process's: all of its
/// threads may use it. What they must not do at the same time is refused with `RmaSync`, and changes nothing: to lock a target whose lock
/// another thread has, waits for or gives back; to open an epoch beside another one; to access anything in an epoch that another thread
/// just opens or ends; to post what is posted. (What begins before its epoch is being ended, and waits for room, may go out behind the end.)
/// [`Self::revoke`] ends the waits of all threads. It is not freed, nor dropped, while one of them is in a call.
///
/// One that is dropped, and not [freed](Self::free), goes on serving the others, by its memory, until the job ends.
pub struct Window<T: Equivalence> {
    /// What it was made of, whose error handler it has until it gets its own.
    made_of: Communicator,
    handler: Mutex<Option<ErrorHandler<Self>>>,
    /// Has the window's contexts, so it outlives the window.
    comm: Communicator,
    raw: rma::Window,
    len: usize,
    elements: PhantomData<T>,
}

impl Communicator {
    /// A window to which this rank gives `len` elements, which are zero at first (`MPI_Win_allocate`). All ranks call it, with the same
    /// `T`; each may give another number. `Comm` between two groups, `NoMem` at all ranks when one has no memory for its part. For who
    /// fails since a process is gone there is none, and for others, who may have it, it is revoked, so that nobody waits there for a rank that
    /// does not.
    ///
    /// The window has the communicator's error handler, until it gets [its own](Window::set_error_handler).
    pub fn window<T: Equivalence>(&self, len: usize) -> Result<Window<T>, ErrorClass> {
        let comm = self.for_window()?;
        let bytes = len.saturating_mul(size_of::<T>());
        let (members, unit) = (comm.members(), size_of::<T>() as u64);
        // SAFETY: the device stays where it is.
        let made = unsafe { comm.with_device(|turns| rma::Window::allocate(turns, members, bytes, unit)) };
        let made = made.inspect_err(|error| {
            if matches!(error, RmaError::Device(_)) {
                comm.revoke();
            }
        });
        let raw = made.map_err(|error| self.fail(error.into()))?;
        Ok(Window::of(self.clone(), comm, raw, len))
    }
}

impl<T: Equivalence> Window<T> {
    pub(super) const fn of(made_of: Communicator, comm: Communicator, raw: rma::Window, len: usize) -> Self {
        Self { made_of, handler: Mutex::new(None), comm, raw, len, elements: PhantomData }
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.comm.rank()
    }

    /// How many ranks it has.
    pub fn size(&self) -> u32 {
        self.comm.size()
    }

    /// Elements of this process's own part.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// This process has given nothing.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A copy of some elements of this process's own part. `RmaRange` of what is not in it.
    ///
    /// It takes a turn before, so that who reads again and again sees what comes.
    ///
    /// # Panics
    ///
    /// When the range ends before it begins.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<T>, ErrorClass>
    where
        T: Default,
    {
        assert!(range.start <= range.end, "the range ends before it begins");
        if range.end > self.len {
            return Err(self.fail(ErrorClass::RmaRange));
        }
        let mut elements = vec![T::default(); range.len()];
        self.read_into(&mut elements, range.start)?;
        Ok(elements)
    }

    /// As [`Self::read`], from `at` on, to memory that is there.
    pub fn read_into(&self, into: &mut [T], at: usize) -> Result<(), ErrorClass> {
        self.turn();
        // SAFETY: `into` is borrowed, and any bytes make valid elements.
        self.call(|raw, _| unsafe { raw.load(room(into, &T::datatype()), displacement(at)) })
    }

    /// Writes elements of this process's own part. `RmaRange`, and nothing is written, if they do not fit there.
    pub fn write(&self, at: usize, elements: &[T]) -> Result<(), ErrorClass> {
        // SAFETY: `elements` are borrowed, and are what the type says.
        self.call(|raw, _| unsafe { raw.store(lent(elements, &T::datatype()), displacement(at)) })
    }

    /// Its name, empty until it is set (MPI-4.1 7.8).
    pub fn name(&self) -> String {
        self.raw.name()
    }

    /// Sets its name, here only.
    pub fn set_name(&self, name: &str) {
        self.raw.set_name(name);
    }

    /// What is stored under a key (MPI-4.1 7.7.3).
    pub fn attribute(&self, key: &Keyval<rma::Window>) -> Option<Value> {
        self.raw.attribute(key)
    }

    /// Stores a value, after the old one was deleted.
    pub fn set_attribute(&self, key: &Keyval<rma::Window>, value: Value) -> Result<(), ErrorClass> {
        self.raw.set_attribute(key, value).map_err(|class| self.fail(class))
    }

    /// Takes a value out; returns whether there was one.
    pub fn delete_attribute(&self, key: &Keyval<rma::Window>) -> Result<bool, ErrorClass> {
        self.raw.delete_attribute(key).map_err(|class| self.fail(class))
    }

    /// What is done when a call on it fails (`MPI_Win_get_errhandler`); `None`: what its communicator has.
    pub fn error_handler(&self) -> Option<ErrorHandler<Self>> {
        lock(&self.handler).clone()
    }

    /// Sets what is done when a call on it fails, here only (`MPI_Win_set_errhandler`). What fails while it is [freed](Self::free) is told
    /// to its communicator.
    pub fn set_error_handler(&self, handler: ErrorHandler<Self>) {
        *lock(&self.handler) = Some(handler);
    }

    /// Runs the error handler, as a call does that fails with this (`MPI_Win_call_errhandler`).
    pub fn call_error_handler(&self, code: impl Into<ErrorCode>) {
        let code = code.into();
        match self.error_handler() {
            None => self.made_of.call_error_handler(code),
            Some(ErrorHandler::Return) => {}
            Some(ErrorHandler::Abort) => self.made_of.abort_by(code),
            Some(ErrorHandler::Call(function)) => function(self, code),
        }
    }

    fn fail(&self, class: ErrorClass) -> ErrorClass {
        match self.error_handler() {
            None => self.made_of.fail(class),
            Some(_) => {
                self.call_error_handler(class);
                class
            }
        }
    }

    /// Ends the window, when all ranks have called this. `RmaSync` when a part was [posted](Self::post) and not waited for.
    ///
    /// Attributes are deleted first. An error of a callback's is told when the window has ended, since the others wait for that.
    pub fn free(self) -> Result<(), ErrorClass> {
        let Self { made_of, comm, raw, .. } = self;
        let deleted = raw.delete_attributes();
        // SAFETY: the device stays where it is.
        let freed = unsafe { comm.with_device(|turns| raw.free(turns)) };
        deleted.and(freed.map_err(ErrorClass::from)).map_err(|class| made_of.fail(class))
    }

    /// Ends whatever waits for another rank in this window, now and later, with `Revoked`, in all its processes (`MPIX_Win_revoke`): the
    /// way out for whoever leaves it while others wait there. It is still to be freed, which fails but for a rank alone, and waits for no
    /// rank to come: only until none reads or writes what is lent to it.
    pub fn revoke(&self) {
        self.comm.revoke();
    }

    /// Whether it was revoked, as far as this process knows (`MPIX_Win_is_revoked`).
    pub fn is_revoked(&self) -> bool {
        self.comm.is_revoked()
    }

    /// One turn of all that is under way, of whoever asks again and again and does not wait.
    pub(super) fn turn(&self) {
        self.comm.turn();
    }

    /// A call of the raw window's; the error handler runs when nothing is locked any more.
    pub(super) fn call<R>(
        &self,
        call: impl FnOnce(&rma::Window, &mut Held) -> Result<R, RmaError>,
    ) -> Result<R, ErrorClass> {
        self.call_quietly(call).map_err(|error| self.fail(error.into()))
    }

    /// The same without the error handler, which may panic, for destructors.
    pub(super) fn call_quietly<R>(
        &self,
        call: impl FnOnce(&rma::Window, &mut Held) -> Result<R, RmaError>,
    ) -> Result<R, RmaError> {
        // SAFETY: the device stays where it is.
        unsafe { self.comm.with_device(|turns| call(&self.raw, turns)) }
    }

    /// An operation that is over when this returns, and needs nothing of what it was lent any more.
    pub(super) fn done(
        &self,
        begin: impl FnOnce(&rma::Window, &mut Held) -> Result<Operation, RmaError>,
    ) -> Result<(), ErrorClass> {
        self.call(|raw, turns| {
            let operation = begin(raw, turns)?;
            raw.wait(turns, operation)
        })
    }
}

impl<T: Equivalence> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements of rank {} of {} in a window", self.len, self.rank(), self.size())
    }
}
