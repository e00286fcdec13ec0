//! The send FIFO of one peer: messages as records, laid out as they go on the wire, kept until they are acknowledged.
//!
//! A frame is a contiguous run of the ring, so coalescing is one copy and a retransmission is the same copy again. A message
//! too large for one frame does not pass through the ring: a marker stands in its place, and its frames are written
//! straight from its buffer.

use std::collections::VecDeque;
use std::ops::Range;

use sidelane_nic::copy::copy;

use crate::copy::copy_words;
use crate::hint::seldom;
use crate::ring::ByteRing;
use crate::rma::{OpSpan, Progress};
use crate::wire::{FIRST_LEN, RECORD_LEN, put_close, put_first, put_more};

/// Records and large messages to one peer, in order.
#[derive(Debug)]
pub(crate) struct SendFifo {
    ring: ByteRing,
    /// Where the first record stands that was never sent.
    next: usize,
    /// Bytes of the ring that were never sent, markers included.
    unsent: usize,
    /// Bytes of the ring ever sent by [`Self::advance`].
    advanced: u64,
    /// Large messages in order; the front one holds the oldest marker.
    large: VecDeque<Large>,
    /// Number of the front of `large`, counted since the beginning.
    large_first: u32,
    /// Large messages whose marker `next` has not passed.
    large_unsent: usize,
    /// Bytes in large messages that were copied, and so count against the FIFO's size.
    copied: usize,
    /// Bytes of the ring that only replies may fill ([`crate::am`]).
    reserve: usize,
}

/// A message on the heap.
#[derive(Debug)]
struct Large {
    /// Elsewhere while a frame is written that leaves its part in place: [`SendFifo::take_large`].
    buffer: Vec<u8>,
    /// Of the buffer.
    len: usize,
    /// Bytes already sent for the first time.
    sent: usize,
    /// Belongs to the user, who wants it back.
    lent: bool,
}

/// What one frame carries: enough to write it, and to write it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// A run of the ring.
    Run { at: usize, len: usize },
    /// Bytes `offset..offset + len` of large message `number`.
    Part { number: u32, offset: usize, len: usize },
    /// No message, but what the outbox of one-sided operations says: none of this FIFO's.
    Operations(OpSpan),
    /// A run of the outbox, and a run of the ring behind it.
    Both { operations: Run, messages: Run },
}

/// A run of either ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    at: u32,
    len: u32,
}

impl Run {
    #[inline]
    pub const fn new(at: usize, len: usize) -> Self {
        Self { at: at as u32, len: len as u32 }
    }

    #[inline]
    pub const fn operations(self) -> OpSpan {
        OpSpan::Run { at: self.at as usize, len: self.len as usize }
    }

    #[inline]
    pub const fn messages(self) -> Span {
        Span::Run { at: self.at as usize, len: self.len as usize }
    }
}

impl Span {
    /// The large message's number and which of its bytes, if it is a part of one.
    #[inline]
    pub fn part(self) -> Option<(u32, Range<usize>)> {
        match self {
            Self::Run { .. } | Self::Operations(_) | Self::Both { .. } => None,
            Self::Part { number, offset, len } => Some((number, offset..offset + len)),
        }
    }

    /// Bytes that it takes in a frame's body.
    #[inline]
    pub fn body_len(self) -> usize {
        match self {
            Self::Operations(span) => span.body_len(),
            Self::Both { operations, messages } => operations.len as usize + messages.len as usize,
            span => SendFifo::body_len(span),
        }
    }
}

/// What an acknowledged span sets free.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Room in the FIFO.
    Room,
    /// A user's buffer.
    Buffer(Vec<u8>),
    /// A buffer of ours.
    Spare(Vec<u8>),
}

/// Marks a large message's place in the ring. Never on the wire, where byte 0 of a record is at most 4.
const MARKER: u8 = 0xff;
/// A marker is as long as a First record's header.
const MARKER_LEN: usize = FIRST_LEN;
const OUTBOX: &str = "the outbox takes care of operations";

impl SendFifo {
    /// An empty FIFO of `capacity` bytes for records of at most `longest`.
    pub const fn new(capacity: usize, longest: usize) -> Self {
        Self {
            ring: ByteRing::new(capacity, longest),
            next: 0,
            unsent: 0,
            advanced: 0,
            large: VecDeque::new(),
            large_first: 0,
            large_unsent: 0,
            copied: 0,
            reserve: 0,
        }
    }

    /// Keeps half of the ring for replies from now on, and says how many bytes that is.
    pub fn reserve_half(&mut self) -> usize {
        self.reserve = self.ring.capacity() / 2;
        self.reserve
    }

    /// Appends a record of `len` bytes that fits one frame; `write` fills it, header and all. False when there is no room.
    #[inline]
    pub fn push(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if !self.has_room(len) {
            return false;
        }
        let Some(at) = self.append(len) else { return false };
        write(self.ring.slice_mut(at, len));
        true
    }

