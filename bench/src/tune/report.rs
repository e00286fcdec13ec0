//! What a tuning has come to, for people and programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use comfy_table::Table;
use serde::{Deserialize, Serialize};
use sidelane_mpi::adi::Limits;
use sidelane_mpi::coll;
use sidelane_mpi::world::tuning::Tuning;

use super::collectives::{Decision, Gain};
use super::{Driver, Size, Step};
use crate::machine::Machine;
use crate::report::{bytes, figures, json, ratio, time};

/// Everything that was measured, and what was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// Names this form: `SCHEMA`.
    pub schema: String,
    /// What it was measured on.
    pub machine: Machine,
    /// Limits.
    pub drivers: Vec<Driver>,
    /// What measured best beside what is built in, by messages, once more.
    pub collectives: Vec<Gain>,
    /// Where hosts have several ranks: how many levels calls go on, and why.
    #[serde(default)]
    pub two_levels: Vec<Decision>,
    /// That table, a rule a line.
    pub rules: Vec<String>,
}

impl Tuned {
    /// Takes together what was measured.
    pub fn new(
        drivers: Vec<Driver>,
        collectives: Vec<Gain>,
        two_levels: Vec<Decision>,
        table: Option<&coll::Table>,
    ) -> Self {
        let rules = Tuning::new(String::new(), BTreeMap::new(), table).collectives;
        Self { schema: SCHEMA.to_owned(), machine: Machine::describe(), drivers, collectives, two_levels, rules }
    }

    /// What jobs are told.
    pub fn tuning(&self) -> Tuning {
        let Machine { cpu, cores, kernel, .. } = &self.machine;
        let limits = self.drivers.iter().map(|driver| (driver.nic.to_string(), driver.chosen)).collect();
        let machine = format!("{cpu}, {cores} cores, Linux {kernel}");
        Tuning { collectives: self.rules.clone(), ..Tuning::new(machine, limits, None) }
    }

    /// The JSON form, indented.
    pub fn to_json(&self) -> String {
        json(self)
    }
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for driver in &self.drivers {
            writeln!(f, "\n{}: built in: {}", driver.nic, words(driver.built_in))?;
            if driver.chosen == driver.built_in {
                writeln!(f, "kept, since what measured best is no better by and large:")?;
            } else {
                writeln!(f, "chosen: {}", words(driver.chosen))?;
            }
            writeln!(f, "{}", sizes(&driver.sizes))?;
            for Step { bytes: last, below_ns, above_ns, ratio } in &driver.steps {
                let (below, above) = (time(Some(*below_ns)), time(Some(*above_ns)));
                writeln!(f, "the switch above {}: {below}, a byte more {above}: {ratio:.2}x", bytes(*last))?;
            }
        }
        if !self.collectives.is_empty() {
            writeln!(
                f,
                "\nCollectives by messages: how many times as fast as what is built in is what measured best, measured once more;"
            )?;
            writeln!(f, "what is built in stays where that is below 1")?;
            write!(f, "{}", gains(&self.collectives))?;
        }
        if !self.two_levels.is_empty() {
            writeln!(
                f,
                "\n\nHosts with several ranks: how many times as fast a call is on two levels as on one, and what it goes on;"
            )?;
            writeln!(
                f,
                "as built in where there is a ?: the rounds do not tell, or other numbers of hosts tell otherwise"
            )?;
            write!(f, "{}", levels(&self.two_levels))?;
            let changed = self.two_levels.iter().filter(|decision| decision.is_changed()).count();
            write!(f, "\n{changed} of {} go another way than built in (marked *)", self.two_levels.len())?;
        }
        Ok(())
    }
}

/// The form of [`Tuned::to_json`].
pub const SCHEMA: &str = "sidelane-tune/1";

fn words(limits: Limits) -> String {
    let from =
        |least: usize| if least == Limits::NEVER { "never".to_owned() } else { format!("from {} on", bytes(least)) };
    let Limits { eager_max, prefix, put_min, pull_min } = limits;
    format!(
        "unasked up to {}, else announced with {}; of the rest put {}, read from the sender's memory {}",
        bytes(eager_max),
        bytes(prefix),
        from(put_min),
        from(pull_min)
    )
}

fn sizes(sizes: &[Size]) -> Table {
    let rows = sizes.iter().map(|size| {
        vec![bytes(size.bytes), time(Some(size.built_in_ns)), time(Some(size.measured_ns)), ratio(Some(size.ratio))]
    });
    table(["half RTT,\np50", "built in", "measured\nbest", "times\nas fast"], rows)
}

