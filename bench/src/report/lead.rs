//! How our topmost rung stands against a contender in the same rounds.

use serde::{Deserialize, Serialize};

use super::{Name, Round, Row, thousandths};
use crate::ladder::{NicKind, Rung};
use crate::stats::median;

/// How many times as good the rung [`OURS`] is as a contender: medians of the ratios within each round. Below 1 it is worse.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lead {
    /// What the rung ran on.
    pub nic: NicKind,
    /// By half round trips (p50).
    pub half_rtt: Option<f64>,
    /// By messages a second.
    pub msgs_per_s: Option<f64>,
    /// By bandwidth.
    pub gbit_per_s: Option<f64>,
}

/// The leads of [`OURS`], on each driver that it was measured on, over contender `row`.
pub(super) fn over(row: &Row, rows: &[Row]) -> Vec<Lead> {
    if matches!(row.name, Name::Rung(_)) {
        return Vec::new();
    }
    let ours = rows.iter().filter(|ours| ours.name == OURS && (ours.regime, ours.size) == (row.regime, row.size));
    let leads = ours.filter_map(|ours| {
        let ratio = |figure: fn(&Round) -> Option<f64>| {
            let rounds = ours.rounds.iter().zip(&row.rounds);
            let ratios = rounds.filter_map(|(ours, theirs)| Some(figure(ours)? / figure(theirs)?));
            median(&mut ratios.collect::<Vec<_>>()).map(thousandths)
        };
        Some(Lead {
            nic: ours.nic?,
            // The shorter the better.
            half_rtt: ratio(|round| round.half_rtt_ns.map(|half| 1.0 / half.p50)),
            msgs_per_s: ratio(|round| round.msgs_per_s),
            gbit_per_s: ratio(|round| round.gbit_per_s),
        })
    });
    leads.collect()
}

/// The rung that promises what MPIs do.
pub const OURS: Rung = Rung::Mpi;
