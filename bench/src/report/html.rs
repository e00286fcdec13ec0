//! Rows as a page with charts.

use super::curve::{SIZES_LEAST, distinct};
use super::table::{bytes, drivers, gbit_per_s, name, rate, time};
use super::{Report, Round, Row, wider};
use crate::ladder::Regime;
use crate::page::{self, Bar, Chart, Curve, Point, Section};

/// What is drawn of a row.
struct Figure {
    title: &'static str,
    /// The size that it was measured at, and the value.
    of: fn(&Row) -> Option<Point>,
    range: fn(&Row) -> Option<(f64, f64)>,
    shown: fn(f64) -> String,
    /// What the row's name does not say.
    note: fn(&Row) -> &'static str,
}

const FIGURES: [Figure; 3] = [
    Figure {
        title: "half round trip, p50",
        of: |row| row.half_rtt_ns.map(|half| Point { size: row.size, value: half.p50 }),
        range: |row| row.half_rtt_p50_spread_ns,
        shown: |ns| time(Some(ns)),
        note: |row| if row.whole { ", whole" } else { "" },
    },
    Figure {
        title: "messages a second",
        of: |row| row.msgs_per_s.map(|value| Point { size: row.size, value }),
        range: |row| spread(row, |round| round.msgs_per_s),
        shown: |per_s| rate(Some(per_s)),
        note: |_| "",
    },
    Figure {
        title: "Gbit/s",
        of: |row| row.gbit_size.zip(row.gbit_per_s).map(|(size, value)| Point { size, value }),
        range: |row| spread(row, |round| round.gbit_per_s),
        shown: gbit_per_s,
        note: |_| "",
    },
];

/// A section for each group of drivers that were measured together, and each regime.
pub(super) fn write(report: &Report) -> String {
    let together = |one: &Row, next: &Row| (&one.beside, one.regime) == (&next.beside, next.regime);
    let section = |rows: &[Row]| Section {
        charts: FIGURES.iter().flat_map(|figure| figure.charts(rows)).collect(),
        text: Report { rungs: rows.to_vec(), ..report.clone() }.to_table(),
    };
    let sections: Vec<_> = report.rungs.chunk_by(together).map(section).collect();
    page::write("Sidelane: ladder", &report.machine.to_string(), &sections, &report.to_json())
}

impl Figure {
    /// Curves where there are several sizes, else bars.
    fn charts(&self, rows: &[Row]) -> Vec<Chart> {
        let several = drivers(rows).len() > 1;
        let regime = if rows[0].regime == Regime::RealFrames { ", real frames" } else { "" };
        let name = |row: &Row| name(row, several) + (self.note)(row);
        let points = || rows.iter().filter_map(|row| Some((row, (self.of)(row)?)));
        let mut sizes = distinct(points().map(|(_, point)| point.size));
        sizes.sort_unstable();
        if sizes.len() < SIZES_LEAST {
            let bar = |(row, Point { value, .. })| Bar {
                name: name(row),
                value,
                range: (self.range)(row),
                label: (self.shown)(value),
            };
            let bars = |size| points().filter(|(_, point)| point.size == size).map(bar).collect();
            let title = |size| format!("{} of {}{regime}", self.title, bytes(size));
            return sizes.into_iter().map(|size| Chart::Bars { title: title(size), bars: bars(size) }).collect();
        }
        let curve = |of: String| {
            let mut points: Vec<_> = points().filter(|(row, _)| name(row) == of).map(|(_, point)| point).collect();
            points.sort_unstable_by_key(|point| point.size);
            Curve { name: of, points }
        };
        let curves = distinct(points().map(|(row, _)| name(row))).into_iter().map(curve).collect();
        vec![Chart::Curves { title: format!("{}{regime}", self.title), curves, figure: self.shown }]
    }
}

/// The least and the most of a row's rounds.
fn spread(row: &Row, of: fn(&Round) -> Option<f64>) -> Option<(f64, f64)> {
    row.rounds.iter().filter_map(of).map(|value| (value, value)).reduce(wider)
}
