//! How long an engine that has nothing to do looks for work before it sleeps.

use sidelane_nic::time::{Duration, Instant};

/// Spinning pays as long as work comes sooner than a sleeper is awake. So a sleep that was short makes the next spin longer, a long
/// one makes it shorter: who has little traffic burns little.
pub(super) struct Idle {
    /// Turns without work.
    turns: u32,
    since: Instant,
    limit: Duration,
}

impl Idle {
    pub fn new() -> Self {
        Self { turns: 0, since: Instant::ZERO, limit: SPIN_MAX }
    }

    /// There was work.
    #[inline]
    pub fn on_work(&mut self) {
        self.turns = 0;
    }

    /// There was none. True when it is time to sleep.
    #[inline]
    pub fn on_none(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.turns += 1;
        if self.turns == 1 {
            self.since = now();
            return false;
        }
        self.turns.is_multiple_of(LOOK_TURNS) && now().since(self.since) >= self.limit
    }

    /// A sleep has lasted for `slept`.
    pub fn on_wake(&mut self, slept: Duration) {
        self.limit = if slept < SPIN_MAX {
            self.limit.saturating_mul(2).min(SPIN_MAX)
        } else {
            Duration::from_nanos(self.limit.as_nanos() / 2).max(SPIN_MIN)
        };
        self.turns = 0;
    }
}

/// About what a wake-up takes, from the call that wakes to the first turn (`bench/NOTES.md`, "Engine mode"): who spins for as
/// long as a sleep costs never pays more than twice the best.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// Some turns, so that an answer which comes at once finds the engine awake.
const SPIN_MIN: Duration = Duration::from_micros(5);
/// Turns between two looks at the clock.
const LOOK_TURNS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_spins_long_where_sleeps_are_short_and_briefly_where_they_are_long() {
        let mut idle = Idle::new();
        let spun = |idle: &mut Idle| {
            let mut now = 0;
            idle.on_work();
            while !idle.on_none(|| Instant::from_nanos(now)) {
                now += 100;
            }
            now
        };
        for _ in 0..10 {
            idle.on_wake(Duration::from_millis(1));
        }
        assert!(spun(&mut idle) < 10_000);
        for _ in 0..10 {
            idle.on_wake(Duration::from_micros(10));
        }
        assert!((50_000..60_000).contains(&spun(&mut idle)));
    }
}
