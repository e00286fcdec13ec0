//! `sidelane study`: published studies in our terms.

use std::fs;
use std::sync::atomic::Ordering;

use sidelane_bench::ladder::NicKind;
use sidelane_bench::study::chang;

use crate::args::StudyCommand;
use crate::interrupt;
use crate::ladder::{Failure, Place};

/// Runs a study; returns the exit code.
pub fn run(command: &StudyCommand) -> Result<i32, Failure> {
    let StudyCommand::Chang { nic, quick, json } = command;
    let interrupted = interrupt::end_children_on_signal().map_err(Failure::Signals)?;
    let place = match Place::lab() {
        Ok(place) => place,
        Err(error) if matches!(nic, NicKind::Uring | NicKind::Xdp) => return Err(Failure::NoLab(error)),
        Err(_) => Place::Loopback,
    };
    let mut labs = Vec::new();
    let hosts = |regime| place.hosts(&[*nic], regime, &mut labs);
    let study = chang::run(*nic, *quick, hosts, |_| !interrupted.load(Ordering::Relaxed));
    if interrupted.load(Ordering::Relaxed) {
        return Ok(interrupt::INTERRUPTED);
    }
    let study = study.map_err(|error| Failure::Ladder(nic.to_string(), error))?;
    crate::say(&study);
    if let Some(file) = json {
        fs::write(file, study.to_json()).map_err(|source| Failure::Write { file: file.clone(), source })?;
    }
    Ok(0)
}
