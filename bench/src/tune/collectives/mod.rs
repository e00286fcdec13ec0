//! The collectives' table, measured by messages among ranks that are processes: every algorithm of each collective, each rank on a host
//! of its own; then, where hosts have several ranks, one level beside two, each of which goes by what was measured before.

mod levels;
mod rank;
mod start;
mod table;

use std::fmt;
use std::str::FromStr;

use sidelane_mpi::coll::{Algorithm, Case, Collective, Rule, Table};

pub use levels::{Compared, Decision, Shape, two_levels};
pub use rank::rank;
pub use start::measure;
pub use table::{Gain, one_level};

/// One algorithm at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// What was called.
    pub case: Case,
    /// How it was done.
    pub algorithm: Algorithm,
    /// A call, median over rounds.
    pub ns: f64,
    /// Of the algorithm that was clearly faster than what is built in: how many times as fast it was when both were measured once
    /// more, median of the ratios within each round.
    pub again: Option<f64>,
}

/// Lines that a measurement of `ranks` ranks gives.
pub fn count(ranks: usize) -> usize {
    cases(ranks).map(|case| algorithms(case).count()).sum()
}

/// Collectives that there are several algorithms for, at all sizes.
fn cases(ranks: usize) -> impl Iterator<Item = Case> {
    let all = Collective::ALL.into_iter().flat_map(move |collective| SIZES.map(|bytes| case(collective, ranks, bytes)));
    all.filter(|case| algorithms(*case).count() > 1)
}

/// Of ranks on hosts of their own.
fn case(collective: Collective, ranks: usize, bytes: usize) -> Case {
    Case { collective, ranks, hosts: ranks, bytes, commutative: true }
}

/// What a call can be done by on one level, and, where hosts have several ranks, on two.
fn algorithms(case: Case) -> impl Iterator<Item = Algorithm> {
    let chains = [16 << 10, 64 << 10].map(|segment| Algorithm::Chain { segment });
    let all = case.collective.algorithms().iter().flat_map(move |algorithm| match algorithm {
        Algorithm::Chain { .. } => chains.to_vec(),
        other => vec![*other],
    });
    all.filter(move |algorithm| algorithm.can(case))
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { collective, ranks, bytes, .. } = self.case;
        write!(f, "{collective} {ranks} {bytes} {} {} ", self.algorithm, self.ns)?;
        match self.again {
            Some(again) => write!(f, "{again}"),
            None => f.write_str(NOT_AGAIN),
        }
    }
}

impl FromStr for Taken {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (line, again) = line.rsplit_once(' ').ok_or(())?;
        let (rule, ns) = line.rsplit_once(' ').ok_or(())?;
        let again = if again == NOT_AGAIN { None } else { Some(again.parse().map_err(|_| ())?) };
        // The first four words are a rule of a table.
        let table: Table = rule.parse().map_err(|_| ())?;
        let [Rule { collective, ranks, bytes, algorithm }] = table.rules() else { return Err(()) };
        let case = case(*collective, *ranks.start(), *bytes.start());
        Ok(Self { case, algorithm: *algorithm, ns: ns.parse().map_err(|_| ())?, again })
    }
}

/// In the place of a ratio.
const NOT_AGAIN: &str = "-";

/// Bytes of an array or a block.
const SIZES: [usize; 6] = [8, 512, 4 << 10, 16 << 10, 64 << 10, MOST];
const MOST: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(collective: Collective, ranks: usize, bytes: usize, algorithm: Algorithm, ns: f64) -> Taken {
        Taken { case: case(collective, ranks, bytes), algorithm, ns, again: (ns > 10.0).then_some(0.97) }
    }

    #[test]
    fn lines_read_back_as_they_were_written() {
        let chain = Algorithm::Chain { segment: 100 };
        for one in
            [taken(Collective::Broadcast, 4, 8, chain, 12.5), taken(Collective::Allreduce, 2, 0, Algorithm::Ring, 1.0)]
        {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        for bad in
            ["", "allreduce 2 8 ring", "allreduce 2 8 ring 3", "allreduce 2 8 ring x -", "allreduce 2 8 ring 3 x"]
        {
            assert_eq!(bad.parse::<Taken>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn every_case_has_ways_to_choose_from() {
        for ranks in [2, 4, 8] {
            assert!(cases(ranks).all(|case| algorithms(case).count() >= 2), "{ranks}");
            assert!(cases(ranks).all(|case| case.collective != Collective::Barrier), "one way on one level");
        }
        assert!(count(3) < count(4), "recursive doubling is for powers of two");
    }
}