    /// Where a record of `len` bytes that fits one frame will stand, to be written before [`Self::commit`]; `None` when
    /// there is no room. Only a reply finds room in the reserve.
    #[inline]
    pub fn spot(&mut self, len: usize, is_reply: bool) -> Option<&mut [u8]> {
        if !is_reply && !self.has_room(len) {
            return None;
        }
        let at = self.ring.spot(len)?;
        Some(self.ring.slice_mut(at, len))
    }

    /// Appends the record that was written to [`Self::spot`], of `len` bytes now, at most as many as there.
    #[inline]
    pub fn commit(&mut self, len: usize) {
        let appended = self.append(len);
        debug_assert!(appended.is_some(), "there was room a moment ago");
    }

    /// Appends a message that lives in a buffer of its own. Hands it back when there is no room.
    pub fn push_large(&mut self, buffer: Vec<u8>, lent: bool) -> Result<(), Vec<u8>> {
        // One copied message is always taken, however large; beyond that they count like bytes of the ring.
        if !lent && self.copied > 0 && self.copied + buffer.len() > self.ring_capacity() {
            return Err(buffer);
        }
        if !self.has_room(MARKER_LEN) {
            return Err(buffer);
        }
        let Some(at) = self.append(MARKER_LEN) else { return Err(buffer) };
        self.ring.slice_mut(at, MARKER_LEN).fill(MARKER);
        if !lent {
            self.copied += buffer.len();
        }
        self.large.push_back(Large { len: buffer.len(), buffer, sent: 0, lent });
        self.large_unsent += 1;
        Ok(())
    }

    /// Appends the Close record. False when there is no room.
    pub fn push_close(&mut self) -> bool {
        let Some(at) = self.append(RECORD_LEN) else { return false };
        put_close(self.ring.slice_mut(at, RECORD_LEN));
        true
    }

    /// True when something waits that was never sent.
    #[inline]
    pub const fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// How far it was sent, as long as no run of it is handed over.
    pub const fn progress(&self) -> Progress {
        Progress { appended: self.advanced + self.unsent as u64, sent: self.advanced }
    }

    /// True when everything was sent and acknowledged.
    pub const fn is_empty(&self) -> bool {
        self.ring.used() == 0
    }

    /// True when nothing but the Close record is held.
    pub const fn holds_only_close(&self) -> bool {
        self.ring.used() == RECORD_LEN
    }

    /// Length of the longest message that has a buffer of its own.
    pub fn longest_large(&self) -> usize {
        self.large.iter().map(|large| large.buffer.len()).max().unwrap_or(0)
    }

    /// The next span that was never sent, in a frame body of at most `room` bytes; `None` when nothing waits or
    /// nothing fits.
    #[inline]
    pub fn next_span(&self, room: usize) -> Option<Span> {
        if self.unsent == 0 {
            return None;
        }
        let run = self.ring.contiguous(self.next).min(self.unsent);
        if self.large_unsent == 0 && run <= room {
            return Some(Span::Run { at: self.next, len: run });
        }
        self.cut_span(run, room)
    }

    /// Bytes that `span` takes in a frame's body, which is also what it takes of the receiver's credit.
    #[inline]
    pub fn body_len(span: Span) -> usize {
        match span {
            Span::Run { len, .. } => len,
            Span::Part { offset: 0, len, .. } => FIRST_LEN + len,
            Span::Part { len, .. } => RECORD_LEN + len,
            Span::Operations(_) | Span::Both { .. } => unreachable!("{OUTBOX}"),
        }
    }

    /// Writes the body of the frame that carries `span`.
    #[inline]
    pub fn write(&self, span: Span, body: &mut [u8]) {
        match span {
            Span::Run { at, .. } => self.write_run(at, body),
            Span::Part { number, offset, len } => {
                let message = &self.large(number).buffer[offset..offset + len];
                let front = body.len() - len;
                self.write_front(span, &mut body[..front]);
                copy(&mut body[front..], message);
            }
            Span::Operations(_) | Span::Both { .. } => unreachable!("{OUTBOX}"),
        }
    }

    /// Writes what stands before the message's bytes in the body of the frame that carries `span`, a part.
    #[inline]
    pub fn write_front(&self, span: Span, body: &mut [u8]) {
        let Span::Part { number, offset, len } = span else { unreachable!("runs are written whole") };
        if offset == 0 {
            put_first(body, len as u16, self.large(number).len as u32);
        } else {
            put_more(body, len as u16);
        }
    }

    /// Lends out the buffer of large message `number`, until [`Self::put_large`]. Only what reads its bytes misses it.
    pub fn take_large(&mut self, number: u32) -> Vec<u8> {
        std::mem::take(&mut self.large_mut(number).buffer)
    }

    /// Takes a buffer back.
    pub fn put_large(&mut self, number: u32, buffer: Vec<u8>) {
        self.large_mut(number).buffer = buffer;
    }

    fn large(&self, number: u32) -> &Large {
        &self.large[number.wrapping_sub(self.large_first) as usize]
    }

