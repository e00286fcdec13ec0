//! From times to rules of one level; no I/O.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use sidelane_mpi::coll::{Algorithm, Collective, Rule, Table};

use super::Taken;

/// What measured best beside what is built in, both measured once more: that may be below 1, since it did not choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The collective's name.
    pub collective: String,
    /// Ranks.
    pub ranks: usize,
    /// Mean over sizes (geometric) of how many times as fast; 1 at those at which nothing else was clearly faster.
    pub mean: f64,
    /// The least at any size. Below 1 what is built in stays.
    pub least: f64,
    /// The most at any size.
    pub most: f64,
}

/// What was measured, as rules of one level for any number of ranks and bytes, and what they gain.
pub fn one_level(measured: &[Taken]) -> (Table, Vec<Gain>) {
    let (mut rules, mut gains) = (Vec::new(), Vec::new());
    for collective in Collective::ALL {
        let mut counts: Vec<usize> =
            measured.iter().filter(|one| one.case.collective == collective).map(|one| one.case.ranks).collect();
        counts.dedup();
        for (at, &ranks) in counts.iter().enumerate() {
            let of = |one: &&Taken| (one.case.collective, one.case.ranks) == (collective, ranks);
            let measured: Vec<&Taken> = measured.iter().filter(of).collect();
            let choices: Vec<Choice> = measured.chunk_by(|one, next| one.case == next.case).map(Choice::of).collect();
            let ratios = choices.iter().map(|choice| choice.again);
            let mean = (ratios.clone().map(f64::ln).sum::<f64>() / choices.len() as f64).exp();
            let (least, most) = ratios.fold((f64::MAX, 0.0f64), |(least, most), at| (least.min(at), most.max(at)));
            gains.push(Gain { collective: collective.to_string(), ranks, mean, least, most });
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
    /// How many times as fast as what is built in the best was when it was measured once more.
    again: f64,
}

impl Choice {
    /// The one that is built in, unless another was clearly faster, and was faster once more.
    fn of(ways: &[&Taken]) -> Self {
        let best = ways.iter().find_map(|way| Some((way.algorithm, way.again?)));
        let usual = ways[built_in(ways)].algorithm;
        let algorithm = best.filter(|(_, again)| *again > 1.0).map_or(usual, |(best, _)| best);
        Self { bytes: ways[0].case.bytes, algorithm, again: best.map_or(1.0, |(_, again)| again) }
    }
}

/// The place of what is built in, of all ways of a case, and that of the fastest if it is faster by [`WORTH`].
pub(super) fn faster(ways: &[Taken]) -> (usize, Option<usize>) {
    let usual = built_in(&ways.iter().collect::<Vec<_>>());
    let best = (0..ways.len()).min_by(|a, b| ways[*a].ns.total_cmp(&ways[*b].ns));
    (usual, best.filter(|best| ways[usual].ns / ways[*best].ns > WORTH))
}

fn built_in(ways: &[&Taken]) -> usize {
    let usual = Table::default().choose(ways[0].case);
    ways.iter().position(|way| way.algorithm == usual).unwrap_or(0)
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
        Taken { case: case(collective, ranks, bytes), algorithm, ns, again: None }
    }

    /// What is said of one case; when it is measured once more all is as before, but for a factor.
    fn said(mut ways: Vec<Taken>, lucky: f64) -> Vec<Taken> {
        let (usual, best) = faster(&ways);
        if let Some(best) = best {
            ways[best].again = Some(ways[usual].ns / ways[best].ns / lucky);
        }
        ways
    }

    #[test]
    fn rules_cover_every_case_with_what_was_fastest_nearby() {
        use Algorithm::{RecursiveDoubling, Ring};
        let mut measured = Vec::new();
        for (ranks, ring) in [(2, 50.0), (8, 200.0)] {
            for (bytes, factor) in [(8, 4.0), (1024, 1.0), (1 << 20, 0.1)] {
                let ways = [(RecursiveDoubling, 100.0), (Ring, ring * factor)];
                let ways = ways.map(|(way, ns)| taken(Collective::Allreduce, ranks, bytes, way, ns));
                measured.extend(said(ways.into(), 1.0));
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
        assert!(gains.iter().all(|gain| gain.most >= gain.mean && gain.mean >= gain.least), "{gains:?}");
    }

    #[test]
    fn what_is_no_faster_once_more_stays_as_built_in_and_what_it_came_to_is_told() {
        let case = case(Collective::Allreduce, 4, 8);
        let usual = Table::default().choose(case);
        let other = if usual == Algorithm::Ring { Algorithm::RecursiveDoubling } else { Algorithm::Ring };
        let ways = || [(usual, 120.0), (other, 100.0)].map(|(way, ns)| taken(case.collective, 4, 8, way, ns)).to_vec();
        for (lucky, choice, gain) in [(1.25, usual, 0.96), (1.1, other, 120.0 / 110.0)] {
            let (table, gains) = one_level(&said(ways(), lucky));
            assert_eq!(table.choose(case), choice);
            let [Gain { mean, least, most, .. }] = gains[..] else { panic!("{gains:?}") };
            assert!([mean, least, most].into_iter().all(|at| (at - gain).abs() < 1e-9), "{gains:?}");
        }
        let alike = [(usual, 104.0), (other, 100.0)].map(|(way, ns)| taken(case.collective, 4, 8, way, ns));
        assert_eq!(faster(&alike), (0, None));
    }
}
