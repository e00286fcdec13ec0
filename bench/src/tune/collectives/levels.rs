//! One level beside two, measured; from ratios to rules, no I/O.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sidelane_mpi::coll::{Algorithm, Case, Collective, Rule, Table};

use super::SIZES;
use super::table::around;
use crate::stats::median;

/// How many hosts, and ranks on each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shape {
    /// At least 2.
    pub hosts: usize,
    /// At least 2.
    pub each: usize,
}

/// One call on one level and on two.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// What was called.
    pub case: Case,
    /// A call on one and on two, round by round.
    pub rounds: Vec<[f64; 2]>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The collective's name.
    pub collective: String,
    /// Hosts.
    pub hosts: usize,
    /// Ranks on all of them.
    pub ranks: usize,
    /// Bytes of an array or a block.
    pub bytes: usize,
    /// A call on one level: median over rounds.
    pub one_ns: f64,
    /// On two.
    pub two_ns: f64,
    /// How many times as fast two levels are: median of the ratios within each round.
    pub ratio: f64,
    /// The least of those ratios.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// How many levels such calls go on from now on.
    pub levels: usize,
    /// False: it is as built in, since the rounds do not tell what is faster, or hosts of other numbers of ranks tell otherwise.
    pub is_clear: bool,
}

impl Shape {
    /// Ranks on all hosts.
    pub const fn ranks(self) -> usize {
        self.hosts * self.each
    }

    /// Lines that a measurement gives.
    pub fn count(self) -> usize {
        self.cases().count()
    }

    /// Whatever can go on two levels.
    pub(super) fn cases(self) -> impl Iterator<Item = Case> {
        let sizes = |collective| if collective == Collective::Barrier { &[0][..] } else { &SIZES };
        let all = Collective::ALL.into_iter().flat_map(move |collective| {
            let case =
                move |&bytes| Case { collective, ranks: self.ranks(), hosts: self.hosts, bytes, commutative: true };
            sizes(collective).iter().map(case)
        });
        all.filter(|case| case.collective.has(Algorithm::TwoLevel) && Algorithm::TwoLevel.can(*case))
    }
}

impl Compared {
    /// How many levels are faster, where that is clear; and how many times as fast two are, in the middle, at least and at most.
    fn verdict(&self) -> (Option<usize>, [f64; 3]) {
        let mut ratios: Vec<f64> = self.rounds.iter().map(|[one, two]| one / two).collect();
        let ratio = median(&mut ratios).expect("there was a round");
        let against = |levels| ratios.iter().filter(|ratio| (**ratio > 1.0) != (levels == 2)).count();
        let gains = [(1, 1.0 / ratio), (2, ratio)];
        let clear = gains.into_iter().find(|(levels, gain)| *gain > CLEAR && against(*levels) <= ratios.len() / DOUBTS);
        let (least, most) = ratios.iter().fold((f64::MAX, 0.0f64), |(least, most), at| (least.min(*at), most.max(*at)));
        (clear.map(|(levels, _)| levels), [ratio, least, most])
    }

    fn decide(&self, all: &[Self]) -> Decision {
        let Case { collective, hosts, ranks, bytes, .. } = self.case;
        // A rule knows how many ranks there are, and not on how many hosts.
        let alike =
            |other: &&Self| (other.case.collective, other.case.ranks, other.case.bytes) == (collective, ranks, bytes);
        let mut verdicts = all.iter().filter(alike).map(|other| other.verdict().0);
        let first = verdicts.next().flatten();
        let clear = first.filter(|first| verdicts.all(|other| other == Some(*first)));
        let mut taken = [0, 1].map(|level| self.rounds.iter().map(|round| round[level]).collect::<Vec<f64>>());
        let [one_ns, two_ns] = taken.each_mut().map(|taken| median(taken).expect("there was a round"));
        let (_, [ratio, least, most]) = self.verdict();
        Decision {
            collective: collective.to_string(),
            hosts,
            ranks,
            bytes,
            one_ns,
            two_ns,
            ratio,
            least,
            most,
            levels: clear.unwrap_or_else(|| built_in(self.case)),
            is_clear: clear.is_some(),
        }
    }
}

impl Decision {
    /// Whether the call went on another number of levels before.
    pub fn is_changed(&self) -> bool {
        let Self { hosts, ranks, bytes, levels, .. } = *self;
        let of = |collective| Case { collective, ranks, hosts, bytes, commutative: true };
        let collective = Collective::ALL.into_iter().find(|known| known.name() == self.collective);
        collective.is_some_and(|collective| built_in(of(collective)) != levels)
    }
}

