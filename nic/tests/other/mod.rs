//! Another process of a test: its own binary again, with one ignored test chosen. The two speak by lines.
#![allow(unsafe_code)] // kill(2).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use crate::patience::{PATIENCE, ended, until};

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

    /// Stops it; what it is in the middle of waits.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        // All of its threads, whose state stands behind their name (proc(5)).
        let threads = || std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let is_stopped = |stat: String| stat.contains(") T ");
        let read = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat")).unwrap();
        until("it is stopped", || threads().all(|thread| is_stopped(read(thread))));
    }

    /// Has it go on.
    pub fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes numbers, of which one is that of a child that nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
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
