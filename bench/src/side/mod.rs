//! One side of the ladder: a process that opens an end, plays its part, and says what it saw.

mod measure;
mod wire;

pub use wire::{Answer, Layer, Measurement, Order, Path, Sealing};

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::pattern::Outcome;
use crate::transport::Broken;

/// The whole life of a side: obeys orders from standard input until that closes.
pub fn main() -> ExitCode {
    let (orders_in, orders) = mpsc::sync_channel(ORDERS_MAX);
    // A thread of its own, so that a side whose parent is gone ends also in the middle of a measurement.
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        let code = loop {
            match hear(&mut input) {
                Ok(Some(line)) => match orders_in.send(line) {
                    Ok(()) => continue,
                    Err(_) => break 0,
                },
                Ok(None) => break 0,
                Err(error) => {
                    // Whoever does not listen is not told.
                    let _ = say(&Answer::Failed { reason: format!("not an order: {error}") });
                    break 1;
                }
            }
        };
        std::process::exit(code);
    });
    while let Ok(line) = orders.recv() {
        let answer = match serde_json::from_str(&line) {
            Ok(Order::Open(measurement)) => match obey(&measurement, &orders) {
                Ok(()) => continue,
                Err(broken) => Answer::Failed { reason: broken.to_string() },
            },
            // What is left of a measurement that failed before it.
            Ok(Order::Go { .. } | Order::Close) => continue,
            Err(error) => Answer::Failed { reason: format!("not an order: {error}") },
        };
        if say(&answer).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn obey(measurement: &Measurement, orders: &Receiver<String>) -> Result<(), Broken> {
    sidelane_nic::affinity::pin_to(measurement.core).map_err(|error| Broken::System("sched_setaffinity", error))?;
    crate::idle::set_crowded(measurement.crowded);
    measure::measure(measurement, &Other { orders })
}

/// The other side, by way of the ladder.
struct Other<'a> {
    orders: &'a Receiver<String>,
}

impl Other<'_> {
    /// Tells it where our end is, and returns where theirs is.
    fn meet(&self, at: String) -> Result<String, Broken> {
        say(&Answer::Opened { at }).map_err(|error| Broken::System("write", error))?;
        match self.orders.recv_timeout(GO_WITHIN).map(|line| serde_json::from_str(&line)) {
            Ok(Ok(Order::Go { peer })) => Ok(peer),
            Ok(_) => Err(Broken::Driver("another order than `go` came".to_owned())),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(Broken::PeerGone),
        }
    }

    /// Tells what we have seen, and returns when the other side has played too. `meanwhile` is called again and again.
    fn part(&self, outcome: Outcome, meanwhile: &mut dyn FnMut()) -> Result<(), Broken> {
        let outcome = Outcome { work_ns: Some(crate::pace::work_ns()), ..outcome };
        say(&Answer::Done(Box::new(outcome))).map_err(|error| Broken::System("write", error))?;
        // The ladder sees to it that the other side comes to an end, and if the ladder ends, so does this process.
        loop {
            match self.orders.recv_timeout(TURN).map(|line| serde_json::from_str(&line)) {
                Ok(Ok(Order::Close)) => return Ok(()),
                Ok(_) => return Err(Broken::Driver("another order than `close` came".to_owned())),
                Err(RecvTimeoutError::Timeout) => meanwhile(),
                Err(RecvTimeoutError::Disconnected) => return Err(Broken::PeerGone),
            }
        }
    }
}

/// The next line of `input`; `None` at its end.
fn hear(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    input.take(ORDER_MAX as u64).read_line(&mut line)?;
    if line.len() == ORDER_MAX && !line.ends_with('\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is longer than {ORDER_MAX} bytes")));
    }
    Ok((!line.is_empty()).then_some(line))
}

fn say(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// Far above the length of any order: the longest tells the addresses of an MPI process.
pub(crate) const ORDER_MAX: usize = 64 << 10;
/// A ladder sends two, `close` and `open`, before it waits for an answer.
const ORDERS_MAX: usize = 16;

/// Short beside a measurement, and long enough to leave the core to the other side.
const TURN: Duration = Duration::from_millis(1);

/// Longer than the other side is ever waited for ([`crate::ladder::Host::PATIENCE_WITH_LINKS`]).
const GO_WITHIN: Duration = Duration::from_secs(25);

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn orders_are_heard_line_by_line_and_none_is_longer_than_an_order_can_be() {
        let longest = format!("{}\n", "x".repeat(ORDER_MAX - 1));
        let text = format!("go\n\n{longest}end");
        let mut input = text.as_bytes();
        let mut next = || hear(&mut input).unwrap();
        assert_eq!([next(), next()], [Some("go\n".into()), Some("\n".into())]);
        assert_eq!(next(), Some(longest));
        assert_eq!([next(), next()], [Some("end".into()), None]);
        let endless = hear(&mut BufReader::new(io::repeat(b'x'))).unwrap_err();
        assert!(endless.to_string().contains("longer than 65536 bytes"), "{endless}");
    }
}
