//! What came out of a run: figures for programs, tables for people.

use std::fmt;

use comfy_table::Table;
use serde::{Deserialize, Serialize};

use super::{Cell, Plan};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::page::{self, Bar, Chart, Curve, Point, Section};
use crate::report::{bytes, figures, json, wider};
use crate::stats::median;

/// All figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Names this form: `SCHEMA`.
    pub schema: String,
    /// Where it was run.
    pub machine: Machine,
    /// How fast the cores were behind each job.
    pub pace: Option<Pace>,
    /// Who was measured, ours the first, and what exactly each is.
    pub callers: Vec<(String, String)>,
    /// Time in which each call was made again and again.
    pub measure_ns: u64,
    /// One for each number of ranks, collective and size, in this order.
    pub entries: Vec<Entry>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Ranks of the job.
    pub ranks: usize,
    /// The call's name.
    pub collective: String,
    /// The bytes that its count stands for.
    pub bytes: usize,
    /// Of each caller.
    pub taken: Vec<Taken>,
    /// How many times as fast ours is as the best of the others: the median of the ratios within the rounds. Below 1 it is
    /// slower.
    pub ratio: Option<f64>,
}

/// What a call took with one of the callers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// The middle one of the rounds; null where all have failed.
    pub median_ns: Option<f64>,
    /// Each round's.
    pub rounds_ns: Vec<f64>,
}

