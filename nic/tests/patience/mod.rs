//! Waiting for another thread or process, in a test: not for ever.
#![allow(dead_code, reason = "no test has all kinds of others")]

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Gives up its core until something is `done`; fails, with what that was, when it takes too long.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < give_up, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
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

/// Far above what a loaded machine takes, with valgrind or a sanitizer too, and spent only when something stands still.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// As long as a whole suite may take.
pub const SUITE_PATIENCE: Duration = Duration::from_secs(300);

const TURN: Duration = Duration::from_millis(2);
