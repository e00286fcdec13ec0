//! A while between two looks at a ring that another process writes.
//!
//! Who looks while a frame is being written takes the lines away that its writer is about to write to, and the frame comes later for it
//! (`bench/NOTES.md` 74). Cards write by themselves and lose no time.

use std::hint::spin_loop;
use std::sync::OnceLock;

use crate::clock;
use crate::time::Duration;

/// Taken before a look, if the one before was in vain and nothing was sent since.
#[derive(Debug)]
pub struct Rest {
    /// As long as it takes, in what the processor is told of a loop that waits: to read the clock meanwhile gained less.
    pauses: u32,
    was_in_vain: bool,
}

impl Rest {
    /// None.
    pub const NONE: Self = Self { pauses: 0, was_in_vain: false };

    /// Between looks at a ring of another process.
    pub fn of_pairs() -> Self {
        static PAUSES: OnceLock<u32> = OnceLock::new();
        let pauses = *PAUSES.get_or_init(|| pauses(pause_of(|| clock::monotonic().as_nanos(), spin_loop)));
        Self { pauses, ..Self::NONE }
    }

    /// Lets the while pass.
    #[inline]
    pub fn take(&self) {
        if self.was_in_vain {
            (0..self.pauses).for_each(|_| spin_loop());
        }
    }

    /// Whether a look found something.
    #[inline]
    pub const fn on_look(&mut self, found: bool) {
        self.was_in_vain = !found;
    }

    /// So many frames were sent, and an answer may be there at once.
    #[inline]
    pub const fn on_sent(&mut self, frames: usize) {
        self.was_in_vain &= frames == 0;
    }
}

/// Nanoseconds that `SAMPLE` pauses take: the least of some, since an interrupt in one of them is none of it.
fn pause_of(now: impl Fn() -> u64, pause: impl Fn()) -> u64 {
    let sample = |_| {
        let from = now();
        (0..SAMPLE).for_each(|_| pause());
        now().saturating_sub(from)
    };
    (0..SAMPLES).map(sample).min().unwrap_or(0)
}

/// How many make up the rest, where `SAMPLE` of them take so many nanoseconds.
const fn pauses(sample: u64) -> u32 {
    // Quicker ones than any processor has are a clock that stands still.
    let sample = if sample < SAMPLE as u64 { SAMPLE as u64 } else { sample };
    (LENGTH.as_nanos() * SAMPLE as u64 / sample) as u32
}

/// Half round trips of 8 B are shortest with one between 60 and 160 ns.
const LENGTH: Duration = Duration::from_nanos(90);
const SAMPLE: u32 = 64;
const SAMPLES: u32 = 8;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn it_is_as_long_whatever_a_pause_takes() {
        for (nanos, expected) in [(10, 9), (43, 2), (90, 1), (100, 0), (1, 90), (0, 90)] {
            let time = Cell::new(0);
            let pause = || time.set(time.get() + nanos);
            assert_eq!(pauses(pause_of(|| time.get(), pause)), expected, "of {nanos} ns");
        }
    }

    #[test]
    fn an_interrupt_is_no_pause() {
        let (time, count) = (Cell::new(0), Cell::new(0));
        let pause = || {
            count.set(count.get() + 1);
            time.set(time.get() + if count.get() == 5 { 1_000_000 } else { 10 });
        };
        assert_eq!(pauses(pause_of(|| time.get(), pause)), 9);
    }

    #[test]
    fn it_follows_a_look_in_vain_until_something_is_found_or_sent() {
        let mut rest = Rest::of_pairs();
        assert!(!rest.was_in_vain);
        rest.on_look(false);
        assert!(rest.was_in_vain);
        rest.on_look(true);
        assert!(!rest.was_in_vain);
        rest.on_look(false);
        rest.on_sent(0);
        assert!(rest.was_in_vain);
        rest.on_sent(1);
        assert!(!rest.was_in_vain);
    }
}
