//! Which probes of peers are still to be answered, and when.
//!
//! An answer is a system call of some microseconds within the caller's `rx_burst`, and anybody can send probes, under any address. So
//! answers have a rate of their own, and what is beyond it waits here, one probe a peer: peers have their turns, however often one asks.
//! Where there are more than fit, some get no answer, and so no trains; their frames come all the same.

use std::collections::VecDeque;

use crate::encap::train;
use crate::time::{Duration, Instant};

/// Probes that wait for their answer.
pub struct Answers {
    /// The last of each peer, with its number; at most [`OWED_MAX`], those that have waited longest first.
    owed: VecDeque<(train::Header, u64)>,
    /// When the answers given so far would be over if they came one by one, [`GAP`] apart.
    given_until: Instant,
}

impl Answers {
    pub fn new() -> Self {
        Self { owed: VecDeque::with_capacity(OWED_MAX), given_until: Instant::ZERO }
    }

    /// Takes in a probe. Its number takes the place of an earlier one's of the same peer, which keeps its turn.
    pub fn owe(&mut self, probe: train::Header, number: u64) {
        let has_room = self.owed.len() < OWED_MAX;
        match self.owed.iter_mut().find(|(waiting, _)| *waiting == probe) {
            Some((_, last)) => *last = number,
            None if has_room => self.owed.push_back((probe, number)),
            // It asks again.
            None => {}
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// A probe to be answered now.
    pub fn next(&mut self, now: Instant) -> Option<(train::Header, u64)> {
        if self.given_until.since(now) > LEAD {
            return None;
        }
        let probe = self.owed.pop_front()?;
        self.given_until = self.given_until.max(now) + GAP;
        Some(probe)
    }
}

/// An answer takes some 5 µs: a flood of probes takes a twentieth of the time. A hundred peers that ask every 10 ms are all answered.
const GAP: Duration = Duration::from_micros(100);
/// Eight in a row at most, 40 µs, for peers that asked while the caller was away.
const LEAD: Duration = Duration::from_micros(700);
/// Few enough to look through at each probe. In the 100 ms that an answer lasts a thousand have gone.
const OWED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encap::train::{Header, Kind};

    fn probe_of(peer: u16) -> Header {
        Header { dst_mac: [2; 6], src_mac: [4; 6], dst: 1, src: peer, kind: Kind::Probe }
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(1_000_000_000) + Duration::from_micros(micros)
    }

    fn answered(answers: &mut Answers, now: Instant) -> Vec<(u16, u64)> {
        std::iter::from_fn(|| answers.next(now)).map(|(probe, number)| (probe.src, number)).collect()
    }

    #[test]
    fn a_probe_is_answered_once_and_at_once() {
        let mut answers = Answers::new();
        assert!(answers.is_empty());
        answers.owe(probe_of(1), 7);
        assert!(!answers.is_empty());
        assert_eq!(answered(&mut answers, at(0)), [(1, 7)]);
        assert!(answers.is_empty() && answered(&mut answers, at(1_000)).is_empty());
    }

    #[test]
    fn several_peers_are_answered_together_and_more_of_them_by_and_by() {
        let mut answers = Answers::new();
        (0..20).for_each(|peer| answers.owe(probe_of(peer), 0));
        assert_eq!(answered(&mut answers, at(0)).len(), 8);
        assert_eq!(answered(&mut answers, at(99)), []);
        assert_eq!(answered(&mut answers, at(100)), [(8, 0)]);
        assert_eq!(answered(&mut answers, at(450)), [(9, 0), (10, 0), (11, 0)]);
        assert_eq!(answered(&mut answers, at(10_000)).len(), 8, "not more for having been quiet");
    }

    #[test]
    fn whoever_asks_often_keeps_nobody_from_being_answered() {
        let mut answers = Answers::new();
        (0..100).for_each(|number| answers.owe(probe_of(1), number));
        answers.owe(probe_of(2), 0);
        assert_eq!(answered(&mut answers, at(0)), [(1, 99), (2, 0)]);
    }

    #[test]
    fn a_flood_under_many_addresses_is_answered_at_the_rate_of_answers() {
        let mut answers = Answers::new();
        let count: usize = (0..10_000u64)
            .map(|micros| {
                (0..10).for_each(|more| answers.owe(probe_of((micros * 10 + more) as u16), 0));
                assert!(answers.owed.len() <= OWED_MAX);
                answered(&mut answers, at(micros)).len()
            })
            .sum();
        assert_eq!(count, 8 + 99);
    }
}
