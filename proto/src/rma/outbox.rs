//! One-sided operations and answers to one peer that wait to be sent or acknowledged.
//!
//! Beside the send FIFO, since operations need none of the peer's room and must not wait behind messages that do. Small ones
//! are records in a ring, laid out as they go on the wire. The bytes of large ones stay where they are; a marker stands
//! in their place.

use std::collections::VecDeque;
use std::ops::Range;

use super::memory::Memory;
use super::precedence::Progress;
use super::region::Regions;
use crate::event::Event;
use crate::ring::ByteRing;
use crate::spares::Spares;
use crate::wire::{ANSWER_LEN, Operation, PUT_LEN, Target, operation_len, put_answer, put_flags, put_put};

/// Records and large transfers, in order.
#[derive(Debug)]
pub(crate) struct Outbox {
    ring: ByteRing,
    /// Where the first record stands that was never sent.
    next: usize,
    /// Bytes of the ring that were never sent, markers included.
    unsent: usize,
    /// Large transfers in order; the front one holds the oldest marker.
    bulk: VecDeque<Bulk>,
    /// Number of the front of `bulk`, counted since the beginning.
    bulk_first: u32,
    /// Large transfers whose marker `next` has not passed.
    bulk_unsent: usize,
    /// Bytes that were copied for large puts, which count against the ring's size.
    copied: usize,
    /// Bytes of the ring ever appended, and ever released.
    appended: u64,
    released: u64,
    /// Of the appended ones, where the last operation of our own ends; what follows are answers.
    own_end: u64,
}

/// A transfer whose bytes do not pass through the ring.
#[derive(Debug)]
struct Bulk {
    kind: BulkKind,
    source: Source,
    /// Its bytes, but for those of a put that follow in a record.
    bytes: Range<usize>,
    /// Bytes already sent for the first time.
    sent: usize,
    /// From their end on.
    backwards: bool,
    /// A record follows.
    goes_on: bool,
}

/// How a large put is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub len: usize,
    /// Bytes that go last, in a record if there is room for one.
    pub rest: usize,
    pub backwards: bool,
}

/// What its frames say.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BulkKind {
    /// `flags`: of the last frame, but for ORDERED, which is of all.
    Put {
        to: Target,
        flags: u8,
        op: u64,
    },
    Answer {
        op: u32,
    },
}

/// Where its bytes are.
#[derive(Debug)]
pub(crate) enum Source {
    /// A copy of ours.
    Buffer(Vec<u8>),
    /// A region, held until the transfer is over.
    Region { index: u32, at: usize },
}

impl Source {
    /// Bytes `offset..offset + len` of the transfer.
    fn read<'a>(&'a self, offset: usize, len: usize, regions: &'a Regions) -> &'a [u8] {
        match self {
            Self::Buffer(buffer) => &buffer[offset..offset + len],
            Self::Region { index, at } => regions.read(*index, at + offset, len),
        }
    }

    /// The copy; nothing of a region.
    pub fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Region { .. } => Vec::new(),
        }
    }
}

/// What one frame carries: enough to write it, and to write it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpSpan {
    /// A run of the ring.
    Run { at: usize, len: usize },
    /// Bytes `offset..offset + len` of large transfer `number`, behind `front` bytes of header.
    Part { number: u32, front: u8, offset: usize, len: usize },
}

impl OpSpan {
    /// Bytes that it takes in a frame's body.
    #[inline]
    pub const fn body_len(self) -> usize {
        match self {
            Self::Run { len, .. } => len,
            Self::Part { front, len, .. } => front as usize + len,
        }
    }

    /// Of its bytes, those that need not be copied into the frame where a driver takes them from their place.
    #[inline]
    pub const fn bulk_len(self) -> usize {
        match self {
            Self::Run { .. } => 0,
            Self::Part { len, .. } => len,
        }
    }
}

/// Marks a large transfer's place in the ring. No record's kind.
const MARKER: u8 = 0xff;
const MARKER_LEN: usize = 4;

impl Outbox {
    /// An empty one of `capacity` bytes for records of at most `longest`.
    pub const fn new(capacity: usize, longest: usize) -> Self {
        Self {
            ring: ByteRing::new(capacity, longest),
            next: 0,
            unsent: 0,
            bulk: VecDeque::new(),
            bulk_first: 0,
            bulk_unsent: 0,
            copied: 0,
            appended: 0,
            released: 0,
            own_end: 0,
        }
    }

    /// Appends a record that fits one frame. False when there is no room.
    #[inline]
    pub fn push(&mut self, operation: &Operation<'_>) -> bool {
        let len = operation.len();
        let Some(at) = self.append(len) else { return false };
        operation.emit(self.ring.slice_mut(at, len));
        true
    }

