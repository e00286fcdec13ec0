//! How a connection opens, waits, and ends: its timers and phases.

use sidelane_nic::time::{Duration, Instant};

use super::{Conn, Keys, Owed, Phase, TurnContext};
use crate::event::{Event, GoneReason};
use crate::hint::seldom;
use crate::in_flight::InFlight;
use crate::rtt::RTO_MAX;
use crate::send_fifo::SendFifo;
use crate::timers::{Timer, Timers};
use crate::wire::{Seq, Tokens};

impl Conn {
    /// Fires every timer that is due.
    pub fn handle_timeout(&mut self, turn: &mut TurnContext, plain: bool) {
        let now = turn.now;
        if self.timers.fire(Timer::Ack, now) {
            self.ack.on_timeout(now);
            if let Some(due) = self.ack.due().filter(|_| !self.ack.is_urgent()) {
                self.timers.set(Timer::Ack, due);
            }
        }
        if self.timers.fire(Timer::Reorder, now) {
            self.detect_losses(now);
        }
        if self.timers.fire(Timer::Retransmit, now) {
            let tries = self.backoff;
            self.on_retransmit_timeout(now);
            turn.counters.timeouts += u64::from(self.backoff > tries);
            // Whose peer has nothing of it sent all the same: no Reset says it twice, since its address may be another connection's now.
            if self.unheeded >= UNHEEDED_MAX || self.forgotten && self.backoff > tries {
                self.lost(turn, GoneReason::Undelivered);
            }
        }
        if self.timers.fire(Timer::Pace, now) {
            self.window = self.congestion.frames();
        }
        if self.timers.fire(Timer::Life, now) {
            self.on_life_timeout(turn, plain);
        }
    }

    /// When the next timer fires.
    #[inline]
    pub fn next_timeout(&self) -> Instant {
        self.timers.next()
    }

    /// When the next timer fires, if that may have changed since the last call.
    #[inline]
    pub fn take_timeout_change(&mut self) -> Option<Instant> {
        self.timers.take_change()
    }

    /// True if nothing was heard of the peer for as long as proves nothing yet.
    pub fn is_silent(&self, now: Instant) -> bool {
        now.since(self.heard_at) > self.path.rto_floor
    }

