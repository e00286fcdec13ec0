//! From times to limits; no I/O.

use sidelane_mpi::adi::Limits;

use super::Way;

/// What every way takes at every size.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Message sizes, from the smallest to the largest.
    pub sizes: Vec<usize>,
    /// Each way with its times, by size.
    pub ways: Vec<(Way, Vec<f64>)>,
}

impl Times {
    /// The limits by which messages of all sizes together take least: the least mean of the ratios to the best way at each
    /// size. Of prefixes that are as good the shortest one.
    ///
    /// # Panics
    ///
    /// When no way is eager, or none is announced.
    pub fn choose(&self) -> Limits {
        let mut prefixes: Vec<usize> = self.ways.iter().filter_map(|(way, _)| way.prefix()).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let eager = self.of(|way| way == Way::Eager).expect("one way is eager");
        let mut best: Option<(f64, Limits)> = None;
        for prefix in prefixes {
            let (cost, limits) = self.with_prefix(prefix, eager);
            if best.is_none_or(|(least, _)| cost + CLEAR < least) {
                best = Some((cost, limits));
            }
        }
        best.expect("some way is announced").1
    }

    /// The best limits with this prefix, and what they cost: the mean of the logarithms of what sizes take.
    fn with_prefix(&self, prefix: usize, eager: &[f64]) -> (f64, Limits) {
        let count = self.sizes.len();
        // A way that there is none of takes for ever.
        let of = |way| self.of(|one| one == way).map_or_else(|| vec![f64::INFINITY; count], <[f64]>::to_vec);
        let [put, pull] = [Way::Put { prefix }, Way::Pull { prefix }].map(of);
        let data = self.of(|way| way == Way::Data { prefix }).expect("whatever is announced can be asked for");
        // Logarithms, so that a size of microseconds counts as much as one of milliseconds.
        let cost = |taken: &[f64]| taken.iter().map(|taken| taken.ln()).sum::<f64>();
        // Longer ones are announced, whatever the limit. What a prefix holds goes at once either way, and unasked nobody waits for the answer.
        let unasked = self.sizes.iter().filter(|size| **size <= super::EAGER_MOST).count();
        let in_prefix = self.sizes.iter().filter(|size| **size <= prefix).count();
        let mut best = None;
        // The later of two that are equal: the way that begins is the simpler one. What is read is not put.
        for pull_from in (0..=count).rev() {
            for put_from in (0..=pull_from).rev() {
                let announced = [&data[..put_from], &put[put_from..pull_from], &pull[pull_from..]].concat();
                for announced_from in (in_prefix..=unasked).rev() {
                    let taken = [&eager[..announced_from], &announced[announced_from..]].concat();
                    // Shorter ones are announced too where a send is synchronous: of equals what is better for these.
                    let costs = (cost(&taken), cost(&announced));
                    if best.is_none_or(|(least, _)| costs < least) {
                        best = Some((costs, (announced_from, put_from, pull_from)));
                    }
                }
            }
        }
        let ((cost, _), (announced_from, put_from, pull_from)) = best.expect("all data is a way too");
        let missing = |from: usize, end: usize| match from {
            from if from == end => Limits::NEVER,
            from => self.between(from).saturating_sub(prefix),
        };
        let limits = Limits {
            eager_max: match announced_from {
                0 => self.sizes[0] - 1,
                from if from == count => super::EAGER_MOST,
                from => self.between(from).min(super::EAGER_MOST),
            },
            prefix,
            put_min: missing(put_from, pull_from),
            pull_min: missing(pull_from, count),
        };
        (cost / count as f64, limits)
    }

    /// A size between number `at` and the one before, in the middle of their logarithms, in whole 64 bytes. Below the first one nothing was
    /// measured, so nothing is said of it.
    fn between(&self, at: usize) -> usize {
        match at {
            0 => self.sizes[0],
            at => (self.sizes[at - 1] as f64 * self.sizes[at] as f64).sqrt() as usize / 64 * 64,
        }
    }

    fn of(&self, which: impl Fn(Way) -> bool) -> Option<&[f64]> {
        self.ways.iter().find(|(way, _)| which(*way)).map(|(_, times)| times.as_slice())
    }
}

