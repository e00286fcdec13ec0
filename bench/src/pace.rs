//! How fast cores are just now. The other hyperthread of a virtual machine's core may be somebody else's, clocks change with heat and load:
//! what is measured in such a moment is slow for no fault of its own (`bench/NOTES.md` 88).

use std::hint::black_box;
use std::thread;

use serde::{Deserialize, Serialize};
use sidelane_nic::affinity;

use crate::clock::now_ns;
use crate::stats::median;

/// What cores did in the moments right behind measurements, as shares of what each did at its best in the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// That or less in a tenth of them.
    pub tenth: f64,
    /// In the middle of them.
    pub median: f64,
}

impl Pace {
    /// Of the times that a fixed piece of work took ([`work_ns`]), a list for each core. `None` if there are none.
    pub fn of<'a>(cores: impl IntoIterator<Item = &'a [u64]>) -> Option<Self> {
        let shares = cores.into_iter().flat_map(|times| {
            let best = times.iter().copied().min().unwrap_or(0);
            times.iter().map(move |time| best as f64 / *time as f64)
        });
        let mut shares: Vec<f64> = shares.collect();
        let median = median(&mut shares)?;
        Some(Self { tenth: shares[(shares.len() - 1) / 10], median })
    }

    /// What people are told above figures of cores that were not as fast as at their best. `None` of those that were.
    pub fn warning(self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        (self.tenth < STEADY).then(|| {
            format!(
                "unsteady: cores ran at {} of their best speed or less in a tenth of the moments, {} in the middle; others use this machine or its host",
                percent(self.tenth),
                percent(self.median)
            )
        })
    }

    /// Of two runs: the slower in each.
    pub fn slower(self, other: Self) -> Self {
        Self { tenth: self.tenth.min(other.tenth), median: self.median.min(other.median) }
    }
}

/// Nanoseconds that a fixed piece of work takes on this thread's core now. In all it takes some 40 µs.
pub fn work_ns() -> u64 {
    let mut times = [(); PIECES].map(|()| {
        let begun = now_ns();
        work();
        (now_ns() - begun).max(1)
    });
    // One that an interrupt came into tells nothing of the core.
    times.sort_unstable();
    times[PIECES / 2]
}

/// Chains that need nothing of each other, enough to fill a core's units: only so does it show that somebody else has some of them.
fn work() {
    let mut chains: [u64; CHAINS] = std::array::from_fn(|at| at as u64);
    for step in 0..STEPS {
        for chain in &mut chains {
            *chain = chain.wrapping_add(step) ^ *chain >> 7;
        }
    }
    black_box(chains);
}

/// What [`work_ns`] finds on each core that this process may use, one after the other, in ascending order.
pub fn work_ns_of_cores() -> Vec<u64> {
    let on = |core| {
        let _ = affinity::pin_to(core);
        work_ns()
    };
    affinity::cores().into_iter().filter_map(|core| thread::spawn(move || on(core)).join().ok()).collect()
}

/// Share of their best speed above which cores are steady.
const STEADY: f64 = 0.9;
const PIECES: usize = 5;
const CHAINS: usize = 12;
/// Some 7 µs on an Intel Xeon of 2023.
const STEPS: u64 = 3_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_each_cores_own_best() {
        let (fast, slow) = ([100, 125, 100], [1_000, 2_000, 1_000]);
        assert_eq!(Pace::of([&fast[..], &slow]), Some(Pace { tenth: 0.5, median: 1.0 }));
        assert_eq!(Pace::of([&fast[..1], &[]]), Some(Pace { tenth: 1.0, median: 1.0 }));
        let times: Vec<u64> = (100..=120).collect();
        assert_eq!(Pace::of([&times[..]]), Some(Pace { tenth: 100.0 / 118.0, median: 100.0 / 110.0 }));
        assert_eq!(Pace::of([]), None);
    }

    #[test]
    fn of_two_runs_the_slower_counts() {
        let (a, b) = (Pace { tenth: 0.5, median: 0.9 }, Pace { tenth: 0.7, median: 0.8 });
        assert_eq!(a.slower(b), Pace { tenth: 0.5, median: 0.8 });
    }

    #[test]
    fn unsteady_cores_are_told_of_and_steady_ones_are_not() {
        let at = |tenth| Pace { tenth, median: 0.96 }.warning();
        let told = at(0.62).unwrap();
        assert!(told.contains("at 62 % of their best speed or less in a tenth of the moments, 96 % in the middle"));
        assert_eq!(at(0.93), None);
    }

    #[test]
    fn each_core_works() {
        assert_eq!(work_ns_of_cores().len(), affinity::cores().len());
    }

    #[test]
    fn work_takes_time() {
        assert!(work_ns() > 100, "the compiler has removed it");
    }
}
