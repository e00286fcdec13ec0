//! From times to rules of one level; no I/O.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use sidelane_mpi::coll::{Algorithm, Collective, Rule, Table};

use super::Taken;

/// What the table that was measured gains over the one that is built in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The collective's name.
    pub collective: String,
    /// Ranks.
    pub ranks: usize,
    /// Mean over sizes (geometric) of how many times as fast.
    pub mean: f64,
    /// The most at any size.
    pub most: f64,
}

/// What was measured, as rules of one level for any number of ranks and bytes, and what they gain.
pub fn one_level(measured: &[Taken]) -> (Table, Vec<Gain>) {
    let built_in = Table::default();
    let (mut rules, mut gains) = (Vec::new(), Vec::new());
    for collective in Collective::ALL {
        let mut counts: Vec<usize> =
            measured.iter().filter(|one| one.case.collective == collective).map(|one| one.case.ranks).collect();
        counts.dedup();
        for (at, &ranks) in counts.iter().enumerate() {
            let of = |one: &&Taken| (one.case.collective, one.case.ranks) == (collective, ranks);
            let measured: Vec<&Taken> = measured.iter().filter(of).collect();
            let choices: Vec<Choice> =
                measured.chunk_by(|one, next| one.case == next.case).map(|ways| Choice::of(ways, &built_in)).collect();
            let ratios = choices.iter().map(|choice| choice.ratio);
            let mean = (ratios.clone().map(f64::ln).sum::<f64>() / choices.len() as f64).exp();
            let most = ratios.fold(1.0, f64::max);
            gains.push(Gain { collective: collective.to_string(), ranks, mean, most });
            let ranks = around(&counts, at, 1);
            let sizes: Vec<usize> = choices.iter().map(|choice| choice.bytes).collect();
            let mut first = 0;
            for alike in choices.chunk_by(|one, next| one.algorithm == next.algorithm) {
                let last = first + alike.len() - 1;
                let bytes = *around(&sizes, first, 0).start()..=*around(&sizes, last, 0).end();
                rules.push(Rule { collective, ranks: ranks.clone(), bytes, algorithm: alike[0].algorithm });
                first = last + 1;
            }
        }
    }
    (Table::new(rules), gains)
}

/// The best algorithm for one case.
struct Choice {
    bytes: usize,
    algorithm: Algorithm,
    /// How many times as fast as what is built in.
    ratio: f64,
}

impl Choice {
    /// The one that is built in, unless another is better by [`WORTH`].
    fn of(ways: &[&Taken], built_in: &Table) -> Self {
        let case = ways[0].case;
        let usual = built_in.choose(case);
        let usual = ways.iter().find(|way| way.algorithm == usual).unwrap_or(&ways[0]);
        let best = ways.iter().min_by(|a, b| a.ns.total_cmp(&b.ns)).expect("a case has a way");
        let ratio = usual.ns / best.ns;
        let (algorithm, ratio) = if ratio > WORTH { (best.algorithm, ratio) } else { (usual.algorithm, 1.0) };
        Self { bytes: case.bytes, algorithm, ratio }
    }
}

/// What is nearer to number `at` of these, which ascend, than to its neighbours; the first and the last are for all beyond from `least` on.
pub(super) fn around(measured: &[usize], at: usize, least: usize) -> RangeInclusive<usize> {
    let first = if at == 0 { least } else { middle(measured[at - 1], measured[at]) };
    let last = measured.get(at + 1).map_or(usize::MAX, |next| middle(measured[at], *next) - 1);
    first..=last
}

/// Between two, in the middle of their logarithms, rounded up.
fn middle(one: usize, other: usize) -> usize {
    (one as f64 * other as f64).sqrt().ceil() as usize
}

/// Rounds of a few calls differ by this on a machine of fewer cores than ranks.
const WORTH: f64 = 1.05;

#[cfg(test)]
mod tests {
    use super::super::case;
    use super::*;

    fn taken(collective: Collective, ranks: usize, bytes: usize, algorithm: Algorithm, ns: f64) -> Taken {
        Taken { case: case(collective, ranks, bytes), algorithm, ns }
    }

    #[test]
    fn rules_cover_every_case_with_what_was_fastest_nearby() {
        use Algorithm::{RecursiveDoubling, Ring};
        let mut measured = Vec::new();
        for (ranks, ring) in [(2, 50.0), (8, 200.0)] {
            for (bytes, factor) in [(8, 4.0), (1024, 1.0), (1 << 20, 0.1)] {
                measured.push(taken(Collective::Allreduce, ranks, bytes, RecursiveDoubling, 100.0));
                measured.push(taken(Collective::Allreduce, ranks, bytes, Ring, ring * factor));
            }
        }
        let (table, gains) = one_level(&measured);
        let choose = |ranks, bytes| table.choose(case(Collective::Allreduce, ranks, bytes));
        assert_eq!([choose(2, 8), choose(3, 512), choose(2, 1 << 30)], [RecursiveDoubling, Ring, Ring]);
        assert_eq!(
            [choose(4, 512), choose(100, 31 << 10), choose(9, 33 << 10)],
            [RecursiveDoubling, RecursiveDoubling, Ring]
        );
        assert!(table.rules().iter().all(|rule| rule.algorithm != Algorithm::TwoLevel), "no ranks shared a host");
        assert_eq!(gains.len(), 2);
        assert!(gains.iter().all(|gain| gain.most >= gain.mean && gain.mean >= 1.0), "{gains:?}");
    }
}
