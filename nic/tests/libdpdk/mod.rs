//! Whether the tests of DPDK can run here, and how they end where DPDK itself stands still.

use std::cell::Cell;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use crate::patience::SUITE_PATIENCE;

/// True, and the reason printed, where there is no libdpdk. Else the test that asks has begun: it ends in time, or the program
/// does.
pub fn is_missing() -> bool {
    watch();
    sidelane_dpdk_sys::load().inspect_err(|error| println!("skipped: {error}")).is_err()
}

thread_local! {
    /// Dropped when the thread of a test ends, or begins another one.
    static WATCHED: Cell<Option<Sender<()>>> = const { Cell::new(None) };
}

/// DPDK's own waits have no limit, and nothing but the program's end ends them.
fn watch() {
    let (watched, over) = channel();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        if over.recv_timeout(SUITE_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            // Not by `eprintln!`: the harness would keep it for a report that it never makes.
            let _ = writeln!(std::io::stderr(), "ERROR: {test} stands still: it did not end within {SUITE_PATIENCE:?}");
            std::process::abort();
        }
    });
    WATCHED.set(Some(watched));
}
