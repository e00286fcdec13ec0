//! A ring of frames of any length between one producer and one consumer, in memory that both can write.
//!
//! The memory is a power-of-two array of 64-byte lines. A frame takes whole lines in a row: a header word, then the
//! payload, so that the first 56 bytes travel in the header's cache line. The consumer polls the header word where the
//! next frame will start, asks for the line behind it, or as many as the last frame had, and looks at nothing else:
//!
//! ```text
//!   header    0: no frame yet      len + 1: a frame of len bytes      WRAP: the next frame is at line 0
//!             len + 1, and n + 1 in the first eighth: a frame of len bytes in cell n (`cells`), which takes one line here;
//!                                     without bytes: no frame, the cell is given back
//! ```
//!
//! Old payload may lie wherever a header will come to be, so the header behind the last frame is zeroed before the frame
//! is published. That line must be free, which costs the ring one line. The consumer writes nothing but `head`, on a line of its own, once for an eighth of the ring;
//! the producer reads it only when the ring looks full.
//!
//! Neither side trusts the other's words: positions are masked and lengths are checked against the ring before use.

use super::draft::{self, Draft};
use super::sync::{AtomicU32, Ordering, fence};
use crate::prefetch;

/// The shared memory of one ring.
pub(super) trait Memory {
    /// Number of lines, a power of two; the same at every call.
    fn lines(&self) -> u32;
    /// The header word of a line below [`Memory::lines`].
    fn header(&self, line: u32) -> &AtomicU32;
    /// Writes `words` behind the header of `line`, the last one first. All are within the ring, and ours.
    fn write(&self, line: u32, words: &[[u8; draft::WORD]]);
    /// What the two sides tell each other beside the frames.
    fn control(&self) -> &Control;
}

/// Each word is written often by one side and read seldom by the other.
#[repr(C)]
pub(super) struct Control {
    /// Lines that the consumer has given back since the ring was made, modulo 2^32.
    head: OwnLine,
    /// 1 when the producer found the ring full since the consumer last looked here.
    starved: OwnLine,
}

/// Two lines, since processors fetch them in pairs.
#[repr(C, align(128))]
struct OwnLine(AtomicU32);

#[cfg(all(loom, test))]
impl Control {
    pub(super) fn new() -> Self {
        Self { head: OwnLine(AtomicU32::new(0)), starved: OwnLine(AtomicU32::new(0)) }
    }
}

#[cfg(all(not(loom), test))]
impl Control {
    /// What a hostile consumer does.
    pub(super) fn forge_head(&self, head: u32) {
        self.head.0.store(head, Ordering::Release);
    }
}

/// The writing side. There is one for a ring.
pub(super) struct Producer<M> {
    memory: M,
    /// Lines written since the ring was made.
    tail: u32,
    /// The headers of all lines from `tail` to before here are zero: at least the first of them.
    zeroed: u32,
    /// A room was written to, and is not published.
    written: bool,
    /// What is written of a frame of a few lines.
    draft: Draft,
    /// A frame has come since the last one went, and its sender waits for the next.
    answers: bool,
    /// The latest `head` that was read and found possible: never more than a ring behind `tail`.
    head_seen: u32,
    /// The last frame found no room.
    starving: bool,
    /// The consumer has broken the rules; nothing more is written.
    broken: bool,
}

/// Lines that a frame may be written to, all within the ring and given back by the consumer. Costs nothing to drop.
pub(super) struct Room {
    line: u32,
    len: usize,
    place: Place,
    /// The payload goes to the draft first.
    drafted: bool,
    /// Lines left unused before the end of the array.
    skip: u32,
}

/// The reading side. There is one for a ring.
pub(super) struct Consumer<M> {
    memory: M,
    /// Longest payload that the producer may send.
    len_max: usize,
    /// Lines given back since the ring was made; `published` is what the producer knows of it.
    head: u32,
    published: u32,
    /// Lines of the last frame, as of all the next ones: asked for before it is known that they are there.
    expected: u32,
    /// The producer has broken the rules; nothing more is read.
    broken: bool,
}

/// A frame that is there, all within the ring or a cell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    line: u32,
    len: usize,
    place: Place,
    /// Lines to give back with it.
    span: u32,
}

/// Where a frame's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// Behind its header.
    pub(super) const HERE: Self = Self(0);

    const fn in_cell(cell: u8) -> Self {
        Self(cell as u32 + 1)
    }

    /// `None`: behind the header.
    #[inline]
    pub(super) fn cell(self) -> Option<u8> {
        (self != Self::HERE).then(|| self.0 as u8 - 1)
    }

    /// Lines of the ring that a frame of `len` bytes takes.
    #[inline]
    const fn lines_for(self, len: usize) -> u32 {
        if self.0 == 0 { lines_for(len) } else { 1 }
    }
}

impl Room {
    /// Where the frame starts.
    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// Where its payload goes.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Bytes of its payload.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Its payload goes to the draft first.
    pub(super) fn is_drafted(&self) -> bool {
        self.drafted
    }
}

