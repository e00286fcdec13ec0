#![allow(unsafe_code)]
//! Devices that come from elsewhere or go elsewhere: what one-sided communication needs of a communicator, and simulations.
//! Unsafe, since who has the device may put another one in its place, or take it to another thread.

use std::sync::Arc;

use crate::adi::Device;
use crate::rma::{Contexts, Members};

use super::context::{ContextIds, Kind};
use super::held::Held;
use super::movable::Movable;
use super::pending::Pending;
use super::running::Run;
use super::{Communicator, ErrorClass, ErrorHandler, Status};

impl Communicator {
    /// As [`Self::world`], also over the simulated fabric.
    ///
    /// # Safety
    /// It and all that is made of it stay on this thread.
    pub unsafe fn simulated(device: Device) -> Self {
        // SAFETY: passed on.
        Self::of_device(unsafe { Movable::on_its_thread(device) }, false, Arc::default())
    }

    /// For a window of all ranks. The communicator is a duplicate that is kept for nothing else, and until the window is freed.
    pub fn members(&self) -> Members {
        let contexts = Contexts {
            requests: self.context(Kind::Point),
            answers: self.context(Kind::Creation),
            collective: self.context(Kind::Collective),
        };
        Members { processes: self.group().processes().into(), rank: self.rank() as usize, contexts }
    }

    /// The same ranks for [`Self::members`].
    pub(crate) fn for_window(&self) -> Result<Self, ErrorClass> {
        self.within_one_group()?;
        let kept = self.create(self.group())?.expect("we are in our own group");
        kept.set_name("a window");
        // What fails in the window is told to that of the communicator.
        kept.set_error_handler(ErrorHandler::Return);
        Ok(kept)
    }

    /// One turn of all that is under way in this process.
    pub(crate) fn turn(&self) {
        let mut state = self.0.local.lock();
        state.device.flush();
        if !state.turn() {
            state.device.pass_by();
        }
    }

    /// What is over when `ask` says how it ended, in a turn of this process: an operation of a window's, say, to be waited for with others
    /// ([`crate::rma::Window::poll`]).
    ///
    /// # Safety
    /// Nothing takes the device away or puts another one in its place.
    pub unsafe fn begin_asking(
        &self,
        ask: impl FnMut(&mut Device) -> Option<Result<(), ErrorClass>> + Send + 'static,
    ) -> Pending {
        Pending::Running(self.0.local.lock().begin_run(Box::new(Asking(ask))))
    }

    /// Does something with this process's device, for a window. While it waits, all that is under way goes on, and other threads'
    /// calls are let in.
    ///
    /// # Safety
    /// Nothing takes the device away or puts another one in its place.
    pub unsafe fn with_device<T>(&self, call: impl FnOnce(&mut Held) -> T) -> T {
        call(&mut self.0.local.hold())
    }
}

struct Asking<F>(F);

impl<F: FnMut(&mut Device) -> Option<Result<(), ErrorClass>> + Send> Run for Asking<F> {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        (self.0)(device).map(|ended| Status { error: ended.err(), ..Status::EMPTY })
    }

    fn context(&self) -> Option<u32> {
        None
    }
}
