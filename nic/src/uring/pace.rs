//! When to look at the ring again while trains come.
//!
//! A train is cut on its sender's core, which writes frame after frame into our ring, each in about a microsecond. A reader that has
//! caught up, and looks for the next one, takes the lines away that are being written, and each frame takes a fifth longer
//! (`bench/NOTES.md` 67). So it stays away, for a share of the time in which they have come.

use crate::time::{Duration, Instant};

/// How a reader keeps behind the trains that come.
#[derive(Debug)]
pub struct Pace {
    /// Frames since they come one behind the other; none while none come.
    frames: u32,
    /// When the last one was seen.
    last: Instant,
    /// When to look again.
    until: Instant,
}

impl Pace {
    /// No train comes.
    pub const START: Self = Self { frames: 0, last: Instant::ZERO, until: Instant::ZERO };

    /// True when it is too early to look. `now` is asked only while trains come.
    #[inline]
    pub fn is_away(&self, now: impl FnOnce() -> Instant) -> bool {
        self.frames > 0 && now() < self.until
    }

    /// So many `frames` of trains were shown, and those are all that have come.
    #[inline]
    pub fn on_caught_up(&mut self, frames: u32, now: Instant) {
        self.on_shown(frames);
        self.last = now;
        self.leave(now);
    }

    /// So many `frames` of trains were shown, and more have come.
    #[inline]
    pub fn on_shown(&mut self, frames: u32) {
        self.frames = self.frames.saturating_add(frames);
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
            self.leave(now);
        }
    }

    fn leave(&mut self, now: Instant) {
        self.until = now + AWAY_PER_FRAME.saturating_mul(u64::from(self.frames)).min(AWAY_MAX);
    }
}

/// A seventh of what a frame takes to come.
const AWAY_PER_FRAME: Duration = Duration::from_nanos(150);
/// Longer ones make trains no faster.
const AWAY_MAX: Duration = Duration::from_micros(8);
/// Between two trains of one stream, and less than it takes to send a short train back and get another.
const GAP_MAX: Duration = Duration::from_micros(4);

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant::from_nanos(1_000_000);

    fn never() -> Instant {
        panic!("the time was asked for")
    }

    fn is_away_for(pace: &Pace, nanos: u64) -> bool {
        let ends = AT + Duration::from_nanos(nanos);
        pace.is_away(|| Instant::from_nanos(ends.as_nanos() - 1)) && !pace.is_away(|| ends)
    }

    #[test]
    fn who_has_caught_up_stays_away_for_a_share_of_the_time_in_which_frames_came() {
        let mut pace = Pace::START;
        assert!(!pace.is_away(never));
        pace.on_caught_up(1, AT);
        assert!(is_away_for(&pace, 150));
        pace.on_shown(32);
        pace.on_caught_up(7, AT);
        assert!(is_away_for(&pace, 40 * 150));
        pace.on_caught_up(u32::MAX, AT);
        assert!(is_away_for(&pace, 8_000));
    }

    #[test]
    fn a_look_in_vain_ends_it_when_nothing_has_come_for_a_gap() {
        let mut pace = Pace::START;
        pace.on_nothing(never);
        pace.on_caught_up(10, AT);
        let late = AT + GAP_MAX;
        pace.on_nothing(|| late);
        assert!(pace.is_away(|| late), "a train that is late is still one");
        pace.on_nothing(|| late + Duration::from_nanos(1));
        assert!(!pace.is_away(never));
    }
}
