//! The receive FIFO of one peer: messages that arrived in order and wait to be taken, and the credit that follows from it.
//!
//! Bodies of frames with whole messages are copied in as they are, in one piece; the records are walked when they are
//! taken. A message of several frames is put together in a buffer of its own, and a marker stands in its place.

use std::collections::VecDeque;

use sidelane_nic::copy::copy;

use crate::copy::copy_ends;
use crate::counters::Reject;
use crate::ring::ByteRing;
use crate::spares::Spares;
use crate::wire::{FIRST_LEN, RECORD_LEN, Record, Records, is_whole_messages, more_len, u16_at};

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

/// Whether `body` is whole messages and Close, which is all that keeps it from being a run.
#[cold]
fn check_with_close(body: &[u8]) -> Result<(), Reject> {
    for record in Records::new(body) {
        if !matches!(record?, Record::Message(_) | Record::Close) {
            return Err(Reject::Malformed);
        }
    }
    Ok(())
}

/// The oldest records while they are shown. They leave the ring in any case: who panics on a message has had it.
struct Shown<'a> {
    ring: &'a mut ByteRing,
    len: usize,
}

impl Drop for Shown<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.pop(self.len);
    }
}

#[derive(Debug)]
struct Assembly {
    /// The message so far, and perhaps bytes behind it that mean nothing: places to write to. Never longer than `total`.
    buffer: Vec<u8>,
    /// Bytes of the message so far.
    filled: usize,
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
/// Of shorter messages two find room in a processor's second-level cache beside all else.
const LONG: usize = 128 << 10;

impl Assembly {
    fn push(&mut self, part: &[u8]) {
        match self.place(part.len()) {
            Some(place) => copy(place, part),
            None => {
                self.buffer.truncate(self.filled);
                self.buffer.extend_from_slice(part);
            }
        }
        self.filled += part.len();
    }