impl Report {
    pub(super) fn new(plan: &Plan, names: Vec<String>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            machine: Machine::describe(),
            pace: None,
            callers: names.into_iter().map(|name| (name, String::new())).collect(),
            measure_ns: plan.measure_ns,
            entries: Vec::new(),
        }
    }

    /// One job's times, in the order of its cells.
    pub(super) fn add(&mut self, ranks: usize, who: usize, cells: &[Cell], times_ns: &[f64]) {
        for (cell, time) in cells.iter().zip(times_ns) {
            let same = |entry: &Entry| {
                (entry.ranks, &entry.collective[..], entry.bytes) == (ranks, cell.collective.name(), cell.bytes)
            };
            let at = self.entries.iter().position(same).unwrap_or_else(|| {
                self.entries.push(Entry {
                    ranks,
                    collective: cell.collective.to_string(),
                    bytes: cell.bytes,
                    taken: vec![Taken::default(); self.callers.len()],
                    ratio: None,
                });
                self.entries.len() - 1
            });
            self.entries[at].taken[who].rounds_ns.push(*time);
        }
    }

    /// `work_ns`: of each core, what a fixed piece of work took behind each job.
    pub(super) fn finish(&mut self, versions: Vec<String>, work_ns: &[Vec<u64>]) {
        self.pace = Pace::of(work_ns.iter().map(|times| &times[..]));
        for ((_, version), said) in self.callers.iter_mut().zip(versions) {
            *version = said;
        }
        self.entries.iter_mut().for_each(Entry::finish);
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// A page for a browser: of each number of ranks a chart of each call, then the tables, and the JSON form.
    pub fn to_html(&self) -> String {
        let together = |one: &Entry, next: &Entry| (one.ranks, &one.collective) == (next.ranks, &next.collective);
        let charts = self.entries.chunk_by(together).map(|entries| self.chart(entries)).collect();
        let section = Section { charts, text: self.to_string() };
        page::write("Sidelane: collective calls", &self.machine.to_string(), &[section], &self.to_json())
    }

    /// Of one call among one number of ranks, by size; bars where it has but one.
    fn chart(&self, entries: &[Entry]) -> Chart {
        let title = format!("{}, {}, µs", entries[0].collective, of_ranks(entries[0].ranks));
        let callers = || self.callers.iter().map(|(name, _)| name.clone()).enumerate();
        if let [entry] = entries {
            let bar = |(who, name): (usize, String)| {
                let Taken { median_ns, rounds_ns } = &entry.taken[who];
                let range = rounds_ns.iter().map(|ns| (*ns, *ns)).reduce(wider);
                Some(Bar { name, value: (*median_ns)?, range, label: time((*median_ns)?) })
            };
            return Chart::Bars { title, bars: callers().filter_map(bar).collect() };
        }
        let point = |who: usize, entry: &Entry| Some(Point { size: entry.bytes, value: entry.taken[who].median_ns? });
        let curve =
            |(who, name)| Curve { name, points: entries.iter().filter_map(|entry| point(who, entry)).collect() };
        Chart::Curves { title, curves: callers().map(curve).collect(), figure: time }
    }

    /// Calls in which ours is slower than the best of the others by more than a tenth, the worst first.
    fn slower(&self) -> Vec<(f64, &Entry)> {
        let mut slower: Vec<_> = self
            .entries
            .iter()
            .filter_map(|entry| Some((entry.ratio?, entry)))
            .filter(|(ratio, _)| *ratio < 0.9)
            .collect();
        slower.sort_by(|a, b| a.0.total_cmp(&b.0));
        slower
    }

    /// Calls as rows and lengths as columns; `ours / the best of the others`, and the ratio.
    fn table(&self, ranks: usize) -> Table {
        let entries: Vec<_> = self.entries.iter().filter(|entry| entry.ranks == ranks).collect();
        let mut sizes: Vec<_> = entries.iter().map(|entry| entry.bytes).filter(|bytes| *bytes > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let heads = sizes.iter().map(|size| bytes(*size));
        let header = [vec![of_ranks(ranks)], heads.collect()].concat();
        let mut names: Vec<&str> = entries.iter().map(|entry| &entry.collective[..]).collect();
        names.dedup();
        // What moves no bytes stands in the first column.
        let column = |entry: &Entry| sizes.iter().position(|size| *size == entry.bytes).unwrap_or(0);
        let rows = names.into_iter().map(|name| {
            let mut row = vec![String::new(); sizes.len().max(1) + 1];
            name.clone_into(&mut row[0]);
            for entry in entries.iter().filter(|entry| entry.collective == name) {
                row[1 + column(entry)] = self.text(entry);
            }
            row
        });
        figures(1, header, rows)
    }

    fn text(&self, entry: &Entry) -> String {
        let ours = entry.taken[0].median_ns.map_or("-".to_owned(), time);
        let Some((best, taken)) = entry.best() else { return ours };
        let initial = self.callers[best].0.chars().next().unwrap_or('?');
        let ratio = entry.ratio.map_or(String::new(), |ratio| format!(" {ratio:.2}x"));
        format!("{ours} / {} {initial}{ratio}", time(taken))
    }
}

impl Entry {
    fn finish(&mut self) {
        for taken in &mut self.taken {
            taken.median_ns = median(&mut taken.rounds_ns.clone());
        }
        self.ratio = self.best().and_then(|(best, _)| {
            let rounds = self.taken[best].rounds_ns.iter().zip(&self.taken[0].rounds_ns);
            median(&mut rounds.map(|(theirs, ours)| theirs / ours).collect::<Vec<_>>())
        });
    }

    /// Which of the others is the fastest, and what it takes.
    fn best(&self) -> Option<(usize, f64)> {
        let others = self.taken.iter().enumerate().skip(1);
        others.filter_map(|(who, taken)| Some((who, taken.median_ns?))).min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        if let Some(warning) = self.pace.and_then(Pace::warning) {
            writeln!(f, "{warning}")?;
        }
        for (name, version) in &self.callers {
            writeln!(f, "{name}: {version}")?;
        }
        let others: Vec<_> = self.callers.iter().skip(1).map(|(name, _)| &name[..]).collect();
        let beside = if others.is_empty() {
            String::new()
        } else {
            format!(" / the best of {}, and how many times as fast ours is", others.join(" and "))
        };
        writeln!(f, "\nMicroseconds a call, back to back: ours{beside}")?;
        let mut ranks: Vec<_> = self.entries.iter().map(|entry| entry.ranks).collect();
        ranks.dedup();
        for ranks in ranks {
            writeln!(f, "{}", self.table(ranks))?;
        }
        let slower = self.slower();
        if !slower.is_empty() {
            writeln!(f, "\nSlower than the best of the others by more than a tenth:")?;
        }
        for (ratio, entry) in &slower {
            let Entry { ranks, collective, bytes: size, .. } = entry;
            writeln!(f, "  {ratio:.2}x {collective} of {}, {}", of_ranks(*ranks), bytes(*size))?;
        }
        if !others.is_empty() {
            let compared = self.entries.iter().filter(|entry| entry.ratio.is_some()).count();
            write!(
                f,
                "{} of {compared} calls are slower than the best of the others by more than a tenth",
                slower.len()
            )?;
        }
        Ok(())
    }
}

/// The form of [`Report::to_json`].
pub const SCHEMA: &str = "sidelane-collectives/1";

fn time(nanos: f64) -> String {
    let micros = nanos / 1e3;
    match micros {
        micros if micros < 9.995 => format!("{micros:.2}"),
        micros if micros < 99.95 => format!("{micros:.1}"),
        micros => format!("{micros:.0}"),
    }
}

/// "1 rank", "2 ranks".
pub fn of_ranks(ranks: usize) -> String {
    format!("{ranks} rank{}", if ranks == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::Collective;

    #[test]
    fn the_ratio_is_to_the_best_of_the_others_within_rounds() {
        let plan = Plan { ranks: vec![4], ..Plan::default() };
        let mut report = Report::new(&plan, ["ours", "slow", "fast"].map(str::to_owned).to_vec());
        let cells =
            [Cell { collective: Collective::Scan, bytes: 1024 }, Cell { collective: Collective::Barrier, bytes: 0 }];
        for round in 0..3 {
            let noise = f64::from(round + 1);
            report.add(4, 0, &cells, &[2_000.0 * noise, 100.0]);
            report.add(4, 1, &cells, &[9_000.0 * noise, 50_000.0]);
            report.add(4, 2, &cells, &[1_000.0 * noise, 40_000.0]);
        }
        report.finish(vec!["1".to_owned(); 3], &[vec![100, 200]]);
        assert_eq!(report.entries[0].ratio, Some(0.5));
        assert_eq!(report.entries[1].ratio, Some(400.0));
        let text = report.to_string();
        assert!(text.contains("4.00 / 2.00 f 0.50x"), "{text}");
        assert!(text.contains("0.50x scan of 4 ranks, 1 KiB"), "{text}");
        assert!(text.contains("1 of 2 calls are slower"), "{text}");
        assert!(text.contains("\nunsteady: cores ran at 50 %"), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
        let page = report.to_html();
        assert!(
            page.matches("<svg").count() == 2 && page.contains("scan, 4 ranks, µs") && page.contains("\nslow\n"),
            "{page}"
        );
    }

    #[test]
    fn without_others_there_are_only_our_times() {
        let mut report = Report::new(&Plan::default(), vec!["ours".to_owned()]);
        report.add(2, 0, &[Cell { collective: Collective::Gather, bytes: 8 }], &[123_456.0]);
        report.add(1, 0, &[Cell { collective: Collective::Gather, bytes: 8 }], &[98.0]);
        report.finish(vec![String::new()], &[]);
        let text = report.to_string();
        assert!(text.contains("2 ranks") && text.contains("1 rank "), "{text}");
        assert!(text.contains("123") && !text.contains("slower") && !text.contains(" / "), "{text}");
    }
}
