//! `sidelane study`: published studies in our terms.

use std::io;

use clap::Subcommand;
use sidelane_bench::ladder::{LadderError, NicKind, Regime};
use sidelane_bench::study::chang;

use crate::interrupt;
use crate::ladder::{Failure, Place, needs_a_lab};
use crate::out_files::{FileArgs, OutFiles};
use crate::variable;

/// The studies.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// SP Active Messages (Chang and others, 1996): round trips by words over the raw driver; what request, reply and poll cost by words
    Chang {
        /// The driver: uring, xdp, udp, shm, memif, vhost [env: SIDELANE_NIC] [default: uring]
        #[arg(long, value_name = "DRIVER")]
        nic: Option<NicKind>,
        /// Fewer and shorter rounds
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        files: FileArgs,
    },
}

/// Runs a study; returns how it ends, as [`interrupt::code_of`] has it.
pub fn run(command: &StudyCommand) -> Result<i32, Failure> {
    let StudyCommand::Chang { nic, quick, files } = command;
    let nic = match nic {
        Some(nic) => *nic,
        None => variable::read("SIDELANE_NIC", str::parse)?.unwrap_or(NicKind::Uring),
    };
    if nic == NicKind::Mem {
        let none = io::Error::other("the study is one of two processes, and the fabric is in one");
        return Err(Failure::Ladder(nic.to_string(), LadderError::Hosts(Regime::DefaultOffloads, none)));
    }
    let files = OutFiles::new(files, None)?;
    let interrupted = interrupt::end_children_on_signal().map_err(Failure::Signals)?;
    let place = match Place::lab() {
        Ok(place) => place,
        Err(error) if needs_a_lab(nic) => return Err(Failure::NoLab(error)),
        Err(error) if nic.crosses_a_wire() => Place::without_lab(&error),
        Err(_) => Place::Loopback,
    };
    let mut labs = Vec::new();
    let hosts = |regime| place.hosts(&[nic], regime, &mut labs);
    let study = chang::run(nic, *quick, hosts, |_| !interrupted.is_set());
    if interrupted.is_set() {
        return Ok(interrupted.code());
    }
    let study = study.map_err(|error| Failure::Ladder(nic.to_string(), error))?;
    files.show(&study);
    files.write(|| study.to_json(), || study.to_html(), String::new)?;
    Ok(0)
}
