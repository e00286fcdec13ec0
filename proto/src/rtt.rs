//! Round-trip time and the time-outs that follow from it (RFC 6298).

use sidelane_nic::time::Duration;

/// Estimates the round-trip time of one path.
#[derive(Debug, Clone)]
pub(crate) struct Rtt {
    srtt: u64,
    rttvar: u64,
    /// Smallest ever seen: what an uncongested path takes.
    min: u64,
    sampled: bool,
}

/// Time-outs never grow beyond this, so that a peer that comes back is noticed.
const RTO_MAX: Duration = Duration::from_millis(200);

impl Rtt {
    /// An estimate to begin with, before anything was measured.
    pub const fn new(guess: Duration) -> Self {
        Self { srtt: guess.as_nanos(), rttvar: guess.as_nanos() / 2, min: u64::MAX, sampled: false }
    }

    /// Takes in one measurement. Never of a frame that was sent twice (Karn).
    #[inline]
    pub fn sample(&mut self, rtt: Duration) {
        let rtt = rtt.as_nanos();
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
    fn the_smallest_is_remembered() {
        let mut rtt = Rtt::new(Duration::from_millis(1));
        for micros in [30, 10, 50] {
            rtt.sample(Duration::from_micros(micros));
        }
        assert_eq!(rtt.min(), Duration::from_micros(10));
    }
}
