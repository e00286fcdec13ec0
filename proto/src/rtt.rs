//! Round-trip time and the time-outs that follow from it (RFC 6298).

use sidelane_nic::time::Duration;

/// Estimates the round-trip time of one path.
#[derive(Debug, Clone)]
pub(crate) struct Rtt {
    srtt: u64,
    rttvar: u64,
    /// Smallest ever seen: what an uncongested path takes.
    min: u64,
    latest: u64,
    sampled: bool,
}

/// Time-outs never grow beyond this, so that a peer that comes back is noticed.
pub(crate) const RTO_MAX: Duration = Duration::from_millis(200);

impl Rtt {
    /// An estimate to begin with, before anything was measured.
    pub const fn new(guess: Duration) -> Self {
        Self { srtt: guess.as_nanos(), rttvar: guess.as_nanos() / 2, min: u64::MAX, latest: u64::MAX, sampled: false }
    }

    /// Takes in one measurement. Never of a frame that was sent twice (Karn).
    #[inline]
    pub fn sample(&mut self, rtt: Duration) {
        let rtt = rtt.as_nanos();
        self.latest = rtt;
        self.min = self.min.min(rtt);
        if self.sampled {
            // RFC 6298 (2.3): alpha = 1/8, beta = 1/4.
            self.rttvar = self.rttvar - self.rttvar / 4 + self.srtt.abs_diff(rtt) / 4;
            self.srtt = self.srtt - self.srtt / 8 + rtt / 8;
        } else {
            self.sampled = true;
            self.srtt = rtt;
            self.rttvar = rtt / 2;
        }
    }

    /// The smoothed round-trip time.
    pub const fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.srtt)
    }

    /// The round-trip time measured last; the longest there is before any was.
    #[inline]
    pub const fn latest(&self) -> Duration {
        Duration::from_nanos(self.latest)
    }

    /// The path takes at least `rtt` from now on.
    pub fn restart_min(&mut self, rtt: Duration) {
        self.min = rtt.as_nanos();
    }

    /// The smallest round-trip time seen; the smoothed one before any was.
    pub fn min(&self) -> Duration {
        Duration::from_nanos(if self.sampled { self.min } else { self.srtt })
    }

    /// How long to wait for an ack before asking for one: RFC 9002 (6.2.1), with the path's floor under it.
    pub fn probe_timeout(&self, floor: Duration, ack_delay: Duration, backoff: u32) -> Duration {
        let base = Duration::from_nanos(self.srtt + 4 * self.rttvar) + ack_delay;
        base.max(floor).saturating_mul(1 << backoff.min(16)).min(RTO_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_steady_path_converges_and_the_floor_holds() {
        let mut rtt = Rtt::new(Duration::from_millis(1));
        for _ in 0..100 {
            rtt.sample(Duration::from_micros(10));
        }
        assert_eq!(rtt.smoothed(), Duration::from_micros(10));
        let floor = Duration::from_micros(250);
        assert_eq!(rtt.probe_timeout(floor, Duration::from_micros(100), 0), floor);
        assert_eq!(rtt.probe_timeout(floor, Duration::from_micros(100), 2), floor.saturating_mul(4));
        assert_eq!(rtt.probe_timeout(floor, Duration::ZERO, 60), RTO_MAX);
    }

    #[test]
    fn what_varies_is_waited_for_longer() {
        let mut rtt = Rtt::new(Duration::from_nanos(1_000));
        let wait = |rtt: &Rtt| rtt.probe_timeout(Duration::ZERO, Duration::from_nanos(7), 0).as_nanos();
        assert_eq!(wait(&rtt), 1_000 + 4 * 500 + 7);
        // RFC 6298 (2.2): the first measurement R makes R and R / 2.
        rtt.sample(Duration::from_nanos(800));
        assert_eq!((rtt.smoothed(), wait(&rtt)), (Duration::from_nanos(800), 800 + 4 * 400 + 7));
        // (2.3): 3/4 of the variation before and 1/4 of how far this one is off; then 7/8 and 1/8.
        rtt.sample(Duration::from_nanos(1_600));
        assert_eq!((rtt.smoothed(), wait(&rtt)), (Duration::from_nanos(900), 900 + 4 * 500 + 7));
        rtt.sample(Duration::from_nanos(500));
        assert_eq!((rtt.smoothed(), wait(&rtt)), (Duration::from_nanos(850), 850 + 4 * 475 + 7));
    }

    proptest! {
        #[test]
        fn estimates_stay_within_what_was_seen(samples in proptest::collection::vec(0u64..10_000_000, 1..100), floor in 0u64..10_000_000, delay in 0u64..1_000_000) {
            let mut rtt = Rtt::new(Duration::from_millis(1));
            samples.iter().for_each(|nanos| rtt.sample(Duration::from_nanos(*nanos)));
            let (least, most) = (*samples.iter().min().unwrap(), *samples.iter().max().unwrap());
            prop_assert_eq!(rtt.min(), Duration::from_nanos(least));
            // Each of the two divisions by eight may lose almost one.
            let smoothed = rtt.smoothed().as_nanos();
            prop_assert!(smoothed + 14 >= least && smoothed <= most + 7, "{} in {}..{}", smoothed, least, most);
            let (floor, delay) = (Duration::from_nanos(floor), Duration::from_nanos(delay));
            let waits: Vec<_> = (0..40).map(|backoff| rtt.probe_timeout(floor, delay, backoff)).collect();
            prop_assert!(waits.is_sorted() && waits[0] >= floor.min(RTO_MAX) && waits[39] <= RTO_MAX);
            prop_assert!(waits[0] == RTO_MAX || waits[0] >= rtt.smoothed() + delay);
        }
    }

    #[test]
    fn the_smallest_and_the_latest_are_remembered() {
        let mut rtt = Rtt::new(Duration::from_millis(1));
        assert_eq!((rtt.min(), rtt.latest()), (Duration::from_millis(1), Duration::from_nanos(u64::MAX)));
        for micros in [30, 10, 50] {
            rtt.sample(Duration::from_micros(micros));
        }
        assert_eq!((rtt.min(), rtt.latest()), (Duration::from_micros(10), Duration::from_micros(50)));
        rtt.restart_min(Duration::from_micros(40));
        assert_eq!(rtt.min(), Duration::from_micros(40));
    }
}
