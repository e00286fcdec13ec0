//! What the cases send, and how they wait for it.

use std::fmt;

use super::erased::{Driver, Stage};
use super::{Stop, Verdict};
use crate::time::{Duration, Instant};
use crate::{Link, LinkAddr};

/// A received frame, and who sent it.
pub(super) type Arrival = (Vec<u8>, LinkAddr);

/// Opens as many endpoints as the pattern has.
pub(super) fn open<D: ?Sized, const COUNT: usize>(stage: &mut dyn Stage<D>) -> Result<[Box<D>; COUNT], Stop> {
    let opened = stage.open(COUNT).map_err(Stop::Skipped)?;
    opened.try_into().map_err(|_| Stop::Failed(format!("the setup did not open {COUNT} endpoints")))
}

/// A link to `to`, which is no stranger.
pub(super) fn link<D: Driver + ?Sized>(nic: &mut Box<D>, to: LinkAddr) -> Result<Link, Stop> {
    let link = nic.link(to).map_err(|error| Stop::Failed(format!("link to {to}: {error}")))?;
    nic.confirm(link);
    Ok(link)
}

/// Fails with `reason` unless `holds`.
pub(super) fn check(holds: bool, reason: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Stop::Failed(reason())) }
}

/// Payload number `number` of a given length: nearly every byte depends on its place and on the number.
pub(super) fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..len as u64).map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(0x9d)) as u8).collect();
    let stamp = number.to_le_bytes();
    let stamped = len.min(stamp.len());
    bytes[..stamped].copy_from_slice(&stamp[..stamped]);
    bytes
}

/// Commits one frame if there is a slot.
pub(super) fn try_commit<D: Driver + ?Sized>(nic: &mut Box<D>, link: Link, bytes: &[u8]) -> bool {
    let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
    slot.copy_from_slice(bytes);
    slot.commit();
    true
}

/// Commits one frame, waiting for a slot as long as is patient. Does not flush afterwards.
pub(super) fn commit<D: Driver + ?Sized>(nic: &mut Box<D>, link: Link, bytes: &[u8]) -> Verdict {
    let give_up = nic.now() + PATIENCE;
    while !try_commit(nic, link, bytes) {
        if nic.now() >= give_up {
            return Err(Stop::Missing(format!("no slot of {} bytes came free", bytes.len())));
        }
        pause(nic)?;
    }
    Ok(())
}

/// Sends one frame.
pub(super) fn send<D: Driver + ?Sized>(nic: &mut Box<D>, link: Link, bytes: &[u8]) -> Verdict {
    commit(nic, link, bytes)?;
    nic.flush();
    Ok(())
}

/// Receives exactly `count` frames, waiting for them as long as is patient.
pub(super) fn receive<D: Driver + ?Sized>(nic: &mut Box<D>, count: usize) -> Result<Vec<Arrival>, Stop> {
    let mut arrivals = Vec::new();
    let give_up = nic.now() + PATIENCE;
    while arrivals.len() < count {
        let budget = count - arrivals.len();
        if nic.rx_burst(budget, &mut |frame, from| arrivals.push((frame.to_vec(), from))) == 0 {
            if nic.now() >= give_up {
                return Err(missing(&**nic, format_args!("{} of {count} frames came", arrivals.len())));
            }
            pause(nic)?;
        }
    }
    Ok(arrivals)
}

/// What did not come, with all that the driver knows of it.
pub(super) fn missing<D: Driver + ?Sized>(nic: &D, what: impl fmt::Display) -> Stop {
    let (at, counters) = (nic.caps().addr, nic.counters());
    let known = nic.diagnosis().map(|text| format!("; {text}")).unwrap_or_default();
    Stop::Missing(format!("{what} to {at}: {counters:?}{known}"))
}

/// Receives until nothing has come for a while.
pub(super) fn receive_rest<D: Driver + ?Sized>(nic: &mut Box<D>) -> Result<Vec<Arrival>, Stop> {
    let mut arrivals = Vec::new();
    let mut quiet_since = nic.now();
    let give_up = quiet_since + REST_PATIENCE;
    while nic.now().since(quiet_since) < QUIET {
        check(nic.now() < give_up, || format!("frames come without end: {} in {REST_PATIENCE:?}", arrivals.len()))?;
        if nic.rx_burst(64, &mut |frame, from| arrivals.push((frame.to_vec(), from))) > 0 {
            quiet_since = nic.now();
        } else {
            pause(nic)?;
        }
    }
    Ok(arrivals)
}

/// Checks one arrival.
pub(super) fn expect(arrival: &Arrival, bytes: &[u8], from: LinkAddr) -> Verdict {
    let (got, sender) = arrival;
    check(got.len() == bytes.len(), || format!("{} bytes came of {} sent", got.len(), bytes.len()))?;
    check(got == bytes, || format!("a frame of {} bytes was altered", bytes.len()))?;
    check(*sender == from, || format!("a frame of {from} came as one of {sender}"))
}

/// Lets a little time pass, which on a simulated fabric nothing else does.
pub(super) fn pause<D: Driver + ?Sized>(nic: &mut Box<D>) -> Verdict {
    wait(nic, nic.now() + TURN)
}

/// [`Nic::wait`](crate::Nic::wait) whose error fails the case.
pub(super) fn wait<D: Driver + ?Sized>(nic: &mut Box<D>, deadline: Instant) -> Verdict {
    nic.wait(Some(deadline)).map_err(|error| Stop::Failed(format!("wait: {error}")))
}

/// Until a frame counts as missing: far above any delay of a loaded machine, and spent only when one is.
pub(super) const PATIENCE: Duration = Duration::from_millis(5_000);

/// Until what still comes counts as without end: a full ring is empty in far less.
const REST_PATIENCE: Duration = Duration::from_millis(30_000);

/// A silence that ends "whatever still comes". Frames take microseconds on every driver.
const QUIET: Duration = Duration::from_millis(50);

/// One turn of waiting.
const TURN: Duration = Duration::from_micros(50);
