//! What a connection has to say: which frame is next, and how it is written.

use sidelane_nic::time::Instant;

use super::{Conn, Owed, Phase, Plan, TurnContext, settle};
use crate::hint::seldom;
use crate::in_flight::WINDOW_MAX;
use crate::path::CREDIT_UNIT;
use crate::seal::Job;
use crate::send_fifo::{SendFifo, Span};
use crate::timers::Timer;
use crate::wire::{
    Check, FULL_LEN, HELLO_LEN, Header, Hello, Kind, NO_PEER, PING_LEN, PLAIN_LEN, PlainHeader, RECORD_LEN, Seq, Tail,
    Tokens, flags,
};

impl Conn {
    /// The next frame to write, if any may go out now.
    #[inline]
    pub fn poll_transmit(&mut self, turn: &mut TurnContext, plain: bool) -> Option<Plan> {
        match self.phase {
            Phase::Open => {}
            Phase::Connecting { .. } | Phase::Accepted { .. } | Phase::Gone => return self.poll_without_records(),
            Phase::Closing | Phase::Lingering { .. } => {}
        }
        if (self.owed != Owed::NONE || self.in_flight.has_lost())
            && let Some(plan) = self.poll_owed()
        {
            return Some(plan);
        }
        if self.owed.has(Owed::OPERATIONS)
            && let Some(plan) = self.poll_operations(turn, plain)
        {
            return Some(plan);
        }
        if self.fifo.has_unsent() && (plain || self.window_has_room()) {
            let header = if plain { PLAIN_LEN } else { FULL_LEN };
            let credit = usize::try_from(self.limit.saturating_sub(self.position)).unwrap_or(usize::MAX);
            if let Some(span) = self.fifo.next_span((self.path.mtu - header).min(credit)) {
                return Some(Plan::New { span });
            }
            self.on_stall(turn, plain);
        }
        self.ack.is_urgent().then_some(Plan::Ack)
    }

    /// Length of the frame that takes a lone record of `body` bytes past the FIFO, where the driver is reliable and nothing
    /// waits before it. `None`: [`Self::send`].
    #[inline]
    pub fn lone_frame_len(&self, body: usize) -> Option<usize> {
        let free = self.phase == Phase::Open
            && !self.queued
            && self.owed == Owed::NONE
            && !self.fifo.has_unsent()
            && body <= RECORD_LEN + self.path.record_max
            && self.position + body as u64 <= self.limit;
        free.then_some(PLAIN_LEN + body)
    }

    /// Writes the frame with a lone record, which `write` fills.
    #[inline]
    pub fn emit_lone(&mut self, turn: &mut TurnContext, write: impl FnOnce(&mut [u8]), frame: &mut [u8]) {
        write(&mut frame[PLAIN_LEN..]);
        self.position += (frame.len() - PLAIN_LEN) as u64;
        self.finish_plain(turn, frame);
    }

