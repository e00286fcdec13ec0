//! What a run has found, as numbers: one row a rung, regime and message size.

mod csv;
mod curve;
mod html;
mod lead;
mod name;
mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ladder::{Contended, Measured, NicKind, Plan, Regime, Rung, Variant};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::pattern::{Kind, Outcome};
use crate::stats::{Summary, counted, median};

pub use lead::{Lead, OURS};
pub use name::Name;
pub(crate) use table::{bytes, figures, ratio, time};

/// Everything that a run has found; its JSON form is this, field by field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Names this form: [`SCHEMA`].
    pub schema: String,
    /// What it was measured on.
    pub machine: Machine,
    /// The other machine, where side B ran on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Machine>,
    /// How fast the cores were beside their best: what else runs on the machine, or on its host, takes part of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Contenders, and what exactly they are. Beside them `mpi`'s messages a second and bandwidth are as theirs: of windows of
    /// 64 messages with an answer each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contenders: BTreeMap<String, String>,
    /// Rows, in the order of the ladder and then contenders, the default regime first.
    pub rungs: Vec<Row>,
}

/// One rung, or contender, in one regime at one message size. What was not measured is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The rung or contender.
    pub name: Name,
    /// The driver; null for the kernel's own stack and for contenders.
    pub nic: Option<NicKind>,
    /// The drivers that were measured in the same rounds, which are the row's own run.
    #[serde(default)]
    pub beside: Vec<NicKind>,
    /// How large frames may be.
    pub regime: Regime,
    /// Message size of ping-pong and flood in bytes.
    pub size: usize,
    /// The row's round trips are whole ones and not halves: those of `get`.
    #[serde(default)]
    pub whole: bool,
    /// Half round trips, of `get` whole ones (`whole`): the least of all rounds that count, medians over these, and all their samples. A
    /// percentile that some round has too few samples for is null.
    pub half_rtt_ns: Option<Summary>,
    /// Samples of the round with the fewest, of those that count.
    pub half_rtt_n_least: Option<u64>,
    /// Rounds that do not count among half round trips, since others have many more samples.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub half_rtt_rounds_left_out: usize,
    /// Smallest and largest p50 of a round that counts.
    pub half_rtt_p50_spread_ns: Option<(f64, f64)>,
    /// What the rung adds to the p50 of the rung below: median of the differences within each round, since a machine
    /// that changes its pace between rounds shifts both rungs alike.
    pub over_below_ns: Option<f64>,
    /// How many times as fast as busy-polling TCP by p50: likewise.
    pub faster_than_tcp_poll: Option<f64>,
    /// Messages a second one way, at the receiver: median over rounds. With a depth, messages that were answered.
    pub msgs_per_s: Option<f64>,
    /// Messages of the flood that were to be unanswered; null where none was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// Those that were, where the path holds fewer: one that drops what overruns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_held: Option<usize>,
    /// The same for TCP that gathers small writes (no TCP_NODELAY).
    pub msgs_per_s_gathered: Option<f64>,
    /// Message size of the bandwidth in bytes.
    pub gbit_size: Option<usize>,
    /// Bandwidth: median over rounds, of the best congestion control where there are several.
    pub gbit_per_s: Option<f64>,
    /// That bandwidth as a share of busy-polling TCP's: median of the ratios within each round.
    pub gbit_of_tcp_poll: Option<f64>,
    /// That bandwidth as a share of the rung below's: likewise.
    #[serde(default)]
    pub gbit_of_below: Option<f64>,
    /// That congestion control.
    pub congestion: Option<String>,
    /// Every congestion control that was tried, with its median.
    pub gbit_per_s_by_congestion: Vec<(String, f64)>,
    /// Measurements that failed and were made again, by what the sides reported; those that failed twice end the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<String>,
    /// Of a contender: how our topmost rung stands against it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leads: Vec<Lead>,
    /// What each round saw.
    pub rounds: Vec<Round>,
}

/// What one round saw of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Half round trips.
    pub half_rtt_ns: Option<Summary>,
    /// Messages a second.
    pub msgs_per_s: Option<f64>,
    /// Bandwidth.
    pub gbit_per_s: Option<f64>,
}