    /// True when the endpoint can forget this connection.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Gone && !self.inbox.is_ready() && !self.has_lone && !self.owed.has(Owed::RESET)
    }

    #[cold]
    pub(super) fn open(&mut self, turn: &mut TurnContext) {
        self.phase = if self.owed.has(Owed::CLOSE) { Phase::Closing } else { Phase::Open };
        self.owed.remove(Owed::HELLO);
        self.path.settle();
        self.heard_at = turn.now;
        self.timers.set(Timer::Life, turn.now + turn.config.keep_alive);
        turn.events.push_back(Event::Connected { peer: self.id, addr: self.addr });
        if self.fifo.longest_large() > self.path.message_max {
            self.end(turn, GoneReason::MessageTooLong);
        }
    }

    /// The peer does not answer any more. Where both sides had closed already, that is as agreed.
    #[cold]
    pub(super) fn lost(&mut self, turn: &mut TurnContext, reason: GoneReason) {
        match self.phase {
            Phase::Lingering { .. } | Phase::Gone => {}
            // The user never heard of it.
            Phase::Accepted { asked: false, .. } => self.wind_up(turn),
            // It closed, and forgot us while our user had not come so far.
            Phase::Open if self.inbox.is_closed() && self.is_settled() => self.forgo_acks(turn),
            Phase::Open if self.inbox.is_closed() => self.gone(turn, GoneReason::ClosedByPeer),
            // It has all but perhaps our Close, whose acks were lost.
            Phase::Closing if self.lacks_only_close() => self.linger(turn),
            Phase::Closing if self.inbox.is_closed() => self.gone(turn, GoneReason::ClosedByPeer),
            _ => self.gone(turn, reason),
        }
    }

    /// What is in flight has nobody left who would acknowledge it, and nobody here waits for that: answers to operations.
    fn forgo_acks(&mut self, turn: &mut TurnContext) {
        self.forgotten = true;
        let (flying, all) = (self.in_flight.len(), self.in_flight.next_seq());
        if flying > 0 {
            self.in_flight.measure_nothing();
            self.on_ack(turn, turn.now, all, 0);
            self.on_progress(turn, flying, false, true);
        }
    }

    /// The peer gave up the connection that both sides began. Ours begins anew, as if the peer never had.
    #[cold]
    pub(super) fn begin_anew(&mut self, turn: &mut TurnContext, give_up_at: Instant, token: u64) {
        debug_assert_eq!(self.position, 0, "nothing is sent before the peer has confirmed");
        if self.owed.has(Owed::CLOSE) && self.is_settled() {
            self.wind_up(turn);
            turn.events.push_back(Event::Closed { peer: self.id });
            return;
        }
        self.keys = Keys::new(token, self.keys.tag != 0);
        self.owed.remove(Owed::HELLO_ACK);
        self.owed.remove(Owed::PING);
        self.owed.add(Owed::HELLO);
        self.phase = Phase::Connecting { tries: 0, give_up_at };
        self.timers.set(Timer::Life, give_up_at.min(turn.now + HELLO_INTERVAL));
    }

    #[cold]
    pub(super) fn gone(&mut self, turn: &mut TurnContext, reason: GoneReason) {
        self.wind_up(turn);
        turn.counters.peers_gone += 1;
        turn.events.push_back(Event::Gone { peer: self.id, reason });
    }

    /// As [`Self::gone`], of an end that the peer cannot know of: a reliable driver tells it nothing as long as we live.
    #[cold]
    pub(super) fn end(&mut self, turn: &mut TurnContext, reason: GoneReason) {
        self.gone(turn, reason);
        // A peer that has not told its token has its answer to our Hello refused, by a Reset too.
        if self.keys.theirs != 0 {
            self.owed.add(Owed::RESET);
        }
    }

    /// What the peer is told if this connection ends now without a word; `None` where it expects no more of us.
    pub fn reset_tokens(&self) -> Option<Tokens> {
        let as_agreed = self.is_winding_down() && !self.owed.has(Owed::RESET);
        // Without its token it is not Open either, and its answer to our Hello will find nobody.
        (!as_agreed && self.keys.theirs != 0).then_some(Tokens { from: self.keys.own, to: self.keys.theirs })
    }

    /// The peer has found nobody for what we sent: it is asked about this very connection.
    pub fn handle_unknown(&mut self) {
        if matches!(self.phase, Phase::Open | Phase::Closing) {
            self.owed.add(Owed::PING);
        }
    }

    /// A message was to be sent that the peer does not take.
    pub fn end_too_long(&mut self, turn: &mut TurnContext) {
        self.end(turn, GoneReason::MessageTooLong);
    }

    /// Hands back what was not acknowledged, and stops. The endpoint forgets the connection at the next timer.
    pub(super) fn wind_up(&mut self, turn: &mut TurnContext) {
        let peer = self.id;
        if let Some(mut one_sided) = self.one_sided.take() {
            one_sided.wind_up(peer, turn);
        }
        turn.events.extend(self.fifo.drain_lent().map(|buffer| Event::Unsent { peer, buffer }));
        // Messages that had arrived may be answered still, and then there is no room for any record that fits a frame.
        self.fifo = SendFifo::new(0, self.path.frame_max);
        self.in_flight = InFlight::new(Seq(0));
        self.noted = None;
        self.owed = Owed::default();
        self.timers = Timers::new();
        self.timers.set(Timer::Life, turn.now);
        self.phase = Phase::Gone;
    }

    /// The user has taken everything up to the peer's Close.
    #[cold]
    pub(super) fn on_close_taken(&mut self, turn: &mut TurnContext) {
        // It may have come with the ack of the last thing that we sent.
        self.take_in_noted_ack(turn);
        match self.phase {
            Phase::Open if self.is_settled() => self.linger(turn),
            Phase::Open => {
                let all = self.in_flight.next_seq();
                self.gone(turn, GoneReason::ClosedByPeer);
                if !self.path.is_plain() {
                    // The peer lives, and waits for the acks of its Close and of what it sent before. Its own are of what we sent.
                    self.in_flight = InFlight::new(all);
                    self.answer_until(turn.now + LINGER);
                }
            }
            // Our own Close is under way, and ends this as well.
            _ => {}
        }
    }

    pub(super) fn linger(&mut self, turn: &mut TurnContext) {
        // Nobody is left for one that is not in the FIFO yet.
        self.owed.remove(Owed::CLOSE);
        self.timers = Timers::new();
        self.answer_until(turn.now + self.linger_span());
        turn.events.push_back(Event::Closed { peer: self.id });
    }

    fn answer_until(&mut self, until: Instant) {
        self.linger_until(until);
        // The peer may wait for just this ack, to end its close.
        if self.ack.due().is_some() {
            self.ack.on_request();
        }
    }

    const fn linger_span(&self) -> Duration {
        if self.path.is_plain() { LINGER_PLAIN } else { LINGER }
    }

    fn linger_until(&mut self, until: Instant) {
        self.phase = Phase::Lingering { until };
        self.timers.set(Timer::Life, until);
    }

    /// Ends a close whose Close record is acknowledged.
    #[inline]
    pub(super) fn finish_close(&mut self, turn: &mut TurnContext) {
        if self.phase == Phase::Closing && !self.owed.has(Owed::CLOSE) && self.fifo.is_empty() {
            self.linger(turn);
        }
    }

    pub(super) fn detect_losses(&mut self, now: Instant) {
        let (lost_before, look_again) = (self.in_flight.lost(), self.in_flight.detect(now, &self.rtt));
        self.congestion.on_lost((self.in_flight.lost() - lost_before) as u32);
        match look_again {
            Some(look_again) => self.timers.set(Timer::Reorder, look_again),
            None => self.timers.stop(Timer::Reorder),
        }
    }

    /// Once set it is left alone, and checked against [`Self::active_at`] when it fires: acks come far more often. So it is
    /// set to the earliest that can be due, as the round trip may prove shorter than it is thought to be now.
    #[inline]
    pub(super) fn start_retransmit_timer(&mut self, now: Instant) {
        if seldom(self.timers.is_idle(Timer::Retransmit)) {
            self.timers.set(Timer::Retransmit, now + self.path.probe_floor);
        }
    }

    pub(super) fn probe_timeout(&self) -> Duration {
        self.rtt.probe_timeout(self.path.probe_floor, self.path.peer_ack_delay, self.backoff)
    }

    /// Nothing was acknowledged for a while. Timers are set once and checked late, so first: is it really due?
    #[cold]
    pub(super) fn on_retransmit_timeout(&mut self, now: Instant) {
        // During a pause nobody owes us an answer.
        let waiting = self.fifo.has_unsent() && self.window > 0;
        if self.in_flight.is_empty() && !waiting {
            return;
        }
        let due = self.active_at + self.probe_timeout();
        if now < due {
            self.timers.set(Timer::Retransmit, due);
            return;
        }
        if self.in_flight.is_empty() {
            self.owed.add(Owed::PING);
        } else if self.backoff == 0 {
            self.owed.add(Owed::PROBE);
        } else {
            self.in_flight.give_up_all();
            self.unheeded = self.unheeded.saturating_add(u8::from(self.heard_at > self.active_at));
            // The first of a row says it all: one window was lost (RFC 5681, 3.1).
            if self.backoff == 1 {
                self.congestion.on_timeout();
            }
            // A few ask whether anything passes (RFC 5681, 3.1: the loss window). The rest would be copies for a peer that is away,
            // which has to take them in when it is back.
            self.window = self.congestion.frames().min(TIMEOUT_FRAMES);
            if self.backoff >= 2 {
                self.owed.add(Owed::PING);
            }
        }
        self.active_at = now;
        self.backoff += 1;
        self.timers.set(Timer::Retransmit, now + self.probe_timeout());
    }

    #[cold]
    pub(super) fn on_life_timeout(&mut self, turn: &mut TurnContext, plain: bool) {
        let now = turn.now;
        let gone_at = self.heard_at + turn.config.keep_alive.saturating_mul(SILENT_KEEP_ALIVES);
        match self.phase {
            Phase::Connecting { give_up_at, .. } if now >= give_up_at => self.gone(turn, GoneReason::NoAnswer),
            Phase::Connecting { tries, give_up_at } => {
                self.owed.add(Owed::HELLO);
                let next = now + HELLO_INTERVAL.saturating_mul(1 << tries.min(HELLO_BACKOFF_MAX));
                self.timers.set(Timer::Life, next.min(give_up_at));
            }
            Phase::Accepted { asked: true, give_up_at } if now >= give_up_at => self.gone(turn, GoneReason::NoAnswer),
            Phase::Accepted { asked: true, give_up_at } => {
                self.owed.add(Owed::HELLO_ACK);
                // Its Hello may be an earlier life's that somebody repeats, and with a key no Reset says so before long
                // (`Self::handle_reset`).
                if turn.job.is_some() {
                    self.owed.add(Owed::HELLO);
                }
                let next = now + HELLO_INTERVAL.saturating_mul(1 << HELLO_BACKOFF_MAX);
                self.timers.set(Timer::Life, next.min(give_up_at));
            }
            // Who computes says nothing. A reliable driver knows when the other process dies, and our clock may have stood still.
            Phase::Accepted { asked: false, .. } if plain => {
                self.timers.set(Timer::Life, now + turn.config.keep_alive);
            }
            // Whoever sleeps for longer than a keep-alive counts as away.
            Phase::Accepted { asked: false, give_up_at } if now < give_up_at => {
                self.timers.set(Timer::Life, give_up_at.min(now + turn.config.keep_alive));
            }
            // It said Hello and was never heard again. The user has not heard of it either.
            Phase::Accepted { asked: false, .. } => self.wind_up(turn),
            // It closed, and does not even linger any more. No ack is missing that would say so.
            Phase::Closing if plain && self.inbox.is_closed() && now.since(self.taken_at) >= LINGER_PLAIN => {
                self.lost(turn, GoneReason::ClosedByPeer);
            }
            Phase::Open | Phase::Closing => {
                // A reliable driver knows when the other process dies, and a peer that closed owes no sign of life.
                let owes_life = !self.inbox.is_closed() || !self.is_settled();
                if !plain && owes_life {
                    if now >= gone_at {
                        let reason = if self.keys.denied { GoneReason::Restarted } else { GoneReason::Silent };
                        self.lost(turn, reason);
                        return;
                    }
                    if now.since(self.heard_at) >= turn.config.keep_alive {
                        // Asks four times as often from now on: on a lossy path one question is not enough.
                        self.owed.add(Owed::PING);
                        let ask_again = now + Duration::from_nanos(turn.config.keep_alive.as_nanos() / 4);
                        self.timers.set(Timer::Life, ask_again.min(gone_at));
                        return;
                    }
                }
                self.shrink_if_idle(now, turn.config.keep_alive);
                let quiet_since = if !plain && owes_life { self.heard_at } else { now };
                self.timers.set(Timer::Life, quiet_since + turn.config.keep_alive);
            }
            // No turn has sent our last ack, and the peer waits for it, unless it has given us up.
            Phase::Lingering { .. } if self.ack.is_urgent() && now < gone_at => {
                self.linger_until(now + self.linger_span())
            }
            Phase::Lingering { .. } => self.wind_up(turn),
            Phase::Gone if self.is_over() => {}
            Phase::Gone => self.timers.set(Timer::Life, now + LOOK_AGAIN),
        }
    }

    /// Our endpoint was away, and `excess` of it does not count. Timers that are due meanwhile fire, and find that it is early.
    /// False if nobody waits for this peer.
    pub fn on_absence(&mut self, turn: &TurnContext, excess: Duration) -> bool {
        self.in_flight.measure_nothing();
        match &mut self.phase {
            Phase::Open | Phase::Closing => self.heard_at = (self.heard_at + excess).min(turn.now),
            Phase::Connecting { give_up_at, .. } | Phase::Accepted { asked: true, give_up_at } => {
                *give_up_at = (*give_up_at + excess).min(turn.now + turn.config.connect_timeout);
            }
            // The user has not heard of it, but who connects may have been away with us, or what it said waits.
            Phase::Accepted { asked: false, give_up_at } => {
                let patience = turn.config.keep_alive.saturating_mul(SILENT_KEEP_ALIVES);
                *give_up_at = (*give_up_at + excess).min(turn.now + patience);
                return false;
            }
            // The user has heard of its end.
            Phase::Lingering { .. } | Phase::Gone => return false,
        }
        true
    }

    /// A peer that has been quiet for long gives its FIFOs' memory back.
    pub(super) fn shrink_if_idle(&mut self, now: Instant, keep_alive: Duration) {
        if now.since(self.active_at.max(self.taken_at)) > keep_alive.saturating_mul(IDLE_KEEP_ALIVES) {
            self.fifo.shrink();
            if let Some(one_sided) = &mut self.one_sided {
                one_sided.outbox.shrink();
            }
            self.in_flight.shrink();
            self.reorder.shrink();
            self.inbox.shrink();
        }
    }
}

