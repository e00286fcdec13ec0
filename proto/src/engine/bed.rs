//! A thread on which an endpoint sleeps while the engine's own thread sleeps on another driver.
//!
//! Drivers sleep by different means (a futex, descriptors, an interrupt), which no single system call waits for. So of several endpoints that
//! are all idle the first sleeps on the engine's thread and each other one on such a thread, which stays on the engine's core: who wakes there
//! hands over by a switch of threads, not by waking another core.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use sidelane_nic::affinity;

use super::company::Company;
use super::place::Place;
use super::why;

pub(super) struct Bed {
    /// Taken when the bed is given up.
    there: Option<mpsc::SyncSender<Box<dyn Place>>>,
    back: mpsc::Receiver<Rested>,
    thread: Option<JoinHandle<()>>,
}

/// An endpoint that is awake again, or cannot sleep.
pub(super) type Rested = (Box<dyn Place>, Result<(), String>);

impl Bed {
    /// Without a core of one's choice, on any.
    pub fn new(company: Arc<Company>, core: Option<usize>) -> io::Result<Self> {
        let (there, places) = mpsc::sync_channel::<Box<dyn Place>>(1);
        let (awake, back) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("sidelane-sleeper".into()).spawn(move || {
            // The engine's own thread could be pinned there; on another core this one is slower, not wrong.
            let _ = core.map(affinity::pin_to);
            while let Ok(mut place) = places.recv() {
                let slept = rest(&mut *place, &company);
                if awake.send((place, slept)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { there: Some(there), back, thread: Some(thread) })
    }

    /// Lets an endpoint sleep here. It comes back by [`Self::take`].
    pub fn put(&self, place: Box<dyn Place>) {
        let there = self.there.as_ref().expect("only `drop` takes it");
        there.send(place).expect("the thread lives as long as this");
    }

    /// The endpoint that sleeps here, once it is awake.
    pub fn take(&self) -> Rested {
        self.back.recv().expect("it gives back what it was given")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.there = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sleeps, and then gets everybody up.
pub(super) fn rest(place: &mut dyn Place, company: &Company) -> Result<(), String> {
    let slept = catch_unwind(AssertUnwindSafe(|| place.sleep(company)));
    company.get_up();
    match slept {
        Ok(slept) => slept.map_err(|error| format!("the driver cannot sleep: {error}")),
        Err(panic) => Err(why(&*panic)),
    }
}
