//! Calls that are made of others: what fails in them is told once, to the error handler of the communicator that the program called.

use std::cell::Cell;

use super::{Communicator, ErrorClass};

thread_local! {
    /// This thread is in a part of such a call.
    static IN_PART: Cell<bool> = const { Cell::new(false) };
}

impl Communicator {
    /// Makes a call of others, on any communicators. Of their error handlers none runs before all that the call has begun is left behind,
    /// since handlers may call MPI: then this communicator's does, unless this is itself a part of another call.
    pub(super) fn compound<T>(&self, parts: impl FnOnce() -> Result<T, ErrorClass>) -> Result<T, ErrorClass> {
        let done = {
            let _end = End(IN_PART.replace(true));
            parts()
        };
        done.map_err(|class| self.fail(class))
    }
}

/// Whether somebody else tells of what fails here.
pub(super) fn is_part() -> bool {
    IN_PART.get()
}

/// Also of one that panics.
struct End(bool);

impl Drop for End {
    fn drop(&mut self) {
        IN_PART.set(self.0);
    }
}
