//! Percentiles of one run, medians over many; which of many count.

use serde::{Deserialize, Serialize};

/// What is kept of the samples of one run. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Smallest sample.
    pub min: f64,
    /// Half of the samples are at most this.
    pub p50: f64,
    /// 99 of 100 samples are at most this. `None` of fewer than 100, of which it would be the largest.
    pub p99: Option<f64>,
    /// 999 of 1000 samples are at most this. `None` of fewer than 1000.
    pub p999: Option<f64>,
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
        let summary =
            Self { min: half(0), p50: half(500), p99: Some(half(990)), p999: Some(half(999)), n: samples.len() as u64 };
        Some(summary.with_what_its_samples_tell())
    }

    /// The same without the percentiles that so few samples have none of.
    pub fn with_what_its_samples_tell(self) -> Self {
        let Self { p99, p999, n, .. } = self;
        Self { p99: p99.filter(|_| n >= P99_LEAST), p999: p999.filter(|_| n >= P999_LEAST), ..self }
    }

    /// Every figure twice as large.
    pub fn doubled(self) -> Self {
        let twice = |figure: f64| 2.0 * figure;
        Self {
            min: twice(self.min),
            p50: twice(self.p50),
            p99: self.p99.map(twice),
            p999: self.p999.map(twice),
            n: self.n,
        }
    }

    /// Over rounds: the least of all, medians of the percentiles that every round has, and all samples.
    pub fn of_rounds(rounds: &[Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> Option<f64>| median(&mut rounds.iter().map(figure).collect::<Option<Vec<_>>>()?);
        Some(Self {
            min: rounds.iter().map(|round| round.min).reduce(f64::min)?,
            p50: of(|round| Some(round.p50))?,
            p99: of(|round| round.p99),
            p999: of(|round| round.p999),
            n: rounds.iter().map(|round| round.n).sum(),
        })
    }
}

/// The rounds that count, each in its place. One in which the machine did other things may have a single sample, and its p50 says
/// nothing beside those of thousands: thin ones are left out where another has twice as many.
pub fn counted(rounds: &[Option<Summary>]) -> Vec<Option<Summary>> {
    let fullest = rounds.iter().flatten().map(|round| round.n).max().unwrap_or(0);
    let least = SAMPLES_LEAST.min(fullest / 2);
    rounds.iter().map(|round| round.filter(|round| round.n >= least)).collect()
}

/// Sorts the values, and gives the middle one; with an even count the mean of the two in the middle. `None` of nothing.
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

/// Samples of a round that is not thin: as many as a p99 takes.
pub const SAMPLES_LEAST: u64 = P99_LEAST;
/// Of fewer the percentile is the largest sample.
const P99_LEAST: u64 = 100;
const P999_LEAST: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut samples: Vec<u64> = (1..=1000).rev().collect();
        let summary = Summary::of_round_trips(&mut samples, 0.0).unwrap();
        assert_eq!(summary, Summary { min: 0.5, p50: 250.0, p99: Some(495.0), p999: Some(499.5), n: 1000 });
    }

    #[test]
    fn a_percentile_takes_as_many_samples_as_it_is_one_of() {
        let of = |count: u64| Summary::of_round_trips(&mut (0..count).collect::<Vec<_>>(), 0.0).unwrap();
        for (count, has) in [(1, (false, false)), (99, (false, false)), (100, (true, false)), (1000, (true, true))] {
            let Summary { p99, p999, n, .. } = of(count);
            assert_eq!(((p99.is_some(), p999.is_some()), n), (has, count));
        }
        assert_eq!(of(999).p999, None);
    }

    #[test]
    fn the_clocks_cost_is_taken_off_but_never_below_zero() {
        let mut samples = [[10; 51], [100; 51]].concat();
        let summary = Summary::of_round_trips(&mut samples, 20.0).unwrap();
        assert_eq!((summary.min, summary.p50, summary.p99), (0.0, 0.0, Some(40.0)));
    }

    #[test]
    fn no_sample_gives_no_summary() {
        assert_eq!(Summary::of_round_trips(&mut [], 0.0), None);
        assert_eq!(Summary::of_rounds(&[]), None);
    }

    #[test]
    fn medians_take_the_middle_or_the_mean_of_the_two() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }

    fn round(min: f64, p50: f64, p99: f64, n: u64) -> Summary {
        Summary { min, p50, p99: Some(p99), p999: Some(9.0), n }
    }

    #[test]
    fn rounds_are_taken_together_figure_by_figure() {
        let rounds = [round(3.0, 5.0, 7.0, 10), round(1.0, 4.0, 9.0, 10), round(2.0, 6.0, 8.0, 10)];
        let all = Summary::of_rounds(&rounds).unwrap();
        assert_eq!(all, Summary { min: 1.0, p50: 5.0, p99: Some(8.0), p999: Some(9.0), n: 30 });
        let one_without = [rounds[0], Summary { p999: None, ..rounds[1] }];
        let all = Summary::of_rounds(&one_without).unwrap();
        assert_eq!((all.p99, all.p999), (Some(8.0), None), "what one round does not know the median does not");
    }

    #[test]
    fn thin_rounds_give_way_where_there_are_fuller_ones() {
        let of = |counts: &[u64]| {
            let rounds: Vec<_> = counts.iter().map(|n| (*n > 0).then(|| round(1.0, 2.0, 3.0, *n))).collect();
            counted(&rounds).into_iter().map(|round| round.map_or(0, |round| round.n)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[1, 14_000, 99, 0, 100]), [0, 14_000, 0, 0, 100]);
        assert_eq!(of(&[99, 101]), [99, 101], "they are alike");
        assert_eq!(of(&[7, 1, 8, 4]), [7, 0, 8, 4]);
        assert_eq!(of(&[1, 1, 3]), [1, 1, 3]);
        assert_eq!(of(&[0]), [0]);
    }
}
