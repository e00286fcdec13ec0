//! When to acknowledge: with whatever is sent anyway, else after a short delay, else at a quarter of the window.

use sidelane_nic::time::{Duration, Instant};

/// What the peer has to be told, and by when.
#[derive(Debug)]
pub(crate) struct AckState {
    /// Longest time that an ack is kept back in the hope of a frame to ride on.
    delay: Duration,
    /// A quarter of the window that this side offered (SP AM's rule).
    frames_per_ack: u32,
    /// Frames that arrived since the last ack that went out.
    unacked: u32,
    /// An ack has to go out in this turn.
    urgent: bool,
    /// When an ack has to go out at the latest.
    due: Option<Instant>,
    /// Credit limit that the peer was told last.
    told: u64,
    /// A duplicate arrived since the last ack.
    duplicate: bool,
    /// A frame that arrived since the last ack had waited for us, who were away.
    away: bool,
}

impl AckState {
    /// Nothing to acknowledge.
    pub fn new(delay: Duration, window: u32, told: u64) -> Self {
        Self {
            delay,
            frames_per_ack: (window / 4).max(1),
            unacked: 0,
            urgent: false,
            due: None,
            told,
            duplicate: false,
            away: false,
        }
    }

    /// A frame with records was taken in.
    #[inline]
    pub fn on_frame(&mut self, now: Instant) {
        self.unacked += 1;
        if self.unacked >= self.frames_per_ack {
            self.urgent = true;
        } else if self.due.is_none() {
            self.due = Some(now + self.delay);
        }
    }

    /// A frame came out of turn: the sender should know at once (RFC 5681, 4.2).
    pub fn on_gap(&mut self) {
        self.urgent = true;
    }

    /// A frame came again: its ack was lost, or it was only late.
    pub fn on_duplicate(&mut self) {
        self.duplicate = true;
        self.urgent = true;
    }

    /// A frame came while we were away.
    #[cold]
    pub const fn on_away(&mut self) {
        self.away = true;
    }

    /// The sender asked.
    pub fn on_request(&mut self) {
        self.urgent = true;
    }

    /// The user took messages, and the limit is now `limit`: worth telling at a quarter of the FIFO.
    #[inline]
    pub fn on_credit(&mut self, limit: u64, capacity: usize) {
        if limit - self.told >= capacity as u64 / 4 {
            self.urgent = true;
        }
    }

    /// Runs the timer.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.urgent = true;
        }
    }

    /// True when an ack has to go out now, on a frame of its own if there is no other.
    #[inline]
    pub const fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// True when a duplicate is to be reported.
    #[inline]
    pub const fn saw_duplicate(&self) -> bool {
        self.duplicate
    }

    /// True when the ack tells nothing of the path's delay.
    #[inline]
    pub const fn was_away(&self) -> bool {
        self.away
    }

    /// When an ack has to go out at the latest.
    #[inline]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A frame went out, and with it the ack and the limit.
    #[inline]
    pub fn on_sent(&mut self, limit: u64) {
        self.unacked = 0;
        self.urgent = false;
        self.due = None;
        self.told = limit;
        self.duplicate = false;
        self.away = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DELAY: Duration = Duration::from_micros(100);

    #[test]
    fn a_lone_frame_is_acknowledged_after_the_delay_and_not_before() {
        let mut ack = AckState::new(DELAY, 32, 0);
        ack.on_frame(Instant::ZERO);
        assert!(!ack.is_urgent());
        ack.on_timeout(Instant::from_nanos(99_999));
        assert!(!ack.is_urgent());
        ack.on_timeout(Instant::ZERO + DELAY);
        assert!(ack.is_urgent());
    }

    #[test]
    fn a_reply_carries_the_ack() {
        let mut ack = AckState::new(DELAY, 32, 0);
        ack.on_frame(Instant::ZERO);
        ack.on_sent(0);
        assert_eq!(ack.due(), None);
    }

    #[test]
    fn every_eighth_frame_is_acknowledged_at_once() {
        let mut ack = AckState::new(DELAY, 32, 0);
        for _ in 1..8 {
            ack.on_frame(Instant::ZERO);
            assert!(!ack.is_urgent());
        }
        ack.on_frame(Instant::ZERO);
        assert!(ack.is_urgent());
    }

    proptest! {
        /// Against the simple model: how many frames wait for an ack, and since when.
        #[test]
        fn no_frame_waits_longer_than_the_delay_or_the_quarter(steps in proptest::collection::vec((0u8..6, 0u64..40_000), 1..200)) {
            let mut ack = AckState::new(DELAY, 32, 0);
            let mut now = Instant::ZERO;
            let (mut waiting, mut asked, mut duplicate) = (Vec::new(), false, false);
            for (what, nanos) in steps {
                now += Duration::from_nanos(nanos);
                ack.on_timeout(now);
                match what {
                    0..=2 => {
                        ack.on_frame(now);
                        waiting.push(now);
                    }
                    3 => {
                        ack.on_duplicate();
                        (asked, duplicate) = (true, true);
                    }
                    4 => {
                        ack.on_gap();
                        asked = true;
                    }
                    _ => {
                        ack.on_sent(0);
                        waiting.clear();
                        (asked, duplicate) = (false, false);
                    }
                }
                let late = waiting.first().is_some_and(|since| *since + DELAY <= now && what > 2);
                prop_assert_eq!(ack.saw_duplicate(), duplicate);
                prop_assert!(ack.is_urgent() || !(asked || late || waiting.len() >= 8));
                prop_assert!(!ack.is_urgent() || asked || !waiting.is_empty());
                prop_assert!(ack.is_urgent() || waiting.is_empty() || ack.due() == Some(waiting[0] + DELAY));
            }
        }
    }

    #[test]
    fn a_quarter_of_the_fifo_is_worth_an_ack() {
        let mut ack = AckState::new(DELAY, 32, 1000);
        ack.on_credit(1249, 1000);
        assert!(!ack.is_urgent());
        ack.on_credit(1250, 1000);
        assert!(ack.is_urgent());
    }
}
