#![allow(unsafe_code)]
//! What one-sided communication needs of a communicator: contexts and the device. Unsafe, since who has the device may put
//! another one in its place.

use crate::adi::Device;
use crate::rma::{Contexts, Members};

use super::Communicator;
use super::context::Kind;

impl Communicator {
    /// For a window of all ranks. The communicator is a duplicate that is kept for nothing else, and until the window is freed.
    pub fn members(&self) -> Members {
        let contexts = Contexts {
            requests: self.context(Kind::Point),
            answers: self.context(Kind::Creation),
            collective: self.context(Kind::Collective),
        };
        Members { processes: self.group().processes().into(), rank: self.rank() as usize, contexts }
    }

    /// Does something with this process's device, for a window. Other threads' calls wait meanwhile.
    ///
    /// # Safety
    /// Nothing takes the device away or puts another one in its place.
    pub unsafe fn with_device<T>(&self, call: impl FnOnce(&mut Device) -> T) -> T {
        call(&mut self.0.local.lock().device)
    }
}