/// The rules for calls on two levels that come of what was measured, and why: those built in, but for what changed. That goes for the
/// lengths and numbers of ranks that are nearer to it than to others that were measured.
pub fn two_levels(compared: &[Compared]) -> (Vec<Rule>, Vec<Decision>) {
    let decisions: Vec<Decision> = compared.iter().map(|one| one.decide(compared)).collect();
    let rules = Collective::ALL.into_iter().flat_map(|collective| {
        let of = |(one, _): &(&Compared, &Decision)| one.case.collective == collective;
        let decided: Vec<_> =
            compared.iter().zip(&decisions).filter(of).map(|(one, decision)| (one.case, decision.levels)).collect();
        rules_of(collective, &decided)
    });
    (rules.collect(), decisions)
}

/// Those of one collective, whose cases go on so many levels.
fn rules_of(collective: Collective, decided: &[(Case, usize)]) -> Vec<Rule> {
    let usual = || Table::two_levels().filter(|rule| rule.collective == collective);
    let is_usual = |(case, levels): &(Case, usize)| *levels == built_in(*case);
    if decided.iter().all(is_usual) {
        return usual().collect();
    }
    let mut counts: Vec<usize> = decided.iter().map(|(case, _)| case.ranks).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut rules = Vec::new();
    for (at, &count) in counts.iter().enumerate() {
        let ranks = around(&counts, at, 1);
        let cut = usual().map(|rule| {
            let (first, last) = (*rule.ranks.start().max(ranks.start()), *rule.ranks.end().min(ranks.end()));
            Rule { ranks: first..=last, ..rule }
        });
        let mut here: Vec<Rule> = cut.filter(|rule| !rule.ranks.is_empty()).collect();
        let of = decided.iter().filter(|(case, _)| case.ranks == count);
        let mut changes: Vec<(usize, Option<usize>)> =
            of.map(|one| (one.0.bytes, (!is_usual(one)).then_some(one.1))).collect();
        changes.sort_unstable();
        changes.dedup();
        let sizes: Vec<usize> = changes.iter().map(|(bytes, _)| *bytes).collect();
        let mut first = 0;
        for alike in changes.chunk_by(|one, next| one.1 == next.1) {
            let last = first + alike.len() - 1;
            let bytes = *around(&sizes, first, 0).start()..=*around(&sizes, last, 0).end();
            match alike[0].1 {
                Some(2) => here.push(Rule { collective, ranks: ranks.clone(), bytes, algorithm: Algorithm::TwoLevel }),
                Some(_) => here = here.iter().flat_map(|rule| without(rule, &bytes)).collect(),
                None => {}
            }
            first = last + 1;
        }
        rules.extend(here);
    }
    rules
}

/// What is left of a rule below and above these bytes.
fn without<'a>(rule: &'a Rule, bytes: &RangeInclusive<usize>) -> impl Iterator<Item = Rule> + use<'a> {
    let (first, last) = (*rule.bytes.start(), *rule.bytes.end());
    let below = bytes.start().checked_sub(1).map(|end| first..=last.min(end));
    let above = bytes.end().checked_add(1).map(|begin| first.max(begin)..=last);
    let left = [below, above].into_iter().flatten().filter(|bytes| !bytes.is_empty());
    left.map(|bytes| Rule { bytes, ..rule.clone() })
}

/// How many levels without a tuning.
fn built_in(case: Case) -> usize {
    if Table::default().choose(case) == Algorithm::TwoLevel { 2 } else { 1 }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.hosts, self.each)
    }
}

impl FromStr for Shape {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (hosts, each) = text.split_once('x').ok_or(())?;
        let number = |text: &str| text.parse().ok().filter(|number| *number >= 2).ok_or(());
        Ok(Self { hosts: number(hosts)?, each: number(each)? })
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { collective, ranks, hosts, bytes, .. } = self.case;
        write!(f, "{collective} {ranks} {hosts} {bytes}")?;
        self.rounds.iter().try_for_each(|[one, two]| write!(f, " {one}/{two}"))
    }
}