impl Report {
    /// Takes together what was measured.
    pub fn new(
        plan: &Plan,
        measured: &[Measured],
        contended: &[Contended],
        contenders: BTreeMap<String, String>,
    ) -> Self {
        let mut rungs = Vec::new();
        for (regime, kinds) in &plan.regimes {
            for (index, &size) in plan.sizes.iter().enumerate() {
                // A bandwidth of a size of its own stands beside the first of the others.
                let small = kinds.iter().any(|kind| *kind != Kind::Bandwidth);
                let bandwidth_size = plan.bandwidth_size.map_or(Some(size), |one| (index == 0).then_some(one));
                if bandwidth_size.is_none() && !small {
                    continue;
                }
                for (rung, nic) in plan.steps() {
                    let wanted = |one: &&Measured| {
                        let cell = &one.cell;
                        let sized = if cell.kind == Kind::Bandwidth { bandwidth_size } else { Some(size) };
                        (cell.regime, cell.rung, cell.nic, Some(cell.size)) == (*regime, rung, nic, sized)
                    };
                    let mut row = Row::empty(Name::Rung(rung), nic, *regime, size);
                    for Measured { cell, rounds, again } in measured.iter().filter(wanted) {
                        row.depth = row.depth.or(plan.depth.filter(|_| cell.kind == Kind::Flood));
                        row.add(cell.kind, cell.size, &cell.variant, rounds);
                        row.again.extend(again.iter().map(|failure| format!("{}: {failure}", cell.kind)));
                    }
                    rungs.push(row);
                }
                let beside = |one: &&Contended| {
                    one.regime == *regime
                        && match one.kind {
                            Kind::Bandwidth => Some(one.size) == bandwidth_size,
                            Kind::PingPong | Kind::Flood => one.size == size,
                        }
                };
                rungs.extend(contender_rows(*regime, size, &contended.iter().filter(beside).collect::<Vec<_>>()));
            }
        }
        for row in &mut rungs {
            row.beside.clone_from(&plan.nics);
        }
        compare(&mut rungs);
        Self { schema: SCHEMA.to_owned(), machine: Machine::describe(), peer: None, pace: None, contenders, rungs }
    }

    /// Takes in the rows of another run on the same machine.
    pub fn append(&mut self, other: Self) {
        self.pace = self.pace.zip(other.pace).map(|(one, other)| one.slower(other)).or(self.pace).or(other.pace);
        self.rungs.extend(other.rungs);
    }

    /// The JSON form, indented.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// One line a row, with a heading.
    pub fn to_csv(&self) -> String {
        csv::write(&self.rungs)
    }

    /// A page for a browser: charts, the tables, and the JSON form.
    pub fn to_html(&self) -> String {
        html::write(self)
    }

    /// Tables for people, one a regime and message size, and where there are several sizes one a regime with all of them.
    pub fn to_table(&self) -> String {
        self.to_table_within(usize::MAX)
    }

    /// The same for a terminal of so many columns: where rows do not fit, times and rates have tables of their own.
    pub fn to_table_within(&self, columns: usize) -> String {
        table::write(self, columns)
    }
}

impl Row {
    fn empty(name: Name, nic: Option<NicKind>, regime: Regime, size: usize) -> Self {
        let whole = name.takes_whole_round_trips();
        Self {
            name,
            nic,
            whole,
            beside: Vec::new(),
            regime,
            size,
            half_rtt_ns: None,
            half_rtt_n_least: None,
            half_rtt_rounds_left_out: 0,
            half_rtt_p50_spread_ns: None,
            over_below_ns: None,
            faster_than_tcp_poll: None,
            msgs_per_s: None,
            depth: None,
            depth_held: None,
            msgs_per_s_gathered: None,
            gbit_size: None,
            gbit_per_s: None,
            gbit_of_tcp_poll: None,
            gbit_of_below: None,
            congestion: None,
            gbit_per_s_by_congestion: Vec::new(),
            again: Vec::new(),
            leads: Vec::new(),
            rounds: Vec::new(),
        }
    }

    fn add(&mut self, kind: Kind, size: usize, variant: &Variant, rounds: &[Outcome]) {
        match kind {
            Kind::PingPong => self.add_ping_pong(rounds),
            Kind::Flood => self.add_flood(rounds, variant),
            Kind::Bandwidth => self.add_bandwidth(rounds, size, variant),
        }
    }

    fn add_ping_pong(&mut self, rounds: &[Outcome]) {
        for (round, outcome) in rounds.iter().enumerate() {
            self.round(round).half_rtt_ns = outcome.half_rtt_ns;
        }
        let seen = rounds.iter().filter(|outcome| outcome.half_rtt_ns.is_some()).count();
        let rounds: Vec<Summary> = self.counted_rounds().iter().filter_map(|round| round.half_rtt_ns).collect();
        self.half_rtt_ns = Summary::of_rounds(&rounds);
        self.half_rtt_n_least = rounds.iter().map(|round| round.n).min();
        self.half_rtt_rounds_left_out = seen - rounds.len();
        self.half_rtt_p50_spread_ns = rounds.iter().map(|round| (round.p50, round.p50)).reduce(wider);
    }

