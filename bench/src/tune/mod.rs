//! Where protocols change, measured: each way of sending a message at each size, in turn, round after round; then what was
//! chosen beside what is built in.

mod choice;
pub mod collectives;
mod report;

use serde::{Deserialize, Serialize};
use sidelane_mpi::adi::{Config, Limits};

use crate::ladder::{End, GRACE, LadderError, NicKind, Pair, PairError, twice};
use crate::pattern::{Kind, Pattern};
use crate::side::{Layer, Path};
use crate::stats::{Summary, counted, median};

pub use choice::Times;
pub use report::Tuned;

/// How much time is spent.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Interleaved rounds of everything.
    pub rounds: usize,
    /// Time of one measurement that counts.
    pub measure_ns: u64,
}

/// What one driver came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Driver {
    /// Which one.
    pub nic: NicKind,
    /// What is built in for it.
    pub built_in: Limits,
    /// What was chosen: the same, where nothing else is better by [`WORTH`].
    pub chosen: Limits,
    /// Half round trips of both, by size.
    pub sizes: Vec<Size>,
    /// What each switch of what was chosen costs.
    pub steps: Vec<Step>,
}

/// A size up to which messages go one way and from which on another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Bytes of the last message that goes the first way.
    pub bytes: usize,
    /// Its half round trip: median over rounds.
    pub below_ns: f64,
    /// That of a message with one byte more.
    pub above_ns: f64,
    /// How many times as long: median of the ratios within each round.
    pub ratio: f64,
}

/// One message size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Bytes.
    pub bytes: usize,
    /// With what is built in: median over rounds.
    pub built_in_ns: f64,
    /// With what was measured to be best.
    pub measured_ns: f64,
    /// How many times as fast that is: median of the ratios within each round.
    pub ratio: f64,
}

impl Effort {
    /// Good for a comparison.
    pub const USUAL: Self = Self { rounds: 5, measure_ns: 15_000_000 };
    /// Good for a look, in less than half of the time.
    pub const QUICK: Self = Self { rounds: 2, measure_ns: 6_000_000 };

    /// Measurements that [`driver`] takes.
    pub fn measurements(&self, nic: NicKind) -> usize {
        (self.rounds + 1) * ways(nic).len() * SIZES.len() + self.rounds * 2 * (SIZES.len() + SWITCHES_MOST)
    }
}

/// Finds the limits of one driver between two sides. `progress` is told before every measurement, and may call it off by
/// returning false.
pub fn driver(
    nic: NicKind,
    effort: Effort,
    pair: &mut Pair,
    progress: impl FnMut() -> bool,
) -> Result<Driver, LadderError> {
    let mut bench = Bench { nic, effort, pair, progress };
    let (built_in, measured) = (built_in(nic), bench.times()?.choose());
    let mut sizes = Vec::new();
    for bytes in SIZES {
        let ([built_in_ns, measured_ns], ratio) = bench.compare([(built_in, bytes), (measured, bytes)])?;
        sizes.push(Size { bytes, built_in_ns, measured_ns, ratio });
    }
    let chosen = decide(built_in, measured, &sizes);
    let mut steps = Vec::new();
    for bytes in switches(chosen) {
        let ([above_ns, below_ns], ratio) = bench.compare([(chosen, bytes + 1), (chosen, bytes)])?;
        steps.push(Step { bytes, below_ns, above_ns, ratio });
    }
    Ok(Driver { nic, built_in, chosen, sizes, steps })
}

/// What was measured, where that is better by [`WORTH`] over all sizes.
fn decide(built_in: Limits, measured: Limits, sizes: &[Size]) -> Limits {
    let gain = sizes.iter().map(|size| size.ratio.ln()).sum::<f64>() / sizes.len() as f64;
    if gain > WORTH.ln() { measured } else { built_in }
}

/// A driver between two sides.
struct Bench<'a, F> {
    nic: NicKind,
    effort: Effort,
    pair: &'a mut Pair,
    progress: F,
}