impl FromStr for Compared {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split(' ');
        let name = words.next().ok_or(())?;
        let collective = Collective::ALL.into_iter().find(|known| known.name() == name).ok_or(())?;
        let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or(());
        let (ranks, hosts, bytes) = (number()?, number()?, number()?);
        let time = |text: &str| text.parse().ok().filter(|ns| *ns > 0.0).ok_or(());
        let round = |word: &str| {
            let (one, two) = word.split_once('/').ok_or(())?;
            Ok([time(one)?, time(two)?])
        };
        let rounds: Vec<[f64; 2]> = words.map(round).collect::<Result<_, ()>>()?;
        if rounds.is_empty() {
            return Err(());
        }
        Ok(Self { case: Case { collective, ranks, hosts, bytes, commutative: true }, rounds })
    }
}

/// By how much, at least: twice what an algorithm has to be better by, since ranks share hosts, and so cores (bench/NOTES.md 47).
const CLEAR: f64 = 1.1;

/// One round of so many may tell otherwise: of eleven one, of five none. Ten heads of eleven come up by chance once in 170, and there are
/// nearly a hundred calls.
const DOUBTS: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of so many hosts and ranks, with what two levels gain in each round.
    fn compared(collective: Collective, shape: &str, bytes: usize, gains: &[f64]) -> Compared {
        let shape: Shape = shape.parse().unwrap();
        let case = Case { collective, ranks: shape.ranks(), hosts: shape.hosts, bytes, commutative: true };
        Compared { case, rounds: gains.iter().map(|gain| [1_000.0 * gain, 1_000.0]).collect() }
    }

    fn table(compared: &[Compared]) -> Table {
        Table::new(two_levels(compared).0)
    }

    fn goes_on(table: &Table, collective: Collective, ranks: usize, bytes: usize) -> usize {
        let case = Case { collective, ranks, hosts: 2, bytes, commutative: true };
        if table.choose(case) == Algorithm::TwoLevel { 2 } else { 1 }
    }

    #[test]
    fn only_what_is_clear_of_noise_goes_another_way_than_built_in() {
        let steady = |gain| [gain; 5];
        let (gather, barrier) = (Collective::Gather, Collective::Barrier);
        for (collective, rounds, levels, is_clear) in [
            (gather, &steady(1.5)[..], 2, true),
            (gather, &steady(1.08), 1, false),
            (gather, &steady(0.7), 1, true),
            (gather, &[1.5, 1.5, 0.9, 1.5, 1.5], 1, false),
            (gather, &[1.5, 1.5, 0.9, 1.5, 1.5, 1.5, 1.5], 2, true),
            (gather, &[1.5, 1.5, 0.9, 1.5, 0.9, 1.5, 1.5], 1, false),
            (barrier, &steady(0.95), 2, false),
            (barrier, &steady(0.8), 1, true),
            (barrier, &[0.8, 0.8, 1.1, 0.8, 0.8], 2, false),
            (barrier, &steady(3.0), 2, true),
        ] {
            let one = compared(collective, "2x4", if collective == barrier { 0 } else { 8 }, rounds);
            let (rules, decisions) = two_levels(std::slice::from_ref(&one));
            let decision = &decisions[0];
            assert_eq!((decision.levels, decision.is_clear), (levels, is_clear), "{collective} {rounds:?}");
            assert_eq!(goes_on(&Table::new(rules), collective, 8, one.case.bytes), levels, "{collective} {rounds:?}");
            assert_eq!(decision.is_changed(), (collective == gather) == (levels == 2), "{collective} {rounds:?}");
        }
    }

    #[test]
    fn what_a_decision_goes_by_is_told_with_it() {
        let one = compared(Collective::Gather, "2x4", 8, &[2.0, 1.0, 4.0]);
        let Decision { ratio, least, most, one_ns, two_ns, .. } = two_levels(&[one]).1.remove(0);
        assert_eq!([ratio, least, most, one_ns, two_ns], [2.0, 1.0, 4.0, 2_000.0, 1_000.0]);
    }

    #[test]
    fn what_was_not_measured_or_is_not_clear_keeps_its_rules_to_the_byte() {
        let usual: Vec<Rule> = Table::two_levels().collect();
        assert_eq!(two_levels(&[]).0, usual);
        let unclear = [8, 512, 4_096].map(|bytes| compared(Collective::Allgather, "2x4", bytes, &[0.9, 1.2, 1.1]));
        assert_eq!(two_levels(&unclear).0, usual);
    }

    #[test]
    fn rules_reach_halfway_to_the_next_length_and_number_of_ranks() {
        let gather = Collective::Gather;
        let table = table(&[
            compared(gather, "2x4", 8, &[2.0; 3]),
            compared(gather, "2x4", 512, &[0.5; 3]),
            compared(gather, "2x4", 4_096, &[2.0; 3]),
            compared(gather, "4x4", 8, &[0.5; 3]),
            compared(gather, "4x4", 512, &[2.0; 3]),
            compared(gather, "4x4", 4_096, &[0.5; 3]),
        ]);
        let at = |ranks, bytes| goes_on(&table, gather, ranks, bytes);
        // The middles are 64, 1,449 and, of ranks, 12.
        assert_eq!([0, 63, 64, 1_448, 1_449, 1 << 30].map(|bytes| at(11, bytes)), [2, 2, 1, 1, 2, 2]);
        assert_eq!([0, 63, 64, 1_448, 1_449, 1 << 30].map(|bytes| at(12, bytes)), [1, 1, 2, 2, 1, 1]);
        assert_eq!([at(4, 8), at(100, 8), at(100, 512)], [2, 1, 2]);
    }

    #[test]
    fn what_changed_goes_for_the_numbers_of_ranks_nearest_to_it() {
        let allgather = Collective::Allgather;
        let table =
            table(&[compared(allgather, "2x4", 4_096, &[0.5; 3]), compared(allgather, "4x4", 4_096, &[1.0; 3])]);
        let at = |ranks, bytes| goes_on(&table, allgather, ranks, bytes);
        assert_eq!([at(11, 4_096), at(12, 4_096), at(12, 8_191), at(12, 8_192)], [1, 2, 2, 1]);
    }

    #[test]
    fn a_change_moves_no_bound_but_its_own() {
        let allgather = Collective::Allgather;
        // Built in are two levels up to 8,191 bytes; the middles are 181 and 16,384.
        let gains = [(8, 0.5), (4_096, 1.0), (65_536, 1.0)];
        let measured = gains.map(|(bytes, gain)| compared(allgather, "2x4", bytes, &[gain; 3]));
        let lengths = [181, 182, 8_191, 8_192, 16_383, 1 << 20];
        assert_eq!(lengths.map(|bytes| goes_on(&table(&measured), allgather, 8, bytes)), [1, 2, 2, 1, 1, 1]);
        let gains = [(8, 1.0), (4_096, 0.5), (65_536, 2.0)];
        let measured = gains.map(|(bytes, gain)| compared(allgather, "2x4", bytes, &[gain; 3]));
        let lengths = [181, 182, 8_191, 16_383, 16_384, 1 << 20];
        assert_eq!(lengths.map(|bytes| goes_on(&table(&measured), allgather, 8, bytes)), [2, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn hosts_that_tell_otherwise_leave_it_as_built_in() {
        let (gather, sides) = (Collective::Gather, ["2x8", "4x4"]);
        let decide = |gains: [f64; 2]| {
            let both = [0, 1].map(|at| compared(gather, sides[at], 8, &[gains[at]; 3]));
            let (rules, decisions) = two_levels(&both);
            assert!(decisions.iter().all(|decision| decision.levels == decisions[0].levels));
            goes_on(&Table::new(rules), gather, 16, 8)
        };
        assert_eq!([decide([2.0, 2.0]), decide([2.0, 0.5]), decide([1.0, 2.0])], [2, 1, 1]);
    }

    #[test]
    fn lines_read_back_as_they_were_written() {
        let one = compared(Collective::Alltoall, "4x4", 512, &[1.5, 0.3]);
        assert_eq!(one.to_string().parse(), Ok(one));
        for bad in
            ["", "gather 8 2 8", "gather 8 2 8 1.0", "gather 8 2 8 1.0/0", "sing 8 2 8 1.0/2.0", "gather 8 2 x 1/1"]
        {
            assert_eq!(bad.parse::<Compared>(), Err(()), "{bad}");
        }
        assert_eq!("4x2".parse(), Ok(Shape { hosts: 4, each: 2 }));
        for bad in ["4", "x", "1x4", "4x1", "4x", "4x2x2"] {
            assert_eq!(bad.parse::<Shape>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn whatever_two_levels_can_do_is_compared() {
        let shape = Shape { hosts: 4, each: 4 };
        let all: Vec<Case> = shape.cases().collect();
        assert_eq!(all.len(), shape.count());
        assert!(all.iter().all(|case| case.collective.has(Algorithm::TwoLevel) && Algorithm::TwoLevel.can(*case)));
        let lengths = |collective| all.iter().filter(|case| case.collective == collective).count();
        assert_eq!([Collective::Barrier, Collective::Gather, Collective::Scan].map(lengths), [1, SIZES.len(), 0]);
        assert!(lengths(Collective::Alltoall) < SIZES.len(), "long blocks are too much for a leader");
    }
}
