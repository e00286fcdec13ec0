//! `sidelane stat`: what running processes count.

use std::io::{self, Write};
use std::thread;

use clap::Args;
use sidelane::stat::{Live, Snapshot, once};

use crate::args::Seconds;

/// Which processes to look at, and how.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Process ids; all that use Sidelane unless some are said
    #[arg(value_name = "PID")]
    pub pids: Vec<u32>,
    /// Print JSON, an object a reading, instead of lines
    #[arg(long)]
    pub json: bool,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    pub interval: Seconds,
    /// Show what was counted until now, and end
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,
}

pub const NOTES: &str = "\
Examples:
  sidelane stat                       rates of every endpoint on this machine, each second
  sidelane stat 1234 --interval 0.2   those of one process
  sidelane stat --once --json         totals for a program

Ends when the processes have; exits with 1 when there is none. Processes in other network namespaces (labs, \
containers) are seen too, those of other users only by root.

A line has, a second: messages, frames (`frm`) and bytes out and in; frames sent again; stalls, times that something \
had to wait for room; frames dropped; and `turns`, calls of poll: one that falls to 0 no longer polls. Behind them \
stands what else has moved.";

/// Shows processes until they have ended; returns the exit code.
pub fn run(args: &StatArgs) -> io::Result<i32> {
    let mut last = Snapshot::take(&args.pids)?;
    if args.once {
        let text = if args.json { last.to_json() } else { once(&last) };
        if !text.is_empty() {
            crate::say(text.trim_end());
        }
    }
    for pid in args.pids.iter().filter(|pid| last.processes.iter().all(|process| process.pid != **pid)) {
        tell!("process {pid} shows no counters: it has ended, has no endpoint, or is another user's");
    }
    if last.processes.is_empty() {
        if args.pids.is_empty() {
            tell!("no process with a Sidelane endpoint runs (those of other users only root sees)");
        }
        return Ok(1);
    }
    if args.once {
        return Ok(0);
    }
    let mut live = Live::default();
    loop {
        thread::sleep(args.interval.0);
        let mut snapshot = Snapshot::take(&args.pids)?;
        if snapshot.processes.is_empty() {
            tell!("all have ended");
            return Ok(0);
        }
        snapshot.compare(&last);
        let text = if args.json { snapshot.to_json() + "\n" } else { live.lines(&snapshot) };
        match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
            // A reader that has seen enough (`| head`) is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            outcome => outcome?,
        }
        last = snapshot;
    }
}