    /// Appends a large transfer. Hands its source back when there is no room.
    pub fn push_bulk(&mut self, kind: BulkKind, source: Source, len: usize) -> Result<(), Source> {
        let copied = if matches!(source, Source::Buffer(_)) { len } else { 0 };
        // One copied put is always taken, however large.
        if copied > 0 && self.copied > 0 && self.copied + copied > self.ring.capacity() {
            return Err(source);
        }
        let Some(at) = self.append(MARKER_LEN) else { return Err(source) };
        self.ring.slice_mut(at, MARKER_LEN).fill(MARKER);
        self.copied += copied;
        self.bulk.push_back(Bulk { kind, source, bytes: 0..len, sent: 0, backwards: false, goes_on: false });
        self.bulk_unsent += 1;
        Ok(())
    }

    /// Appends a large put. If there is room the `rest` bytes that go last are copied now, into a record behind it, so that what follows can
    /// go along in their frame.
    pub fn push_put(
        &mut self,
        (to, flags, op): (Target, u8, u64),
        source: Source,
        Cut { len, rest, backwards }: Cut,
        regions: &Regions,
    ) -> Result<(), Source> {
        self.push_bulk(BulkKind::Put { to, flags, op }, source, len)?;
        let record = if rest > 0 { self.append(PUT_LEN + rest) } else { None };
        let bulk = self.bulk.back_mut().expect("just pushed");
        bulk.backwards = backwards;
        let Some(at) = record else { return Ok(()) };
        let (kept, last) = if backwards { (rest..len, 0) } else { (0..len - rest, len - rest) };
        (bulk.bytes, bulk.goes_on) = (kept, true);
        let bytes = bulk.source.read(last, rest, regions);
        let record = Operation::Put { to: to.plus(last), flags: flags | put_flags::LAST, bytes };
        record.emit(self.ring.slice_mut(at, PUT_LEN + rest));
        if matches!(bulk.source, Source::Buffer(_)) {
            self.copied -= rest;
        }
        Ok(())
    }

    /// True when something waits that was never sent.
    #[inline]
    pub const fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// True if nothing follows `span`, which is the next.
    #[inline]
    pub const fn ends_with(&self, span: OpSpan) -> bool {
        matches!(span, OpSpan::Run { len, .. } if len == self.unsent)
    }

    /// How far it was sent.
    pub const fn progress(&self) -> Progress {
        Progress { appended: self.appended, sent: self.appended - self.unsent as u64 }
    }

