//! The peer's operations of one connection: they are held against our regions, carried out, and answered.

use std::collections::VecDeque;

use super::key::{OpError, Rights};
use super::outbox::{BulkKind, Outbox, Source};
use super::region::Regions;
use crate::PeerId;
use crate::conn::TurnContext;
use crate::wire::{ANSWER_LEN, Change, Operation, Target, lone_put, put_flags};

/// How far the peer's operations are, and what it is to be told.
#[derive(Debug)]
pub(super) struct Served {
    /// Operations that were taken in.
    taken: u64,
    /// Why the put whose parts arrive is refused, if it is.
    failing: Option<OpError>,
    /// Where that put goes on, if nothing is known of its end.
    next: Option<Piece>,
    /// The record whose bytes have got a place, until its frame is taken in.
    placing: Option<Record>,
    /// Answers that find no room in the outbox.
    replies: VecDeque<Reply>,
    /// The endpoint knows that the peer wants a Done.
    owes_done: bool,
}

/// Bytes of a put that fill a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    to: Target,
    len: usize,
}

/// Of a put: what its front says.
#[derive(Debug, Clone, Copy)]
struct Record {
    to: Target,
    flags: u8,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
enum Reply {
    /// Holds the region.
    Answer {
        op: u32,
        region: u32,
        at: usize,
        len: usize,
    },
    Fetched {
        op: u32,
        value: u64,
    },
    Refused {
        op: u32,
        count: u32,
        why: OpError,
    },
}

impl Piece {
    /// The one behind it, which came with `flags`.
    #[inline]
    fn next(self, flags: u8) -> Option<Self> {
        (flags & put_flags::LAST == 0).then(|| Self { to: self.to.plus(self.len), ..self })
    }
}

/// What is left to do, in its turn, of a frame whose bytes were placed early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Operations that ended in it.
    pub(super) ops: u32,
    pub(super) wants_done: bool,
}

impl Served {
    /// Nothing has come.
    pub const fn new() -> Self {
        Self { taken: 0, failing: None, next: None, placing: None, replies: VecDeque::new(), owes_done: false }
    }

    /// Bytes for a region of ours.
    #[inline]
    pub fn on_put(
        &mut self,
        turn: &mut TurnContext,
        from: PeerId,
        to: &Target,
        flags: u8,
        bytes: &[u8],
    ) -> Result<(), OpError> {
        let needs = if bytes.is_empty() { Rights::NONE } else { Rights::WRITE };
        let allowed = turn.rma.regions.allow(to, bytes.len(), needs, from);
        match allowed {
            Ok((region, at)) => {
                turn.rma.regions.write(region, at, bytes);
                self.on_written(turn, to, flags, bytes.len());
            }
            Err(why) => (self.failing, self.next) = (self.failing.or(Some(why)), None),
        }
        self.on_record(turn, from, flags);
        allowed.map(|_| ())
    }