    /// The next frame in the common case: whole records, and nothing else to do. Where they stand, and the frame's
    /// length. `None`: ask [`Self::poll_transmit`].
    #[inline]
    pub fn poll_run(&self, plain: bool) -> Option<(usize, usize)> {
        if seldom(self.phase != Phase::Open || self.owed != Owed::NONE) {
            return None;
        }
        if !plain && seldom(self.in_flight.has_lost() || !self.window_has_room()) {
            return None;
        }
        let header = if plain { PLAIN_LEN } else { FULL_LEN };
        let credit = usize::try_from(self.limit.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let (at, len) = self.fifo.next_run((self.path.mtu - header).min(credit))?;
        Some((at, header + len))
    }

    /// Writes the frame from [`Self::poll_run`]. Once it is handed to the driver [`Self::remember_run`] follows.
    #[inline]
    pub fn write_run(&mut self, turn: &TurnContext, at: usize, frame: &mut [u8], plain: bool) {
        if plain {
            self.fifo.write_run(at, &mut frame[PLAIN_LEN..]);
            self.emit_plain_header(Kind::Data, frame);
        } else {
            self.fifo.write_run(at, &mut frame[FULL_LEN..]);
            self.emit_new_header(turn, frame, Tail::Here);
        }
    }

    /// What is to be known of the frame from [`Self::write_run`], which is sent.
    #[inline]
    pub fn remember_run(&mut self, turn: &mut TurnContext, at: usize, len: usize, plain: bool) {
        let len = len - if plain { PLAIN_LEN } else { FULL_LEN };
        self.position += len as u64;
        turn.counters.frames_sent += 1;
        if plain {
            self.fifo.hand_over_run(at, len);
            self.active_at = turn.now;
        } else {
            self.fifo.advance_run(at, len);
            self.on_sent(turn.now, Span::Run { at, len });
        }
    }

    #[inline]
    pub(super) fn finish_plain(&mut self, turn: &mut TurnContext, frame: &mut [u8]) {
        self.active_at = turn.now;
        self.emit_plain_header(Kind::Data, frame);
        turn.counters.frames_sent += 1;
    }

    /// Seals what [`Self::emit`] or [`Self::write_run`] wrote into all of `frame` but the tag's place at its end.
    pub fn seal(&mut self, job: &Job, frame: &mut [u8]) {
        match Kind::of(frame) {
            Kind::Hello | Kind::HelloAck | Kind::Reset => job.seal_opening(frame),
            kind => self.keys.seal(job).seal(job, frame, kind == Kind::Data),
        }
    }

    /// Records wait for proof that the peer is there: until then it may give up, and we begin anew. None follow the end.
    #[cold]
    fn poll_without_records(&self) -> Option<Plan> {
        match self.phase {
            Phase::Connecting { tries, .. } if self.owed.has(Owed::HELLO) => {
                Some(Plan::Hello { len: self.path.hello_len(tries) })
            }
            Phase::Accepted { .. } if self.owed.has(Owed::HELLO_ACK) => Some(Plan::HelloAck),
            Phase::Accepted { .. } if self.owed.has(Owed::HELLO) => Some(Plan::Hello { len: 0 }),
            Phase::Accepted { .. } if self.owed.has(Owed::PING) => Some(Plan::Ping),
            Phase::Gone if self.owed.has(Owed::RESET) => Some(Plan::Reset),
            _ => None,
        }
    }

    #[cold]
    pub(super) fn poll_owed(&mut self) -> Option<Plan> {
        if self.owed.has(Owed::CLOSE) && self.operations_are_settled() && !self.owes_answers() && self.fifo.push_close()
        {
            self.owed.remove(Owed::CLOSE);
        }
        if self.owed.has(Owed::HELLO_ACK) {
            return Some(Plan::HelloAck);
        }
        if self.owed.has(Owed::PING) {
            return Some(Plan::Ping);
        }
        if let Some((seq, span)) = self.in_flight.next_lost()
            && self.in_flight.flying() < self.window as usize
        {
            return Some(Plan::Again { seq, span, probe: false });
        }
        if self.owed.has(Owed::PROBE)
            && let Some((seq, span)) = self.in_flight.newest_missing()
        {
            return Some(Plan::Again { seq, span, probe: true });
        }
        None
    }

    /// Length of the frame that `plan` makes.
    #[inline]
    pub fn frame_len(plan: Plan, plain: bool) -> usize {
        let header = if plain { PLAIN_LEN } else { FULL_LEN };
        header
            + match plan {
                Plan::New { span } | Plan::Again { span, .. } => span.body_len(),
                Plan::Ack => 0,
                Plan::Ping | Plan::Reset => PING_LEN,
                Plan::HelloAck => HELLO_LEN,
                Plan::Hello { len } => return len.max(header + HELLO_LEN),
            }
    }

    /// Writes the frame that `plan` makes; it is then considered sent.
    #[inline]
    pub fn emit(&mut self, turn: &mut TurnContext, plan: Plan, frame: &mut [u8], plain: bool) {
        if let Plan::New { span: Span::Operations(span) } = plan {
            self.emit_operations(turn, span, frame, plain);
        } else if let Plan::New { span: span @ Span::Both { .. } } = plan {
            self.emit_both(turn, span, frame, plain);
        } else if let Plan::New { span } = plan {
            self.emit_new(turn, span, frame, plain);
        } else {
            self.emit_other(turn, plan, frame, plain);
        }
        turn.counters.frames_sent += 1;
    }

    #[inline]
    pub(super) fn emit_new(&mut self, turn: &mut TurnContext, span: Span, frame: &mut [u8], plain: bool) {
        if plain {
            self.fifo.write(span, &mut frame[PLAIN_LEN..]);
            self.position += SendFifo::body_len(span) as u64;
            self.fifo.advance(span);
            settle(self.fifo.release(span), self.id, &mut turn.spares, &mut turn.events);
            self.active_at = turn.now;
            self.emit_plain_header(Kind::Data, frame);
            self.finish_close(turn);
            return;
        }
        self.fifo.write(span, &mut frame[FULL_LEN..]);
        self.finish_new(turn, span, frame, Tail::Here);
    }

    /// The body of a new frame is written: the rest of it, and what is to be known of it until it is acknowledged.
    #[inline]
    fn finish_new(&mut self, turn: &mut TurnContext, span: Span, frame: &mut [u8], tail: Tail) {
        self.position += SendFifo::body_len(span) as u64;
        self.fifo.advance(span);
        self.finish_sent(turn, span, frame, tail);
    }

    /// A new frame is written but for its header.
    #[inline]
    pub(super) fn finish_sent(&mut self, turn: &mut TurnContext, span: Span, frame: &mut [u8], tail: Tail) {
        self.emit_new_header(turn, frame, tail);
        self.on_sent(turn.now, span);
    }

    /// A new frame was written at `now`.
    #[inline]
    fn on_sent(&mut self, now: Instant, span: Span) {
        self.in_flight.on_sent(now, span);
        self.active_at = now;
        self.start_retransmit_timer(now);
    }

    /// The header of a new frame, of which [`Self::on_sent`] is yet to be told.
    #[inline]
    fn emit_new_header(&mut self, turn: &TurnContext, frame: &mut [u8], tail: Tail) {
        // The last frame that the window takes: nothing follows before an ack does. Where half of it flies each quarter
        // asks, so that it never runs dry: the peer knows only of its own, larger window.
        // A ping-pong never asks, and may go on for longer than 32 bits count.
        self.unasked = self.unasked.wrapping_add(1);
        let (flying, len) = (self.in_flight.flying() as u32 + 1, self.in_flight.len() + 1);
        let ask = flying >= self.window.min(ASK_MIN) && self.asks(flying) || len >= WINDOW_MAX as usize;
        if ask {
            self.unasked = 0;
        }
        self.emit_header(
            turn,
            Kind::Data,
            self.in_flight.next_seq(),
            if ask { flags::ACK_NOW } else { 0 },
            frame,
            tail,
        );
    }

    /// As [`Self::emit`], of a frame that ends in bytes of a large message or of a region, which are its `tail`.
    pub fn emit_before(&mut self, turn: &mut TurnContext, plan: Plan, frame: &mut [u8], tail: Tail) {
        let front = FULL_LEN..frame.len() - tail.copied_len();
        match plan {
            Plan::New { span: Span::Operations(span) } => {
                self.write_operations(turn, span, &mut frame[front]);
                self.finish_operations(turn, span, frame, tail, false);
            }
            Plan::Again { seq, span: Span::Operations(span), probe } => {
                self.write_operations(turn, span, &mut frame[front]);
                self.finish_again(turn, seq, probe, frame, tail);
            }
            Plan::New { span } => {
                self.fifo.write_front(span, &mut frame[front]);
                self.finish_new(turn, span, frame, tail);
            }
            Plan::Again { seq, span, probe } => {
                self.fifo.write_front(span, &mut frame[front]);
                self.finish_again(turn, seq, probe, frame, tail);
            }
            _ => unreachable!("only these carry a message"),
        }
        turn.counters.frames_sent += 1;
    }

    /// The body of a frame that was sent before is written: the rest of it.
    fn finish_again(&mut self, turn: &mut TurnContext, seq: Seq, probe: bool, frame: &mut [u8], tail: Tail) {
        self.in_flight.on_resent(turn.now, seq);
        self.active_at = turn.now;
        if probe {
            self.owed.remove(Owed::PROBE);
            turn.counters.probes_sent += 1;
        } else {
            turn.counters.retransmitted += 1;
        }
        self.emit_header(turn, Kind::Data, seq, flags::ACK_NOW, frame, tail);
        self.start_retransmit_timer(turn.now);
    }

    #[cold]
    pub(super) fn emit_other(&mut self, turn: &mut TurnContext, plan: Plan, frame: &mut [u8], plain: bool) {
        let header = if plain { PLAIN_LEN } else { FULL_LEN };
        match plan {
            Plan::New { .. } => unreachable!("emit_new writes these"),
            Plan::Again { seq, span, probe } => {
                match span {
                    Span::Operations(span) => self.write_operations(turn, span, &mut frame[header..]),
                    Span::Both { operations, messages } => {
                        self.write_both(turn, operations, messages, &mut frame[header..]);
                    }
                    span => self.fifo.write(span, &mut frame[header..]),
                }
                self.finish_again(turn, seq, probe, frame, Tail::Here);
            }
            Plan::Ack => {
                turn.counters.acks_sent += 1;
                self.emit_any_header(turn, Kind::Ack, self.in_flight.next_seq(), frame, plain);
            }
            Plan::Ping => {
                self.owed.remove(Owed::PING);
                turn.counters.pings_sent += 1;
                Tokens { from: self.keys.own, to: self.keys.theirs }.emit(&mut frame[header..]);
                let seq = if self.keys.tag == 0 { self.in_flight.next_seq() } else { self.keys.number_high() };
                self.emit_any_header(turn, Kind::Ping, seq, frame, plain);
            }
            Plan::Reset => {
                self.owed.remove(Owed::RESET);
                turn.counters.resets_sent += 1;
                Tokens { from: self.keys.own, to: self.keys.theirs }.emit(&mut frame[header..]);
                self.emit_open_header(Kind::Reset, NO_PEER, frame, plain);
                // Nothing else keeps it.
                self.timers.set(Timer::Life, turn.now);
            }
            Plan::HelloAck => {
                self.owed.remove(Owed::HELLO_ACK);
                self.hello(self.keys.theirs).emit(&mut frame[header..]);
                self.emit_open_header(Kind::HelloAck, self.keys.remote, frame, plain);
            }
            Plan::Hello { .. } => {
                self.owed.remove(Owed::HELLO);
                turn.counters.hellos_sent += 1;
                if let Phase::Connecting { tries, .. } = &mut self.phase {
                    *tries += 1;
                }
                self.hello(0).emit(&mut frame[header..]);
                self.emit_open_header(Kind::Hello, NO_PEER, frame, plain);
            }
        }
    }

    #[inline]
    pub(super) fn emit_header(
        &mut self,
        turn: &TurnContext,
        kind: Kind,
        seq: Seq,
        extra: u8,
        frame: &mut [u8],
        tail: Tail,
    ) {
        let limit = self.inbox.grant();
        let duplicate = if self.ack.saw_duplicate() { flags::DUPLICATE } else { 0 };
        let away = if turn.was_away || self.ack.was_away() { flags::AWAY } else { 0 };
        Header {
            kind,
            flags: extra | duplicate | away | self.keys.tag,
            peer: self.keys.remote,
            seq,
            ack: self.reorder.next(),
            sack: self.reorder.sack(),
            credit: (limit / CREDIT_UNIT) as u16,
            epoch: self.keys.theirs as u16,
        }
        .emit(frame);
        if !seldom(self.keys.tag != 0) {
            self.keys.check_out.seal(frame, tail);
        }
        self.ack.on_sent(limit);
    }

    #[inline]
    pub(super) fn emit_plain_header(&mut self, kind: Kind, frame: &mut [u8]) {
        let limit = self.inbox.grant();
        PlainHeader {
            kind,
            flags: 0,
            peer: self.keys.remote,
            epoch: self.keys.theirs as u16,
            credit: (limit / CREDIT_UNIT) as u16,
        }
        .emit(frame);
        self.ack.on_sent(limit);
    }

    fn emit_any_header(&mut self, turn: &TurnContext, kind: Kind, seq: Seq, frame: &mut [u8], plain: bool) {
        if plain {
            self.emit_plain_header(kind, frame);
        } else {
            self.emit_header(turn, kind, seq, 0, frame, Tail::Here);
        }
    }

    /// The header of a frame that belongs to no connection yet.
    pub(super) fn emit_open_header(&self, kind: Kind, peer: u16, frame: &mut [u8], plain: bool) {
        open_header(kind, peer, self.keys.theirs as u16, self.keys.tag, frame, plain);
    }

    pub(super) fn hello(&self, echo: u64) -> Hello {
        Hello {
            token: self.keys.own,
            echo,
            mtu: self.path.frame_max as u32,
            credit: self.path.recv_capacity as u32,
            ack_delay: u32::try_from(self.path.ack_delay.as_nanos()).unwrap_or(u32::MAX),
            seen_len: self.path.seen_len as u32,
            message_max: u32::try_from(self.path.own_message_max).unwrap_or(u32::MAX),
            index: self.id.index,
            window: self.path.window,
        }
    }

    /// True if the frame that is `flying` as the last of so many asks for an ack.
    fn asks(&self, flying: u32) -> bool {
        flying >= self.window
            || (flying >= (self.window / 2).max(ASK_MIN) && self.unasked >= (self.window / 4).max(ASK_MIN))
    }

    #[inline]
    pub(super) fn window_has_room(&self) -> bool {
        self.in_flight.flying() < self.window as usize && self.in_flight.len() < WINDOW_MAX as usize
    }

    /// Messages wait, and the peer's credit is used up.
    #[cold]
    pub(super) fn on_stall(&mut self, turn: &mut TurnContext, plain: bool) {
        turn.counters.credit_stalls += 1;
        if !plain {
            // The ack that opens the window again may be lost: then a Ping fetches another.
            self.start_retransmit_timer(turn.now);
        }
    }
}

/// Fewer frames are not asked about before the window is full: an ack each costs more than it saves.
const ASK_MIN: u32 = 8;

/// Writes the header of Hello, HelloAck and Reset, whose check is keyed for everybody. `tag`: TAG where frames are sealed.
pub(crate) fn open_header(kind: Kind, peer: u16, epoch: u16, tag: u8, frame: &mut [u8], plain: bool) {
    if plain {
        PlainHeader { kind, flags: 0, peer, epoch, credit: 0 }.emit(frame);
    } else {
        Header { kind, flags: tag, peer, seq: Seq(0), ack: Seq(0), sack: 0, credit: 0, epoch }.emit(frame);
        if tag == 0 {
            Check::OPEN.seal(frame, Tail::Here);
        }
    }
}
