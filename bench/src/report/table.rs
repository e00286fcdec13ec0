//! Rows as tables for people.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};

use super::{Report, Row};
use crate::ladder::{Regime, Rung};

/// One table a regime and message size, under a line about the machine.
pub(super) fn write(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{}, {} cores{}, Linux {}, clocksource {}\n",
        machine.cpu,
        machine.cores,
        if machine.virtualised { " (virtual)" } else { "" },
        machine.kernel,
        machine.clocksource,
    );
    let mut rest = &report.rungs[..];
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|row| (row.regime, row.size) == (first.regime, first.size)).count();
        let (rows, behind) = rest.split_at(count);
        rest = behind;
        let _ = write!(text, "\n{}\n{}\n", title(rows), table(rows));
    }
    text
}

fn title(rows: &[Row]) -> String {
    let first = &rows[0];
    let nic = rows.iter().find_map(|row| row.nic);
    let on = nic.map_or_else(String::new, |nic| format!(" on {nic}"));
    let regime = match first.regime {
        Regime::DefaultOffloads => "default offloads (TCP and we both move super-packets that are never cut)",
        Regime::RealFrames => "real frames (offloads off for TCP, at most MTU-sized frames for us)",
    };
    format!("Ladder{on}, {regime}")
}

fn table(rows: &[Row]) -> Table {
    let size = rows[0].size;
    let gbit_size = rows.iter().find_map(|row| row.gbit_size);
    let mut columns: Vec<(String, Box<dyn Fn(&Row) -> String>)> =
        vec![("rung".to_owned(), Box::new(|row| row.name.to_string()))];
    if rows.iter().any(|row| row.half_rtt_ns.is_some()) {
        let of = |name: Rung| rows.iter().find(|row| row.name == name).and_then(|row| row.half_rtt_ns);
        columns.push((format!("p50 half RTT {size} B"), Box::new(|row| time(row.half_rtt_ns.map(|half| half.p50)))));
        columns.push(("(rounds)".to_owned(), Box::new(|row| spread(row.half_rtt_p50_spread_ns))));
        columns.push(("p99".to_owned(), Box::new(|row| time(row.half_rtt_ns.map(|half| half.p99)))));
        columns.push((
            "over the rung below".to_owned(),
            Box::new(move |row| {
                difference(row.half_rtt_ns.zip(row.name.below().and_then(of)).map(|(a, b)| a.p50 - b.p50), row)
            }),
        ));
        columns.push((
            "tcp-poll /".to_owned(),
            Box::new(move |row| ratio(of(Rung::TcpPoll).zip(row.half_rtt_ns).map(|(tcp, half)| tcp.p50 / half.p50))),
        ));
    }
    if rows.iter().any(|row| row.msgs_per_s.is_some()) {
        columns.push((format!("messages/s {size} B"), Box::new(|row| rate(row.msgs_per_s))));
    }
    if let Some(gbit_size) = gbit_size {
        let tcp = rows.iter().find(|row| row.name == Rung::TcpPoll).and_then(|row| row.gbit_per_s);
        columns.push((
            format!("Gbit/s {}", bytes(gbit_size)),
            Box::new(|row| match (row.gbit_per_s, &row.congestion) {
                (Some(gbit), Some(congestion)) => format!("{gbit:.1} ({congestion})"),
                (Some(gbit), None) => format!("{gbit:.1}"),
                (None, _) => NOTHING.to_owned(),
            }),
        ));
        columns.push((
            "/ tcp-poll".to_owned(),
            Box::new(move |row| ratio(row.gbit_per_s.zip(tcp).map(|(gbit, tcp)| gbit / tcp))),
        ));
    }
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(columns.iter().map(|(heading, _)| heading.clone()));
    for row in rows {
        table.add_row(columns.iter().map(|(_, figure)| figure(row)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn time(nanos: Option<f64>) -> String {
    match nanos {
        None => NOTHING.to_owned(),
        Some(nanos) if nanos < 10_000.0 => format!("{nanos:.0} ns"),
        Some(nanos) => format!("{:.1} µs", nanos / 1e3),
    }
}

fn spread(range: Option<(f64, f64)>) -> String {
    range.map_or_else(|| NOTHING.to_owned(), |(low, high)| format!("{low:.0}..{high:.0}"))
}

fn difference(nanos: Option<f64>, row: &Row) -> String {
    match (nanos, row.name.below()) {
        (Some(nanos), Some(below)) => format!("{nanos:+.0} ns ({below})"),
        _ => NOTHING.to_owned(),
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NOTHING.to_owned(), |ratio| format!("{ratio:.2}x"))
}

fn rate(per_second: Option<f64>) -> String {
    per_second.map_or_else(|| NOTHING.to_owned(), |rate| format!("{:.2} M", rate / 1e6))
}

fn bytes(size: usize) -> String {
    match size {
        size if size >= 1 << 20 && size % (1 << 20) == 0 => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 && size % (1 << 10) == 0 => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

const NOTHING: &str = "-";