    /// Where the next `len` bytes will stand, if the buffer has had bytes there before.
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        self.buffer.get_mut(self.filled..self.filled + len)
    }
}

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

    /// Takes in the body of the frame whose turn it is: true when that may have raised the grant. On an error nothing of
    /// it is kept.
    #[inline]
    pub fn accept(&mut self, body: &[u8], message_max: usize, spares: &mut Spares) -> Result<bool, Reject> {
        let may_grant = if is_whole_messages(body) {
            self.append(body)?
        } else {
            self.accept_part(body, message_max, spares)?;
            true
        };
        self.position += body.len() as u64;
        Ok(may_grant)
    }

    /// True while nothing is here, and no message under way in pieces.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        self.ring.used() == 0 && self.assembly.is_none()
    }

    /// How many bodies of `len` bytes the long message under way lacks: none while there is no such message.
    #[inline]
    pub fn lacking(&self, len: usize) -> usize {
        let Some(Assembly { filled, total, .. }) = &self.assembly else { return 0 };
        if *total < LONG {
            return 0;
        }
        // Whoever breaks the rules sends parts of nothing.
        (total - filled).div_ceil(len.saturating_sub(RECORD_LEN).max(1))
    }

    /// A body of `len` bytes was taken in elsewhere ([`crate::lone`]). It counts as taken.
    #[inline]
    pub const fn pass(&mut self, len: usize) {
        self.position += len as u64;
    }

    /// Where the bytes will stand that a body of `len` bytes, which begins with `front`, continues a message with: behind what has
    /// arrived of it, wherever the frame came from and whatever else it says. Nobody sees them, and the next body's stand there too,
    /// until [`Self::accept_placed`] is called. `None` where the message does not go on so far, or has no bytes there yet:
    /// [`Self::accept`] makes some.
    pub fn place(&mut self, front: &[u8], len: usize) -> Option<&mut [u8]> {
        if self.is_beyond_grant(len) {
            return None;
        }
        self.assembly.as_mut()?.place(more_len(front, len)?)
    }

    /// As [`Self::accept`], of a body of `len` bytes that were written to the place that [`Self::place`] gave for it, last of all.
    pub fn accept_placed(&mut self, len: usize) -> Result<(), Reject> {
        let Some(assembly) = &mut self.assembly else { return Err(Reject::Malformed) };
        assembly.filled += len - RECORD_LEN;
        debug_assert!(assembly.filled <= assembly.buffer.len(), "the place ended with the buffer");
        self.finish_if_whole()?;
        self.position += len as u64;
        Ok(())
    }

    /// Takes in a part of a large message, which is alone in its frame.
    #[inline(never)]
    fn accept_part(&mut self, body: &[u8], message_max: usize, spares: &mut Spares) -> Result<(), Reject> {
        // The ring bounds what small messages take; nothing else bounds these.
        if self.is_beyond_grant(body.len()) {
            return Err(Reject::Overrun);
        }
        match Records::new(body).next().ok_or(Reject::Malformed)?? {
            Record::First { total, part } if FIRST_LEN + part.len() == body.len() => {
                self.begin(total as usize, part, message_max, spares)
            }
            Record::More(part) if RECORD_LEN + part.len() == body.len() => self.continue_with(part),
            _ => Err(Reject::Malformed),
        }
    }

    /// Shows the oldest message to `take` and removes it.
    #[inline]
    pub fn take<R>(&mut self, spares: &mut Spares, take: impl FnOnce(&[u8], &mut Spares) -> R) -> Taken<R> {
        if self.ring.used() == 0 {
            return Taken::Nothing;
        }
        let head = self.ring.head();
        let header = self.ring.slice(head, RECORD_LEN);
        if header[0] == MESSAGE {
            let len = u16_at(header, 2) as usize;
            let shown = Shown { ring: &mut self.ring, len: RECORD_LEN + len };
            return Taken::Message(take(shown.ring.slice(head + RECORD_LEN, len), spares));
        }
        if header[0] == MARKER { self.take_large(spares, take) } else { self.take_close() }
    }

    /// Shows messages as [`Self::take`] does until `take` is false, `most` were shown, or something else comes than a short one that stands
    /// behind the one before it; what else is at the front is taken alone. How many were shown.
    #[inline]
    pub fn take_run(
        &mut self,
        most: u32,
        spares: &mut Spares,
        mut take: impl FnMut(&[u8], &mut Spares) -> bool,
    ) -> Taken<u32> {
        let head = self.ring.head();
        let mut run = Shown { len: 0, ring: &mut self.ring };
        let Shown { len: end, ring } = &mut run;
        let bytes = ring.slice(head, ring.contiguous(head));
        let mut shown = 0;
        while let Some(&[MESSAGE, _, low, high]) = bytes.get(*end..*end + RECORD_LEN) {
            let at = *end + RECORD_LEN;
            *end = at + u16::from_le_bytes([low, high]) as usize;
            shown += 1;
            if !take(&bytes[at..*end], spares) || shown == most {
                break;
            }
        }
        drop(run);
        if shown > 0 {
            return Taken::Message(shown);
        }
        self.take(spares, |message, spares| {
            take(message, spares);
            1
        })
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

    /// Copies whole messages, perhaps with the Close among them; true if it is. They are looked at where the copy stands: what
    /// they came from may be memory of another process, which nothing keeps from changing it meanwhile.
    #[inline]
    fn append(&mut self, body: &[u8]) -> Result<bool, Reject> {
        if self.assembly.is_some() || body.len() > self.ring.longest() {
            return Err(Reject::Malformed);
        }
        let at = self.ring.spot(body.len()).ok_or(Reject::Overrun)?;
        let copy = self.ring.slice_mut(at, body.len());
        copy_ends(copy, body);
        let is_run = is_run_of_messages(copy);
        if !is_run {
            check_with_close(copy)?;
            self.closed = true;
        }
        self.ring.take_spot(at, body.len());
        Ok(!is_run)
    }

    /// True if a sender that keeps to its credit could not have sent this.
    #[inline]
    const fn is_beyond_grant(&self, len: usize) -> bool {
        self.position + len as u64 > self.granted
    }

    fn begin(&mut self, total: usize, part: &[u8], message_max: usize, spares: &mut Spares) -> Result<(), Reject> {
        if self.assembly.is_some() || part.len() > total {
            return Err(Reject::Malformed);
        }
        if total > message_max {
            return Err(Reject::TooLong);
        }
        let buffer = spares.take_used(total).ok_or(Reject::TooLong)?;
        let assembly = self.assembly.insert(Assembly { buffer, filled: 0, total });
        assembly.push(part);
        self.finish_if_whole()
    }

    fn continue_with(&mut self, part: &[u8]) -> Result<(), Reject> {
        let Some(assembly) = &mut self.assembly else { return Err(Reject::Malformed) };
        if assembly.filled + part.len() > assembly.total {
            return Err(Reject::Malformed);
        }
        assembly.push(part);
        self.finish_if_whole()
    }

    fn finish_if_whole(&mut self) -> Result<(), Reject> {
        let Some(Assembly { buffer, .. }) = self.assembly.take_if(|a| a.filled == a.total) else { return Ok(()) };
        // The First record's 8 bytes were kept out of the grant for this marker.
        let at = self.ring.push(MARKER_LEN).ok_or(Reject::Overrun)?;
        self.ring.slice_mut(at, MARKER_LEN).fill(MARKER);
        self.large_held += buffer.len() as u64;
        self.large.push_back(buffer);
        Ok(())
    }

    #[cold]
    fn take_large<R>(&mut self, spares: &mut Spares, take: impl FnOnce(&[u8], &mut Spares) -> R) -> Taken<R> {
        self.ring.pop(MARKER_LEN);
        let buffer = self.large.pop_front().expect("a marker stands for a complete message");
        self.large_held -= buffer.len() as u64;
        let result = take(&buffer, spares);
        spares.give(buffer);
        Taken::Message(result)
    }

    #[cold]
    fn take_close<R>(&mut self) -> Taken<R> {
        self.ring.pop(RECORD_LEN);
        Taken::Close
    }
}

#[cfg(test)]
mod tests;
