//! How many frames may fly to one peer, judged by delay: a target for the round trip, as in Swift (Kumar et al., SIGCOMM
//! 2020) and Timely (Mittal et al., SIGCOMM 2015).
//!
//! A round is one window of frames acknowledged. Only the best round trip of a round counts: a processor that was away
//! delays some frames of a round, a queue that stands on the path delays all of them (CoDel's argument, RFC 8289, 3.2).
//! Below the target the window grows, above it shrinks by as much as the delay is beyond it. A round that did not use its
//! window says nothing about it, nor does the delay of frames that waited for a host (Swift, 3.1, takes that off by time
//! stamps, which few drivers have; here a host says that it was away). Losses count only where they are many: a link that
//! damages frames is not congested. Below one frame the window becomes a pause after each ack.
//!
//! The round trip of the empty path is the smallest one seen, but not above what is normal for the driver: who begins
//! while others fill the queue never sees it empty, and would add a queue of its own. A longer path shows in that its delay
//! stays what it is while the window shrinks.

use sidelane_nic::time::Duration;

use crate::rtt::Rtt;

/// Delays that mean nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slack {
    /// At the two ends, however many frames fly.
    pub host: Duration,
    /// On the path, of a window of one frame: who shares a queue stands in it.
    pub path: Duration,
}

/// The congestion window of one direction.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// Frames that may fly, in units of 1 / [`ONE`].
    window: u32,
    window_max: u32,
    /// What is allowed; its `path` is also the longest round trip that is thought normal. `None`: nothing is too long.
    slack: Option<Slack>,
    /// The round trip of the empty path, where it proved longer than `slack.path`.
    far: Option<Duration>,
    /// The delay since when rounds have been beyond the target, and how many rounds it has been the same.
    beyond: Duration,
    steady: u32,
    /// The last round was beyond the target.
    was_beyond: bool,
    /// No queue was seen yet, so the window doubles.
    starting: bool,
    /// What a time-out took: the window before, and whether it doubled.
    taken: Option<(u32, bool)>,
    // The round under way.
    acked: u32,
    lost: u32,
    best: Duration,
}

/// Of a round of which nothing tells the path's delay: it is judged by its losses.
const UNSEEN: Duration = Duration::from_nanos(u64::MAX);
/// One frame in units of the window.
const ONE: u32 = 1 << 16;
/// Small enough for 1,000 senders that share what 32 frames fill.
const WINDOW_MIN: u32 = ONE / 32;
/// What the least window rests at the longest target (2 ms, of kernel drivers). Delay far beyond that is no queue but ends that are
/// away, such as pollers with many on one core: they would rest for seconds, whoever frees the core.
const PAUSE_MAX: Duration = Duration::from_millis(64);
/// Frames of the first round (RFC 3390 has as many): 128 senders that begin at once fill a shallow switch once or twice.
const WINDOW_FIRST: u32 = 4 * ONE;
/// Losses of fewer than one frame in so many are taken for damage on the way.
const LOSS_SHARE: u32 = 16;

impl Congestion {
    /// `slack` is the queueing delay that means nothing yet; `None` switches the control off: the window is what the peer takes, but for
    /// some rounds after a time-out.
    pub const fn new(slack: Option<Slack>) -> Self {
        Self {
            window: ONE,
            window_max: ONE,
            slack,
            far: None,
            beyond: Duration::ZERO,
            steady: 0,
            was_beyond: false,
            starting: true,
            taken: None,
            acked: 0,
            lost: 0,
            best: UNSEEN,
        }
    }

    /// The peer takes `window_max` frames.
    pub fn open(&mut self, window_max: u32) {
        self.window_max = window_max * ONE;
        self.window = if self.slack.is_some() { self.window_max.min(WINDOW_FIRST) } else { self.window_max };
    }

    /// Frames that may fly, at least one.
    #[inline]
    pub const fn frames(&self) -> u32 {
        if self.window < ONE { 1 } else { self.window / ONE }
    }

    /// How long to rest after an ack when the window is less than a frame. Counted from the ack and not from the frame:
    /// acks come apart as the narrowest link lets frames through, so that senders who began together do not stay so.
    pub fn pause(&self, rtt: &Rtt) -> Option<Duration> {
        let missing = u64::from(ONE.checked_sub(self.window)?);
        Some(Duration::from_nanos(rtt.smoothed().as_nanos().saturating_mul(missing) / u64::from(self.window)))
            .map(|pause| pause.min(PAUSE_MAX))
            .filter(|&pause| pause > Duration::ZERO)
    }

