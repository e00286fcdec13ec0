//! Half round trips by message size, one column a rung or contender: where several sizes were measured.

use comfy_table::Table;

use super::table::{bytes, figures, ratio, time};
use super::{Name, OURS, Row};
use crate::ladder::NicKind;

/// The curves of the rows of one regime; `None` where they are of fewer sizes than make a curve.
pub(super) fn of(rows: &[Row]) -> Option<Table> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.half_rtt_ns.is_some()).collect();
    let sizes = distinct(rows.iter().map(|row| row.size));
    if sizes.len() < SIZES_LEAST {
        return None;
    }
    let curves: Vec<(Name, Option<NicKind>)> = distinct(rows.iter().map(|row| (row.name.clone(), row.nic)));
    let at = |size: usize, (name, nic): &(Name, Option<NicKind>)| {
        rows.iter().find(|row| row.size == size && row.name == *name && row.nic == *nic)
    };
    let leads: Vec<(NicKind, Name)> = distinct(rows.iter().flat_map(|row| {
        row.leads.iter().filter(|lead| lead.half_rtt.is_some()).map(|lead| (lead.nic, row.name.clone()))
    }));
    let heading = |(name, nic): &(Name, Option<NicKind>)| {
        let whole = if name.takes_whole_round_trips() { ", whole" } else { "" };
        nic.map_or_else(|| name.to_string(), |nic| format!("{name}{whole}\n{nic}"))
    };
    let mut headings = vec!["half RTT,\np50".to_owned()];
    headings.extend(curves.iter().map(heading));
    headings.extend(leads.iter().map(|(nic, name)| format!("{OURS} {nic}\nto {name}")));
    let rows = sizes.into_iter().map(|size| {
        let mut cells = vec![bytes(size)];
        cells.extend(
            curves.iter().map(|curve| time(at(size, curve).and_then(|row| row.half_rtt_ns).map(|half| half.p50))),
        );
        cells.extend(leads.iter().map(|(nic, name)| {
            let row = at(size, &(name.clone(), None));
            ratio(row.and_then(|row| row.leads.iter().find(|lead| lead.nic == *nic)).and_then(|lead| lead.half_rtt))
        }));
        cells
    });
    Some(figures(0, headings, rows))
}

/// In the order in which they come first.
pub(super) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// Two are read as easily in their own tables.
pub(super) const SIZES_LEAST: usize = 3;
