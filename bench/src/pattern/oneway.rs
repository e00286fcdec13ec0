//! Messages one way, as many as go: the flood of small ones and the bandwidth of large ones.
//! Timed at the receiver, from the end of its warm-up to the last message.

use super::{LAST, LEAST, Mark, Marks, Outcome, Part, Pattern, Turn, buffer};
use crate::buffer::Buffer;
use crate::clock::now_ns;
use crate::transport::{Broken, Transport};

/// Hands over messages until its time is up, then the last one.
pub(super) struct Sender {
    size: usize,
    outgoing: Buffer,
    end: u64,
    /// A message found no room, and part of it may be on its way: it must be offered again as it was.
    stuck: bool,
    messages: u64,
}

/// Takes messages until the last one.
pub(super) struct Receiver {
    incoming: Buffer,
    warm_ns: u64,
    messages: u64,
    marks: Marks,
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
        if !self.stuck && self.messages >= LEAST && now_ns() >= self.end {
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
        transport.make_room()?;
        Ok(if sent == 0 { Turn::Idle } else { Turn::Busy })
    }

    fn outcome(self) -> Outcome {
        Outcome { messages: self.messages, ..Outcome::default() }
    }
}

impl Receiver {
    pub(super) fn new(pattern: &Pattern) -> Self {
        Self { incoming: buffer(pattern.size), warm_ns: pattern.warm_ns, messages: 0, marks: Marks::default() }
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
        self.marks.on_more(Mark { at: now, messages: self.messages }, |first| now >= first.at + self.warm_ns);
        Ok(if last { Turn::Done } else { Turn::Busy })
    }

    fn outcome(self) -> Outcome {
        Outcome { messages: self.messages, msgs_per_s: self.marks.rate(), ..Outcome::default() }
    }
}

/// Messages between two flushes, and between two looks at the clock: the window of 64 of the usual message-rate tests
/// (osu_mbw_mr's default).
const BURST: u64 = 64;
