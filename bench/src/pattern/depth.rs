//! A flood whose messages are answered, each by one of its size, and of which only so many may be unanswered.
//! Timed where messages are sent first: answers a second.

use super::{LAST, LEAST, MORE, Mark, Marks, Outcome, Part, Pattern, Turn, buffer};
use crate::buffer::Buffer;
use crate::clock::now_ns;
use crate::transport::{Broken, Transport};

/// Keeps `depth` messages unanswered until its time is up, then waits for the answers and sends the last one.
pub(super) struct Requester {
    size: usize,
    depth: u64,
    outgoing: Buffer,
    incoming: Buffer,
    warm_until: u64,
    end: u64,
    /// A message found no room, and part of it may be on its way: it must be offered again as it was.
    stuck: bool,
    messages: u64,
    answers: u64,
    /// Of answers.
    marks: Marks,
}

/// Answers every message but the last.
pub(super) struct Answerer {
    size: usize,
    buffer: Buffer,
    messages: u64,
    owed: u64,
}

impl Requester {
    /// Fewer than `depth` where `transport` holds fewer.
    pub(super) fn new<T: Transport>(pattern: &Pattern, depth: usize, transport: &T) -> Self {
        let now = now_ns();
        Self {
            size: pattern.size,
            depth: depth.min(transport.unanswered_max()) as u64,
            outgoing: buffer(pattern.size),
            incoming: buffer(pattern.size),
            warm_until: now + pattern.warm_ns,
            end: now + pattern.warm_ns + pattern.measure_ns,
            stuck: false,
            messages: 0,
            answers: 0,
            marks: Marks::default(),
        }
    }

    fn unanswered(&self) -> u64 {
        self.messages - self.answers
    }
}

impl Part for Requester {
    #[inline]
    fn turn<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken> {
        let now = now_ns();
        let budget = if self.stuck {
            1
        } else if now < self.end {
            self.depth - self.unanswered()
        } else if self.unanswered() == 0 {
            self.outgoing[0] = if self.messages < LEAST { MORE } else { LAST };
            1
        } else {
            0
        };
        let mut sent = 0;
        while sent < budget && transport.send(&self.outgoing[..self.size])? {
            sent += 1;
        }
        if budget > 0 {
            transport.flush()?;
        }
        self.messages += sent;
        self.stuck = sent < budget;
        if sent > 0 && self.outgoing[0] == LAST {
            return Ok(Turn::Done);
        }
        let answers = transport.recv(self.unanswered() as usize, &mut self.incoming, |_| {})? as u64;
        self.answers += answers;
        if answers > 0 {
            let mark = Mark { at: now, messages: self.answers };
            self.marks.on_more(mark, |_| now >= self.warm_until);
        }
        Ok(if sent + answers == 0 { Turn::Idle } else { Turn::Busy })
    }

    fn outcome(self) -> Outcome {
        let depth = Some(self.depth as usize);
        Outcome { messages: self.messages, msgs_per_s: self.marks.rate(), depth, ..Outcome::default() }
    }
}

impl Answerer {
    pub(super) fn new(pattern: &Pattern) -> Self {
        Self { size: pattern.size, buffer: buffer(pattern.size), messages: 0, owed: 0 }
    }
}

impl Part for Answerer {
    #[inline]
    fn turn<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken> {
        let mut kind = MORE;
        let taken = transport.recv(BURST, &mut self.buffer, |message| kind = message[0])? as u64;
        self.messages += taken;
        if taken > 0 && kind == LAST {
            return Ok(Turn::Done);
        }
        self.owed += taken;
        let mut sent = 0;
        while sent < self.owed && transport.send(&self.buffer[..self.size])? {
            sent += 1;
        }
        self.owed -= sent;
        if sent > 0 {
            transport.flush()?;
        }
        Ok(if taken + sent == 0 { Turn::Idle } else { Turn::Busy })
    }

    fn outcome(self) -> Outcome {
        Outcome { messages: self.messages, ..Outcome::default() }
    }
}

/// Messages that are taken before the first is answered: as many as a sender of a flood hands over at once.
const BURST: usize = 64;
