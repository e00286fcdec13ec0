//! A side on another machine: a TCP connection over which the orders and answers of [`crate::side`] travel.
//!
//! The machine that serves speaks first, with a [`Greeting`]; from then on its end of the connection is the standard input
//! and output of a side. The connection's addresses are also those of the kernel's rungs. There is no secret: whoever can
//! connect can have the machine send and receive test traffic.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sidelane_mpi::launch::Shown;

use crate::machine::Machine;
use crate::side::{ORDER_MAX, Order};
use crate::transport::sockopt;

/// What the serving machine says of itself: one JSON object, on the first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of the program. Both must be of the same: orders have no version of their own.
    pub sidelane: String,
    /// Its driver as a string.
    pub nic: String,
    /// The core that its side stays on.
    pub core: usize,
    /// Itself.
    pub machine: Machine,
    /// The running kernel, if that tells (`boot_id`, random(4)).
    pub boot: Option<String>,
}

/// Why a machine cannot be measured with.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Nobody answered.
    #[error("no connection to {0}: {1}; start `sidelane ladder serve` there")]
    Connect(SocketAddr, io::Error),
    /// The connection was taken, but nothing came over it.
    #[error("{0} did not greet: {1}; is it busy with another ladder?")]
    Silent(SocketAddr, io::Error),
    /// Something came that is no greeting.
    #[error("{0} is no `sidelane ladder serve`; it said: {said}", said = Shown(.1))]
    Stranger(SocketAddr, String),
    /// Another version of this program.
    #[error("{at} runs sidelane {theirs} and this is {ours}; both need the same version", theirs = Shown(theirs), ours = VERSION)]
    Version {
        /// Where.
        at: SocketAddr,
        /// What it runs.
        theirs: String,
    },
}

impl Greeting {
    /// Of this machine and program.
    pub fn new(nic: String, core: usize) -> Self {
        Self { sidelane: VERSION.to_owned(), nic, core, machine: Machine::describe(), boot: boot() }
    }

    /// True if it is of this very machine, whose cores have the same numbers.
    pub fn is_from_here(&self) -> bool {
        self.boot.is_some() && self.boot == boot()
    }

    /// Greets whoever has connected. Whatever the connection then carries belongs to a side.
    pub fn send(&self, connection: &mut TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        sockopt::keep_alive(connection.as_fd())?;
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        connection.write_all(line.as_bytes())
    }
}

/// Waits for all of the first order of whoever was greeted, and takes nothing of it. Who has connected and says nothing by then, or
/// anything else, is no ladder.
pub fn await_order(connection: &TcpStream) -> io::Result<()> {
    let until = Instant::now() + ORDERS_WITHIN;
    let mut seen = vec![0; ORDER_MAX];
    loop {
        connection.set_read_timeout(Some(left(until)))?;
        let len = connection.peek(&mut seen).map_err(as_timeout)?;
        if let Some(end) = seen[..len].iter().position(|byte| *byte == b'\n') {
            return match serde_json::from_slice(&seen[..end]) {
                Ok(Order::Open(_)) => connection.set_read_timeout(None),
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "what it says is no ladder's order")),
            };
        }
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it went without an order"));
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // What is there already would be seen again at once.
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What is left until then. A read's time limit of zero would mean for ever.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// What a read's time limit is called where it is over (SO_RCVTIMEO, socket(7)).
fn as_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

/// Connects to a machine that serves at one of these addresses, of which there must be one, and may start within `patience`; hears its
/// greeting.
pub fn connect(at: &[SocketAddr], patience: Duration) -> Result<(TcpStream, Greeting), RemoteError> {
    let give_up = Instant::now() + patience;
    let each = (patience / at.len().max(1) as u32).max(RETRY);
    let try_all = || {
        let mut refused = None;
        for at in at {
            match TcpStream::connect_timeout(at, each) {
                Ok(connection) => return Ok((*at, connection)),
                Err(error) => refused = Some(RemoteError::Connect(*at, error)),
            }
        }
        Err(refused.expect("one address was tried"))
    };
    let (at, mut connection) = loop {
        match try_all() {
            Ok(connected) => break connected,
            Err(error) if Instant::now() >= give_up => return Err(error),
            Err(_) => std::thread::sleep(RETRY),
        }
    };
    let line = hear(&mut connection).map_err(|error| RemoteError::Silent(at, error))?;
    let greeting: Greeting = serde_json::from_str(&line).map_err(|_| RemoteError::Stranger(at, line))?;
    if greeting.sidelane != VERSION {
        return Err(RemoteError::Version { at, theirs: greeting.sidelane });
    }
    Ok((connection, greeting))
}