    /// Frames were acknowledged, the latest `rtt` after it was sent; `None` where a processor was away meanwhile. True when that
    /// ends a round.
    #[inline]
    pub fn on_acked(&mut self, frames: u32, rtt: Option<Duration>) -> bool {
        if let Some(rtt) = rtt {
            self.best = self.best.min(rtt);
        }
        self.acked += frames;
        self.acked >= self.frames()
    }

    /// Frames were found lost.
    pub const fn on_lost(&mut self, frames: u32) {
        self.lost += frames;
    }

    /// Nothing was acknowledged for a time-out.
    pub fn on_timeout(&mut self) {
        self.taken.get_or_insert((self.window, self.starting));
        self.halve();
    }

    /// It was a host that was away when acks did not come: what a time-out of this round took is given back. True if there
    /// was one.
    pub fn on_host_away(&mut self) -> bool {
        let Some((window, starting)) = self.taken.take() else { return false };
        self.window = window.max(self.window);
        self.starting = starting;
        true
    }

    /// Nothing came for a time-out, or much was lost: half the window (Swift's largest step). Less than a frame only delay
    /// makes it: on a path that loses many frames a pause helps nobody.
    fn halve(&mut self) {
        self.starting = false;
        self.window = (self.window / 2).max(ONE.min(self.window));
    }

    /// A round is over; `limited` when its window was used.
    pub fn end_round(&mut self, rtt: &mut Rtt, limited: bool) {
        let (best, lost, acked) = (self.best, self.lost, self.acked);
        self.best = UNSEEN;
        self.taken = None;
        self.lost = 0;
        self.acked = 0;
        if self.slack.is_none() {
            // Only time-outs have taken of it. To double it each time would fill a network's queues sooner (`tests/load.table`).
            self.window = (self.window + self.window / 8).min(self.window_max);
        }
        let Some(slack) = self.slack.filter(|_| limited) else { return };
        let base = rtt.min().min(self.far.unwrap_or(slack.path));
        let target = base + self.allowed(slack);
        if lost > 1 && lost * LOSS_SHARE > acked {
            self.halve();
        } else if best > target && best != UNSEEN {
            self.starting = false;
            if self.is_far(best, rtt) {
                rtt.restart_min(best);
                self.far = Some(best);
                self.starting = true;
                return;
            }
            // A stall of the receiver delays all of one round, and nothing of the next.
            if !std::mem::replace(&mut self.was_beyond, true) {
                return;
            }
            // Swift (algorithm 1): beta = 0.8, at most half.
            let excess = u128::from((best - target).as_nanos()) * 4 / 5;
            let cut = u128::from(self.window) * excess / u128::from(best.as_nanos());
            self.window -= (cut as u32).min(self.window / 2);
        } else if self.starting {
            self.window *= 2;
        } else {
            // An eighth up to one frame a round; more where many fly, so that a stall that was taken for a queue is made
            // good in 50 rounds.
            self.window += (self.window / 8 + ONE / 128).min(ONE.max(self.window / 16));
        }
        if best <= target {
            self.steady = 0;
            self.was_beyond = false;
        }
        self.window = self.window.clamp(WINDOW_MIN, self.window_max);
    }

    /// True if it is the path that takes so long: a queue would not stay the same while the window shrinks, and would have
    /// been shorter once, unless we hardly send at all.
    fn is_far(&mut self, best: Duration, rtt: &Rtt) -> bool {
        let near = |a: Duration, b: Duration| a.max(b) - a.min(b) <= Duration::from_nanos(b.as_nanos() / 16);
        if self.steady > 0 && near(best, self.beyond) {
            self.steady += 1;
        } else {
            self.steady = 1;
            self.beyond = best;
        }
        self.steady >= STEADY_ROUNDS && (near(rtt.min(), best) || self.window == WINDOW_MIN)
    }

    /// The queue that may stand. It is longer for smaller windows (Swift, 3.5): the delay, which all senders of a queue
    /// share, then belongs to one window, and theirs become the same.
    fn allowed(&self, slack: Slack) -> Duration {
        // 256 times the square root of the window in frames.
        let root = u64::from(self.window.isqrt()).max(ROOT_MIN);
        slack.host + Duration::from_nanos(slack.path.as_nanos() * 256 / root)
    }
}

/// Rounds of the same delay that make a path long. They take its window to a sixteenth at the most.
const STEADY_ROUNDS: u32 = 5;
/// No window allows more than four times the path's slack.
const ROOT_MIN: u64 = 64;

#[cfg(test)]
mod tests;