/// What a longer prefix must be better by, so that noise does not choose it: half a percent, as logarithms add up.
const CLEAR: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 4] = [4_096, 16_384, 65_536, 1 << 20];

    fn choose(ways: &[(Way, [f64; 4])]) -> Limits {
        let ways = ways.iter().map(|(way, times)| (*way, times.to_vec())).collect();
        Times { sizes: SIZES.to_vec(), ways }.choose()
    }

    #[test]
    fn each_limit_lies_between_the_sizes_where_the_faster_way_changes() {
        let limits = choose(&[
            (Way::Eager, [1_000.0, 2_000.0, 9_000.0, 150_000.0]),
            (Way::Data { prefix: 0 }, [2_000.0, 3_000.0, 7_000.0, 140_000.0]),
            (Way::Put { prefix: 0 }, [3_000.0, 4_000.0, 8_000.0, 100_000.0]),
        ]);
        assert_eq!(limits, Limits { eager_max: 32_768, prefix: 0, put_min: 262_144, pull_min: Limits::NEVER });
    }

    #[test]
    fn what_is_never_faster_is_never_taken() {
        let limits = choose(&[
            (Way::Eager, [1_000.0, 2_000.0, 7_000.0, 100_000.0]),
            (Way::Data { prefix: 0 }, [2_000.0, 3_000.0, 8_000.0, 100_001.0]),
            (Way::Put { prefix: 0 }, [3_000.0, 4_000.0, 9_000.0, 100_002.0]),
            (Way::Pull { prefix: 0 }, [3_000.0, 4_000.0, 9_000.0, 100_003.0]),
        ]);
        let (put_min, pull_min) = (Limits::NEVER, Limits::NEVER);
        assert_eq!(limits, Limits { eager_max: super::super::EAGER_MOST, prefix: 0, put_min, pull_min });
    }

    #[test]
    fn one_size_that_was_disturbed_does_not_split_a_range() {
        let limits = choose(&[
            (Way::Eager, [1_000.0, 2_000.0, 5_000.0, 150_000.0]),
            // At 16 KiB the eager way would win, but by less than it would lose beside it.
            (Way::Data { prefix: 0 }, [500.0, 2_010.0, 3_000.0, 90_000.0]),
        ]);
        assert_eq!(limits.eager_max, SIZES[0] - 1, "shorter ones were not measured");
    }

    #[test]
    fn a_longer_prefix_must_be_clearly_better() {
        let ways = |gain: f64| {
            choose(&[
                (Way::Eager, [1_000.0, 9_000.0, 90_000.0, 900_000.0]),
                (Way::Data { prefix: 0 }, [2_000.0, 8_000.0, 30_000.0, 400_000.0]),
                (Way::Data { prefix: 4_096 }, [1_000.0, 8_000.0 / gain, 30_000.0 / gain, 400_000.0 / gain]),
            ])
        };
        assert_eq!(ways(1.001).prefix, 0);
        assert_eq!(ways(1.1).prefix, 4_096);
    }

    #[test]
    fn what_goes_unasked_has_no_say_in_how_the_rest_goes() {
        let limits = choose(&[
            (Way::Eager, [1_000.0, 2_000.0, 9_000.0, 150_000.0]),
            (Way::Data { prefix: 0 }, [4_000.0, 8_000.0, 7_000.0, 140_000.0]),
            // Of the first two sizes, which are never announced, a put would be twice as fast.
            (Way::Put { prefix: 0 }, [2_000.0, 4_000.0, 8_000.0, 100_000.0]),
        ]);
        assert_eq!(limits, Limits { eager_max: 32_768, prefix: 0, put_min: 262_144, pull_min: Limits::NEVER });
    }

    #[test]
    fn what_is_read_from_the_sender_s_memory_is_not_put() {
        let limits = choose(&[
            (Way::Eager, [3_000.0, 6_000.0, 9_000.0, 150_000.0]),
            (Way::Data { prefix: 0 }, [3_000.0, 5_000.0, 8_000.0, 140_000.0]),
            (Way::Put { prefix: 0 }, [3_100.0, 4_000.0, 7_000.0, 130_000.0]),
            (Way::Pull { prefix: 0 }, [1_000.0, 2_000.0, 3_000.0, 40_000.0]),
        ]);
        let (eager_max, pull_min) = (SIZES[0] - 1, SIZES[0]);
        assert_eq!(limits, Limits { eager_max, prefix: 0, put_min: Limits::NEVER, pull_min });
    }

    #[test]
    fn what_a_prefix_holds_is_not_asked_for() {
        let limits = choose(&[
            (Way::Eager, [1_010.0, 2_010.0, 9_000.0, 150_000.0]),
            (Way::Data { prefix: 0 }, [4_000.0, 8_000.0, 16_000.0, 200_000.0]),
            // As fast as unasked, where nobody sends anything else meanwhile.
            (Way::Data { prefix: 16_384 }, [1_000.0, 2_000.0, 7_000.0, 100_000.0]),
        ]);
        let (put_min, pull_min) = (Limits::NEVER, Limits::NEVER);
        assert_eq!(limits, Limits { eager_max: 32_768, prefix: 16_384, put_min, pull_min });
    }
}
