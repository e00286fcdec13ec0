//! Messages one way, as many as go: the flood of small ones and the bandwidth of large ones.
//! Timed at the receiver, from the end of its warm-up to the last message.

use super::{LAST, Outcome, Part, Pattern, Turn, buffer};
use crate::clock::now_ns;
use crate::transport::{Broken, Transport};

/// Hands over messages until its time is up, then the last one.
pub(super) struct Sender {
    size: usize,
    outgoing: Vec<u8>,
    end: u64,
    /// A message found no room, and part of it may be on its way: it must be offered again as it was.
    stuck: bool,
    messages: u64,
}

/// Takes messages until the last one.
pub(super) struct Receiver {
    incoming: Vec<u8>,
    warm_ns: u64,
    phase: Phase,
    messages: u64,
    last_at: u64,
}

enum Phase {
    /// Nothing has come.
    Silent,
    Warming {
        until: u64,
    },
    Counting {
        since: u64,
        messages_before: u64,
    },
}

impl Sender {
    pub(super) fn new(pattern: &Pattern) -> Self {
        Self {
            size: pattern.size,
            outgoing: buffer(pattern.size),
            end: now_ns() + pattern.warm_ns + pattern.measure_ns,
            stuck: false,
            messages: 0,
        }
    }
}

impl Part for Sender {
    #[inline]
    fn turn<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken> {
        if !self.stuck && now_ns() >= self.end {
            self.outgoing[0] = LAST;
        }
        let last = self.outgoing[0] == LAST;
        let budget = if last || self.stuck { 1 } else { BURST };
        let mut sent = 0;
        while sent < budget && transport.send(&self.outgoing[..self.size])? {
            sent += 1;
        }
        transport.flush()?;
        self.messages += sent;
        self.stuck = sent < budget;
        if last && sent > 0 {
            return Ok(Turn::Done);
        }
        // Whatever makes room has to be received.
        transport.recv(0, &mut [], |_| {})?;
        Ok(if sent == 0 { Turn::Idle } else { Turn::Busy })
    }

    fn outcome(self) -> Outcome {
        Outcome { messages: self.messages, ..Outcome::default() }
    }
}

impl Receiver {
    pub(super) fn new(pattern: &Pattern) -> Self {
        Self { incoming: buffer(pattern.size), warm_ns: pattern.warm_ns, phase: Phase::Silent, messages: 0, last_at: 0 }
    }
}

impl Part for Receiver {
    #[inline]
    fn turn<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken> {
        let mut last = false;
        let taken = transport.recv(BURST as usize, &mut self.incoming, |message| last |= message[0] == LAST)?;
        if taken == 0 {
            return Ok(Turn::Idle);
        }
        self.messages += taken as u64;
        let now = now_ns();
        self.last_at = now;
        match self.phase {
            Phase::Silent => self.phase = Phase::Warming { until: now + self.warm_ns },
            Phase::Warming { until } if now >= until => {
                self.phase = Phase::Counting { since: now, messages_before: self.messages };
            }
            Phase::Warming { .. } | Phase::Counting { .. } => {}
        }
        Ok(if last { Turn::Done } else { Turn::Busy })
    }

    fn outcome(self) -> Outcome {
        let msgs_per_s = match self.phase {
            Phase::Counting { since, messages_before } if self.last_at > since => {
                Some((self.messages - messages_before) as f64 * 1e9 / (self.last_at - since) as f64)
            }
            _ => None,
        };
        Outcome { messages: self.messages, msgs_per_s, ..Outcome::default() }
    }
}

/// Messages between two flushes, and between two looks at the clock: the window of 64 of the usual message-rate tests
/// (osu_mbw_mr's default).
const BURST: u64 = 64;
