//! `sidelane ladder --breakdown`: white box beside black box.

use std::io;

use sidelane_bench::breakdown::{self, Breakdown, Messages};
use sidelane_bench::ladder::{LadderError, NicKind, Regime};

use super::Failure;
use super::place::Place;

/// Measures `nic` with `messages` of `size` bytes.
pub fn measure(nic: NicKind, messages: Messages, size: usize, place: &Place) -> Result<Breakdown, Failure> {
    let failed = |error| Failure::Ladder(nic.to_string(), error);
    let none = |error| failed(LadderError::Hosts(Regime::DefaultOffloads, error));
    if nic == NicKind::Mem {
        return Err(none(io::Error::other("stamps are of real time, and the fabric has none")));
    }
    let mut labs = Vec::new();
    let (a, b) = place.hosts(&[nic], Regime::DefaultOffloads, &mut labs).map_err(none)?;
    breakdown::run(a, b, nic, messages, size).map_err(|error| failed(LadderError::Sides(error)))
}
