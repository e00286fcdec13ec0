//! The engine's thread: each endpoint has its turn, and when none has anything to do they sleep.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use super::bed::{Bed, rest};
use super::company::Company;
use super::idle::Idle;
use super::place::{Place, Turn};
use super::{Options, why};

pub(super) struct Rounds {
    places: Vec<Box<dyn Place>>,
    /// For all of `places` but the first.
    beds: Vec<Bed>,
    company: Arc<Company>,
    idle: Idle,
    options: Options,
}

impl Rounds {
    pub fn new(company: Arc<Company>, options: Options) -> Self {
        Self { places: Vec::new(), beds: Vec::new(), company, idle: Idle::new(), options }
    }

    /// Until there is no endpoint any more, and none can come.
    pub fn run(mut self) {
        loop {
            self.places.append(&mut self.company.newcomers());
            if self.places.is_empty() {
                if self.company.is_complete() {
                    break;
                }
                thread::park();
            } else if self.round() {
                self.idle.on_work();
            } else if !self.options.spin
                && let Some(first) = self.places.first_mut()
                && self.idle.on_none(|| first.now())
            {
                self.sleep();
            }
        }
    }

    /// One turn of each, so that none waits longer than the others' turns take. True if there was anything to do.
    fn round(&mut self) -> bool {
        let (mut worked, mut at) = (false, 0);
        while let Some(place) = self.places.get_mut(at) {
            let turn = catch_unwind(AssertUnwindSafe(|| place.turn()));
            worked |= !matches!(turn, Ok(Turn::Idle));
            match turn {
                Ok(Turn::Busy | Turn::Idle) => at += 1,
                Ok(Turn::Over) => self.end(at, None),
                // Only the endpoint on which it happened is lost.
                Err(panic) => self.end(at, Some(why(&*panic))),
            }
        }
        worked
    }

    #[cold]
    fn end(&mut self, at: usize, why: Option<String>) {
        let place = self.places.remove(at);
        self.company.leave(&place.bell());
        place.end(why);
    }

    /// Each on its own driver, until one gets up.
    #[cold]
    fn sleep(&mut self) {
        let began = self.places[0].now();
        self.company.lie_down();
        while self.beds.len() + 1 < self.places.len() {
            match Bed::new(Arc::clone(&self.company), self.options.core) {
                Ok(bed) => self.beds.push(bed),
                // The system has no thread for us now: then this one stays awake.
                Err(_) => return,
            }
        }
        let others = self.places.split_off(1);
        let beds = &self.beds[..others.len()];
        beds.iter().zip(others).for_each(|(bed, place)| bed.put(place));
        let mut slept = vec![rest(&mut *self.places[0], &self.company)];
        for bed in beds {
            let (place, rested) = bed.take();
            self.places.push(place);
            slept.push(rested);
        }
        let now = self.places[0].now();
        self.idle.on_wake(now.since(began));
        for (at, slept) in slept.into_iter().enumerate().rev() {
            if let Err(why) = slept {
                self.end(at, Some(why));
            }
        }
    }
}

impl Drop for Rounds {
    /// Only what a panic left here.
    fn drop(&mut self) {
        let newcomers = self.company.newcomers();
        for place in self.places.drain(..).chain(newcomers) {
            place.end(Some("its thread has panicked".into()));
        }
    }
}
