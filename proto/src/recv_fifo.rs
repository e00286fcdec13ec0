//! The receive FIFO of one peer: messages that arrived in order and wait to be taken, and the credit that follows from it.
//!
//! Bodies of frames with whole messages are copied in as they are, in one piece; the records are walked when they are
//! taken. A message of several frames is put together in a buffer of its own, and a marker stands in its place.

use std::collections::VecDeque;

use crate::copy::copy_ends;
use crate::counters::Reject;
use crate::ring::ByteRing;
use crate::spares::Spares;
use crate::wire::{FIRST_LEN, RECORD_LEN, Record, Records, u16_at};

/// Messages from one peer, in order.
#[derive(Debug)]
pub(crate) struct RecvFifo {
    ring: ByteRing,
    assembly: Option<Assembly>,
    /// Large messages that are complete; the front one belongs to the oldest marker.
    large: VecDeque<Vec<u8>>,
    /// Bytes in `large`.
    large_held: u64,
    /// Stream position: bytes of records taken in.
    position: u64,
    /// Stream position up to which the peer may send. Never goes back.
    granted: u64,
    /// The peer's Close has arrived, though the user may not have come so far.
    closed: bool,
}

/// True when `body` is whole messages from end to end: the common case, told without looking at anything but lengths.
#[inline]
fn is_run_of_messages(body: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&[MESSAGE, _, low, high]) = body.get(at..at + RECORD_LEN) {
        at += RECORD_LEN + u16::from_le_bytes([low, high]) as usize;
    }
    at == body.len() && at > 0
}

#[derive(Debug)]
struct Assembly {
    buffer: Vec<u8>,
    total: usize,
}

/// What stands at the front of the FIFO.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<R> {
    /// A message, and what its taker made of it.
    Message(R),
    /// The peer closed; nothing follows.
    Close,
    /// Nothing is here.
    Nothing,
}

const MESSAGE: u8 = 1;
/// Marks a large message's place in the ring. No record's kind.
const MARKER: u8 = 0xff;
const MARKER_LEN: usize = FIRST_LEN;

impl RecvFifo {
    /// An empty FIFO of `capacity` bytes for frames with bodies of at most `longest`.
    pub const fn new(capacity: usize, longest: usize) -> Self {
        Self {
            ring: ByteRing::new(capacity, longest),
            assembly: None,
            large: VecDeque::new(),
            large_held: 0,
            position: 0,
            granted: capacity as u64,
            closed: false,
        }
    }

    /// Takes in the body of the frame whose turn it is. On an error nothing of it is kept.
    #[inline]
    pub fn accept(&mut self, body: &[u8], message_max: usize, spares: &mut Spares) -> Result<(), Reject> {
        if is_run_of_messages(body) {
            self.append(body)?;
        } else {
            self.accept_other(body, message_max, spares)?;
        }
        self.position += body.len() as u64;
        Ok(())
    }

    fn accept_other(&mut self, body: &[u8], message_max: usize, spares: &mut Spares) -> Result<(), Reject> {
        let mut records = Records::new(body);
        let Some(first) = records.next() else { return Err(Reject::Malformed) };
        match first? {
            Record::Message(_) | Record::Close => {
                for record in records {
                    if !matches!(record?, Record::Message(_) | Record::Close) {
                        return Err(Reject::Malformed);
                    }
                }
                self.append(body)?;
                // Only a Close keeps a body of whole records from being a run of messages.
                self.closed = true;
                Ok(())
            }
            // A part of a large message is alone in its frame.
            Record::First { total, part } if FIRST_LEN + part.len() == body.len() => {
                self.begin(total as usize, part, message_max, spares)
            }
            Record::More(part) if RECORD_LEN + part.len() == body.len() => self.continue_with(part),
            Record::First { .. } | Record::More(_) => Err(Reject::Malformed),
        }
    }

