//! Waiting for another thread or process, in a test: not for ever.
#![allow(dead_code, reason = "no test has all kinds of others")]

use std::cell::Cell;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Gives up its core until something is `done`; fails, with what that was, when it takes too long.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < give_up, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

/// Has something `done` on another thread once this one sleeps, as it is about to. Tells when that was over.
pub fn once_asleep(done: impl FnOnce() + Send + 'static) -> JoinHandle<Instant> {
    let sleeper = Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap()).join("stat");
    std::thread::spawn(move || {
        // Its state stands behind its name (proc(5)).
        until("the thread sleeps", || std::fs::read_to_string(&sleeper).unwrap().contains(") S "));
        done();
        Instant::now()
    })
}

/// How a process ended. One that takes longer than `at_most` is killed, and fails the test.
pub fn ended(what: &str, process: &mut Child, at_most: Duration) -> ExitStatus {
    let give_up = Instant::now() + at_most;
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= give_up {
            process.kill().unwrap();
            process.wait().unwrap();
            panic!("{what} did not end within {at_most:?}");
        }
        std::thread::sleep(TURN);
    }
}

/// From now on, what the test does on this thread ends within `at_most`, or the program does, and says so: for waits that nothing else
/// ends. Until the test's end, or another call.
pub fn watch(what: &str, at_most: Duration) {
    let (watched, over) = channel();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let text = format!("ERROR: {test} stands still: {what} did not end within {at_most:?}");
    std::thread::spawn(move || {
        if over.recv_timeout(at_most) == Err(RecvTimeoutError::Timeout) {
            // Not by `eprintln!`: the harness would keep it for a report that it never makes.
            let _ = writeln!(std::io::stderr(), "{text}");
            std::process::abort();
        }
    });
    WATCHED.set(Some(watched));
}

thread_local! {
    /// Dropped when the thread of a test ends.
    static WATCHED: Cell<Option<Sender<()>>> = const { Cell::new(None) };
}

/// Far above what a loaded machine takes, with valgrind or a sanitizer too, and spent only when something stands still.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// As long as a whole suite may take.
pub const SUITE_PATIENCE: Duration = Duration::from_secs(300);

const TURN: Duration = Duration::from_millis(2);
