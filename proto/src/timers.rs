//! The timers of one connection: a table indexed by what they are for.

use sidelane_nic::time::Instant;

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
    const COUNT: usize = 4;

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
        if !self.changed {
            return None;
        }
        self.changed = false;
        Some(self.next())
    }

    /// When the next timer fires.
    #[inline]
    pub fn next(&self) -> Instant {
        let [a, b, c, d] = self.due;
        a.min(b).min(c.min(d))
    }
}
