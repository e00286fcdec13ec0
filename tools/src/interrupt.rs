//! Ctrl-C and SIGTERM: the children end before the command does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sidelane::lab::process::{self, Process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What a shell reports for a command that Ctrl-C ended: 128 and SIGINT.
pub const INTERRUPTED: i32 = 130;

/// From now on such a signal sets the flag that is returned, kills every direct child, waits until each is gone, and exits
/// with [`INTERRUPTED`]. Whoever meets an error of a child looks at the flag first: the child may have been killed here.
/// Starts a thread, so nothing after it can enter a user namespace.
pub fn end_children_on_signal() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in ENDING {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let mut signals = Signals::new(ENDING)?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            kill_children();
            std::process::exit(INTERRUPTED);
        }
    })?;
    Ok(interrupted)
}

const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Kills every direct child and waits until all are gone.
fn kill_children() {
    for child in process::children().into_iter().filter_map(Process::open) {
        let _ = child.signal(libc::SIGKILL);
        child.wait(KILL_WAIT);
    }
}

/// A killed process is gone as soon as it is next scheduled.
const KILL_WAIT: Duration = Duration::from_secs(2);
