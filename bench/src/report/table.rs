//! Rows as tables for people.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use sidelane_mpi::launch::Shown;

use super::{Lead, OURS, Report, Row, curve};
use crate::ladder::{CONGESTION_TRIED, NicKind, Regime, Rung};
use crate::pace::Pace;
use crate::stats::SAMPLES_LEAST;

/// One table a regime and message size, under a line about the machine; then one a regime by size.
pub(super) fn write(report: &Report, room: usize) -> String {
    let mut text = format!("{}\n", report.machine);
    if let Some(peer) = &report.peer {
        let _ = writeln!(text, "and {}", Shown(&peer.to_string()));
    }
    if let Some(warning) = report.pace.and_then(Pace::warning) {
        let _ = writeln!(text, "{warning}");
    }
    for (name, version) in &report.contenders {
        let _ = writeln!(text, "{name}: {version}");
    }
    if !report.contenders.is_empty() {
        let _ = writeln!(text, "{OURS} and these: messages/s and Gbit/s of windows of 64 messages with an answer each");
    }
    let mut rest = &report.rungs[..];
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|row| (row.regime, row.size) == (first.regime, first.size)).count();
        let (rows, behind) = rest.split_at(count);
        rest = behind;
        let _ = write!(text, "\n{}\n{}\n", title(rows), table(rows, room));
        for row in rows {
            let name = name(row, drivers(rows).len() > 1);
            if row.half_rtt_rounds_left_out > 0 {
                let (left_out, all) = (row.half_rtt_rounds_left_out, row.rounds.len());
                let _ = writeln!(text, "{name}: {left_out} of {all} rounds had too few round trips and do not count");
            }
            if let Some(n) = few(row) {
                let _ = writeln!(
                    text,
                    "{name}: {n} round trips (n) in the round that counts and has fewest: one takes so long, or other work had the cores"
                );
            }
            if let Some(held) = row.depth_held {
                let _ = writeln!(
                    text,
                    "{name}: {held} deep, since its path holds no more of them and drops what overruns it"
                );
            }
            if let Some(last) = row.again.last() {
                let times = row.again.len();
                let _ = writeln!(text, "{name}: {times} failed and made again; {last}");
            }
        }
        for name in untried(rows) {
            let loaded = &report.machine.tcp_congestion_controls;
            let _ = writeln!(text, "kernel TCP: not tried with {name}, which may do better{}", remedy(name, loaded));
        }
        if rows.iter().any(|row| !row.leads.is_empty()) {
            let _ = write!(
                text,
                "\nHow many times as good {OURS} is in the same rounds (above 1: faster)\n{}\n",
                leads(rows)
            );
        }
    }
    for of_regime in report.rungs.chunk_by(|one, next| one.regime == next.regime) {
        if let Some(curves) = curve::of(of_regime) {
            let above =
                if of_regime.iter().any(|row| !row.leads.is_empty()) { "; above 1x: we are faster" } else { "" };
            let _ = write!(text, "\n{}, by message size{above}\n{curves}\n", title(of_regime));
        }
    }
    text
}

/// Congestion controls that the bandwidth of kernel TCP, where it was measured, is not the best of.
fn untried(rows: &[Row]) -> Vec<&'static str> {
    let kernel = |row: &&Row| row.name == Rung::TcpPoll || row.name == Rung::TcpBlock;
    let Some(row) = rows.iter().filter(kernel).find(|row| row.gbit_per_s.is_some()) else { return Vec::new() };
    let was_tried = |name: &str| row.gbit_per_s_by_congestion.iter().any(|(tried, _)| tried == name);
    CONGESTION_TRIED.into_iter().filter(|name| !was_tried(name)).collect()
}

/// What lets a user try a congestion control, of those that the kernel has `loaded` or another one.
fn remedy(name: &str, loaded: &[String]) -> String {
    match name {
        _ if loaded.iter().any(|one| one == name) => {
            format!(" (sudo sysctl net.ipv4.tcp_allowed_congestion_control='{}')", loaded.join(" "))
        }
        // No module: each kernel has it (net/ipv4/tcp_cong.c), and this one does not say which it has.
        "reno" => String::new(),
        _ => format!(" (sudo modprobe tcp_{name})"),
    }
}