    fn large_mut(&mut self, number: u32) -> &mut Large {
        &mut self.large[number.wrapping_sub(self.large_first) as usize]
    }

    /// Writes the body of the frame that carries the run at `at`, which is as long as `body`.
    #[inline]
    pub fn write_run(&self, at: usize, body: &mut [u8]) {
        copy_words(body, self.ring.slice(at, body.len()));
    }

    /// The run that is next, whole records that were never sent, if it fits `room`; `None` when it does not, or is not
    /// the common case.
    #[inline]
    pub fn next_run(&self, room: usize) -> Option<(usize, usize)> {
        if seldom(self.large_unsent > 0 || self.unsent == 0) {
            return None;
        }
        let run = self.ring.contiguous(self.next).min(self.unsent);
        (run <= room).then_some((self.next, run))
    }

    /// Forgets the run from [`Self::next_run`]: a reliable driver has it now.
    #[inline]
    pub fn hand_over_run(&mut self, at: usize, len: usize) {
        self.advance_run(at, len);
        self.ring.pop(len);
    }

    /// The run from [`Self::next_run`] was sent: the next one follows it.
    #[inline]
    pub fn advance_run(&mut self, at: usize, len: usize) {
        debug_assert_eq!(at, self.next);
        self.next = self.ring.after(at, len);
        self.unsent -= len;
        self.advanced += len as u64;
    }

    /// The span from [`Self::next_span`] was sent: the next one follows it.
    #[inline]
    pub fn advance(&mut self, span: Span) {
        match span {
            Span::Run { at, len } => self.advance_run(at, len),
            Span::Part { number, offset, len } => {
                let large = self.large_mut(number);
                debug_assert_eq!(offset, large.sent);
                large.sent += len;
                if large.sent == large.len {
                    self.next = self.ring.after(self.next, MARKER_LEN);
                    self.unsent -= MARKER_LEN;
                    self.advanced += MARKER_LEN as u64;
                    self.large_unsent -= 1;
                }
            }
            Span::Operations(_) | Span::Both { .. } => unreachable!("{OUTBOX}"),
        }
    }

    /// The span is acknowledged, and everything before it. Called once for each, in order.
    #[inline]
    pub fn release(&mut self, span: Span) -> Released {
        match span {
            Span::Run { len, .. } => {
                self.pop(len);
                Released::Room
            }
            Span::Part { number, offset, len } => {
                debug_assert_eq!(number, self.large_first);
                if offset + len < self.large[0].len {
                    return Released::Room;
                }
                self.release_large()
            }
            Span::Operations(_) | Span::Both { .. } => unreachable!("{OUTBOX}"),
        }
    }

    /// Takes back every user's buffer that is not acknowledged.
    pub fn drain_lent(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.large.drain(..).filter(|large| large.lent).map(|large| large.buffer)
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

    fn ring_capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// True when `len` bytes fit beside the reserve.
    #[inline]
    const fn has_room(&self, len: usize) -> bool {
        self.ring.used() + len + self.reserve <= self.ring.capacity()
    }

    #[inline]
    fn append(&mut self, len: usize) -> Option<usize> {
        let at = self.ring.push(len)?;
        if self.unsent == 0 {
            self.next = at;
        }
        self.unsent += len;
        Some(at)
    }

    #[inline]
    fn pop(&mut self, len: usize) {
        self.ring.pop(len);
    }

    #[cold]
    fn release_large(&mut self) -> Released {
        self.pop(MARKER_LEN);
        let large = self.large.pop_front().expect("a part is in flight, so its message is here");
        self.large_first = self.large_first.wrapping_add(1);
        if large.lent {
            return Released::Buffer(large.buffer);
        }
        self.copied -= large.buffer.len();
        Released::Spare(large.buffer)
    }

    /// Walks the records at `next` up to `room` bytes, or up to the next marker.
    fn cut_span(&self, run: usize, room: usize) -> Option<Span> {
        let records = self.ring.slice(self.next, run);
        if records[0] == MARKER {
            return self.next_part(room);
        }
        let mut len = 0;
        while len < run && records[len] != MARKER {
            let record = RECORD_LEN + u16::from_le_bytes([records[len + 2], records[len + 3]]) as usize;
            if len + record > room {
                break;
            }
            len += record;
        }
        (len > 0).then_some(Span::Run { at: self.next, len })
    }

    fn next_part(&self, room: usize) -> Option<Span> {
        let place = self.large.len() - self.large_unsent;
        let large = &self.large[place];
        let header = if large.sent == 0 { FIRST_LEN } else { RECORD_LEN };
        let left = large.buffer.len() - large.sent;
        let len = left.min(room.checked_sub(header)?).min(u16::MAX as usize);
        // An empty message is a First record without a part.
        if len == 0 && left > 0 {
            return None;
        }
        let number = self.large_first.wrapping_add(place as u32);
        Some(Span::Part { number, offset: large.sent, len })
    }
}

#[cfg(test)]
mod model;
