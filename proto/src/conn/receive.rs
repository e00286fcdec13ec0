//! What a connection makes of the frames that come in.

use sidelane_nic::Begun;

use super::{Conn, NotedAck, Phase, TurnContext};
use crate::counters::Reject;
use crate::event::GoneReason;
use crate::hint::seldom;
use crate::lone::Taker;
use crate::reorder::Turn;
use crate::seal::Job;
use crate::timers::Timer;
use crate::wire::{FULL_LEN, Header, Kind, PLAIN_LEN, PlainHeader, Seq, flags};

/// Where the bytes of a frame's body are.
#[derive(Clone, Copy)]
enum Body<'a> {
    Here(&'a [u8]),
    /// Where [`Conn::place`] said, all `len` of them but for the records' own at its `front`.
    Placed {
        front: &'a [u8],
        len: usize,
    },
}

impl Conn {
    /// Takes in a Data, Ack or Ping frame of a driver that loses, reorders or alters.
    #[inline(always)]
    pub fn handle_frame(
        &mut self,
        turn: &mut TurnContext,
        header: &Header,
        frame: &[u8],
        taker: Taker<'_>,
    ) -> Result<(), Reject> {
        let mut placed = false;
        self.admit(turn, header.epoch, |conn, turn| conn.is_whole(turn, header, frame, &mut placed))?;
        let body = &frame[FULL_LEN..];
        let body = if placed { Body::Placed { front: body, len: body.len() } } else { Body::Here(body) };
        self.handle_admitted(turn, header, body, taker)
    }

    /// As [`Self::handle_frame`], of a Data frame whose end waits for being told where it goes: to its place if that is known, and else to
    /// the driver's.
    pub fn handle_begun(
        &mut self,
        turn: &mut TurnContext,
        header: &Header,
        begun: Begun<'_>,
        taker: Taker<'_>,
    ) -> Result<(), Reject> {
        let is_awaited = header.epoch == self.keys.own as u16
            && matches!(self.phase, Phase::Open | Phase::Closing)
            && self.keys.tag == 0
            && self.reorder.turn(header.seq) == Turn::Now;
        let (head, len) = (begun.head(), begun.len() - FULL_LEN);
        let front = &head[FULL_LEN..];
        let check = self.keys.check_in;
        let Some(place) = is_awaited.then(|| self.place(turn, front, len)).flatten() else {
            return self.handle_frame(turn, header, begun.whole().ok_or(Reject::Truncated)?, taker);
        };
        let head = &head[..FULL_LEN + len - place.len()];
        let holds = begun.fetch(place) && check.holds_apart(head, place);
        self.admit(turn, header.epoch, |_, _| holds)?;
        self.handle_admitted(turn, header, Body::Placed { front, len }, taker)
    }

    /// Takes in what was admitted.
    #[inline(always)]
    fn handle_admitted(
        &mut self,
        turn: &mut TurnContext,
        header: &Header,
        body: Body<'_>,
        taker: Taker<'_>,
    ) -> Result<(), Reject> {
        if !turn.was_away && self.can_wait(header) {
            // A frame that was overtaken knows less. Its credit may even be so old that it seems to lie ahead.
            let newer = self.noted.map_or(1, |noted| header.ack.since(noted.ack));
            if newer >= 0 {
                self.raise_limit(header.credit);
            }
            if newer > 0 {
                self.noted = Some(NotedAck { ack: header.ack, at: turn.now });
            }
        } else {
            self.take_in_ack(turn, header)?;
        }
        if seldom(turn.was_away) {
            self.ack.on_away();
        }
        if header.kind == Kind::Data {
            self.on_data(turn, header.seq, body, taker)?;
        } else if header.kind == Kind::Ping {
            self.ack.on_request();
        }
        if header.flags & flags::ACK_NOW != 0 {
            self.ack.on_request();
        }
        Ok(())
    }

    /// A sealed frame as its sender wrote it. `scratch` is memory for its records.
    pub fn open_sealed<'a>(
        &mut self,
        job: &Job,
        header: &Header,
        frame: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Reject> {
        if header.epoch != self.keys.own as u16 {
            return Err(Reject::Epoch);
        }
        if self.keys.theirs == 0 {
            return Err(Reject::NoPeer);
        }
        let opened = self.keys.seal(job).open(job, frame, header.kind == Kind::Data, scratch)?;
        self.keys.denied = false;
        Ok(opened)
    }

    /// Takes in a frame of a reliable driver.
    #[inline]
    pub fn handle_plain(
        &mut self,
        turn: &mut TurnContext,
        header: &PlainHeader,
        frame: &[u8],
        taker: Taker<'_>,
    ) -> Result<(), Reject> {
        self.admit(turn, header.epoch, |_, _| true)?;
        self.raise_limit(header.credit);
        if header.kind == Kind::Data {
            match self.take_in(turn, &frame[PLAIN_LEN..], true, taker) {
                Ok(true) => self.ack.on_credit(self.inbox.grant(), self.path.recv_capacity),
                Ok(false) => {}
                Err(reason) => return Err(self.on_untaken(turn, reason)),
            }
            self.taken_at = turn.now;
        }
        Ok(())
    }