/// First wait for the answer to a Hello; doubles each time, up to 64 ms.
pub(super) const HELLO_INTERVAL: Duration = Duration::from_millis(2);
const HELLO_BACKOFF_MAX: u32 = 5;
/// A peer that was silent for so many keep-alive spans is gone.
pub(super) const SILENT_KEEP_ALIVES: u64 = 4;
/// A peer that was heard so often, and took in nothing of what was written again each time before, never will. At
/// [`crate::rtt`]'s longest time-out that is 13 s: about as long as nobody's answer is waited for when connecting.
const UNHEEDED_MAX: u8 = 64;
/// Frames that are written again at a time-out, until something is acknowledged: more than one, since a path that loses a third loses
/// the one or its ack more often than not.
const TIMEOUT_FRAMES: u32 = 4;
/// A peer without messages for so many keep-alive spans gives memory back.
const IDLE_KEEP_ALIVES: u64 = 16;
/// Longer than any time-out of the peer's, so that its last frames still find an answer where an ack was lost, however long we were away
/// before.
const LINGER: Duration = Duration::from_millis(250);
const _: () = assert!(LINGER.as_nanos() > RTO_MAX.as_nanos());
/// The same on a reliable driver, where nothing comes again.
const LINGER_PLAIN: Duration = Duration::from_millis(50);
/// Whether the user has taken the last messages of a connection that has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