impl Frame {
    /// Where it starts.
    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// Where its payload is.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Bytes of its payload.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl<M: Memory> Producer<M> {
    /// The writing side of a ring that is all zeroes.
    pub(super) fn new(memory: M) -> Self {
        let zeroed = memory.lines();
        let draft = Draft::EMPTY;
        let (written, answers, starving, broken) = (false, false, false, false);
        Self { memory, tail: 0, zeroed, written, draft, answers, head_seen: 0, starving, broken }
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    /// Finds room for a frame. `None`: the ring is full, and [`Consumer::release`] will say when it no longer is.
    #[inline]
    pub(super) fn reserve(&mut self, len: usize) -> Option<Room> {
        self.reserve_at(len, Place::HERE)
    }

    /// As [`Self::reserve`], of a frame whose payload goes into `cell`, which is ours.
    #[inline]
    pub(super) fn reserve_in(&mut self, cell: u8, len: usize) -> Option<Room> {
        self.reserve_at(len, Place::in_cell(cell))
    }

    #[inline]
    fn reserve_at(&mut self, len: usize, place: Place) -> Option<Room> {
        debug_assert!(len < LEN_MASK as usize);
        if std::mem::take(&mut self.written) {
            // Payload of a frame that was dropped may lie in the headers behind the next one.
            self.zeroed = self.tail.wrapping_add(1);
        }
        let (size, lines) = (self.memory.lines(), place.lines_for(len));
        let line = self.tail & (size - 1);
        let (line, skip) = if lines <= size - line { (line, 0) } else { (0, size - line) };
        let span = skip + lines;
        if !self.fits(span) && !self.fits_after_all(span) {
            return None;
        }
        let drafted = (lines > 1 || self.answers) && place == Place::HERE && len <= draft::LEN_MAX;
        if drafted && self.answers {
            // They are ours when the draft is done.
            (line..line + lines).for_each(|line| prefetch::to_write(std::ptr::from_ref(self.memory.header(line))));
        }
        Some(Room { line, len, place, drafted, skip })
    }

    /// What is written of a frame of a few lines.
    #[inline]
    pub(super) fn draft(&self) -> &Draft {
        &self.draft
    }

    /// The same, to be written.
    #[inline]
    pub(super) fn draft_mut(&mut self) -> &mut Draft {
        &mut self.draft
    }

    /// A frame has come the other way.
    #[inline]
    pub(super) fn on_received(&mut self) {
        self.answers = true;
    }

    /// The payload of a room is about to be written, in the ring.
    #[inline]
    pub(super) fn write(&mut self) {
        self.written = true;
    }

    /// Makes the frame visible that was written to `room`.
    #[inline]
    pub(super) fn publish(&mut self, room: Room) {
        (self.written, self.answers) = (false, false);
        let (mask, old_tail) = (self.memory.lines() - 1, self.tail);
        let lines = room.place.lines_for(room.len);
        self.tail = self.tail.wrapping_add(room.skip + lines);
        if self.tail.wrapping_sub(old_tail) >= self.zeroed.wrapping_sub(old_tail) {
            self.memory.header(self.tail & mask).store(NO_FRAME, Ordering::Relaxed);
            self.zeroed = self.tail.wrapping_add(1);
        }
        if room.drafted {
            self.memory.write(room.line, self.draft.words(room.len));
        }
        // Pairs with the Acquire in `Consumer::peek`: who sees the header sees the payload, and the zero behind it.
        self.memory.header(room.line).store((room.len as u32 + 1) | (room.place.0 << PLACE_AT), Ordering::Release);
        if room.skip > 0 {
            self.memory.header(old_tail & mask).store(WRAP, Ordering::Release);
        }
        self.zero_ahead(lines);
    }

    /// Zeroes headers that later frames of `lines` lines will need zeroed. The consumer has their lines in its cache from the last round,
    /// so each zero waits for the other processor, and a frame published behind it would wait as long.
    #[inline]
    fn zero_ahead(&mut self, lines: u32) {
        let free = self.memory.lines() - self.tail.wrapping_sub(self.head_seen);
        // The next one's, and the one behind it. Half a round trip of 8 bytes takes 55 ns with these two, 65 with 8, and 90 when the zero is
        // written right before the frame; with cores far apart 185, 240 and 290 (two virtual processors of an EPYC 9004, median of 100,000,
        // where the bare cache line takes 30 and 160).
        let ahead = (lines.min(draft::LINES) + 1).min(free);
        while self.zeroed.wrapping_sub(self.tail) < ahead {
            self.memory.header(self.zeroed & (self.memory.lines() - 1)).store(NO_FRAME, Ordering::Relaxed);
            self.zeroed = self.zeroed.wrapping_add(1);
        }
    }

    /// True when the last frame found no room and some was given back since.
    pub(super) fn may_have_room(&self) -> bool {
        self.starving && !self.broken && self.memory.control().head.0.load(Ordering::Acquire) != self.head_seen
    }

    /// True once the consumer has broken the rules of the ring.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// One line stays free behind the frame for the next header.
    fn fits(&self, span: u32) -> bool {
        let used = self.tail.wrapping_sub(self.head_seen);
        span < self.memory.lines() - used
    }

    /// Looks at the consumer's line, which the ring spares as long as it can.
    #[cold]
    fn fits_after_all(&mut self, span: u32) -> bool {
        self.look();
        if !self.fits(span) {
            self.starving = true;
            // Either the consumer's next publication sees the flag, or we see what it published: both sides have a fence
            // between their store and their load. See `Consumer::publish`.
            self.memory.control().starved.0.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.look();
            if !self.fits(span) {
                return false;
            }
        }
        if std::mem::take(&mut self.starving) {
            // By us alone: if the consumer did it, it might take back what we say after it has looked.
            self.memory.control().starved.0.store(0, Ordering::Relaxed);
        }
        true
    }

    fn look(&mut self) {
        // Pairs with the Release in `Consumer::publish`: the consumer has read what it gives back.
        let head = self.memory.control().head.0.load(Ordering::Acquire);
        // A head that cannot be is a broken peer's: the ring then stays as full as it is.
        if self.tail.wrapping_sub(head) > self.tail.wrapping_sub(self.head_seen) {
            self.broken = true;
        } else {
            self.head_seen = head;
        }
    }
}

impl<M: Memory> Consumer<M> {
    /// The reading side of a ring that is all zeroes, for frames of at most `len_max` bytes.
    pub(super) fn new(memory: M, len_max: usize) -> Self {
        Self { memory, len_max, head: 0, published: 0, expected: 0, broken: false }
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    /// True when there is a frame, or something that should have been one.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        !self.broken && self.memory.header(self.head & (self.memory.lines() - 1)).load(Ordering::Acquire) != NO_FRAME
    }

