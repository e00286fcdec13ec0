//! The job's end: before all ranks are through, and what comes first when they are.

use std::fmt;
use std::sync::OnceLock;

use crate::adi::Device;

use super::Communicator;

/// Asks whoever started the job to end it, with an exit code and the reason.
pub(crate) type AbortFn = dyn Fn(i32, &str) + Send + Sync;

/// The way to whoever started the job, if there is one.
#[derive(Default)]
pub(super) struct Abort(OnceLock<Box<AbortFn>>);

impl Communicator {
    /// Ends this process, and the whole job, whoever else is in this communicator, with exit code `code`: 1 for one of which
    /// the kernel would make 0, as it keeps 8 bits (`MPI_Abort`, MPI-4.1 9.3). The reason is told here and by the launcher.
    ///
    /// Returns to nobody: what is on the stack is not dropped. Without a launcher, as of [`Communicator::world`], only this process ends.
    pub fn abort(&self, code: i32, why: &str) -> ! {
        // First: the launcher may end this process as soon as it is asked.
        self.say_why(why);
        if let Some(ask) = self.local().abort().0.get() {
            ask(code, why);
        }
        std::process::exit(if code & 0xff == 0 { 1 } else { code })
    }

    /// Ends this process alone with exit code 1.
    pub(super) fn leave(&self, why: &str) -> ! {
        self.say_why(why);
        std::process::exit(1)
    }

    fn say_why(&self, why: &str) {
        eprintln!("rank {} of {}: {why}", self.rank(), self.title());
    }

    /// How [`Self::abort`] asks for the job's end.
    pub(crate) fn aborts_by(&self, ask: Box<AbortFn>) {
        let first = self.local().abort().0.set(ask);
        assert!(first.is_ok(), "a process is started once");
    }

    /// Ends communication: gives the device back to who ends the job. Nothing is under way, and nothing is called on any
    /// communicator afterwards.
    pub(crate) fn into_device(self) -> Device {
        self.delete_own_attributes();
        self.local().take_device()
    }

    /// What comes first at a job's end: the attributes of the process's own communicator are deleted, whose callbacks may still
    /// communicate (MPI-4.1 11.2.4).
    pub(crate) fn delete_own_attributes(&self) {
        if let Some(own) = self.local().own() {
            // An error has gone to its handler, and keeps nobody from ending.
            let _ = own.free();
        }
    }
}

impl fmt::Debug for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Abort").field(&self.0.get().is_some()).finish()
    }
}
