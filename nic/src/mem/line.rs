//! A line of limited rate, and the queue before it.

use crate::time::{Duration, Instant};

/// What a line can do. The default carries everything at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineModel {
    /// Bits that leave in a second. `None`: frames take no time.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait before the line, framing included. `None`: as many as come.
    pub queue_limit_bytes: Option<usize>,
}

/// When a line is free again: the queue before it is that time turned into bytes, so none has to be kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    free_at: Instant,
}

impl Line {
    /// Puts a frame of `len` bytes payload on the line; returns when its last bit leaves. `None`: the queue is full.
    pub(super) fn pass(&mut self, model: &LineModel, now: Instant, len: usize) -> Option<Instant> {
        let Some(rate) = model.rate_bits_per_s else { return Some(now) };
        if !self.has_room(model, now, len) {
            return None;
        }
        let bits = (len + FRAMING_BYTES) as u128 * 8;
        let taken = Duration::from_nanos((bits * NANOS_PER_S).div_ceil(u128::from(rate.max(1))) as u64);
        self.free_at = self.free_at.max(now) + taken;
        Some(self.free_at)
    }

    /// How long a frame waits before the line when it comes now.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.free_at.since(now)
    }

    /// True when the queue takes another `len` bytes.
    pub(super) fn has_room(&self, model: &LineModel, now: Instant, len: usize) -> bool {
        let (Some(rate), Some(limit)) = (model.rate_bits_per_s, model.queue_limit_bytes) else { return true };
        let waiting_ns = self.wait(now).as_nanos();
        let waiting_bytes = u128::from(waiting_ns) * u128::from(rate) / (8 * NANOS_PER_S);
        waiting_bytes + (len + FRAMING_BYTES) as u128 <= limit as u128
    }
}

const NANOS_PER_S: u128 = 1_000_000_000;

/// What a frame takes on a wire beside its payload: preamble 8, header 14, check sequence 4, gap 12 (IEEE 802.3).
const FRAMING_BYTES: usize = 38;

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: LineModel = LineModel { rate_bits_per_s: Some(1_000_000_000), queue_limit_bytes: Some(3_000) };

    #[test]
    fn frames_leave_one_after_the_other_at_the_rate_of_the_line() {
        let mut line = Line::default();
        // 962 + 38 bytes at 1 Gbit/s: 8 us.
        assert_eq!(line.pass(&GIGABIT, Instant::ZERO, 962), Some(Instant::from_nanos(8_000)));
        assert_eq!(line.pass(&GIGABIT, Instant::ZERO, 962), Some(Instant::from_nanos(16_000)));
        assert_eq!(line.pass(&GIGABIT, Instant::from_nanos(50_000), 962), Some(Instant::from_nanos(58_000)));
    }

    #[test]
    fn a_full_queue_refuses_until_it_has_drained() {
        let mut line = Line::default();
        for _ in 0..3 {
            assert!(line.pass(&GIGABIT, Instant::ZERO, 962).is_some());
        }
        assert_eq!(line.pass(&GIGABIT, Instant::ZERO, 962), None);
        assert!(line.pass(&GIGABIT, Instant::from_nanos(8_000), 962).is_some());
    }

    #[test]
    fn a_line_without_a_rate_takes_no_time() {
        let mut line = Line::default();
        assert_eq!(line.pass(&LineModel::default(), Instant::from_nanos(5), 1 << 20), Some(Instant::from_nanos(5)));
    }

    #[test]
    fn a_queue_is_full_to_the_byte() {
        for (limit, fits) in [(2_000, true), (1_999, false)] {
            let (mut line, model) = (Line::default(), LineModel { queue_limit_bytes: Some(limit), ..GIGABIT });
            assert!(line.pass(&model, Instant::ZERO, 962).is_some());
            assert_eq!(line.pass(&model, Instant::ZERO, 962).is_some(), fits);
        }
    }

    #[test]
    fn a_line_of_no_rate_takes_as_long_as_the_slowest() {
        let [none, slowest] = [0, 1].map(|rate| LineModel { rate_bits_per_s: Some(rate), queue_limit_bytes: None });
        let leaves = Line::default().pass(&none, Instant::ZERO, 0);
        assert_eq!(leaves, Line::default().pass(&slowest, Instant::ZERO, 0));
    }
}