    fn add_flood(&mut self, rounds: &[Outcome], variant: &Variant) {
        let mut rates: Vec<f64> = rounds.iter().filter_map(|outcome| outcome.msgs_per_s).collect();
        if *variant == Variant::Gathered {
            self.msgs_per_s_gathered = median(&mut rates);
            return;
        }
        for (round, outcome) in rounds.iter().enumerate() {
            self.round(round).msgs_per_s = outcome.msgs_per_s;
        }
        self.depth_held =
            rounds.iter().filter_map(|outcome| outcome.depth).min().filter(|held| Some(*held) < self.depth);
        self.msgs_per_s = median(&mut rates);
    }

    /// The best of several congestion controls is the row's figure.
    fn add_bandwidth(&mut self, rounds: &[Outcome], size: usize, variant: &Variant) {
        let gbit = |rate| rate * size as f64 * 8.0 / 1e9;
        let rates: Vec<Option<f64>> = rounds.iter().map(|outcome| outcome.msgs_per_s.map(gbit)).collect();
        let Some(middle) = median(&mut rates.iter().copied().flatten().collect::<Vec<_>>()) else { return };
        let name = match variant {
            Variant::Congestion(name) => Some(name.clone()),
            Variant::Plain | Variant::Gathered => None,
        };
        self.gbit_per_s_by_congestion.extend(name.clone().map(|name| (name, middle)));
        if self.gbit_per_s.is_some_and(|best| best >= middle) {
            return;
        }
        self.gbit_size = Some(size);
        self.gbit_per_s = Some(middle);
        self.congestion = name;
        for (round, rate) in rates.into_iter().enumerate() {
            self.round(round).gbit_per_s = rate;
        }
    }

    /// Its rounds, without those half round trips that do not count.
    fn counted_rounds(&self) -> Vec<Round> {
        let halves: Vec<_> = self.rounds.iter().map(|round| round.half_rtt_ns).collect();
        let rounds = self.rounds.iter().zip(counted(&halves));
        rounds.map(|(round, half_rtt_ns)| Round { half_rtt_ns, ..*round }).collect()
    }

    fn round(&mut self, index: usize) -> &mut Round {
        if self.rounds.len() <= index {
            self.rounds.resize(index + 1, Round::default());
        }
        &mut self.rounds[index]
    }
}

/// A row for each contender.
fn contender_rows(regime: Regime, size: usize, contended: &[&Contended]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for one in contended {
        let name = Name::Contender(one.name.clone());
        let at = rows.iter().position(|row| row.name == name).unwrap_or(rows.len());
        if at == rows.len() {
            rows.push(Row::empty(name, None, regime, size));
        }
        rows[at].add(one.kind, one.size, &Variant::Plain, &one.rounds);
    }
    rows
}

/// Fills in what takes two rows, round by round, of rounds that count.
fn compare(rows: &mut [Row]) {
    let others: Vec<Row> = rows.iter().map(|row| Row { rounds: row.counted_rounds(), ..row.clone() }).collect();
    for (row, counted) in rows.iter_mut().zip(&others) {
        let (regime, size) = (row.regime, row.size);
        let of = |name: Rung| {
            let nic = if name.is_kernel() { None } else { row.nic };
            let same =
                |other: &&Row| other.name == name && (other.nic, other.regime, other.size) == (nic, regime, size);
            others.iter().find(same)
        };
        let figures = |other: &Row, of: fn(&Round) -> Option<f64>, figure: fn(f64, f64) -> f64| {
            let pairs = counted.rounds.iter().zip(&other.rounds).filter_map(|(this, other)| of(this).zip(of(other)));
            median(&mut pairs.map(|(this, other)| figure(this, other)).collect::<Vec<_>>())
        };
        let p50: fn(&Round) -> Option<f64> = |round| round.half_rtt_ns.map(|half| half.p50);
        row.leads = lead::over(counted, &others);
        let below = row.name.rung().and_then(Rung::below).and_then(of);
        row.over_below_ns = below.and_then(|below| figures(below, p50, |this, below| this - below));
        let share = |other: &Row| figures(other, |round| round.gbit_per_s, |this, other| thousandths(this / other));
        row.gbit_of_below = below.and_then(share);
        row.gbit_of_tcp_poll = of(Rung::TcpPoll).and_then(share);
        row.faster_than_tcp_poll = of(Rung::TcpPoll)
            .filter(|_| !row.name.takes_whole_round_trips())
            .and_then(|tcp| figures(tcp, p50, |this, tcp| thousandths(tcp / this)));
    }
}

fn thousandths(ratio: f64) -> f64 {
    (1000.0 * ratio).round() / 1000.0
}

/// The JSON form of a report of any kind, indented, with a line's end.
pub(crate) fn json(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report has only plain fields and finite numbers");
    text.push('\n');
    text
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What takes in both.
pub(crate) fn wider(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// The name of the JSON form. It changes when a field changes its meaning or goes away.
pub const SCHEMA: &str = "sidelane-ladder/1";

#[cfg(test)]
mod tests;
