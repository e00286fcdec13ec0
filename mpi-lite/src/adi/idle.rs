//! What a process does that waits: spins, lets others run, sleeps.
//!
//! A message that comes soon is met by spinning. With more processes than cores whoever is waited for needs the core:
//! then it is let go at once, and a process that still waits sleeps until its port has news.

use sidelane_nic::clock;
use sidelane_nic::time::{Duration, Instant};

use super::config::Patience;
use super::port::Port;

/// Turns without news, of one wait.
#[derive(Debug, Default)]
pub struct Idle {
    turns: u32,
    /// Turns that brought something, which was not what is waited for.
    news: u32,
    /// When it had let others run for the first time.
    giving_way: Option<Instant>,
}

impl Idle {
    /// Nothing was waited for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Of who has waited elsewhere already: sleeps at once.
    pub fn tired() -> Self {
        Self { turns: u32::MAX / 2, ..Self::default() }
    }

    /// News came: the next turns are spun again. True once in a while.
    #[inline]
    pub(super) const fn reset(&mut self) -> bool {
        self.turns = 0;
        self.giving_way = None;
        self.news = self.news.wrapping_add(1);
        self.news.is_multiple_of(SELDOM)
    }

    /// True before the first sleep of a wait.
    #[inline]
    pub(super) const fn is_tired(&self, patience: Patience) -> bool {
        self.turns == patience.spin.saturating_add(patience.yields)
    }

    /// A turn brought nothing, and others run after it.
    pub(super) fn count(&mut self, patience: Patience) {
        self.turns = self.turns.saturating_add(1);
        self.give_way_no_longer(patience);
    }

    /// Others may take a time slice each whenever they are let run: then a few such turns are as good as all before a sleep.
    fn give_way_no_longer(&mut self, patience: Patience) {
        let before_sleep = patience.spin.saturating_add(patience.yields);
        if self.turns < before_sleep && self.turns.is_multiple_of(LOOKS_AT_CLOCK) {
            let now = clock::monotonic();
            if now.since(*self.giving_way.get_or_insert(now)) >= GIVES_WAY_MAX {
                self.turns = before_sleep;
            }
        }
    }

    /// Once in a while among turns in which others would sleep.
    pub(super) fn is_due(&self, patience: Patience) -> bool {
        self.has_slept(patience) && self.turns.is_multiple_of(SELDOM)
    }

    /// A turn brought nothing.
    #[inline]
    pub(super) fn pass(&mut self, patience: Patience, ports: &mut [Port]) {
        self.turns = self.turns.saturating_add(1);
        if self.turns <= patience.spin {
            std::hint::spin_loop();
        } else {
            self.pass_slowly(patience, ports);
        }
    }

    /// Whether the last turn was slept through.
    #[inline]
    pub(super) fn has_slept(&self, patience: Patience) -> bool {
        self.turns > patience.spin.saturating_add(patience.yields)
    }

    #[cold]
    fn pass_slowly(&mut self, patience: Patience, ports: &mut [Port]) {
        if self.turns <= patience.spin.saturating_add(patience.yields) {
            std::thread::yield_now();
            self.give_way_no_longer(patience);
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

/// Turns of who does not sleep that cost little beside one question to the system, a microsecond.
pub(super) const SELDOM: u32 = 64;
/// Turns between two looks at the clock of who lets others run.
const LOOKS_AT_CLOCK: u32 = 8;
/// From when on who waits sleeps, however few its turns were. 16 processes on two cores are all done with a turn in 30 us.
const GIVES_WAY_MAX: Duration = Duration::from_millis(20);
/// Longest sleep at one of two ports: what a message at the other one may be late, a few time slices of the kernel's.
const SLICE: Duration = Duration::from_micros(500);
/// Longest sleep at the only port: its news wake us, this is only how long a mistake would last.
const ALONE: Duration = Duration::from_millis(100);
