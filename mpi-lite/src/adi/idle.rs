//! What a process does that waits: spins, lets others run, sleeps.
//!
//! A message that comes soon is met by spinning. With more processes than cores whoever is waited for needs the core:
//! then it is let go at once, and a process that still waits sleeps until its port has news.

use sidelane_nic::clock;
use sidelane_nic::time::{Duration, Instant};

use super::config::Patience;
use super::port::Port;
use crate::giving_way::{GivingWay, LOOKS_AT_CLOCK};

/// Turns without news, of one wait.
#[derive(Debug, Default)]
pub struct Idle {
    turns: u32,
    /// Turns that brought something, which was not what is waited for.
    news: u32,
    giving_way: GivingWay,
}

impl Idle {
    /// Nothing was waited for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Of who has waited elsewhere already: sleeps at once.
    pub fn tired() -> Self {
        Self { turns: TIRED, ..Self::default() }
    }

    /// News came: the next turns are spun again. True once in a while.
    #[inline]
    pub(super) const fn reset(&mut self) -> bool {
        self.turns = 0;
        self.giving_way = GivingWay::NOT_YET;
        self.news = self.news.wrapping_add(1);
        self.news.is_multiple_of(SELDOM)
    }

    /// True before the first sleep of a wait.
    #[inline]
    pub(super) const fn is_tired(&self, patience: Patience) -> bool {
        self.turns == patience.turns()
    }

    /// A turn brought nothing, and others run after it.
    pub(super) fn count(&mut self, patience: Patience) {
        self.turns = after(self.turns);
        self.give_way_no_longer(patience, clock::monotonic);
    }

    /// Others may take a time slice each whenever they are let run: then a few such turns are as good as all before a sleep.
    fn give_way_no_longer(&mut self, patience: Patience, now: impl FnOnce() -> Instant) {
        let before_sleep = patience.turns();
        let looks = self.turns < before_sleep && self.turns.is_multiple_of(LOOKS_AT_CLOCK);
        if looks && self.giving_way.is_enough(now()) {
            self.turns = before_sleep;
        }
    }

    /// Once in a while among turns in which others would sleep.
    pub(super) fn is_due(&self, patience: Patience) -> bool {
        self.has_slept(patience) && self.turns.is_multiple_of(SELDOM)
    }

    /// A turn brought nothing.
    #[inline]
    pub(super) fn pass(&mut self, patience: Patience, ports: &mut [Port]) {
        self.turns = after(self.turns);
        if self.turns <= patience.spin {
            if self.turns > UNPAUSED {
                std::hint::spin_loop();
            }
        } else {
            self.pass_slowly(patience, ports);
        }
    }

    /// Whether nothing has come for so long that the next turn would be slept through.
    pub(crate) fn has_waited_long(&self, patience: Patience) -> bool {
        self.turns >= patience.turns()
    }

    /// Whether the last turn was slept through.
    #[inline]
    pub(super) fn has_slept(&self, patience: Patience) -> bool {
        self.turns > patience.turns()
    }

    #[cold]
    fn pass_slowly(&mut self, patience: Patience, ports: &mut [Port]) {
        if self.turns <= patience.turns() {
            std::thread::yield_now();
            self.give_way_no_longer(patience, clock::monotonic);
            return;
        }
        // One port after the other: whoever speaks at the other one is heard a slice later.
        let slice = if ports.len() == 1 { ALONE } else { SLICE };
        let at = self.turns as usize % ports.len().max(1);
        if let Some(port) = ports.get_mut(at) {
            let until = port.now() + slice;
            if let Err(error) = port.wait(Some(until)) {
                tracing::debug!(%error, "a driver cannot sleep");
                std::thread::yield_now();
            }
        } else {
            std::thread::yield_now();
        }
    }
}

/// One turn more. Where numbers end it goes on with others at which it sleeps, among which some are due still.
#[inline]
fn after(turns: u32) -> u32 {
    turns.checked_add(1).unwrap_or(TIRED)
}

/// More turns than anybody has patience for.
const TIRED: u32 = u32::MAX / 2;
/// Turns without a pause between them, one or two microseconds: half a round trip of 8 B on `shm` takes 123 ns so, and 132 with
/// pauses from the first turn on (near cores, medians of 7 runs in turns).
const UNPAUSED: u32 = 64;
/// Turns of who does not sleep that cost little beside one question to the system, a microsecond.
pub(super) const SELDOM: u32 = 64;
/// Longest sleep at one of two ports: what a message at the other one may be late, a few time slices of the kernel's.
const SLICE: Duration = Duration::from_micros(500);
/// Longest sleep at the only port: its news wake us, this is only how long a mistake would last.
const ALONE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns before the first sleep, where each takes so long.
    fn turns_of(turn: Duration) -> u32 {
        let patience = Patience { spin: 0, yields: 1_000 };
        let (mut idle, mut now) = (Idle::new(), Instant::ZERO);
        let mut turns = 0;
        while !idle.has_slept(patience) {
            (turns, now) = (turns + 1, now + turn);
            idle.turns += 1;
            idle.give_way_no_longer(patience, || now);
        }
        turns
    }

    /// An hour of turns of a microsecond.
    #[test]
    fn who_stays_awake_for_ever_asks_now_and_then_for_ever() {
        let patience = Patience { spin: 10, yields: 10 };
        let mut idle = Idle { turns: u32::MAX - 1, ..Idle::new() };
        let due = (0..10 * SELDOM).filter(|_| {
            idle.count(patience);
            assert!(idle.has_waited_long(patience) && !idle.is_tired(patience));
            idle.is_due(patience)
        });
        assert!(due.count() >= 9);
    }

    #[test]
    fn who_lets_others_run_for_long_sleeps_after_few_turns() {
        assert_eq!(turns_of(Duration::from_micros(1)), 1_001);
        assert_eq!(turns_of(Duration::from_millis(9)), 17);
        let mut idle = Idle { turns: 8, ..Idle::new() };
        let patience = Patience { spin: 0, yields: 100 };
        idle.give_way_no_longer(patience, || Instant::ZERO);
        idle.reset();
        idle.turns = 8;
        idle.give_way_no_longer(patience, || Instant::ZERO + Duration::from_millis(900));
        assert!(!idle.is_tired(patience), "what was waited for before news came does not count");
    }
}
