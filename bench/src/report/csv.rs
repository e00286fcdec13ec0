//! Rows as comma-separated values.

use super::{Name, Row};

/// One line a row under a heading; an empty field was not measured.
pub(super) fn write(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory fails only on records of unequal length, and these are all made here.
    writer.write_record(HEADING).expect("a heading fits its own file");
    for row in rows {
        let half = row.half_rtt_ns;
        let count = |count: Option<usize>| count.map_or_else(String::new, |count| count.to_string());
        let of = |figure: Option<f64>, digits: usize| figure.map_or_else(String::new, |f| format!("{f:.digits$}"));
        writer
            .write_record([
                row.name.to_string(),
                match (row.nic, &row.name) {
                    (Some(nic), _) => nic.to_string(),
                    (None, Name::Rung(_)) => "kernel".to_owned(),
                    // Whatever the contender takes; the first lines of a run tell what it is.
                    (None, Name::Contender(_)) => String::new(),
                },
                row.beside.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
                row.regime.to_string(),
                row.size.to_string(),
                of(half.map(|half| half.min), 1),
                of(half.map(|half| half.p50), 1),
                of(half.and_then(|half| half.p99), 1),
                of(half.and_then(|half| half.p999), 1),
                half.map_or_else(String::new, |half| half.n.to_string()),
                of(row.msgs_per_s, if row.msgs_per_s.is_some_and(|rate| rate < 1e3) { 1 } else { 0 }),
                count(row.gbit_size),
                // Of messages of a byte it may be less than a thousandth.
                of(row.gbit_per_s, if row.gbit_per_s.is_some_and(|gbit| gbit < 1.0) { 6 } else { 3 }),
                row.congestion.clone().unwrap_or_default(),
                // Behind what was there first, whose places programs may know.
                row.whole.to_string(),
                count(row.depth),
                count(row.depth_held),
            ])
            .expect("every row has the heading's fields");
    }
    let bytes = writer.into_inner().expect("memory takes every byte");
    String::from_utf8(bytes).expect("fields are text")
}

const HEADING: [&str; 17] = [
    "name",
    "nic",
    "beside",
    "regime",
    "size",
    "half_rtt_min_ns",
    "half_rtt_p50_ns",
    "half_rtt_p99_ns",
    "half_rtt_p999_ns",
    "n",
    "msgs_per_s",
    "gbit_size",
    "gbit_per_s",
    "congestion",
    "whole",
    "depth",
    "depth_held",
];
