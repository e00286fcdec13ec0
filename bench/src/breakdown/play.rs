//! One side: a ping-pong of which every so many-th round trip is stamped, at one border.

use sidelane_nic::clock::ticks;
use sidelane_nic::stamps::{Border, Reader, Stamped, buffer};
use sidelane_nic::{LinkAddr, Nic};

use super::{Messages, Sample, Samples, watched};
use crate::clock::now_ns;
use crate::pattern::{Outcome, Pattern, Role};
use crate::side::Sealing;
use crate::transport::{Broken, Proto, SLACK, Transport};

/// Plays `pattern`, a ping-pong, over the protocol on a stamped driver.
pub fn play<N: Nic>(nic: N, peer: LinkAddr, role: Role, pattern: &Pattern) -> Result<Outcome, Broken> {
    let deadline_ns = now_ns() + pattern.limit_ns;
    let (nic, size) = (Stamped::new(nic), pattern.size);
    let mut path = match role {
        Role::Initiator => Proto::connect(nic, Sealing::None, peer, size, deadline_ns)?,
        Role::Responder => Proto::accept(nic, Sealing::None, size, deadline_ns)?,
    };
    let (messages, samples) = match role {
        Role::Initiator => initiate(&mut path, pattern, deadline_ns)?,
        Role::Responder => respond(&mut path, pattern, deadline_ns)?,
    };
    path.finish(deadline_ns)?;
    Ok(Outcome { messages, samples: Some(samples), ..Outcome::default() })
}

/// Messages, and the samples.
type Seen = Result<(u64, Samples), Broken>;

fn initiate<N: Nic>(path: &mut Proto<Stamped<N>>, pattern: &Pattern, deadline_ns: u64) -> Seen {
    let mut message = vec![WARM as u8; pattern.size];
    let mut into = vec![0; pattern.size + SLACK];
    let (mut write, read) = buffer(SAMPLES_MAX);
    let mut unstamped = Vec::with_capacity(SAMPLES_MAX);
    let warm_until = now_ns() + pattern.warm_ns;
    let (mut number, mut counted) = (0u64, 0);
    loop {
        let watch = watched(number, Messages::Plain);
        if watch.is_some() {
            message[0] = kind_of(pattern, warm_until, counted) as u8;
            counted += u64::from(message[0] == MORE as u8);
        }
        if let Some((Role::Initiator, border)) = watch {
            path.nic_mut().stamp_only(border);
        }
        let sent_at = ticks();
        hand_over(path, &message)?;
        if message[0] == LAST as u8 {
            return Ok((number, Samples { stamped: collect(read), unstamped }));
        }
        receive(path, &mut into, deadline_ns)?;
        let received_at = ticks();
        if message[0] == WARM as u8 {
            path.nic_mut().take();
        } else if watch.is_some() {
            let mut stamps = path.nic_mut().take();
            stamps[Border::Send as usize] = sent_at;
            stamps[Border::Received as usize] = received_at;
            stamps[Border::Returned as usize] = received_at;
            write.push(number, &stamps);
        } else if number % EVERY == EVERY / 2 && unstamped.len() < SAMPLES_MAX {
            unstamped.push(received_at - sent_at);
        }
        number += 1;
    }
}

fn respond<N: Nic>(path: &mut Proto<Stamped<N>>, pattern: &Pattern, deadline_ns: u64) -> Seen {
    let message = vec![MORE as u8; pattern.size];
    let mut into = vec![0; pattern.size + SLACK];
    let (mut write, read) = buffer(SAMPLES_MAX);
    let mut number = 0u64;
    loop {
        let watch = match watched(number, Messages::Plain) {
            Some((Role::Responder, border)) => Some(border),
            _ => None,
        };
        if let Some(border @ (Border::Shown | Border::Taken)) = watch {
            path.nic_mut().stamp_only(border);
        }
        let kind = receive(path, &mut into, deadline_ns)?;
        if kind == LAST {
            return Ok((number, Samples { stamped: collect(read), unstamped: Vec::new() }));
        }
        let own = if let Some(Border::Received | Border::Send) = watch { ticks() } else { 0 };
        if let Some(border) = watch.filter(|border| *border > Border::Send && *border < Border::Shown) {
            path.nic_mut().stamp_only(border);
        }
        hand_over(path, &message)?;
        if let Some(border) = watch {
            let mut stamps = path.nic_mut().take();
            if own > 0 {
                stamps[border as usize] = own;
            }
            // What the other side leaves out would only take the room of what it has.
            if kind == MORE {
                write.push(number, &stamps);
            }
        }
        number += 1;
    }
}

/// Of the next message that is watched, when so many of them count by now. However long one takes, each border is stamped a few
/// times: the time limit is the end of patience.
pub(super) fn kind_of(pattern: &Pattern, warm_until: u64, counted: u64) -> u64 {
    match now_ns().saturating_sub(warm_until) {
        0 => WARM,
        since if since < pattern.measure_ns || counted < COUNTED_MIN => MORE,
        _ => LAST,
    }
}

#[inline]
fn hand_over<N: Nic>(path: &mut Proto<Stamped<N>>, message: &[u8]) -> Result<(), Broken> {
    if !path.send(message)? {
        return Err(Broken::Driver("there is room for one message, and it was refused".to_owned()));
    }
    path.flush()
}

/// Waits for the next message; returns its first byte.
#[inline]
fn receive<N: Nic>(path: &mut Proto<Stamped<N>>, into: &mut [u8], deadline_ns: u64) -> Result<u64, Broken> {
    let (mut kind, mut turns) = (MORE, 0u64);
    while path.recv(1, into, |message| kind = u64::from(message[0]))? == 0 {
        crate::idle::relax();
        turns += 1;
        if turns.is_multiple_of(TURNS_PER_CLOCK) && now_ns() > deadline_ns {
            return Err(Broken::Deadline);
        }
    }
    Ok(kind)
}

pub(super) fn collect(mut read: Reader) -> Vec<Sample> {
    std::iter::from_fn(|| read.pop()).map(|(number, stamps)| Sample { number, stamps }).collect()
}

/// One round trip in so many is stamped, and as many are timed without a stamp.
pub(super) const EVERY: u64 = 16;
/// Of one measurement: some 300 KiB of text on its way to the ladder.
pub(super) const SAMPLES_MAX: usize = 4096;
/// Stamped round trips of each border, at least: more than the slow ones that are left out.
const COUNTED_MIN: u64 = 4 * super::WATCHED.len() as u64;
/// Round trips of a measurement, at least.
pub(super) const TRIPS_LEAST: u64 = EVERY * COUNTED_MIN;
/// Turns between two looks at the deadline.
pub(super) const TURNS_PER_CLOCK: u64 = 1024;
/// Begins messages whose times do not count.
pub(super) const WARM: u64 = 2;
/// Begins those that do.
pub(super) const MORE: u64 = 0;
/// Begins the last message.
pub(super) const LAST: u64 = 1;
