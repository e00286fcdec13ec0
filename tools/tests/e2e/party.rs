//! A process of a soak, and what it says.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use sidelane::lab::process::Process;
use sidelane::soak::{Counts, Ending, Line};

/// A running process. It is killed when the test is over, however it ends.
pub struct Party {
    name: String,
    child: Child,
    lines: Receiver<(Instant, Line)>,
}

/// How one life ended, as its side told it.
#[derive(Debug)]
pub struct Ended {
    pub life: u64,
    pub how: Ending,
    pub sent: u64,
    pub sent_digest: u64,
    pub received: u64,
    pub received_digest: u64,
    pub complete: bool,
    /// When it said so.
    pub at: Instant,
}

impl Party {
    /// Starts it without listening: its output is for somebody else. Its errors go to the test's own.
    pub fn raw(name: &str, command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program was built");
        Self { name: name.to_owned(), child, lines: mpsc::channel().1 }
    }

    fn start(name: &str, command: &mut Command, input: Stdio) -> Self {
        let mut child = command.stdin(input).stdout(Stdio::piped()).spawn().expect("the program was built");
        let (said, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().expect("piped just now"));
        std::thread::spawn(move || {
            for text in out.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&text).unwrap_or(Line::Failed { reason: format!("said `{text}`") });
                if said.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        Self { name: name.to_owned(), child, lines }
    }

    /// Starts it and waits until it is ready; returns its address too.
    pub fn open(name: &str, command: &mut Command) -> (Self, String) {
        Self::open_with(name, command, Stdio::piped())
    }

    /// As [`Party::open`], with `input` as its standard input.
    pub fn open_with(name: &str, command: &mut Command, input: Stdio) -> (Self, String) {
        let party = Self::start(name, command, input);
        let at = party.expect(|line| match line {
            Line::Ready { at } => Some(at.clone()),
            _ => None,
        });
        (party, at)
    }

    /// The next line that `pick` wants; a failure, the process's end, and too long a silence fail the test.
    pub fn expect<T>(&self, mut pick: impl FnMut(&Line) -> Option<T>) -> T {
        self.expect_at(|_, line| pick(line))
    }

    fn expect_at<T>(&self, mut pick: impl FnMut(Instant, &Line) -> Option<T>) -> T {
        loop {
            match self.lines.recv_timeout(SILENCE_MAX) {
                Ok((_, Line::Failed { reason })) => panic!("{}: {reason}", self.name),
                Ok((at, line)) => {
                    if let Some(wanted) = pick(at, &line) {
                        return wanted;
                    }
                }
                Err(error) => panic!("{} said nothing more: {error}", self.name),
            }
        }
    }

    /// Waits for the next time that it says how far it is: messages received, and its resident memory in KiB.
    pub fn progress(&self) -> (u64, u64) {
        self.expect(|line| match line {
            Line::Progress { received, rss_kib, .. } => Some((*received, *rss_kib)),
            Line::Ended { how, .. } => panic!("{} ended meanwhile: {how:?}", self.name),
            _ => None,
        })
    }

    /// Waits until so many messages are settled.
    pub fn settled(&self, messages: u64) {
        self.expect(|line| match line {
            Line::Progress { settled, .. } => (*settled == messages).then_some(()),
            Line::Ended { how, .. } => panic!("{} ended meanwhile: {how:?}", self.name),
            _ => None,
        });
    }

    /// Waits for the next life to begin; returns its number and name.
    pub fn connected(&self) -> (u64, String) {
        self.expect(|line| match line {
            Line::Connected { life, peer } => Some((*life, peer.clone())),
            _ => None,
        })
    }

    /// Waits for the next life to end.
    pub fn ended(&self) -> Ended {
        self.expect_at(|at, line| match line.clone() {
            Line::Ended { life, how, sent, sent_digest, received, received_digest, complete } => {
                Some(Ended { life, how, sent, sent_digest, received, received_digest, complete, at })
            }
            _ => None,
        })
    }

    /// Waits for the last line.
    pub fn done(&self) -> Counts {
        self.expect(|line| match line {
            Line::Done(counts) => Some(counts.clone()),
            _ => None,
        })
    }

    /// Closes its standard input: it shall come to an end.
    pub fn stop(&mut self) {
        drop(self.child.stdin.take());
    }

    /// `kill -9`, at once. Returns when it is dead.
    pub fn kill(&mut self) -> Instant {
        self.child.kill().expect("it is our child");
        let at = Instant::now();
        self.child.wait().expect("it is our child");
        at
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        Process::open(self.pid()).expect("it is our child").signal(signal).unwrap();
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child, to wire it to another.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A party says something every second while it works; this is a bound for a loaded machine.
const SILENCE_MAX: Duration = Duration::from_secs(30);
