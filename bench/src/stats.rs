//! Percentiles of one run, medians over many.

use serde::{Deserialize, Serialize};

/// What is kept of the samples of one run. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Smallest sample.
    pub min: f64,
    /// Half of the samples are at most this.
    pub p50: f64,
    /// 99 of 100 samples are at most this.
    pub p99: f64,
    /// 999 of 1000 samples are at most this.
    pub p999: f64,
    /// Samples.
    pub n: u64,
}

impl Summary {
    /// Round trips in nanoseconds, each with `clock_cost` in it, as half round trips. `None` without a sample.
    pub fn of_round_trips(samples: &mut [u64], clock_cost: f64) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        samples.sort_unstable();
        let half = |permille| (at_rank(samples, permille) as f64 - clock_cost).max(0.0) / 2.0;
        Some(Self { min: half(0), p50: half(500), p99: half(990), p999: half(999), n: samples.len() as u64 })
    }

    /// Every figure twice as large.
    pub fn doubled(self) -> Self {
        Self { min: 2.0 * self.min, p50: 2.0 * self.p50, p99: 2.0 * self.p99, p999: 2.0 * self.p999, n: self.n }
    }

    /// Medians over rounds, each figure for itself; `n` is the sum.
    pub fn median_of(rounds: &[Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| median(&mut rounds.iter().map(figure).collect::<Vec<_>>());
        Some(Self {
            min: of(|round| round.min)?,
            p50: of(|round| round.p50)?,
            p99: of(|round| round.p99)?,
            p999: of(|round| round.p999)?,
            n: rounds.iter().map(|round| round.n).sum(),
        })
    }
}

/// The middle value; with an even count the mean of the two in the middle. `None` of nothing.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Nearest rank: the smallest sample that at least `permille` of a thousand samples do not exceed.
fn at_rank(sorted: &[u64], permille: usize) -> u64 {
    let rank = (sorted.len() * permille).div_ceil(1000);
    sorted[rank.saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut samples: Vec<u64> = (1..=1000).rev().collect();
        let summary = Summary::of_round_trips(&mut samples, 0.0).unwrap();
        assert_eq!(summary, Summary { min: 0.5, p50: 250.0, p99: 495.0, p999: 499.5, n: 1000 });
    }

    #[test]
    fn one_sample_is_every_percentile() {
        let summary = Summary::of_round_trips(&mut [40], 0.0).unwrap();
        assert_eq!(summary, Summary { min: 20.0, p50: 20.0, p99: 20.0, p999: 20.0, n: 1 });
    }

    #[test]
    fn the_clocks_cost_is_taken_off_but_never_below_zero() {
        let summary = Summary::of_round_trips(&mut [10, 100], 20.0).unwrap();
        assert_eq!((summary.min, summary.p50, summary.p99), (0.0, 0.0, 40.0));
    }

    #[test]
    fn no_sample_gives_no_summary() {
        assert_eq!(Summary::of_round_trips(&mut [], 0.0), None);
        assert_eq!(Summary::median_of(&[]), None);
    }

    #[test]
    fn medians_take_the_middle_or_the_mean_of_the_two() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn the_median_over_rounds_is_taken_figure_by_figure() {
        let round = |p50, p99| Summary { min: 1.0, p50, p99, p999: 9.0, n: 10 };
        let all = Summary::median_of(&[round(5.0, 7.0), round(4.0, 9.0), round(6.0, 8.0)]).unwrap();
        assert_eq!(all, Summary { min: 1.0, p50: 5.0, p99: 8.0, p999: 9.0, n: 30 });
    }
}