    /// Shows the oldest message to `take` and removes it.
    #[inline]
    pub fn take<R>(&mut self, spares: &mut Spares, take: impl FnOnce(&[u8]) -> R) -> Taken<R> {
        if self.ring.used() == 0 {
            return Taken::Nothing;
        }
        let head = self.ring.head();
        let header = self.ring.slice(head, RECORD_LEN);
        if header[0] == MESSAGE {
            let len = u16_at(header, 2) as usize;
            let result = take(self.ring.slice(head + RECORD_LEN, len));
            self.ring.pop(RECORD_LEN + len);
            return Taken::Message(result);
        }
        if header[0] == MARKER { self.take_large(spares, take) } else { self.take_close() }
    }

    /// True when a message, or the peer's close, waits.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.used() > 0
    }

    /// Stream position up to which the peer may send. A message under way in pieces counts as taken, since it has its
    /// buffer; one that is complete counts as held until the user takes it.
    #[inline]
    pub fn grant(&mut self) -> u64 {
        let marker = if self.assembly.is_some() { MARKER_LEN as u64 } else { 0 };
        let held = self.ring.used() as u64 + self.large_held + marker;
        let window = self.position + self.ring.capacity() as u64;
        self.granted = self.granted.max(window.saturating_sub(held));
        self.granted
    }

    /// True once the peer's Close has arrived.
    #[inline]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Gives memory back if nothing is held.
    pub fn shrink(&mut self) {
        self.ring.shrink();
        self.large.shrink_to_fit();
    }

    /// Bytes of memory held by the FIFO itself.
    pub fn memory(&self) -> usize {
        self.ring.memory()
    }

    #[inline]
    fn append(&mut self, body: &[u8]) -> Result<(), Reject> {
        if self.assembly.is_some() {
            return Err(Reject::Malformed);
        }
        let at = self.ring.push(body.len()).ok_or(Reject::Overrun)?;
        copy_ends(self.ring.slice_mut(at, body.len()), body);
        Ok(())
    }

    fn begin(&mut self, total: usize, part: &[u8], message_max: usize, spares: &mut Spares) -> Result<(), Reject> {
        if self.assembly.is_some() || part.len() > total {
            return Err(Reject::Malformed);
        }
        if total > message_max {
            return Err(Reject::TooLong);
        }
        let mut buffer = spares.take(total).ok_or(Reject::TooLong)?;
        buffer.extend_from_slice(part);
        self.assembly = Some(Assembly { buffer, total });
        self.finish_if_whole()
    }

    fn continue_with(&mut self, part: &[u8]) -> Result<(), Reject> {
        let Some(assembly) = &mut self.assembly else { return Err(Reject::Malformed) };
        if assembly.buffer.len() + part.len() > assembly.total {
            return Err(Reject::Malformed);
        }
        assembly.buffer.extend_from_slice(part);
        self.finish_if_whole()
    }

    fn finish_if_whole(&mut self) -> Result<(), Reject> {
        let Some(Assembly { buffer, .. }) = self.assembly.take_if(|a| a.buffer.len() == a.total) else { return Ok(()) };
        // The First record's 8 bytes were kept out of the grant for this marker.
        let at = self.ring.push(MARKER_LEN).ok_or(Reject::Overrun)?;
        self.ring.slice_mut(at, MARKER_LEN).fill(MARKER);
        self.large_held += buffer.len() as u64;
        self.large.push_back(buffer);
        Ok(())
    }

    #[cold]
    fn take_large<R>(&mut self, spares: &mut Spares, take: impl FnOnce(&[u8]) -> R) -> Taken<R> {
        self.ring.pop(MARKER_LEN);
        let buffer = self.large.pop_front().expect("a marker stands for a complete message");
        self.large_held -= buffer.len() as u64;
        let result = take(&buffer);
        spares.give(buffer);
        Taken::Message(result)
    }

    #[cold]
    fn take_close<R>(&mut self) -> Taken<R> {
        self.ring.pop(RECORD_LEN);
        Taken::Close
    }
}
