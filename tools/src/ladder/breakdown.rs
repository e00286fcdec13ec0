//! `sidelane ladder --breakdown`: white box beside black box.

use std::fmt;
use std::io;

use sidelane_bench::breakdown::{self, Breakdown, Messages};
use sidelane_bench::ladder::{LadderError, NicKind, Regime};

use super::Failure;
use super::place::Place;

/// Measures `nic` with `messages` of each of `sizes`, and has `show` print each table once it is there.
pub fn measure(
    nic: NicKind,
    messages: Messages,
    sizes: &[usize],
    place: &Place,
    show: impl Fn(fmt::Arguments<'_>),
) -> Result<Vec<Breakdown>, Failure> {
    let failed = |error| Failure::Ladder(nic.to_string(), error);
    if nic == NicKind::Mem {
        let none = io::Error::other("stamps are of real time, and the fabric has none");
        return Err(failed(LadderError::Hosts(Regime::DefaultOffloads, none)));
    }
    let mut done = Vec::new();
    for &size in sizes {
        let mut labs = Vec::new();
        let hosts = place.hosts(&[nic], Regime::DefaultOffloads, &mut labs);
        let (a, b) = hosts.map_err(|error| failed(LadderError::Hosts(Regime::DefaultOffloads, error)))?;
        let breakdown = breakdown::run(a, b, nic, messages, size).map_err(|error| failed(LadderError::Sides(error)))?;
        show(format_args!("{breakdown}\n"));
        done.push(breakdown);
    }
    Ok(done)
}