    /// True when everything was sent and acknowledged.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.ring.used() == 0
    }

    /// What was appended last is an operation of our own, and no answer.
    #[inline]
    pub const fn note_own(&mut self) {
        self.own_end = self.appended;
    }

    /// True while an operation of our own is not acknowledged.
    pub const fn has_own(&self) -> bool {
        self.released < self.own_end
    }

    /// True while the bytes of put number `op` are still needed where they are.
    pub fn needs_source_of(&self, op: u64) -> bool {
        self.bulk.iter().any(|bulk| matches!(bulk.kind, BulkKind::Put { op: number, .. } if number == op))
    }

    /// The next span that was never sent, in a frame body of at most `room` bytes.
    #[inline]
    pub fn next_span(&self, room: usize) -> Option<OpSpan> {
        if self.unsent == 0 {
            return None;
        }
        let run = self.ring.contiguous(self.next).min(self.unsent);
        if self.bulk_unsent == 0 && run <= room {
            return Some(OpSpan::Run { at: self.next, len: run });
        }
        self.cut_span(run, room)
    }

    /// Writes the body of the frame that carries `span`. A body that is shorter than that is only its front: its bytes
    /// stay where they are.
    #[inline]
    pub fn write(&self, span: OpSpan, body: &mut [u8], regions: &Regions) {
        match span {
            OpSpan::Run { at, len } => crate::copy::copy_words(body, self.ring.slice(at, len)),
            OpSpan::Part { number, offset, len, .. } => {
                let bulk = self.bulk(number);
                let (front, bytes) = body.split_at_mut(bulk.header_len());
                bulk.write_front(front, offset, len);
                if !bytes.is_empty() {
                    sidelane_nic::copy::copy(bytes, bulk.source.read(offset, len, regions));
                }
            }
        }
    }

    /// The span from [`Self::next_span`] was sent: the next one follows it.
    #[inline]
    pub fn advance(&mut self, span: OpSpan) {
        match span {
            OpSpan::Run { at, len } => {
                debug_assert_eq!(at, self.next);
                self.next = self.ring.after(at, len);
                self.unsent -= len;
            }
            OpSpan::Part { number, offset, len, .. } => {
                let bulk = self.bulk_mut(number);
                debug_assert_eq!(offset, bulk.next(len));
                bulk.sent += len;
                if bulk.sent == bulk.bytes.len() {
                    self.next = self.ring.after(self.next, MARKER_LEN);
                    self.unsent -= MARKER_LEN;
                    self.bulk_unsent -= 1;
                }
            }
        }
    }

    /// The span is acknowledged, and everything before it. Called once for each, in order.
    #[inline]
    pub fn release(&mut self, span: OpSpan, regions: &mut Regions, spares: &mut Spares, events: &mut VecDeque<Event>) {
        match span {
            OpSpan::Run { len, .. } => self.pop(len),
            OpSpan::Part { number, offset, len, .. } => {
                debug_assert_eq!(number, self.bulk_first);
                if self.bulk[0].ends_with(offset, len) {
                    self.pop(MARKER_LEN);
                    let bulk = self.bulk.pop_front().expect("a part is in flight, so its transfer is here");
                    self.bulk_first = self.bulk_first.wrapping_add(1);
                    self.end(bulk, regions, spares, events);
                }
            }
        }
    }

    /// Gives up everything.
    pub fn clear(&mut self, regions: &mut Regions, spares: &mut Spares, events: &mut VecDeque<Event>) {
        while let Some(bulk) = self.bulk.pop_front() {
            self.end(bulk, regions, spares, events);
        }
    }

    /// Lends out the bytes that `span` stands for while its frame is sent from them: the memory and where they begin.
    pub fn take_source(&mut self, span: OpSpan, regions: &mut Regions) -> Option<(Memory, usize)> {
        let OpSpan::Part { number, offset, .. } = span else { return None };
        Some(match &mut self.bulk_mut(number).source {
            Source::Buffer(buffer) => (Memory::Owned(std::mem::take(buffer)), offset),
            Source::Region { index, at } => (regions.take(*index), *at + offset),
        })
    }

    /// Ends [`Self::take_source`].
    pub fn put_source(&mut self, span: OpSpan, memory: Memory, regions: &mut Regions) {
        let OpSpan::Part { number, .. } = span else { return };
        match &mut self.bulk_mut(number).source {
            Source::Buffer(buffer) => *buffer = memory.into_owned().expect("a buffer was lent"),
            Source::Region { index, .. } => regions.put_back(*index, memory),
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.ring.memory() + self.bulk.capacity() * size_of::<Bulk>()
    }

    /// Gives memory back if nothing is held.
    pub fn shrink(&mut self) {
        self.ring.shrink();
        self.bulk.shrink_to_fit();
    }

    fn end(&mut self, bulk: Bulk, regions: &mut Regions, spares: &mut Spares, events: &mut VecDeque<Event>) {
        match bulk.source {
            Source::Buffer(buffer) => {
                self.copied -= bulk.bytes.len();
                spares.give(buffer);
            }
            Source::Region { index, .. } => regions.release(index, events),
        }
    }

    #[inline]
    fn append(&mut self, len: usize) -> Option<usize> {
        let at = self.ring.push(len)?;
        if self.unsent == 0 {
            self.next = at;
        }
        self.unsent += len;
        self.appended += len as u64;
        Some(at)
    }

    #[inline]
    fn pop(&mut self, len: usize) {
        self.ring.pop(len);
        self.released += len as u64;
    }

    /// Walks the records at `next` up to `room` bytes, or up to the next marker.
    fn cut_span(&self, run: usize, room: usize) -> Option<OpSpan> {
        let records = self.ring.slice(self.next, run);
        if records[0] == MARKER {
            let place = self.bulk.len() - self.bulk_unsent;
            let bulk = &self.bulk[place];
            let len = (bulk.bytes.len() - bulk.sent).min(room - bulk.header_len()).min(u16::MAX as usize);
            let number = self.bulk_first.wrapping_add(place as u32);
            return Some(OpSpan::Part { number, front: bulk.header_len() as u8, offset: bulk.next(len), len });
        }
        let mut len = 0;
        while len < run && records[len] != MARKER {
            let record = operation_len(&records[len..]);
            if len + record > room {
                break;
            }
            len += record;
        }
        debug_assert!(len > 0, "a record fits any frame");
        Some(OpSpan::Run { at: self.next, len })
    }

    fn bulk(&self, number: u32) -> &Bulk {
        &self.bulk[number.wrapping_sub(self.bulk_first) as usize]
    }

    fn bulk_mut(&mut self, number: u32) -> &mut Bulk {
        &mut self.bulk[number.wrapping_sub(self.bulk_first) as usize]
    }
}

impl Bulk {
    const fn header_len(&self) -> usize {
        match self.kind {
            BulkKind::Put { .. } => PUT_LEN,
            BulkKind::Answer { .. } => ANSWER_LEN,
        }
    }

    /// Where its next `len` bytes begin.
    const fn next(&self, len: usize) -> usize {
        if self.backwards { self.bytes.end - self.sent - len } else { self.bytes.start + self.sent }
    }

    /// True of the bytes that go last.
    const fn ends_with(&self, offset: usize, len: usize) -> bool {
        if self.backwards { offset == self.bytes.start } else { offset + len == self.bytes.end }
    }

    fn write_front(&self, out: &mut [u8], offset: usize, len: usize) {
        let last = self.ends_with(offset, len) && !self.goes_on;
        match self.kind {
            BulkKind::Put { to, flags, .. } => {
                let flags = if last { flags | put_flags::LAST } else { flags & put_flags::ORDERED };
                put_put(out, &to.plus(offset), flags, len as u16);
            }
            BulkKind::Answer { op } => put_answer(out, op, offset as u32, last, len as u16),
        }
    }
}

#[cfg(test)]
mod tests;
