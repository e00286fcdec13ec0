//! What a connection makes of acks and of credit.

use std::collections::VecDeque;

use sidelane_nic::time::Instant;

use super::{Conn, NotedAck, Owed, Phase, TurnContext, settle};
use crate::counters::Reject;
use crate::event::{Event, PeerId};
use crate::in_flight::AckVerdict;
use crate::path::CREDIT_UNIT;
use crate::rma::OneSided;
use crate::send_fifo::{SendFifo, Span};
use crate::spares::Spares;
use crate::timers::Timer;
use crate::wire::{Header, Kind, Seq, flags};

impl Conn {
    /// True if the ack that rides on a message may be taken in after the message's answer has gone out, since nothing
    /// that is to be sent depends on it (`bench/NOTES.md`, "Late acks").
    #[inline]
    pub(super) fn can_wait(&self, header: &Header) -> bool {
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
    pub(super) fn take_in_ack(&mut self, turn: &mut TurnContext, header: &Header) -> Result<(), Reject> {
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

/// With fewer frames in flight the window has room whatever an ack says.
const ACKS_WAIT_BELOW: usize = 2;
const _: () =
    assert!(ACKS_WAIT_BELOW <= 2, "half of the FIFO, two frames long at least, stays free for replies (`crate::am`)");
