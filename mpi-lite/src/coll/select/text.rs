//! A table as text: a rule a line, `COLLECTIVE RANKS BYTES ALGORITHM`, with ranges as `2..8`, `2..` or `7`; both ends count.
//! What follows a `#` is a remark.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::table::MOST;
use super::{Algorithm, Collective, Rule, Table};

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {:<14} {:<8} {:<16} algorithm", "collective", "ranks", "bytes")?;
        for Rule { collective, ranks, bytes, algorithm } in self.rules() {
            let (ranks, bytes) = (range_text(ranks), range_text(bytes));
            writeln!(f, "{collective:<16} {ranks:<8} {bytes:<16} {algorithm}")?;
        }
        Ok(())
    }
}

impl FromStr for Table {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let mut rules = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let words: Vec<_> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            match words[..] {
                [] => {}
                [collective, ranks, bytes, algorithm] => {
                    let rule = parse_rule(collective, ranks, bytes, algorithm);
                    rules.push(rule.map_err(|wrong| TableError { line: number, wrong })?);
                }
                _ => return Err(TableError { line: number, wrong: Wrong::Words(words.len()) }),
            }
        }
        Ok(Self::new(rules))
    }
}

/// What is wrong with a table's text, and in which line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {wrong}")]
pub struct TableError {
    line: usize,
    wrong: Wrong,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Wrong {
    #[error("COLLECTIVE RANKS BYTES ALGORITHM were expected, not {0} words")]
    Words(usize),
    #[error("no collective is called `{0}`; there are {all}", all = names(Collective::ALL.map(Collective::name)))]
    Collective(String),
    #[error("`{1}` is no algorithm of {0}, which has {all}", all = names(.0.algorithms().iter().map(ToString::to_string)))]
    Algorithm(Collective, String),
    #[error("`{0}` is no range such as `2..8`, `2..` or `7`, with the smaller end first")]
    Range(String),
}

fn names(all: impl IntoIterator<Item: Into<String>>) -> String {
    all.into_iter().map(Into::into).collect::<Vec<String>>().join(", ")
}

fn parse_rule(collective: &str, ranks: &str, bytes: &str, algorithm: &str) -> Result<Rule, Wrong> {
    let collective = Collective::ALL
        .into_iter()
        .find(|known| known.name() == collective)
        .ok_or_else(|| Wrong::Collective(collective.to_owned()))?;
    let (ranks, bytes) = (parse_range(ranks)?, parse_range(bytes)?);
    let algorithm =
        parse_algorithm(collective, algorithm).ok_or_else(|| Wrong::Algorithm(collective, algorithm.to_owned()))?;
    Ok(Rule { collective, ranks, bytes, algorithm })
}

fn parse_algorithm(collective: Collective, text: &str) -> Option<Algorithm> {
    let (name, segment) = match text.split_once(':') {
        Some((name, segment)) => (name, Some(segment.parse().ok().filter(|segment| *segment > 0)?)),
        None => (text, None),
    };
    let known = *collective.algorithms().iter().find(|known| known.name() == name)?;
    match (known, segment) {
        (Algorithm::Chain { .. }, Some(segment)) => Some(Algorithm::Chain { segment }),
        (_, Some(_)) => None,
        (_, None) => Some(known),
    }
}

fn parse_range(text: &str) -> Result<RangeInclusive<usize>, Wrong> {
    let refused = || Wrong::Range(text.to_owned());
    let number = |text: &str| text.parse::<usize>().map_err(|_| refused());
    let (first, last) = match text.split_once("..") {
        None => (number(text)?, number(text)?),
        Some((first, "")) => (number(first)?, MOST),
        Some((first, last)) => (number(first)?, number(last)?),
    };
    if first > last { Err(refused()) } else { Ok(first..=last) }
}

fn range_text(range: &RangeInclusive<usize>) -> String {
    match (*range.start(), *range.end()) {
        (first, MOST) => format!("{first}.."),
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}..{last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reads_back_as_it_was_written() {
        let table = Table::default();
        assert_eq!(table.to_string().parse(), Ok(table));
    }

    #[test]
    fn a_line_is_a_rule() {
        let table: Table =
            "\n# measured\nbroadcast 3..4 7 chain:100 # long\n  barrier 2.. 0.. dissemination".parse().unwrap();
        let chain = Rule {
            collective: Collective::Broadcast,
            ranks: 3..=4,
            bytes: 7..=7,
            algorithm: Algorithm::Chain { segment: 100 },
        };
        assert_eq!(table.rules()[0], chain);
        assert_eq!((table.rules()[1].ranks.clone(), table.rules().len()), (2..=MOST, 2));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let cases = [
            ("barrier 2 3", "line 1: COLLECTIVE RANKS BYTES ALGORITHM were expected, not 3 words"),
            ("\nbarier 2 3 ring", "line 2: no collective is called `barier`; there are barrier, broadcast, reduce,"),
            ("reduce 2 3 ring", "line 1: `ring` is no algorithm of reduce, which has binomial, rabenseifner"),
            ("reduce 3..2 3 ring", "line 1: `3..2` is no range such as"),
            ("reduce x 3 ring", "line 1: `x` is no range such as"),
            ("scan 2 3 two-level", "line 1: `two-level` is no algorithm of scan, which has doubling"),
            ("barrier 2 3 tree", "line 1: `tree` is no algorithm of barrier, which has dissemination, two-level"),
            ("broadcast 3 3 chain:0", "line 1: `chain:0` is no algorithm of broadcast, which has"),
            ("broadcast 3 3 binomial:9", "line 1: `binomial:9` is no algorithm"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Table>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
