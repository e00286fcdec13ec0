//! The two sides as child processes: orders to them, answers from them, and what happens when one falls silent.

use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::pattern::{Outcome, Pattern, Role};
use crate::side::{Answer, Measurement, Order, Path};

/// A place where a side can run: a namespace, or this machine itself.
pub struct Host {
    /// Runs [`crate::side::main`] there.
    pub command: Command,
    /// Its address for the kernel's rungs.
    pub ip: IpAddr,
    /// Its driver as a string (`uring:eth0`), for our rungs.
    pub nic: String,
    /// The core that its side stays on.
    pub core: usize,
}

/// Two running sides.
pub struct Pair {
    a: Side,
    b: Side,
    crowded: bool,
}

struct Side {
    role: Role,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<io::Result<String>>,
    ip: IpAddr,
    nic: String,
    core: usize,
}

/// A measurement that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// A side could not be started.
    #[error("{0} could not be started: {1}")]
    Spawn(Role, io::Error),
    /// A side died.
    #[error("{0} died: {1}")]
    Died(Role, String),
    /// A side said nothing in time, and was killed.
    #[error("{0} was silent for {1:?}")]
    Silent(Role, Duration),
    /// A side reported a failure. Both are ready for the next measurement.
    #[error("{0}: {1}")]
    Failed(Role, String),
    /// A side said what cannot be understood.
    #[error("{0} answered what was not asked: {1}")]
    Confused(Role, String),
}

impl Pair {
    /// Starts both sides. They are killed when the pair is dropped.
    pub fn spawn(a: Host, b: Host) -> Result<Self, PairError> {
        let crowded = a.core == b.core;
        Ok(Self { a: Side::spawn(Role::Initiator, a)?, b: Side::spawn(Role::Responder, b)?, crowded })
    }

    /// Runs one measurement; `path` says what carries it, for a side with this address and driver. Returns what both sides have seen.
    pub fn measure(
        &mut self,
        pattern: &Pattern,
        path: impl Fn(IpAddr, &str) -> Path,
    ) -> Result<(Outcome, Outcome), PairError> {
        let limit = Duration::from_nanos(pattern.limit_ns) + ANSWER_WITHIN;
        let Self { a, b, crowded } = self;
        b.open(pattern, path(b.ip, &b.nic), *crowded)?;
        a.open(pattern, path(a.ip, &a.nic), *crowded)?;
        let (at_b, at_a) = (b.opened(), a.opened());
        let (Ok(at_b), Ok(at_a)) = (&at_b, &at_a) else {
            // The one that is open waits for the other: an order that it must refuse brings it back.
            for (side, at) in [(&mut *b, &at_b), (&mut *a, &at_a)] {
                if at.is_ok() {
                    side.abandon()?;
                }
            }
            return Err(at_b.err().or(at_a.err()).expect("one of them has failed"));
        };
        b.tell(&Order::Go { peer: at_a.clone() })?;
        a.tell(&Order::Go { peer: at_b.clone() })?;
        let (seen_a, seen_b) = (a.done(limit), b.done(limit));
        match (seen_a, seen_b) {
            (Ok(a), Ok(b)) => Ok((a, b)),
            (Err(PairError::Failed(role, reason)), Err(PairError::Failed(other_role, other))) => {
                Err(PairError::Failed(role, format!("{reason}; {other_role}: {other}")))
            }
            // A side that is dead explains why the other one failed.
            (Err(PairError::Failed(..)), Err(dead)) => Err(dead),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Runs one measurement that is all in the first side.
    pub fn measure_alone(&mut self, pattern: &Pattern, path: Path) -> Result<Outcome, PairError> {
        let limit = Duration::from_nanos(pattern.limit_ns) + ANSWER_WITHIN;
        self.a.open(pattern, path, false)?;
        let peer = self.a.opened()?;
        self.a.tell(&Order::Go { peer })?;
        self.a.done(limit)
    }
}

impl PairError {
    /// True when both sides still run, so that the measurement may be tried again.
    pub fn is_report(&self) -> bool {
        matches!(self, Self::Failed(..))
    }
}

impl Side {
    fn spawn(role: Role, host: Host) -> Result<Self, PairError> {
        let Host { mut command, ip, nic, core } = host;
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| PairError::Spawn(role, error))?;
        let orders = child.stdin.take().expect("piped above");
        let output = child.stdout.take().expect("piped above");
        let (answers_in, answers) = mpsc::channel();
        // Ends with the child's output, which ends with the child.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                if answers_in.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { role, child, orders, answers, ip, nic, core })
    }

    fn open(&mut self, pattern: &Pattern, path: Path, crowded: bool) -> Result<(), PairError> {
        let (role, core) = (self.role, self.core);
        self.tell(&Order::Open(Measurement { role, core, crowded, path, pattern: *pattern }))
    }

    fn opened(&mut self) -> Result<String, PairError> {
        match self.hear(ANSWER_WITHIN)? {
            Answer::Opened { at } => Ok(at),
            Answer::Failed { reason } => Err(PairError::Failed(self.role, reason)),
            other @ Answer::Done(_) => Err(PairError::Confused(self.role, format!("{other:?}"))),
        }
    }

    fn done(&mut self, limit: Duration) -> Result<Outcome, PairError> {
        match self.hear(limit)? {
            Answer::Done(outcome) => Ok(outcome),
            Answer::Failed { reason } => Err(PairError::Failed(self.role, reason)),
            other @ Answer::Opened { .. } => Err(PairError::Confused(self.role, format!("{other:?}"))),
        }
    }

    /// Calls off what is open.
    fn abandon(&mut self) -> Result<(), PairError> {
        self.tell(&Order::Go { peer: String::new() })?;
        self.hear(ANSWER_WITHIN).map(|_| ())
    }

    fn tell(&mut self, order: &Order) -> Result<(), PairError> {
        let mut line = serde_json::to_string(order).expect("an order has only plain fields");
        line.push('\n');
        match self.orders.write_all(line.as_bytes()).and_then(|()| self.orders.flush()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.death()),
        }
    }

    fn hear(&mut self, limit: Duration) -> Result<Answer, PairError> {
        match self.answers.recv_timeout(limit) {
            Ok(Ok(line)) => serde_json::from_str(&line).map_err(|_| PairError::Confused(self.role, line)),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(self.death()),
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.child.kill();
                Err(PairError::Silent(self.role, limit))
            }
        }
    }

    /// How it died. Its pipes are closed, so it is dead or about to be.
    fn death(&mut self) -> PairError {
        let until = Instant::now() + DIES_WITHIN;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.child.try_wait() {
                return PairError::Died(self.role, status.to_string());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        PairError::Died(self.role, "it closed its output".to_owned())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Already dead is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opening a driver takes milliseconds; a machine that is busy with other things some hundred more.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// A process whose output is closed is on its way out.
const DIES_WITHIN: Duration = Duration::from_millis(500);
