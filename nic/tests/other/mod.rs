//! Another process of a test: its own binary again, with one ignored test chosen. The two speak by lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Killed when dropped.
pub struct Other {
    child: Child,
    words: BufReader<ChildStdout>,
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
        let words = BufReader::new(child.stdout.take().unwrap());
        Self { child, words }
    }

    pub fn say(&mut self, word: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{word}\n").as_bytes()).unwrap();
    }

    /// Waits for a line of it.
    pub fn heard(&mut self, wanted: &str) {
        let found = self.words.by_ref().lines().any(|line| line.unwrap() == wanted);
        assert!(found, "it ended without saying `{wanted}`");
    }

    /// Waits for its end.
    pub fn ended(&mut self) {
        self.words.by_ref().lines().for_each(drop);
        assert!(self.child.wait().unwrap().success());
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
