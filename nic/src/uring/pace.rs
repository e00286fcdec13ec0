//! When to look at the ring again while trains come.
//!
//! A train is cut on its sender's core, which writes frame after frame into our ring, each in about a microsecond. A reader that has
//! caught up, and looks for the next one, takes the lines away that are being written, and each frame takes a fifth longer
//! (`bench/NOTES.md` 67). So it rests, for a share of the time in which they have come.

use crate::time::{Duration, Instant};

/// How a reader keeps behind the trains that come.
#[derive(Debug)]
pub struct Pace {
    /// Frames that came one behind the other, until now or some time ago.
    frames: u32,
    /// When the last of them was shown.
    last: Instant,
    /// When to look again.
    until: Instant,
    /// Times that it was too early.
    rested: u64,
}

impl Pace {
    /// No train comes.
    pub const START: Self = Self { frames: 0, last: Instant::ZERO, until: Instant::ZERO, rested: 0 };

    /// True when it is too early to look. `now` is asked only while trains come.
    #[inline]
    pub fn rests(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.frames == 0 {
            return false;
        }
        let now = now();
        // Longer than it rests is a clock that went back.
        let rests = now < self.until && self.until.since(now) <= REST_MAX;
        self.rested += u64::from(rests);
        rests
    }

    /// Times so far that it was too early.
    pub const fn rested(&self) -> u64 {
        self.rested
    }

    /// So many `frames` of trains were shown; `more` wait.
    #[inline]
    pub fn on_shown(&mut self, frames: u32, more: bool, now: Instant) {
        // Those before are another train's when nobody has looked for so long.
        if now.since(self.last.max(self.until)) > GAP_MAX {
            self.frames = 0;
        }
        self.frames = self.frames.saturating_add(frames);
        (self.last, self.until) = (now, now);
        if !more {
            self.rest(now);
        }
    }

    /// It has looked, and nothing was there. `now` is asked only while trains come.
    #[inline]
    pub fn on_nothing(&mut self, now: impl FnOnce() -> Instant) {
        if self.frames == 0 {
            return;
        }
        let now = now();
        if now.since(self.last) > GAP_MAX {
            self.frames = 0;
        } else {
            self.rest(now);
        }
    }

    fn rest(&mut self, now: Instant) {
        self.until = now + REST_PER_FRAME.saturating_mul(u64::from(self.frames)).min(REST_MAX);
    }
}

/// A seventh of what a frame takes to come. (These three: `bench/NOTES.md` 67.)
const REST_PER_FRAME: Duration = Duration::from_nanos(150);
/// Longer ones make trains no faster.
const REST_MAX: Duration = Duration::from_micros(8);
/// Between two trains of one stream, and less than it takes to send a short train back and get another.
const GAP_MAX: Duration = Duration::from_micros(4);

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant::from_nanos(1_000_000);

    fn never() -> Instant {
        panic!("the time was asked for")
    }

    fn after(nanos: u64) -> Instant {
        AT + Duration::from_nanos(nanos)
    }

    /// Whether it rests for so long from `at` on.
    fn rests_for(pace: &mut Pace, at: Instant, nanos: u64) -> bool {
        let end = at + Duration::from_nanos(nanos);
        pace.rests(|| Instant::from_nanos(end.as_nanos() - 1)) && !pace.rests(|| end)
    }

    #[test]
    fn who_has_caught_up_rests_for_a_share_of_the_time_in_which_frames_came() {
        let mut pace = Pace::START;
        assert!(!pace.rests(never));
        pace.on_shown(1, false, AT);
        assert!(rests_for(&mut pace, AT, 150));
        pace.on_shown(32, true, AT);
        assert!(!pace.rests(|| AT), "more wait");
        pace.on_shown(7, false, AT);
        assert!(rests_for(&mut pace, AT, 40 * 150));
        pace.on_shown(u32::MAX, false, AT);
        assert!(rests_for(&mut pace, AT, 8_000));
    }

    #[test]
    fn a_look_in_vain_ends_it_when_nothing_has_come_for_a_gap() {
        let mut pace = Pace::START;
        pace.on_nothing(never);
        pace.on_shown(10, false, AT);
        pace.on_nothing(|| after(4_000));
        assert!(rests_for(&mut pace, after(4_000), 1_500), "a train that is late is still one");
        pace.on_nothing(|| after(4_001));
        assert!(!pace.rests(never));
    }

    #[test]
    fn who_has_not_looked_for_a_gap_begins_anew() {
        let mut pace = Pace::START;
        pace.on_shown(40, false, AT);
        // A rest is no gap.
        pace.on_shown(10, false, after(6_000));
        assert!(rests_for(&mut pace, after(6_000), 7_500));
        pace.on_shown(1, false, after(1_000_000));
        assert!(rests_for(&mut pace, after(1_000_000), 150));
    }

    #[test]
    fn a_clock_that_goes_back_keeps_nobody_from_looking() {
        let mut pace = Pace::START;
        pace.on_shown(100, false, AT);
        assert!(!pace.rests(|| Instant::from_nanos(AT.as_nanos() - 1)));
    }
}
