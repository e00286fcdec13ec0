//! What is done when a call fails (MPI-4.1 9.3).

use std::fmt;
use std::sync::Arc;

use super::{Communicator, ErrorCode};

/// What is done when a call on an `O` fails, before it returns the error (MPI-4.1 9.3).
#[derive(Default)]
pub enum ErrorHandler<O = Communicator> {
    /// Nothing: the caller sees the error. The default here; `MPI_ERRORS_ARE_FATAL` is C's.
    #[default]
    Return,
    /// [`Communicator::abort`] with code 1 (`MPI_ERRORS_ARE_FATAL` and `MPI_ERRORS_ABORT`); where others have failed only this process
    /// ends, and what becomes of the job is for the launcher.
    Abort,
    /// A function of the program's.
    Call(Arc<HandlerFn<O>>),
}

/// Is told which object's call failed, and what went wrong: calls say one of the standard's classes, and the program says what it likes
/// ([`Communicator::call_error_handler`]).
pub type HandlerFn<O = Communicator> = dyn Fn(&O, ErrorCode) + Send + Sync;

impl<O> Clone for ErrorHandler<O> {
    fn clone(&self) -> Self {
        match self {
            Self::Return => Self::Return,
            Self::Abort => Self::Abort,
            Self::Call(function) => Self::Call(Arc::clone(function)),
        }
    }
}

impl<O> fmt::Debug for ErrorHandler<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Return => "Return",
            Self::Abort => "Abort",
            Self::Call(_) => "Call(..)",
        })
    }
}
