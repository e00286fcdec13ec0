//! The two sides, as child processes or behind a connection: orders to them, answers from them, and what happens when
//! one falls silent.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use sidelane_mpi::launch::{Shown, ShownWhole};

use super::NicKind;
use crate::pattern::{Outcome, Pattern, Role};
use crate::side::{Answer, Measurement, Order, Path};

/// A place where a side can run: a namespace, this machine itself, or another one.
pub struct Host {
    /// How its side is reached.
    pub reach: Reach,
    /// What it is reached by in measurements.
    pub end: End,
    /// The core that its side stays on.
    pub core: usize,
    /// How long its driver may take to open before the side counts as silent.
    pub patience: Duration,
}

/// How a side is reached.
pub enum Reach {
    /// A command that runs [`crate::side::main`], to be spawned.
    Command(Command),
    /// A connection to another machine on which [`crate::side::main`] runs already (see [`crate::remote`]).
    Connection(TcpStream),
    /// Such a connection to this machine.
    ConnectionHere(TcpStream),
}

/// What a host is reached by.
#[derive(Clone, Debug)]
pub struct End {
    /// Its address, for the kernel's rungs.
    pub ip: IpAddr,
    /// Its drivers as strings (`uring:eth0`), for our rungs.
    pub nics: Vec<(NicKind, String)>,
}

/// Two running sides.
pub struct Pair {
    a: Side,
    b: Side,
    /// Who has said something, or ended, in turn.
    heard_of: Receiver<Role>,
    crowded: bool,
}

struct Side {
    role: Role,
    life: Life,
    orders: Box<dyn Write + Send>,
    answers: Receiver<io::Result<String>>,
    end: End,
    core: usize,
    patience: Duration,
    /// How long a fixed piece of work took on its core, behind each measurement.
    work_ns: Vec<u64>,
}

/// What the side's life hangs on.
enum Life {
    Child(Child),
    Connection(TcpStream),
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
    /// A side failed, and the other, which was open already, could not be called back.
    #[error("{first}; then {then}")]
    AndThen {
        /// Why the measurement came to nothing.
        first: Box<Self>,
        /// What became of the other side.
        then: Box<Self>,
    },
    /// The sides went through it, and have no figure.
    #[error("nothing was measured")]
    Nothing,
}

impl Pair {
    /// Starts both sides. They are killed when the pair is dropped.
    pub fn spawn(a: Host, b: Host) -> Result<Self, PairError> {
        let crowded = a.shares_its_core_with(&b);
        let (says, heard_of) = mpsc::channel();
        let (a, b) = (Side::spawn(Role::Initiator, a, says.clone())?, Side::spawn(Role::Responder, b, says)?);
        Ok(Self { a, b, heard_of, crowded })
    }

