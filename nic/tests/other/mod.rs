//! Another process of a test: its own binary again, with one ignored test chosen. The two speak by lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use crate::patience::{PATIENCE, ended};

/// Killed when dropped.
pub struct Other {
    child: Child,
    /// Its lines, read by a thread that ends with them.
    lines: Receiver<String>,
}

impl Other {
    /// Runs the ignored test `test`, which finds these variables in its environment.
    pub fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--ignored", "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (output, (sender, lines)) = (BufReader::new(child.stdout.take().unwrap()), channel());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    pub fn say(&mut self, word: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{word}\n").as_bytes()).unwrap();
    }

    /// Waits for a line of it.
    pub fn heard(&mut self, wanted: &str) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(line) if line == wanted => return,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("it did not say `{wanted}` within {PATIENCE:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without saying `{wanted}`"),
            }
        }
    }

    /// Waits for its end.
    pub fn ended(&mut self) {
        assert!(ended("the other process", &mut self.child, PATIENCE).success());
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