fn title(rows: &[Row]) -> String {
    let first = &rows[0];
    let names: Vec<String> = drivers(rows).iter().map(NicKind::to_string).collect();
    let on = if names.is_empty() { String::new() } else { format!(" on {}", names.join(" and ")) };
    let regime = match first.regime {
        Regime::DefaultOffloads => "default offloads (TCP and we both move super-packets that are never cut)",
        Regime::RealFrames => "real frames (offloads off for TCP, at most MTU-sized frames for us)",
        Regime::Wire => "between two machines, offloads as their interfaces have them",
    };
    format!("Ladder{on}, {regime}")
}

/// A line for each contender and driver.
fn leads(rows: &[Row]) -> Table {
    let small = bytes(rows[0].size);
    let large = rows.iter().find_map(|row| row.gbit_size).map_or_else(String::new, |size| format!("\n{}", bytes(size)));
    let headings = [format!("half RTT\n{small}, p50"), format!("messages/s\n{small}"), format!("Gbit/s{large}")];
    let header = [vec![format!("\n{OURS} on"), "\nto".to_owned()], headings.to_vec()].concat();
    let leads = rows.iter().flat_map(|row| row.leads.iter().map(move |lead| (row, lead))).map(|(row, lead)| {
        let Lead { nic, half_rtt, msgs_per_s, gbit_per_s } = *lead;
        let ratios = [half_rtt, msgs_per_s, gbit_per_s].map(ratio);
        [vec![nic.to_string(), row.name.to_string()], ratios.to_vec()].concat()
    });
    figures(2, header, leads)
}

/// One table, or if its lines are longer than `room` columns two, of times and of rates.
fn table(rows: &[Row], room: usize) -> String {
    let several = drivers(rows).len() > 1;
    let names = vec![column("rung", rows, |row| name(row, several))];
    let (times, rates) = (times(rows), rates(rows));
    let of = |columns: &[Vec<String>]| {
        let line = |index: usize| columns.iter().map(|lines| lines[index].clone()).collect();
        figures(1, line(0), (1..=rows.len()).map(line)).to_string()
    };
    let whole = of(&[&names[..], &times, &rates].concat());
    let fits = whole.lines().all(|line| line.chars().count() <= room);
    if fits || times.is_empty() || rates.is_empty() {
        return whole;
    }
    format!("{}\n{}", of(&[&names[..], &times].concat()), of(&[names, rates].concat()))
}

fn times(rows: &[Row]) -> Vec<Vec<String>> {
    let mut columns = Vec::new();
    if rows.iter().any(|row| row.half_rtt_ns.is_some()) {
        columns.push(column(&format!("half RTT\n{}, p50", bytes(rows[0].size)), rows, round_trip));
        columns.push(column("of rounds\nns", rows, |row| spread(row.half_rtt_p50_spread_ns)));
        columns.push(column("\np99", rows, |row| time(row.half_rtt_ns.and_then(|half| half.p99))));
        columns.push(column("more than\nthe rung below", rows, difference));
        columns.push(column("faster than\ntcp-poll", rows, |row| ratio(row.faster_than_tcp_poll)));
    }
    columns
}

fn rates(rows: &[Row]) -> Vec<Vec<String>> {
    let mut columns = Vec::new();
    if rows.iter().any(|row| row.msgs_per_s.is_some()) {
        let depth = rows.iter().find_map(|row| row.depth).map_or_else(String::new, |depth| format!(", {depth} deep"));
        let gathered = if rows.iter().any(|row| row.msgs_per_s_gathered.is_some()) { " (gathered)" } else { "" };
        let size = bytes(rows[0].size);
        columns.push(column(&format!("messages/s\n{size}{depth}{gathered}"), rows, messages));
    }
    if let Some(size) = rows.iter().find_map(|row| row.gbit_size) {
        columns.push(column(&format!("Gbit/s\n{}", bytes(size)), rows, gbit));
        // One of the two, or lines do not fit on a screen.
        if rows.iter().any(|row| row.gbit_of_tcp_poll.is_some()) {
            columns.push(column("of\ntcp-poll", rows, |row| ratio(row.gbit_of_tcp_poll)));
        } else if rows.iter().any(|row| row.gbit_of_below.is_some()) {
            columns.push(column("of the\nrung below", rows, |row| ratio(row.gbit_of_below)));
        }
    }
    columns
}

