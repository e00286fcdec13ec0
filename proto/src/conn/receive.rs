//! What a connection makes of the frames that come in.

use std::collections::VecDeque;

use sidelane_nic::Begun;
use sidelane_nic::time::Instant;

use super::{Conn, NotedAck, Owed, Phase, SILENT_KEEP_ALIVES, TurnContext, settle};
use crate::counters::Reject;
use crate::event::{Event, GoneReason, PeerId};
use crate::hint::seldom;
use crate::in_flight::{AckVerdict, WINDOW_MAX};
use crate::lone::Taker;
use crate::path::CREDIT_UNIT;
use crate::reorder::Turn;
use crate::rma::OneSided;
use crate::seal::Job;
use crate::send_fifo::{SendFifo, Span};
use crate::spares::Spares;
use crate::timers::Timer;
use crate::wire::{Check, FULL_LEN, Header, Hello, Kind, PLAIN_LEN, PlainHeader, Seq, Tokens, flags};

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
        let check = self.keys.check_in();
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

    /// True if the ack that rides on a message may be taken in after the message's answer has gone out, since nothing
    /// that is to be sent depends on it (`bench/NOTES.md`, "Late acks").
    #[inline]
    fn can_wait(&self, header: &Header) -> bool {
        header.kind == Kind::Data
            && header.sack == 0
            && header.flags == 0
            && self.phase == Phase::Open
            && self.backoff == 0
            && !self.fifo.has_unsent()
            && self.in_flight.len() < ACKS_WAIT_BELOW
            && self.in_flight.covers(header.ack)
    }

    /// True while an ack waits to be taken in.
    #[inline]
    pub fn has_noted_ack(&self) -> bool {
        self.noted.is_some()
    }

    /// Takes in the ack that waited.
    #[inline]
    pub fn take_in_noted_ack(&mut self, turn: &mut TurnContext) {
        let Some(NotedAck { ack, at }) = self.noted.take() else { return };
        if let Some(span) = self.in_flight.on_lone_ack(at, ack, &mut self.rtt) {
            release(&mut self.fifo, &mut self.one_sided, self.id, turn, span);
            self.on_progress(turn, 1, false, false);
            return;
        }
        // What became of the connection meanwhile may have made it old; it was possible when it was noted.
        let before = self.in_flight.len();
        if self.on_ack(turn, at, ack, 0) == (AckVerdict::Fresh { progress: true }) {
            self.on_progress(turn, before - self.in_flight.len(), false, false);
        }
    }

    #[inline(never)]
    fn take_in_ack(&mut self, turn: &mut TurnContext, header: &Header) -> Result<(), Reject> {
        let before = self.in_flight.len();
        match self.on_ack(turn, turn.now, header.ack, header.sack) {
            AckVerdict::Impossible => return Err(Reject::Window),
            AckVerdict::Stale => {}
            AckVerdict::Fresh { progress } => {
                if self.noted.is_none_or(|noted| header.ack.since(noted.ack) >= 0) {
                    self.raise_limit(header.credit);
                }
                if !progress && self.in_flight.is_empty() {
                    // A Ping was answered: the peer lives, however long it gives no credit.
                    self.backoff = 0;
                }
                if progress {
                    let away = turn.was_away || header.flags & flags::AWAY != 0;
                    self.on_progress(turn, before - self.in_flight.len(), header.sack != 0, away);
                }
                if header.flags & flags::DUPLICATE != 0 {
                    self.in_flight.on_spurious();
                }
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn on_ack(&mut self, turn: &mut TurnContext, at: Instant, ack: Seq, sack: u32) -> AckVerdict {
        let Self { in_flight, rtt, fifo, one_sided, id, .. } = self;
        in_flight.on_ack(at, ack, sack, rtt, |span| release(fifo, one_sided, *id, turn, span))
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

    /// Takes in a Hello from this peer's address. `seen_len` is the length of its frame.
    pub fn handle_hello(&mut self, now: Instant, hello: &Hello, seen_len: usize) -> Result<(), Reject> {
        match self.phase {
            // Both sides connect at once: each answers on the connection that it has.
            Phase::Connecting { give_up_at, .. } => {
                self.learn(hello, seen_len);
                self.heard_at = now;
                self.phase = Phase::Accepted { asked: true, give_up_at };
                self.owed.remove(Owed::HELLO);
                self.owed.add(Owed::HELLO_ACK);
                Ok(())
            }
            // Our answer was lost, or is late.
            _ if hello.token == self.keys.theirs => {
                self.owed.add(Owed::HELLO_ACK);
                Ok(())
            }
            // Perhaps the peer lives anew; perhaps somebody else wrote this. The peer is asked.
            _ => {
                self.owed.add(Owed::PING);
                Err(Reject::Challenged)
            }
        }
    }

    /// Takes in the answer to our Hello: its echo is our token.
    pub fn handle_hello_ack(&mut self, turn: &mut TurnContext, hello: &Hello) {
        match self.phase {
            Phase::Connecting { .. } => {
                self.learn(hello, hello.seen_len as usize);
                self.open(turn);
                // Without this the peer would learn that its answer arrived only by our first message.
                self.ack.on_request();
            }
            // The echo proves that this peer saw our Hello, which the Hello that we accepted does not prove of its sender.
            Phase::Accepted { asked: true, .. } if hello.token != self.keys.theirs => {
                self.learn(hello, hello.seen_len as usize);
                self.open(turn);
                self.ack.on_request();
            }
            Phase::Accepted { .. } if hello.token == self.keys.theirs => {
                self.open(turn);
                self.ack.on_request();
            }
            // A copy: perhaps the ack of the first was lost.
            Phase::Open | Phase::Closing if hello.token == self.keys.theirs => self.ack.on_request(),
            _ => {}
        }
    }

    /// Takes in a Reset: the peer knows nothing of a connection with these tokens. `fresh` is a token for another try.
    pub fn handle_reset(&mut self, turn: &mut TurnContext, tokens: Tokens, fresh: u64) -> Result<(), Reject> {
        if tokens.to != self.keys.own || tokens.from != self.keys.theirs || self.keys.theirs == 0 {
            return Err(Reject::Epoch);
        }
        // A job's key says that a member wrote it, and not which: whoever brings our frames to another one has it from that. Silence
        // has to bear it out.
        let patience = turn.config.keep_alive.saturating_mul(SILENT_KEEP_ALIVES);
        if turn.job.is_some() && turn.now.since(self.heard_at) < patience {
            self.keys.denied = true;
            return Ok(());
        }
        match self.phase {
            Phase::Accepted { asked: true, give_up_at } => self.begin_anew(turn, give_up_at, fresh),
            _ => self.lost(turn, GoneReason::Restarted),
        }
        Ok(())
    }

    /// The driver knows that the peer cannot be reached any more.
    pub fn handle_link_gone(&mut self, turn: &mut TurnContext) {
        self.lost(turn, GoneReason::LinkGone);
        self.owed.remove(Owed::RESET);
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
        self.keys.check_in().holds(frame)
    }

    #[inline(never)]
    fn is_whole_placing(&mut self, turn: &mut TurnContext, frame: &[u8], placed: &mut bool) -> bool {
        let (check, body) = (self.keys.check_in(), &frame[FULL_LEN..]);
        let Some(place) = self.place(turn, body, body.len()) else { return check.holds(frame) };
        *placed = true;
        check.holds_copying(frame, place)
    }

    /// Notes what the peer's Hello says.
    pub(super) fn learn(&mut self, hello: &Hello, proven_len: usize) {
        self.keys.theirs = hello.token;
        self.keys.remote = hello.index;
        self.path.learn(hello, proven_len);
        // What stays in memory does so by both drivers.
        self.keys.whole_max = self.path.in_memory_above.max(hello.in_memory_above);
        self.keys.key_in = Check::key_between(hello.token, self.keys.own);
        self.keys.key_out = Check::key_between(self.keys.own, hello.token);
        self.keys.seal = None;
        self.keys.denied = false;
        self.limit = u64::from(hello.credit) / CREDIT_UNIT * CREDIT_UNIT;
        self.congestion.open(u32::from(hello.window).clamp(1, WINDOW_MAX));
        self.window = self.congestion.frames();
    }

    #[inline]
    pub(super) fn raise_limit(&mut self, credit: u16) {
        let units = self.limit / CREDIT_UNIT;
        let ahead = credit.wrapping_sub(units as u16).cast_signed();
        if ahead > 0 {
            self.limit = (units + ahead.unsigned_abs() as u64) * CREDIT_UNIT;
        }
    }

    /// Something new was acknowledged: `passed` frames left the window. `away` when one of the two sides was, meanwhile.
    #[inline]
    pub(super) fn on_progress(&mut self, turn: &mut TurnContext, passed: usize, has_sack: bool, away: bool) {
        self.active_at = turn.now;
        if self.backoff > 0 {
            self.backoff = 0;
            self.unheeded = 0;
            self.window = self.congestion.frames();
            if away {
                self.in_flight.wait_for_all();
            }
            self.owed.remove(Owed::PROBE);
            self.timers.set(Timer::Retransmit, turn.now + self.probe_timeout());
        }
        if away && self.congestion.on_host_away() {
            self.window = self.congestion.frames();
        }
        if self.congestion.on_acked(passed as u32, (!away).then(|| self.rtt.latest())) {
            self.end_round(turn.now, passed);
        }
        if self.in_flight.is_empty() {
            self.finish_close(turn);
        } else if has_sack {
            self.detect_losses(turn.now);
        }
    }

    /// A window was acknowledged, the last `passed` frames of it just now.
    #[cold]
    fn end_round(&mut self, now: Instant, passed: usize) {
        // Where half of it was enough, the window was not what held us up (as in RFC 7661, 4.3).
        let was_used = 2 * (passed + self.in_flight.len()) >= self.congestion.frames() as usize;
        self.congestion.end_round(&mut self.rtt, was_used);
        self.window = self.congestion.frames();
        if let Some(pause) = self.congestion.pause(&self.rtt) {
            self.window = 0;
            self.timers.set(Timer::Pace, now + pause);
        }
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

/// What `span` holds in memory is free.
#[inline]
fn release(fifo: &mut SendFifo, one_sided: &mut Option<Box<OneSided>>, id: PeerId, turn: &mut TurnContext, span: Span) {
    let TurnContext { spares, events, rma, .. } = turn;
    let mut operations_end = |span, spares: &mut Spares, events: &mut VecDeque<Event>| {
        let one_sided = one_sided.as_mut().expect("operations are in flight");
        one_sided.outbox.release(span, &mut rma.regions, spares, events);
    };
    match span {
        Span::Operations(span) => operations_end(span, spares, events),
        Span::Both { operations, messages } => {
            operations_end(operations.operations(), spares, events);
            settle(fifo.release(messages.messages()), id, spares, events);
        }
        span => settle(fifo.release(span), id, spares, events),
    }
}

/// Shorter frames are spared the question where their bytes go: they are in the first-level cache for the second look.
const PLACED_MIN: usize = 512;
/// With fewer frames in flight the window has room whatever an ack says.
const ACKS_WAIT_BELOW: usize = 2;
const _: () =
    assert!(ACKS_WAIT_BELOW <= 2, "half of the FIFO, two frames long at least, stays free for replies (`crate::am`)");