    /// Where the bytes go of a body of `len` bytes that begins with `front`, of the frame whose turn it is, if that is known beforehand:
    /// of one more piece, as long as the one before, of the put whose pieces arrive; or of what comes next in a region that one put
    /// fills. What it says of that is only compared with what is known: bytes of a frame that turns out to be damaged are where its put's
    /// own will be.
    pub fn place<'a>(
        &mut self,
        regions: &'a mut Regions,
        from: PeerId,
        front: &[u8],
        len: usize,
    ) -> Option<&'a mut [u8]> {
        // A put that was refused is answered where it ends.
        let (to, flags, len) = lone_put(front, len).filter(|_| self.failing.is_none())?;
        let (region, at) = regions.allow(&to, len, Rights::WRITE, from).ok()?;
        let goes_on = flags & put_flags::LAST == 0 && self.next == Some(Piece { to, len });
        if !goes_on && !regions.may_fill(region, at, len) {
            return None;
        }
        self.placing = Some(Record { to, flags, len });
        Some(regions.place(region, at, len))
    }

    /// The frame was taken in whose bytes were written to the place that [`Self::place`] gave for it, last of all. What it says is not
    /// looked at again: where a peer shares the memory it may say something else by now.
    pub fn on_placed_put(&mut self, turn: &mut TurnContext, from: PeerId) {
        let Some(Record { to, flags, len }) = self.placing.take() else { return };
        self.on_written(turn, &to, flags, len);
        self.on_record(turn, from, flags);
    }

    /// Bytes of a put are where they belong.
    #[inline]
    fn on_written(&mut self, turn: &mut TurnContext, to: &Target, flags: u8, len: usize) {
        turn.rma.regions.on_put(to.region, to.offset as usize, len, flags & put_flags::LAST == 0);
        self.next = Piece { to: *to, len }.next(flags);
        if flags & put_flags::SIGNAL != 0 && self.failing.is_none() {
            turn.rma.regions.signal(to.region);
        }
    }

    /// A record of a put was taken in, whatever became of its bytes.
    #[inline]
    fn on_record(&mut self, turn: &mut TurnContext, from: PeerId, flags: u8) {
        if flags & put_flags::LAST != 0 {
            let op = self.count(turn);
            if let Some(why) = self.failing.take() {
                self.refuse(op, why);
            }
            if flags & put_flags::DONE != 0 {
                self.owe_done(turn, from);
            }
        }
    }

    /// Bytes of a region of ours are asked for.
    pub fn on_get(&mut self, turn: &mut TurnContext, from: PeerId, target: &Target, len: u32) -> Result<(), OpError> {
        let op = self.count(turn);
        let (region, at) = turn
            .rma
            .regions
            .allow(target, len as usize, Rights::READ, from)
            .inspect_err(|why| self.refuse(op, *why))?;
        turn.rma.regions.hold_at(region);
        self.reply(Reply::Answer { op, region, at, len: len as usize });
        Ok(())
    }

    /// A word of a region of ours is to be changed.
    pub fn on_atomic(
        &mut self,
        turn: &mut TurnContext,
        from: PeerId,
        at: &Target,
        change: Change,
    ) -> Result<(), OpError> {
        let allowed = if at.offset.is_multiple_of(8) {
            turn.rma.regions.allow(at, 8, Rights::ATOMIC, from)
        } else {
            Err(OpError::Misaligned)
        };
        let op = self.count(turn);
        let (region, at) = allowed.inspect_err(|why| self.refuse(op, *why))?;
        let value = turn.rma.regions.change(region, at, change);
        self.reply(Reply::Fetched { op, value });
        Ok(())
    }

    /// It is the turn of a frame that was placed early.
    pub fn on_placed(&mut self, turn: &mut TurnContext, from: PeerId, placed: Placed) {
        if placed.ops > 0
            && let Some(why) = self.failing.take()
        {
            // Its first put is the end of one whose earlier parts were refused.
            self.refuse(self.taken as u32, why);
        }
        self.taken += u64::from(placed.ops);
        turn.counters.operations_taken += u64::from(placed.ops);
        if placed.wants_done {
            self.owe_done(turn, from);
        }
    }

    /// Moves answers to the outbox as far as there is room.
    pub fn serve(&mut self, outbox: &mut Outbox, turn: &mut TurnContext) {
        while let Some(&reply) = self.replies.front() {
            let regions = &mut turn.rma.regions;
            let pushed = match reply {
                Reply::Answer { op, region, at, len } if len <= COPIED_MAX => {
                    let bytes = regions.read(region, at, len);
                    let pushed = outbox.push(&Operation::Answer { op, offset: 0, last: true, bytes });
                    if pushed {
                        regions.release(region, &mut turn.events);
                    }
                    pushed
                }
                Reply::Answer { op, region, at, len } => {
                    let source = Source::Region { index: region, at };
                    outbox.push_bulk(BulkKind::Answer { op }, source, len).is_ok()
                }
                Reply::Fetched { op, value } => outbox.push(&Operation::Fetched { op, value }),
                Reply::Refused { op, count, why } => outbox.push(&Operation::Refused { op, count, why }),
            };
            if !pushed {
                break;
            }
            self.replies.pop_front();
        }
    }

    /// The turn has come to say what is done. False when there is no room for that.
    pub fn push_done(&mut self, outbox: &mut Outbox) -> bool {
        // What was refused has to be known first.
        let pushed = self.replies.is_empty() && outbox.push(&Operation::Done { ops: self.taken as u32 });
        self.owes_done &= !pushed;
        pushed
    }

    /// True when so many answers wait that a frame had better come again later. `stalled`: the peer takes nothing of ours, perhaps
    /// because as many wait there. Then its frames are taken in for longer: each makes room in its outbox, so that it can go on.
    #[inline]
    pub fn is_crowded(&self, stalled: bool) -> bool {
        self.replies.len() >= if stalled { REPLIES_STALLED_MAX } else { REPLIES_MAX }
    }

    /// True while answers wait for room.
    #[inline]
    pub fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// True while a Done is to be said.
    #[inline]
    pub fn owes_done(&self) -> bool {
        self.owes_done
    }

    /// Nothing is answered any more.
    pub fn drop_replies(&mut self, turn: &mut TurnContext) {
        for reply in self.replies.drain(..) {
            if let Reply::Answer { region, .. } = reply {
                turn.rma.regions.release(region, &mut turn.events);
            }
        }
    }

    /// Bytes of memory held, beside its own.
    pub fn memory(&self) -> usize {
        self.replies.capacity() * size_of::<Reply>()
    }

    /// The number of an operation of the peer's whose end has arrived.
    #[inline]
    fn count(&mut self, turn: &mut TurnContext) -> u32 {
        let number = self.taken as u32;
        turn.counters.operations_taken += 1;
        self.taken += 1;
        number
    }

    fn reply(&mut self, reply: Reply) {
        self.replies.push_back(reply);
    }

    #[cold]
    fn refuse(&mut self, op: u32, why: OpError) {
        // A storm of puts into a region that is gone makes one record.
        if let Some(Reply::Refused { op: first, count, why: same }) = self.replies.back_mut()
            && *same == why
            && first.wrapping_add(*count) == op
        {
            *count += 1;
            return;
        }
        self.reply(Reply::Refused { op, count: 1, why });
    }

    #[inline]
    fn owe_done(&mut self, turn: &mut TurnContext, from: PeerId) {
        if !self.owes_done {
            self.owes_done = true;
            turn.rma.owing.push(from.index);
        }
    }
}

/// Answers that may wait for room; a frame that comes when there are more is refused, and comes again.
const REPLIES_MAX: usize = 1024;
/// As long as the peer takes nothing of ours. What one frame can ask for is less than the difference.
const REPLIES_STALLED_MAX: usize = 8 * REPLIES_MAX;
/// Answers up to this length are copied, larger ones sent from where they are: what fits every frame (path.rs, BODY_MIN).
const COPIED_MAX: usize = 64 - ANSWER_LEN;

#[cfg(test)]
mod tests;
