//! `sidelane stat`: what running processes count.

use std::io::{self, Write};
use std::thread;

use sidelane::stat::{Live, Snapshot, once};

use crate::args::StatArgs;

/// Shows processes until they have ended; returns the exit code.
pub fn run(args: &StatArgs) -> io::Result<i32> {
    let mut last = Snapshot::take(&args.pids)?;
    if args.once {
        let text = if args.json { last.to_json() + "\n" } else { once(&last) };
        let _ = io::stdout().write_all(text.as_bytes());
    }
    for pid in args.pids.iter().filter(|pid| last.processes.iter().all(|process| process.pid != **pid)) {
        eprintln!("process {pid} shows no counters: it has ended, has no endpoint, or is another user's");
    }
    if last.processes.is_empty() {
        if args.pids.is_empty() {
            eprintln!("no process with a Sidelane endpoint runs (those of other users only root sees)");
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
            eprintln!("all have ended");
            return Ok(0);
        }
        snapshot.compare(&last);
        let text = if args.json { snapshot.to_json() + "\n" } else { live.lines(&snapshot) };
        // A reader that has seen enough (`| head`) is no failure.
        if io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()).is_err() {
            return Ok(0);
        }
        last = snapshot;
    }
}
