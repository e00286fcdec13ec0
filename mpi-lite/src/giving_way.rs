//! What calls do for others beside their own work: how long who waits lets others run before it sleeps, when their turns are long,
//! and how often who need not wait takes a turn.

use sidelane_nic::time::{Duration, Instant};

/// Calls that find all they need in memory, and so take no turns, between two turns: so many that a turn costs each of them little.
pub const TURNLESS_MAX: u32 = 32;

/// Calls that took no turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turnless(u32);

impl Turnless {
    /// After a call that took none: whether it has to take one, since others have to be served too.
    #[inline]
    pub fn is_turn_due(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(TURNLESS_MAX)
    }
}

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
