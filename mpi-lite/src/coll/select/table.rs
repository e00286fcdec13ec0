use std::ops::RangeInclusive;

use super::{Algorithm, Collective};

/// A call. Every rank of it sees the same, and so chooses the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// What is called.
    pub collective: Collective,
    /// How many take part.
    pub ranks: usize,
    /// How many hosts they are on.
    pub hosts: usize,
    /// What the call's count amounts to: the array of a broadcast or a reduction, one rank's block of the others.
    pub bytes: usize,
    /// Whether the operator, if there is one, gives the same in any order.
    pub commutative: bool,
}

/// An algorithm, and for which calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What is called.
    pub collective: Collective,
    /// How many take part.
    pub ranks: RangeInclusive<usize>,
    /// As in [`Case::bytes`].
    pub bytes: RangeInclusive<usize>,
    /// What is to be done.
    pub algorithm: Algorithm,
}

/// Rules, of which the first counts that fits a call and can do it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    rules: Vec<Rule>,
}

impl Table {
    /// These rules.
    ///
    /// # Panics
    ///
    /// When a rule gives a collective an algorithm that it doesn't have.
    pub fn new(rules: Vec<Rule>) -> Self {
        for rule in &rules {
            assert!(rule.collective.has(rule.algorithm), "{} has no algorithm {}", rule.collective, rule.algorithm);
        }
        Self { rules }
    }

    /// The rules in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules for ranks that share hosts, of the table that is built in: for one that was measured among ranks that do not.
    pub fn two_levels() -> impl Iterator<Item = Rule> {
        Self::default().rules.into_iter().filter(|rule| rule.algorithm == Algorithm::TwoLevel)
    }

    /// What to do in this case: the collective's first algorithm, where no rule says more.
    pub fn choose(&self, case: Case) -> Algorithm {
        let fits = |rule: &&Rule| {
            rule.collective == case.collective
                && rule.ranks.contains(&case.ranks)
                && rule.bytes.contains(&case.bytes)
                && rule.algorithm.can(case)
        };
        self.rules.iter().find(fits).map_or(case.collective.algorithms()[0], |rule| rule.algorithm)
    }
}

impl Default for Table {
    /// The switch points of Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
    /// 2005, which are MPICH's until today; a pipeline for what is longer than any of their measurements. The project's own are those of
    /// gathers, scatters and allgathers, by one rank's block ([`Case::bytes`]): for an allgather the paper has 80 and 512 KiB of all
    /// blocks together. Two levels where hosts have
    /// several ranks: always where all get or give the same array, and of blocks for each rank up to where copies at the leaders cost
    /// more than messages (bench/NOTES.md, Collectives).
    fn default() -> Self {
        use Algorithm::*;
        use Collective::*;
        let rules: [(Collective, RangeInclusive<usize>, RangeInclusive<usize>, Algorithm); 19] = [
            (Barrier, 3..=MOST, 0..=MOST, TwoLevel),
            (Broadcast, 3..=MOST, 0..=MOST, TwoLevel),
            (Reduce, 3..=MOST, 0..=MOST, TwoLevel),
            (Allreduce, 3..=MOST, 0..=MOST, TwoLevel),
            (ReduceScatter, 3..=MOST, 0..=4_096, TwoLevel),
            (Allgather, 3..=MOST, 0..=8_191, TwoLevel),
            (Alltoall, 3..=MOST, 0..=1_024, TwoLevel),
            (Broadcast, 8..=MOST, 12_288..=MOST, ScatterAllgather),
            (Broadcast, 3..=7, 524_288..=MOST, Chain { segment: 65_536 }),
            (Reduce, 3..=MOST, 2_049..=MOST, Rabenseifner),
            (Allreduce, 3..=MOST, 2_049..=524_288, Rabenseifner),
            (Allreduce, 3..=MOST, 524_289..=MOST, Ring),
            (ReduceScatter, 3..=MOST, 0..=524_287, RecursiveHalving),
            (Gather, 1..=MOST, 32_769..=MOST, Linear),
            (Scatter, 1..=MOST, 32_769..=MOST, Linear),
            (Allgather, 1..=MOST, 0..=8_191, RecursiveDoubling),
            (Allgather, 1..=MOST, 0..=8_191, Bruck),
            (Alltoall, 8..=MOST, 0..=256, Bruck),
            (Alltoall, 1..=MOST, 0..=32_768, Linear),
        ];
        let rule = |(collective, ranks, bytes, algorithm)| Rule { collective, ranks, bytes, algorithm };
        Self::new(rules.map(rule).into())
    }
}

/// No bound.
pub(super) const MOST: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn case(collective: Collective, ranks: usize, bytes: usize, commutative: bool) -> Case {
        Case { collective, ranks, hosts: ranks, bytes, commutative }
    }

    #[test]
    fn the_first_rule_that_fits_and_can_counts() {
        let table = Table::default();
        let choose = |collective, ranks, bytes, commutative| table.choose(case(collective, ranks, bytes, commutative));
        assert_eq!(choose(Collective::Allreduce, 4, 2_048, true), Algorithm::RecursiveDoubling);
        assert_eq!(choose(Collective::Allreduce, 4, 2_049, true), Algorithm::Rabenseifner);
        assert_eq!(choose(Collective::Allreduce, 4, 2_049, false), Algorithm::RecursiveDoubling);
        assert_eq!(choose(Collective::Allgather, 8, 8, true), Algorithm::RecursiveDoubling);
        assert_eq!(choose(Collective::Allgather, 9, 8, true), Algorithm::Bruck);
        assert_eq!(choose(Collective::Allgather, 9, 1 << 20, true), Algorithm::Ring);
    }

    #[test]
    fn leaders_keep_no_more_of_an_alltoall_than_is_quicker() {
        let of_two_hosts = |ranks| Case { hosts: 2, ..case(Collective::Alltoall, ranks, 1_024, true) };
        let chosen = [44, 46].map(|ranks| Table::default().choose(of_two_hosts(ranks)));
        assert_eq!(chosen, [Algorithm::TwoLevel, Algorithm::Linear]);
    }

    #[test]
    fn what_is_chosen_can_be_done() {
        let tables = [Table::default(), Table::new(Vec::new())];
        for (table, collective) in tables.iter().flat_map(|table| Collective::ALL.map(|collective| (table, collective)))
        {
            for ranks in 1..=17 {
                for shift in 0..30 {
                    for commutative in [false, true] {
                        let case = case(collective, ranks, 1 << shift, commutative);
                        let algorithm = table.choose(case);
                        assert!(collective.has(algorithm) && algorithm.can(case), "{case:?}: {algorithm}");
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "barrier has no algorithm ring")]
    fn a_rule_with_another_collectives_algorithm_is_refused() {
        Table::new(vec![Rule {
            collective: Collective::Barrier,
            ranks: 1..=2,
            bytes: 0..=0,
            algorithm: Algorithm::Ring,
        }]);
    }
}