fn gains(gains: &[Gain]) -> Table {
    let rows = gains.iter().map(|gain| {
        let ratios = [gain.mean, gain.least, gain.most].map(|at| ratio(Some(at)));
        [vec![gain.collective.clone(), gain.ranks.to_string()], ratios.to_vec()].concat()
    });
    table(["collective", "ranks", "mean of\nsizes", "at\nleast", "at\nmost"], rows)
}

/// A row for each collective and number of hosts and ranks, a column for each length.
fn levels(decisions: &[Decision]) -> Table {
    let sizes: BTreeSet<usize> = decisions.iter().map(|decision| decision.bytes).filter(|size| *size > 0).collect();
    let same = |one: &Decision, next: &Decision| {
        (&one.collective, one.hosts, one.ranks) == (&next.collective, next.hosts, next.ranks)
    };
    let cell = |decision: &Decision| {
        let Decision { ratio, levels, is_clear, .. } = decision;
        let mark = if decision.is_changed() { "*" } else { "" };
        let doubt = if *is_clear { "" } else { "?" };
        format!("{ratio:.2}x {}{doubt}{mark}", if *levels == 2 { "two" } else { "one" })
    };
    let rows = decisions.chunk_by(same).map(|row| {
        let Decision { collective, hosts, ranks, .. } = &row[0];
        let of = |size: &usize| row.iter().find(|decision| decision.bytes == *size);
        // What has no length stands in the first column.
        let cells = sizes.iter().enumerate().map(|(at, size)| of(size).or_else(|| of(&0).filter(|_| at == 0)));
        let cells: Vec<String> = cells.map(|decision| decision.map(cell).unwrap_or_default()).collect();
        [vec![collective.clone(), hosts.to_string(), ranks.to_string()], cells].concat()
    });
    let header = ["collective", "hosts", "ranks"].map(str::to_owned).into_iter();
    figures(0, header.chain(sizes.iter().map(|size| bytes(*size))).collect(), rows)
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = Vec<String>>) -> Table {
    figures(0, header.map(str::to_owned).into(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::NicKind;

    #[test]
    fn what_was_chosen_is_told_and_handed_on() {
        let built_in = Limits { eager_max: 60 << 10, prefix: 4 << 10, put_min: 16 << 10, pull_min: Limits::NEVER };
        let chosen = Limits { eager_max: 32 << 10, ..built_in };
        let sizes = vec![Size { bytes: 4096, built_in_ns: 3_000.0, measured_ns: 2_000.0, ratio: 1.5 }];
        let steps = vec![Step { bytes: 32 << 10, below_ns: 9_000.0, above_ns: 9_900.0, ratio: 1.1 }];
        let driver = Driver { nic: NicKind::Uring, built_in, chosen, sizes, steps };
        let changed = Decision {
            collective: "gather".to_owned(),
            hosts: 2,
            ranks: 8,
            bytes: 512,
            one_ns: 3_000.0,
            two_ns: 1_500.0,
            ratio: 2.0,
            least: 1.8,
            most: 2.1,
            levels: 2,
            is_clear: true,
        };
        let kept = Decision { bytes: 4096, ratio: 1.2, least: 0.7, levels: 1, is_clear: false, ..changed.clone() };
        let tuned = Tuned::new(vec![driver], Vec::new(), vec![changed, kept], Some(&coll::Table::default()));
        let text = tuned.to_string();
        assert!(
            text.contains("chosen: unasked up to 32 KiB, else announced with 4 KiB; of the rest put from 16 KiB on"),
            "{text}"
        );
        assert!(text.contains("the switch above 32 KiB: 9000 ns, a byte more 9900 ns: 1.10x"), "{text}");
        assert!(text.contains("1.50x") && text.contains("memory never"), "{text}");
        assert!(text.contains("2.00x two*") && text.contains("1.20x one?") && !text.contains("one?*"), "{text}");
        assert!(text.contains("1 of 2 go another way than built in"), "{text}");
        let tuning = tuned.tuning();
        assert_eq!(tuning.limits["uring"], chosen);
        assert_eq!(tuning.table(), coll::Table::default());
        assert_eq!(serde_json::from_str::<Tuned>(&tuned.to_json()).unwrap(), tuned);
    }
}