    /// Runs one measurement; `path` says what carries it, for a side at this end. Returns what both sides have seen.
    pub fn measure(&mut self, pattern: &Pattern, path: impl Fn(&End) -> Path) -> Result<(Outcome, Outcome), PairError> {
        let (at_a, at_b) = self.open(pattern, path)?;
        let (Self { a, b, heard_of, .. }, limit) = (self, limit(pattern));
        heard_of.try_iter().for_each(drop);
        b.tell(&Order::Go { peer: at_a.clone() })?;
        a.tell(&Order::Go { peer: at_b.clone() })?;
        // Of one that has died the other may know nothing before its own limit.
        let Ok(role) = heard_of.recv_timeout(limit) else {
            return Err(a.silence(limit));
        };
        let b_is_first = role == Role::Responder;
        let (first, second) = if b_is_first { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
        let seen = match first.done(limit) {
            Err(death @ PairError::Died(..)) => return Err(death),
            seen => seen,
        };
        let (seen_a, seen_b) = if b_is_first { (second.done(limit), seen) } else { (seen, second.done(limit)) };
        for (side, seen) in [(a, &seen_a), (b, &seen_b)] {
            if seen.is_ok() {
                side.tell(&Order::Close)?;
            }
        }
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

    /// Has both sides open a path and close it again, so that one that cannot be had is known before anything is measured.
    pub fn rehearse(&mut self, pattern: &Pattern, path: impl Fn(&End) -> Path) -> Result<(), PairError> {
        self.open(pattern, path)?;
        self.b.abandon()?;
        self.a.abandon()
    }

    /// Where each side is, once both are open.
    fn open(&mut self, pattern: &Pattern, path: impl Fn(&End) -> Path) -> Result<(String, String), PairError> {
        let Self { a, b, crowded, .. } = self;
        b.open(pattern, path(&b.end), *crowded)?;
        a.open(pattern, path(&a.end), *crowded)?;
        match (b.opened(), a.opened()) {
            (Ok(at_b), Ok(at_a)) => Ok((at_a, at_b)),
            (at_b, at_a) => {
                // The one that is open waits for the other: an order that it must refuse brings it back.
                let open = [(b, &at_b), (a, &at_a)].into_iter().find(|(_, at)| at.is_ok());
                let abandoned = open.map_or(Ok(()), |(side, _)| side.abandon());
                let first = at_b.err().or(at_a.err()).expect("one of them has failed");
                Err(match abandoned {
                    Ok(()) => first,
                    Err(then) => PairError::AndThen { first: Box::new(first), then: Box::new(then) },
                })
            }
        }
    }

    /// How long a fixed piece of work took behind each measurement until now, on the core of each side.
    pub fn work_ns(&self) -> [&[u64]; 2] {
        [&self.a.work_ns, &self.b.work_ns]
    }

    /// Runs one measurement that is all in the first side.
    pub fn measure_alone(&mut self, pattern: &Pattern, path: Path) -> Result<Outcome, PairError> {
        let limit = limit(pattern);
        self.a.open(pattern, path, false)?;
        let peer = self.a.opened()?;
        self.a.tell(&Order::Go { peer })?;
        let seen = self.a.done(limit)?;
        self.a.tell(&Order::Close)?;
        Ok(seen)
    }
}

/// `measure`, and once more when a side reports a failure, since a machine that does other things may drop a frame or stop a
/// side for a moment.
pub fn twice<T>(measure: impl FnMut() -> Result<T, PairError>) -> Result<T, PairError> {
    twice_telling(measure, |_| ())
}

/// The same; `first` is told of a failure that is tried again.
pub fn twice_telling<T>(
    mut measure: impl FnMut() -> Result<T, PairError>,
    first: impl FnOnce(PairError),
) -> Result<T, PairError> {
    match measure() {
        Err(error) if error.is_report() => {
            tracing::debug!(%error, "tried again");
            first(error);
            measure()
        }
        outcome => outcome,
    }
}

impl End {
    /// Its driver of this kind as a string. Without one it is a string that the side refuses.
    pub fn nic(&self, kind: NicKind) -> String {
        self.nics.iter().find(|(one, _)| *one == kind).map_or_else(String::new, |(_, nic)| nic.clone())
    }
}

impl PairError {
    /// True when both sides still run, so that the measurement may be tried again.
    pub fn is_report(&self) -> bool {
        matches!(self, Self::Failed(..))
    }
}

impl Side {
    /// `says` is told of each answer before it can be heard, and of the side's end.
    fn spawn(role: Role, host: Host, says: Sender<Role>) -> Result<Self, PairError> {
        let Host { reach, end, core, patience } = host;
        let (life, (orders, output)) = Life::begin(reach).map_err(|error| PairError::Spawn(role, error))?;
        let (answers_in, answers) = mpsc::channel();
        // Ends with the side's output, which ends with the side.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let _ = says.send(role);
                if answers_in.send(line).is_err() {
                    break;
                }
            }
            let _ = says.send(role);
        });
        Ok(Self { role, life, orders, answers, end, core, patience, work_ns: Vec::new() })
    }

    fn open(&mut self, pattern: &Pattern, path: Path, crowded: bool) -> Result<(), PairError> {
        let (role, core) = (self.role, self.core);
        self.tell(&Order::Open(Measurement { role, core, crowded, path, pattern: *pattern }))
    }

    fn opened(&mut self) -> Result<String, PairError> {
        match self.hear(self.patience)? {
            Answer::Opened { at } => Ok(at),
            Answer::Failed { reason } => Err(PairError::Failed(self.role, ShownWhole(&reason).to_string())),
            other @ Answer::Done(_) => Err(PairError::Confused(self.role, format!("{other:?}"))),
        }
    }

    fn done(&mut self, limit: Duration) -> Result<Outcome, PairError> {
        match self.hear(limit)? {
            Answer::Done(outcome) => {
                self.work_ns.extend(outcome.work_ns);
                Ok(*outcome)
            }
            Answer::Failed { reason } => Err(PairError::Failed(self.role, ShownWhole(&reason).to_string())),
            other @ Answer::Opened { .. } => Err(PairError::Confused(self.role, format!("{other:?}"))),
        }
    }

    /// Calls off what is open.
    fn abandon(&mut self) -> Result<(), PairError> {
        self.tell(&Order::Go { peer: String::new() })?;
        self.hear(self.patience).map(|_| ())
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
            Ok(Ok(line)) => {
                let confused = |_| PairError::Confused(self.role, Shown(&line).to_string());
                serde_json::from_str(&line).map_err(confused)
            }
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(self.death()),
            Err(RecvTimeoutError::Timeout) => Err(self.silence(limit)),
        }
    }

    /// It is waited for no longer.
    fn silence(&mut self, limit: Duration) -> PairError {
        self.life.end();
        PairError::Silent(self.role, limit)
    }

    /// How it died. Its pipes are closed, so it is dead or about to be.
    fn death(&mut self) -> PairError {
        let Life::Child(child) = &mut self.life else {
            return PairError::Died(self.role, "the connection to it has ended".to_owned());
        };
        let until = Instant::now() + DIES_WITHIN;
        while Instant::now() < until {
            if let Ok(Some(status)) = child.try_wait() {
                return PairError::Died(self.role, status.to_string());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        PairError::Died(self.role, "it closed its output".to_owned())
    }
}

/// Where a side's orders go to, and where its answers come from.
type Voices = (Box<dyn Write + Send>, Box<dyn Read + Send>);

impl Life {
    fn begin(reach: Reach) -> io::Result<(Self, Voices)> {
        match reach {
            Reach::Command(mut command) => {
                let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
                let orders = Box::new(child.stdin.take().expect("piped above"));
                let answers = Box::new(child.stdout.take().expect("piped above"));
                Ok((Self::Child(child), (orders, answers)))
            }
            Reach::Connection(connection) | Reach::ConnectionHere(connection) => {
                let (orders, answers) = (Box::new(connection.try_clone()?), Box::new(connection.try_clone()?));
                Ok((Self::Connection(connection), (orders, answers)))
            }
        }
    }

    /// Already dead is as good.
    fn end(&mut self) {
        let _ = match self {
            Self::Child(child) => child.kill(),
            // The other machine ends its side then.
            Self::Connection(connection) => connection.shutdown(Shutdown::Both),
        };
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.life.end();
        if let Life::Child(child) = &mut self.life {
            let _ = child.wait();
        }
    }
}

impl Host {
    /// Patience with drivers of the kernel: opening one takes milliseconds, and some hundred more on a busy machine.
    pub const PATIENCE: Duration = Duration::from_secs(3);
    /// Patience with a NIC of its own: a port that was just reset trains its link anew, which takes seconds at 10 Gbit/s
    /// and more, and an emulated one takes its time for everything.
    pub const PATIENCE_WITH_LINKS: Duration = Duration::from_secs(20);

    /// Machines of their own share no core, whatever its number.
    fn shares_its_core_with(&self, other: &Self) -> bool {
        let is_here = |host: &Self| !matches!(host.reach, Reach::Connection(_));
        self.core == other.core && is_here(self) && is_here(other)
    }
}

/// When the answer to a measurement is overdue. The side's own limit begins when its buffers have been filled.
fn limit(pattern: &Pattern) -> Duration {
    Duration::from_nanos(pattern.limit_ns + pattern.size as u64 * FILLING_NS_A_BYTE) + SPARE
}

/// What an answer may take beyond the limit that the side keeps to.
const SPARE: Duration = Duration::from_secs(3);
/// Some ten buffers of a message's size, whose pages are new: a GB/s of each.
const FILLING_NS_A_BYTE: u64 = 10;
/// A process whose output is closed is on its way out.
const DIES_WITHIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn host(reach: Reach, core: usize) -> Host {
        let end = End { ip: IpAddr::from([127, 0, 0, 1]), nics: Vec::new() };
        Host { reach, end, core, patience: Host::PATIENCE }
    }

    #[test]
    fn who_waits_for_a_side_that_has_died_is_not_waited_for() {
        let opened = serde_json::to_string(&Answer::Opened { at: "here".to_owned() }).unwrap();
        let side = |then: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("read order; echo '{opened}'; read order; {then}")]);
            host(Reach::Command(shell), 0)
        };
        let pattern = crate::ladder::Plan::new(&[NicKind::Shm]).pattern(crate::pattern::Kind::PingPong, 8);
        let path = |end: &End| Path::Udp { ip: end.ip };
        for (a, b, dead) in [("kill -9 $$", "exec sleep 1000", "side A"), ("exec sleep 1000", "kill -9 $$", "side B")] {
            let mut pair = Pair::spawn(side(a), side(b)).unwrap();
            let begin = Instant::now();
            let error = pair.measure(&pattern, path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{dead} died: signal: 9")), "{error}");
            assert!(begin.elapsed() < limit(&pattern), "{:?}", begin.elapsed());
        }
    }

    #[test]
    fn sides_of_one_machine_share_a_core_of_one_number() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = host(Reach::Command(Command::new("true")), 1);
        for (other, shares) in [
            (host(Reach::Command(Command::new("true")), 1), true),
            (host(Reach::ConnectionHere(connection()), 1), true),
            (host(Reach::ConnectionHere(connection()), 0), false),
            (host(Reach::Connection(connection()), 1), false),
        ] {
            assert_eq!(own.shares_its_core_with(&other), shares);
        }
    }

    #[test]
    fn a_limit_grows_with_what_is_to_be_moved() {
        let plan = crate::ladder::Plan::new(&[NicKind::Mem]);
        let of = |size| limit(&plan.pattern(crate::pattern::Kind::PingPong, size)).as_secs();
        assert_eq!(of(8), of(64 << 10), "what takes no time");
        assert!(of(1 << 30) > of(8) + 100, "{} s", of(1 << 30));
    }

    #[test]
    fn only_what_a_side_reports_is_tried_again() {
        let tries = |error: fn() -> PairError| {
            let mut tries = 0;
            let outcome: Result<(), _> = twice(|| {
                tries += 1;
                Err(error())
            });
            (outcome.is_err(), tries)
        };
        assert_eq!(tries(|| PairError::Failed(Role::Initiator, "a frame was lost".to_owned())), (true, 2));
        assert_eq!(tries(|| PairError::Died(Role::Initiator, "signal: 9".to_owned())), (true, 1));
    }
}