/// A table in the manner of all reports: its first `left` columns stand to the left, all others to the right.
pub(crate) fn figures(left: usize, header: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(header).add_rows(rows);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// With its driver, where there are `several`.
pub(super) fn name(row: &Row, several: bool) -> String {
    match row.nic {
        Some(nic) if several => format!("{} {nic}", row.name),
        _ => row.name.to_string(),
    }
}

fn round_trip(row: &Row) -> String {
    let Some(half) = row.half_rtt_ns else { return NOTHING.to_owned() };
    let whole = if row.name.takes_whole_round_trips() { "whole " } else { "" };
    let few = few(row).map_or_else(String::new, |n| format!(" (n {n})"));
    format!("{whole}{}{few}", time(Some(half.p50)))
}

/// Round trips of the thinnest round that counts, where they are few.
fn few(row: &Row) -> Option<u64> {
    row.half_rtt_n_least.filter(|n| *n < SAMPLES_LEAST)
}

/// The drivers of the rows, in their order.
pub(super) fn drivers(rows: &[Row]) -> Vec<NicKind> {
    let mut drivers = Vec::new();
    for nic in rows.iter().filter_map(|row| row.nic) {
        if !drivers.contains(&nic) {
            drivers.push(nic);
        }
    }
    drivers
}

/// A heading and a figure for each row.
fn column(heading: &str, rows: &[Row], figure: impl Fn(&Row) -> String) -> Vec<String> {
    std::iter::once(heading.to_owned()).chain(rows.iter().map(figure)).collect()
}

/// Of messages of a few bytes it is hundredths, and less.
pub(super) fn gbit_per_s(gbit: f64) -> String {
    match gbit {
        gbit if gbit < 0.01 => format!("{gbit:.6}"),
        gbit if gbit < 1.0 => format!("{gbit:.3}"),
        gbit => format!("{gbit:.1}"),
    }
}

fn gbit(row: &Row) -> String {
    match (row.gbit_per_s, &row.congestion) {
        (Some(gbit), Some(congestion)) => format!("{} ({congestion})", gbit_per_s(gbit)),
        (Some(gbit), None) => gbit_per_s(gbit),
        (None, _) => NOTHING.to_owned(),
    }
}

pub(crate) fn time(nanos: Option<f64>) -> String {
    match nanos {
        None => NOTHING.to_owned(),
        Some(nanos) if nanos < 10_000.0 => format!("{nanos:.0} ns"),
        Some(nanos) => format!("{:.1} µs", nanos / 1e3),
    }
}

fn spread(range: Option<(f64, f64)>) -> String {
    range.map_or_else(|| NOTHING.to_owned(), |(low, high)| format!("{low:.0}..{high:.0}"))
}

fn difference(row: &Row) -> String {
    match (row.over_below_ns, row.name.rung().and_then(Rung::below)) {
        (Some(nanos), Some(below)) => format!("{nanos:+.0} ns ({below})"),
        _ => NOTHING.to_owned(),
    }
}

pub(crate) fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NOTHING.to_owned(), |ratio| format!("{ratio:.2}x"))
}

/// Kernel TCP's best stands beside what it does message by message.
fn messages(row: &Row) -> String {
    match row.msgs_per_s_gathered {
        None => rate(row.msgs_per_s),
        gathered => format!("{} ({})", rate(row.msgs_per_s), rate(gathered)),
    }
}

pub(super) fn rate(per_second: Option<f64>) -> String {
    match per_second {
        None => NOTHING.to_owned(),
        Some(rate) if rate < 1e3 => format!("{rate:.1}"),
        Some(rate) if rate < 100e3 => format!("{:.1} k", rate / 1e3),
        Some(rate) => format!("{:.2} M", rate / 1e6),
    }
}

/// In the largest unit that has no rest.
pub(crate) fn bytes(size: usize) -> String {
    match size {
        size if size >= 1 << 20 && size % (1 << 20) == 0 => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 && size % (1 << 10) == 0 => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

const NOTHING: &str = "-";
