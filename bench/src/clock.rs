//! The clock that samples are taken with, and what reading it costs.

use crate::stats::median;

/// Nanoseconds on the machine's monotonic clock.
#[inline]
pub fn now_ns() -> u64 {
    sidelane_nic::clock::monotonic().as_nanos()
}

/// What one reading costs, in nanoseconds.
pub fn cost_ns() -> f64 {
    cost_of(now_ns)
}

/// What one reading of a clock costs, in its own units: the median over batches, since an interrupt in one of them is no cost of the clock.
pub(crate) fn cost_of(mut read: impl FnMut() -> u64) -> f64 {
    let mut costs: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let from = read();
            for _ in 1..READS {
                std::hint::black_box(read());
            }
            (read() - from) as f64 / READS as f64
        })
        .collect();
    median(&mut costs).unwrap_or(0.0)
}

const BATCHES: usize = 101;
const READS: u64 = 64;
/// Of a clock, for what [`cost_of`] finds.
pub(crate) const READS_IN_ALL: usize = BATCHES * READS as usize;