    /// A reliable driver's frame does not come again: without it what follows means nothing, and its credit is lost.
    #[cold]
    fn on_untaken(&mut self, turn: &mut TurnContext, reason: Reject) -> Reject {
        if matches!(self.phase, Phase::Open | Phase::Closing) {
            self.end(turn, GoneReason::Untaken);
        }
        reason
    }

    /// Lets in what belongs to this connection's life and is as it was sent, as far as `is_whole` can tell.
    #[inline]
    pub(super) fn admit(
        &mut self,
        turn: &mut TurnContext,
        epoch: u16,
        is_whole: impl FnOnce(&mut Self, &mut TurnContext) -> bool,
    ) -> Result<(), Reject> {
        if seldom(epoch != self.keys.own as u16) {
            return Err(Reject::Epoch);
        }
        if seldom(matches!(self.phase, Phase::Connecting { .. } | Phase::Gone)) {
            return Err(Reject::NoPeer);
        }
        if seldom(!is_whole(self, turn)) {
            return Err(Reject::Check);
        }
        self.heard_at = turn.now;
        if seldom(matches!(self.phase, Phase::Accepted { .. })) {
            self.open(turn);
        }
        Ok(())
    }

    /// True if a frame is as its sender wrote it. The bytes of one that continues a message, or a put, are copied with the same look at
    /// them, which `placed` then tells. Where to is this side's state alone: behind what has arrived of it, if it is the frame's turn.
    /// They count once the frame is taken in; those of a frame that is refused are written over by the true one.
    #[inline]
    fn is_whole(&mut self, turn: &mut TurnContext, header: &Header, frame: &[u8], placed: &mut bool) -> bool {
        // A frame with a tag was opened before it came here.
        if seldom(self.keys.tag != 0) {
            return true;
        }
        if frame.len() >= PLACED_MIN && header.kind == Kind::Data && self.reorder.turn(header.seq) == Turn::Now {
            return self.is_whole_placing(turn, frame, placed);
        }
        self.keys.check_in.holds(frame)
    }

    #[inline(never)]
    fn is_whole_placing(&mut self, turn: &mut TurnContext, frame: &[u8], placed: &mut bool) -> bool {
        let (check, body) = (self.keys.check_in, &frame[FULL_LEN..]);
        let Some(place) = self.place(turn, body, body.len()) else { return check.holds(frame) };
        *placed = true;
        check.holds_copying(frame, place)
    }

    #[inline(always)]
    fn on_data(&mut self, turn: &mut TurnContext, seq: Seq, body: Body<'_>, taker: Taker<'_>) -> Result<(), Reject> {
        match self.reorder.turn(seq) {
            Turn::Now => {
                let mut may_grant = match body {
                    Body::Here(body) => self.take_in(turn, body, false, taker)?,
                    Body::Placed { front, len } => self.take_in_placed(turn, front, len)?,
                };
                if seldom(self.reorder.has_gap()) {
                    self.close_gap(turn);
                    may_grant = true;
                } else {
                    self.reorder.advance();
                }
                self.taken_at = turn.now;
                self.ack.on_frame(turn.now);
                if may_grant {
                    self.ack.on_credit(self.inbox.grant(), self.path.recv_capacity);
                }
                if self.timers.is_idle(Timer::Ack)
                    && let Some(due) = self.ack.due()
                {
                    self.timers.set(Timer::Ack, due);
                }
                Ok(())
            }
            Turn::Early => {
                // An ack that tells of nothing new would be a system call, for each of the hundreds that wait behind a gap.
                if self.reorder.is_in_sack(seq) {
                    self.ack.on_gap();
                }
                let Body::Here(body) = body else { unreachable!("only the frame whose turn it is has a place") };
                if !self.keep_early(turn, seq, body) {
                    return Err(Reject::Overrun);
                }
                turn.counters.reordered += 1;
                Ok(())
            }
            Turn::Duplicate => {
                turn.counters.duplicates += 1;
                self.ack.on_duplicate();
                Ok(())
            }
            Turn::Beyond => Err(Reject::Window),
        }
    }

    /// The frame that was due has been accepted: those that waited behind it follow.
    #[cold]
    pub(super) fn close_gap(&mut self, turn: &mut TurnContext) {
        while let Some(kept) = self.reorder.take_following() {
            self.reorder.advance();
            if let Err(reason) = self.take_in_kept(turn, &kept) {
                // It counts as never arrived, and comes again.
                turn.counters.reject_after_all(reason);
                return;
            }
        }
        self.reorder.advance();
        self.ack.on_gap();
    }
}

/// Shorter frames are spared the question where their bytes go: they are in the first-level cache for the second look.
const PLACED_MIN: usize = 512;