impl<F: FnMut() -> bool> Bench<'_, F> {
    /// Every way at every size, one after the other each round: medians.
    fn times(&mut self) -> Result<Times, LadderError> {
        let ways = ways(self.nic);
        let mut rounds: Vec<Vec<Vec<Option<Summary>>>> = vec![vec![Vec::new(); SIZES.len()]; ways.len()];
        // The first round only warms.
        for round in 0..=self.effort.rounds {
            for (at, size) in SIZES.into_iter().enumerate() {
                for (way, cells) in ways.iter().zip(&mut rounds) {
                    let taken = self.once(way.limits(), size)?;
                    if round > 0 {
                        cells[at].push(Some(taken));
                    }
                }
            }
        }
        let middle = |cells: &[Vec<_>]| cells.iter().map(|cell| middle(&counted(cell))).collect::<Option<_>>();
        let ways = ways.into_iter().zip(&rounds).map(|(way, cells)| Some((way, middle(cells)?)));
        Ok(Times { sizes: SIZES.to_vec(), ways: ways.collect::<Option<_>>().ok_or(NOTHING)? })
    }

    /// Two in turn: the median of each, and that of how many times as long the first one takes, round by round.
    fn compare(&mut self, two: [(Limits, usize); 2]) -> Result<([f64; 2], f64), LadderError> {
        let mut both = [Vec::new(), Vec::new()];
        for _ in 0..self.effort.rounds {
            for (taken, (limits, size)) in both.iter_mut().zip(two) {
                taken.push(Some(self.once(limits, size)?));
            }
        }
        side_by_side(&both).ok_or(NOTHING)
    }

    /// Half round trips.
    fn once(&mut self, limits: Limits, size: usize) -> Result<Summary, LadderError> {
        if !(self.progress)() {
            return Err(LadderError::Interrupted);
        }
        let (warm_ns, measure_ns) = (warm_ns(self.nic), self.effort.measure_ns);
        let limit_ns = warm_ns + measure_ns + GRACE.as_nanos() as u64;
        let pattern = Pattern { kind: Kind::PingPong, size, depth: None, warm_ns, measure_ns, limit_ns };
        let nic = self.nic;
        let path = |end: &End| Path::Nic { layer: Layer::MpiWith(limits), nic: end.nic(nic), real_frames: false };
        let (seen, _) = twice(|| self.pair.measure(&pattern, path)).map_err(LadderError::Sides)?;
        seen.half_rtt_ns.ok_or(NOTHING)
    }
}

/// The median p50 of the rounds that count.
fn middle(counted: &[Option<Summary>]) -> Option<f64> {
    median(&mut counted.iter().flatten().map(|half| half.p50).collect::<Vec<_>>())
}

/// The median of each of two, and that of how many times as long the first one takes, within the rounds in which both count.
fn side_by_side(both: &[Vec<Option<Summary>>; 2]) -> Option<([f64; 2], f64)> {
    let ratio = |first: &[Option<Summary>], second: &[Option<Summary>]| {
        let rounds =
            first.iter().zip(second).filter_map(|(first, second)| Some(first.as_ref()?.p50 / second.as_ref()?.p50));
        median(&mut rounds.collect::<Vec<_>>())
    };
    let [first, second] = both.each_ref().map(|rounds| counted(rounds));
    // On a busy machine the thin rounds of the two may be all there are between them.
    let ratio = ratio(&first, &second).or_else(|| ratio(&both[0], &both[1]))?;
    Some(([middle(&first)?, middle(&second)?], ratio))
}

/// The longest message before each change of way that messages meet.
fn switches(limits: Limits) -> Vec<usize> {
    let Limits { eager_max, prefix, put_min, pull_min } = limits;
    // What is missing behind the prefix counts.
    let later = [put_min, pull_min].into_iter().filter(|least| *least != Limits::NEVER);
    let later = later.map(|least| (prefix + least).saturating_sub(1)).filter(|last| *last > eager_max);
    let mut switches: Vec<usize> = std::iter::once(eager_max).chain(later).filter(|last| *last > 0).collect();
    switches.sort_unstable();
    switches.dedup();
    switches
}

/// What is built in for a driver.
fn built_in(nic: NicKind) -> Limits {
    let config = Config::default();
    match nic {
        nic if is_on_host(nic) => config.on_host,
        NicKind::Memif | NicKind::Vhost => config.paired,
        _ => config.off_host,
    }
}

const fn is_on_host(nic: NicKind) -> bool {
    matches!(nic, NicKind::Shm)
}

/// One way of sending: how, and how many bytes go along with an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Without asking.
    Eager,
    /// Announced with a prefix, the rest asked for and sent as messages.
    Data {
        /// Bytes of it.
        prefix: usize,
    },
    /// Announced with a prefix, the rest put into the receiver's memory.
    Put {
        /// Bytes of it.
        prefix: usize,
    },
    /// Announced with a prefix, the rest read from the sender's memory.
    Pull {
        /// Bytes of it.
        prefix: usize,
    },
}

impl Way {
    /// Limits by which every message goes this way.
    pub fn limits(self) -> Limits {
        let asked = |prefix| Limits { eager_max: 0, prefix, put_min: Limits::NEVER, pull_min: Limits::NEVER };
        match self {
            Self::Eager => Limits { eager_max: EAGER_MOST, ..asked(0) },
            Self::Data { prefix } => asked(prefix),
            Self::Put { prefix } => Limits { put_min: 0, ..asked(prefix) },
            Self::Pull { prefix } => Limits { pull_min: 0, ..asked(prefix) },
        }
    }

    /// Bytes that go along with an announcement; `None` where there is none.
    pub const fn prefix(self) -> Option<usize> {
        match self {
            Self::Eager => None,
            Self::Data { prefix } | Self::Put { prefix } | Self::Pull { prefix } => Some(prefix),
        }
    }
}

