//! How long who waits lets others run before it sleeps, when their turns are long.

use sidelane_nic::time::{Duration, Instant};

/// Since when a wait lets others run after each of its turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivingWay(Option<Instant>);

impl GivingWay {
    /// Nobody was let run yet.
    pub const NOT_YET: Self = Self(None);

    /// True when it has been long enough, by the first call's time: other programs want the core too, each yield is one of their
    /// time slices, and a thousand are seconds.
    pub fn is_enough(&mut self, now: Instant) -> bool {
        now.since(*self.0.get_or_insert(now)) >= LONG
    }
}

/// Turns between two looks at the clock of who lets others run.
pub const LOOKS_AT_CLOCK: u32 = 8;

/// 16 processes on two cores are all done with a turn in 30 us.
const LONG: Duration = Duration::from_millis(20);
