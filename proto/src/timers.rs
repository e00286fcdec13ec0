//! The timers of one connection: a table indexed by what they are for.

use sidelane_nic::time::Instant;

use crate::hint::seldom;

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Timer {
    /// Nothing was acknowledged for long: ask, then count everything as lost.
    Retransmit,
    /// A frame was overtaken, and may only be late.
    Reorder,
    /// An ack was kept back.
    Ack,
    /// The window is less than a frame, and the next one has to wait.
    Pace,
    /// Hello again; is the peer alive; forget a closed connection.
    Life,
}

/// When each timer fires; never, if it does not run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timers {
    due: [Instant; Self::COUNT],
    /// A timer was set since [`Self::take_change`]. One that was stopped fires early, for nothing, and that is all.
    changed: bool,
}

impl Timers {
    const COUNT: usize = 5;

    /// No timer runs.
    pub const fn new() -> Self {
        Self { due: [Instant::FAR_FUTURE; Self::COUNT], changed: true }
    }

    /// Starts `timer`, or moves it.
    #[inline]
    pub fn set(&mut self, timer: Timer, at: Instant) {
        self.due[timer as usize] = at;
        self.changed = true;
    }

    /// True when `timer` does not run.
    #[inline]
    pub fn is_idle(&self, timer: Timer) -> bool {
        self.due[timer as usize] == Instant::FAR_FUTURE
    }

    /// Stops `timer`.
    #[inline]
    pub fn stop(&mut self, timer: Timer) {
        self.due[timer as usize] = Instant::FAR_FUTURE;
    }

    /// Stops `timer` and says so, if it is due at `now`.
    pub fn fire(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.due[timer as usize] <= now;
        if due {
            self.stop(timer);
        }
        due
    }

    /// When the next timer fires, if that may have changed.
    #[inline]
    pub fn take_change(&mut self) -> Option<Instant> {
        if seldom(self.changed) {
            self.changed = false;
            return Some(self.next());
        }
        None
    }

    /// When the next timer fires.
    #[inline]
    pub fn next(&self) -> Instant {
        let [a, b, c, d, e] = self.due;
        a.min(b).min(c.min(d)).min(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Timer; Timers::COUNT] = [Timer::Retransmit, Timer::Reorder, Timer::Ack, Timer::Pace, Timer::Life];

    proptest! {
        /// Against the simple model: a time or none for each.
        #[test]
        fn each_timer_fires_once_when_it_is_due(steps in proptest::collection::vec((0usize..Timers::COUNT, 0u8..4, 0u64..100), 1..200)) {
            let mut timers = Timers::new();
            let mut model = [None; Timers::COUNT];
            let mut known = timers.take_change().expect("it is new");
            for (which, what, nanos) in steps {
                let (timer, at) = (ALL[which], Instant::from_nanos(nanos));
                match what {
                    0 | 1 => {
                        timers.set(timer, at);
                        model[which] = Some(at);
                    }
                    2 => {
                        timers.stop(timer);
                        model[which] = None;
                    }
                    _ => {
                        let due = model[which].is_some_and(|due| due <= at);
                        prop_assert_eq!(timers.fire(timer, at), due);
                        if due {
                            model[which] = None;
                        }
                    }
                }
                prop_assert_eq!(timers.is_idle(timer), model[which].is_none());
                let next = model.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE);
                prop_assert_eq!(timers.next(), next);
                // Who looks only at changes never misses a timer: what it knows is never later.
                known = timers.take_change().unwrap_or(known);
                prop_assert!(known <= next);
            }
        }
    }
}