    /// True once the producer has broken the rules of the ring.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The next frame. It stays until it is released.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<Frame> {
        let (size, mut line, mut skip) = (self.memory.lines(), self.head & (self.memory.lines() - 1), 0);
        // Pairs with the Release in `Producer::publish`.
        let mut word = self.memory.header(line).load(Ordering::Acquire);
        if word == NO_FRAME {
            // A frame of a few lines is mostly seen by its first, and waits for the others else (`bench/NOTES.md`, 65).
            for ahead in 1..self.expected.clamp(2, draft::LINES) {
                prefetch::to_read(std::ptr::from_ref(self.memory.header((line + ahead) & (size - 1))));
            }
            return None;
        }
        if word == WRAP {
            (line, skip) = (0, size - line);
            word = self.memory.header(0).load(Ordering::Acquire);
        }
        // A length of 0 becomes the longest there is, and WRAP's is the longest that the word can say: both are refused here.
        let (place, len) = (Place(word >> PLACE_AT), (word & LEN_MASK).wrapping_sub(1) as usize);
        let lines = place.lines_for(len.min(self.len_max));
        if len > self.len_max || place.0 > CELLS as u32 || lines > size - line || skip == size || self.broken {
            self.refuse();
            return None;
        }
        self.expected = lines;
        Some(Frame { line, len, place, span: skip + lines })
    }

    /// Gives a frame's lines back. True when the producer waits for them: ring its doorbell.
    #[inline]
    pub(super) fn release(&mut self, frame: Frame) -> bool {
        self.head = self.head.wrapping_add(frame.span);
        self.head.wrapping_sub(self.published) >= self.memory.lines() / PUBLICATIONS && self.publish()
    }

    /// Tells the producer what is free. At most an eighth of the ring is ever withheld from it.
    #[cold]
    fn publish(&mut self) -> bool {
        self.published = self.head;
        let control = self.memory.control();
        // Pairs with the Acquire in `Producer::look`: its writes come after our reads.
        control.head.0.store(self.head, Ordering::Release);
        // Pairs with the fence in `Producer::fits_after_all`.
        fence(Ordering::SeqCst);
        control.starved.0.load(Ordering::Relaxed) != 0
    }

    /// The producer has broken the rules.
    #[cold]
    pub(super) fn refuse(&mut self) {
        self.broken = true;
    }
}

/// Lines that a frame of `len` bytes takes.
pub(super) const fn lines_for(len: usize) -> u32 {
    (HEADER_BYTES + len).div_ceil(LINE_BYTES) as u32
}

/// A cache line of every processor that this is likely to run on.
pub(super) const LINE_BYTES: usize = 64;

/// The header word, and four bytes that keep the payload at a multiple of eight.
pub(super) const HEADER_BYTES: usize = 8;

/// Largest part of the ring that the consumer withholds, as a fraction: its line is touched this often in a round.
const PUBLICATIONS: u32 = 8;

/// Cells of a pair, for 1.25 MiB in the longest frames: more than a second-level cache holds, so that one that comes round lies in the
/// third one, and not in the second of the other side (`bench/NOTES.md`, 39). Memory is taken from the system as far as there were
/// ever frames under way.
pub(super) const CELLS: usize = 40;

const NO_FRAME: u32 = 0;
const WRAP: u32 = u32::MAX;
/// Where in the header word it stands in which cell the frame is; its length is below.
const PLACE_AT: u32 = 24;
const LEN_MASK: u32 = (1 << PLACE_AT) - 1;