/// All ways of a driver.
fn ways(nic: NicKind) -> Vec<Way> {
    let prefixes: &[usize] = if is_on_host(nic) { &[0, 4 << 10] } else { &[0, 4 << 10, 16 << 10] };
    let of = |&prefix: &usize| {
        let pull = is_on_host(nic).then_some(Way::Pull { prefix });
        [Way::Data { prefix }, Way::Put { prefix }].into_iter().chain(pull)
    };
    std::iter::once(Way::Eager).chain(prefixes.iter().flat_map(of)).collect()
}

/// Time of one measurement that does not count. Each opens its own endpoints, and on those that have just been opened all takes several
/// times as long: 4 KiB on `uring` 19 us after 5 ms, 2.9 after 40; on `shm` it is the same after 5 as after 40 (`bench/NOTES.md`, 66).
const fn warm_ns(nic: NicKind) -> u64 {
    if is_on_host(nic) { 5_000_000 } else { 40_000_000 }
}

/// Around the sizes of frames of 16 and 61 KiB, where ways change most; at 1 MiB the last way has long won.
const SIZES: [usize; 9] = [4 << 10, 8 << 10, 15 << 10, 24 << 10, 32 << 10, 60 << 10, 128 << 10, 256 << 10, 1 << 20];

/// Between eager, data, put and pull.
const SWITCHES_MOST: usize = 3;

/// Less than half of what a peer may send unasked (`Config::credit`): one more is always under way. Longer ones are announced.
const EAGER_MOST: usize = 256 << 10;

/// Less than this is what two series of this length differ by on a machine that changes its pace (NOTES.md 1).
pub const WORTH: f64 = 1.02;

/// No round, or one without a sample.
const NOTHING: LadderError = LadderError::Sides(PairError::Nothing);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_that_messages_meet_are_switches() {
        let of = |eager_max, prefix, put_min, pull_min| switches(Limits { eager_max, prefix, put_min, pull_min });
        assert_eq!(of(1000, 100, 500, Limits::NEVER), [1000], "what is put was eager before");
        assert_eq!(of(1000, 100, 2000, 4000), [1000, 2099, 4099]);
        assert_eq!(of(0, 0, 0, 4000), [3999]);
    }

    #[test]
    fn what_is_built_in_for_both_kinds_of_pairs_is_what_pairs_have() {
        assert_eq!([NicKind::Memif, NicKind::Vhost].map(built_in), [Config::default().paired; 2]);
    }

    #[test]
    fn a_round_of_a_sample_decides_nothing_beside_full_ones() {
        let round = |p50, n| Some(Summary { min: p50, p50, p99: None, p999: None, n });
        let first = vec![round(100.0, 5_000), round(1_400.0, 1), round(120.0, 5_000)];
        let second = vec![round(50.0, 5_000), round(50.0, 5_000), round(40.0, 5_000)];
        assert_eq!(side_by_side(&[first.clone(), second]), Some(([110.0, 50.0], 2.5)));
        assert_eq!(side_by_side(&[first, vec![None; 3]]), None);
        // No round counts in both.
        let crossed = [vec![round(100.0, 5_000), round(900.0, 1)], vec![round(700.0, 1), round(50.0, 5_000)]];
        assert_eq!(side_by_side(&crossed), Some(([100.0, 50.0], f64::midpoint(100.0 / 700.0, 900.0 / 50.0))));
    }

    #[test]
    fn what_is_built_in_stays_unless_something_else_is_better_over_all_sizes() {
        let (built_in, measured) = (Way::Eager.limits(), Way::Data { prefix: 0 }.limits());
        let decided = |ratios: &[f64]| {
            let size = |&ratio| Size { bytes: 1, built_in_ns: ratio, measured_ns: 1.0, ratio };
            decide(built_in, measured, &ratios.iter().map(size).collect::<Vec<_>>())
        };
        assert_eq!(decided(&[1.03, 1.03]), measured);
        assert_eq!(decided(&[1.01, 1.02]), built_in);
        assert_eq!(decided(&[0.5, 1.5]), built_in, "what is twice as slow once is not made good by half of that");
        assert_eq!(decided(&[0.9, 1.3]), measured);
    }

    #[test]
    fn each_way_forces_itself() {
        for way in ways(NicKind::Shm) {
            let limits = way.limits();
            assert_eq!(limits.eager_max > 0, way == Way::Eager);
            assert_eq!(limits.put_min == 0, matches!(way, Way::Put { .. }));
            assert_eq!(limits.pull_min == 0, matches!(way, Way::Pull { .. }));
        }
        assert!(
            ways(NicKind::Uring).iter().all(|way| !matches!(way, Way::Pull { .. })),
            "another host has no memory here"
        );
    }
}