/// The first line. Read byte by byte, since what follows is not ours to take.
fn hear(connection: &mut TcpStream) -> io::Result<String> {
    connection.set_nodelay(true)?;
    sockopt::keep_alive(connection.as_fd())?;
    let until = Instant::now() + GREETS_WITHIN;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < GREETING_MAX {
        connection.set_read_timeout(Some(left(until)))?;
        connection.read_exact(&mut byte).map_err(as_timeout)?;
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if byte[0] == b'\n' {
            break;
        }
        line.push(byte[0]);
    }
    connection.set_read_timeout(None)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn boot() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
    (!boot.is_empty()).then_some(boot)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// A greeting takes the machine milliseconds, unless it is at another ladder.
const GREETS_WITHIN: Duration = Duration::from_secs(15);
/// The first order comes right behind the greeting. Less than who comes next waits for its own greeting.
const ORDERS_WITHIN: Duration = Duration::from_secs(3);
/// Between two looks at an order that has begun.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Far above the length of any greeting.
const GREETING_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn served_by(serve: impl FnOnce(TcpStream) + Send + 'static) -> Result<(TcpStream, Greeting), RemoteError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let result = connect(&[at], Duration::ZERO);
        server.join().unwrap();
        result
    }

    #[test]
    fn a_greeting_is_heard_and_nothing_behind_it_is_taken() {
        let sent = Greeting::new("uring:eth0".into(), 3);
        let expected = sent.clone();
        let (mut connection, greeting) = served_by(move |mut connection| {
            sent.send(&mut connection).unwrap();
            connection.write_all(b"answer").unwrap();
        })
        .unwrap();
        assert_eq!(greeting, expected);
        assert!(greeting.is_from_here() || greeting.boot.is_none());
        let elsewhere = Greeting { boot: Some("elsewhere".into()), ..greeting.clone() };
        assert!(!elsewhere.is_from_here() && !Greeting { boot: None, ..greeting }.is_from_here());
        let mut rest = String::new();
        connection.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "answer");
    }

    #[test]
    fn strangers_other_versions_and_the_silent_are_told_apart() {
        let stranger = served_by(|mut connection| connection.write_all(b"220 mail\x1b[2J\n").unwrap());
        let stranger = stranger.unwrap_err();
        assert!(matches!(stranger, RemoteError::Stranger(..)), "{stranger:?}");
        assert!(stranger.to_string().ends_with("it said: 220 mail\\u{1b}[2J"), "a terminal would obey: {stranger}");
        let old = served_by(|mut connection| {
            let greeting = Greeting { sidelane: "0.0.1".into(), ..Greeting::new("mem:".into(), 0) };
            greeting.send(&mut connection).unwrap();
        });
        assert!(matches!(old, Err(RemoteError::Version { .. })), "{old:?}");
        let silent = served_by(drop);
        assert!(matches!(silent, Err(RemoteError::Silent(..))), "{silent:?}");
    }

    #[test]
    fn only_an_order_keeps_a_server() {
        let said = |text: &[u8], closes: bool| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut ladder = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut served = listener.accept().unwrap().0;
            let (first, rest) = text.split_at(text.len() / 2);
            ladder.write_all(first).unwrap();
            let begun = Instant::now();
            let waits = thread::spawn(move || {
                let outcome = await_order(&served);
                let mut heard = String::new();
                let is_order = outcome.is_ok();
                is_order.then(|| served.read_to_string(&mut heard).unwrap());
                (outcome.map_err(|error| error.kind()), heard)
            });
            ladder.write_all(rest).unwrap();
            let open = (!closes).then_some(ladder);
            let (outcome, heard) = waits.join().unwrap();
            drop(open);
            assert!(begun.elapsed() < ORDERS_WITHIN + Duration::from_secs(5));
            (outcome, heard)
        };
        let pattern = crate::ladder::Plan::new(&[]).pattern(crate::pattern::Kind::PingPong, 8);
        let path = crate::side::Path::Udp { ip: [127, 0, 0, 1].into() };
        let (role, core, crowded) = (crate::pattern::Role::Responder, 0, false);
        let open = Order::Open(crate::side::Measurement { role, core, crowded, path, pattern });
        let order = serde_json::to_string(&open).unwrap() + "\n";
        assert_eq!(said(order.as_bytes(), true), (Ok(()), order), "and nothing of it is taken");
        assert_eq!(said(b"GET / HTTP/1.1\r\n", false).0, Err(io::ErrorKind::InvalidData));
        assert_eq!(said(b"\"close\"\n", false).0, Err(io::ErrorKind::InvalidData));
        assert_eq!(said(b"{", false).0, Err(io::ErrorKind::TimedOut));
        assert_eq!(said(b"", true).0, Err(io::ErrorKind::UnexpectedEof));
    }

    #[test]
    fn a_limit_of_time_that_is_over_is_called_so() {
        let would_block = as_timeout(io::ErrorKind::WouldBlock.into());
        assert_eq!((would_block.kind(), would_block.to_string().as_str()), (io::ErrorKind::TimedOut, "timed out"));
        assert_eq!(as_timeout(io::ErrorKind::ConnectionReset.into()).kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn of_several_addresses_the_one_that_serves_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let silent = SocketAddr::new([127, 0, 0, 2].into(), at.port());
        let server = thread::spawn(move || Greeting::new("mem:".into(), 0).send(&mut listener.accept().unwrap().0));
        let (connection, _) = connect(&[silent, at], Duration::ZERO).unwrap();
        assert_eq!(connection.peer_addr().unwrap(), at);
        server.join().unwrap().unwrap();
    }

    #[test]
    fn nobody_there_is_said_with_what_to_start() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let elsewhere = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // A port at which nobody listens, and nobody else will: it is taken.
        let at = elsewhere.local_addr().unwrap();
        let error = connect(&[at], Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("start `sidelane ladder serve` there"), "{error}");
    }
}
