//! One connection: routes frames, timers and the user's calls to the parts that know what to do.

use std::collections::VecDeque;

use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Link, LinkAddr};

use crate::ack::AckState;
use crate::counters::{Counters, Reject};
use crate::event::{Event, GoneReason, PeerId};
use crate::in_flight::{AckVerdict, InFlight, WINDOW_MAX};
use crate::path::Path;
use crate::recv_fifo::{RecvFifo, Taken};
use crate::reorder::{Reorder, Turn};
use crate::rtt::Rtt;
use crate::send_fifo::{Released, SendFifo, Span};
use crate::spares::Spares;
use crate::timers::{Timer, Timers};
use crate::wire::{
    Check, FULL_LEN, HELLO_LEN, Header, Hello, Kind, NO_PEER, PING_LEN, PLAIN_LEN, PlainHeader, RECORD_LEN, Seq,
    Tokens, flags, put_message,
};
use crate::{Config, SendError};

/// One side of a connection, without I/O and without a clock.
///
/// Frames go in by `handle_*`, which send nothing. What is to be sent comes out of `poll_transmit`, one frame a call, and is
/// written by `emit`. After any call, `next_timeout` says when `handle_timeout` is due. Time never runs backwards.
///
/// `plain` tells whether the driver is reliable; it is a constant wherever these methods are inlined.
pub(crate) struct Conn {
    pub id: PeerId,
    pub addr: LinkAddr,
    pub link: Link,
    pub phase: Phase,
    /// The endpoint holds this connection in its list of those that may have something to transmit.
    pub queued: bool,
    /// The endpoint holds this connection in its list of those with messages.
    pub ready: bool,
    path: Path,
    keys: Keys,
    // Sending.
    fifo: SendFifo,
    in_flight: InFlight,
    rtt: Rtt,
    /// Frames that may be flying. Halved by a time-out, one more for each window that was acknowledged.
    window: u32,
    window_max: u32,
    window_credit: u32,
    /// Stream position behind everything that was sent.
    position: u64,
    /// Stream position up to which the peer lets us send.
    limit: u64,
    owed: Owed,
    /// Time-outs in a row that nothing answered.
    backoff: u32,
    /// When a frame with records was last written, or an ack last brought something.
    active_at: Instant,
    // Receiving.
    reorder: Reorder,
    inbox: RecvFifo,
    ack: AckState,
    heard_at: Instant,
    /// When a frame with records was last taken in.
    taken_at: Instant,
    timers: Timers,
}

/// ```text
///  connect()                   HelloAck                      close()               all acknowledged
/// ----------> Connecting ------------------> Open ----------------------> Closing ------------------> Lingering
///                                             ^ \                            |                          ^  |
///  Hello                   any sound frame   /   \ peer's Close was taken    | peer's Close             |  | time
/// ----------> Accepted ---------------------+     +--------------------------+--------------------------+  v
///    any but Lingering: silence, Reset, link gone --> Gone                                              removed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Our Hello is out, `tries` times.
    Connecting { tries: u32, give_up_at: Instant },
    /// We answered a Hello; nothing proves yet that the answer arrived. `asked`: our user wants this connection too,
    /// since both sides connected at once.
    Accepted { asked: bool, give_up_at: Instant },
    /// Messages flow.
    Open,
    /// The user closed; [`Owed::CLOSE`] until the Close record is in the FIFO.
    Closing,
    /// Closed; still answers what the peer sends again for want of our ack.
    Lingering { until: Instant },
    /// Nothing is sent or taken in any more; messages that had arrived can still be received.
    Gone,
}

/// What both sides know each other by.
#[derive(Debug, Clone, Copy)]
struct Keys {
    own: u64,
    /// Zero while the peer has not answered.
    theirs: u64,
    /// Index of this connection at the peer.
    remote: u16,
    check_in: Check,
    check_out: Check,
}

/// Frames that have to go out besides records: a set, so that "none" is one comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Owed(u8);

impl Owed {
    const NONE: Self = Self(0);
    const HELLO: Self = Self(1);
    const HELLO_ACK: Self = Self(2);
    const PING: Self = Self(4);
    const PROBE: Self = Self(8);
    /// The Close record is not in the FIFO yet.
    const CLOSE: Self = Self(16);

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

/// The next frame to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    Hello { len: usize },
    HelloAck,
    Ping,
    Ack,
    New { span: Span },
    Again { seq: Seq, span: Span, probe: bool },
}

/// What one turn of the endpoint's loop lends to its connections.
pub(crate) struct TurnContext<'a> {
    pub now: Instant,
    pub config: &'a Config,
    pub counters: &'a mut Counters,
    pub spares: &'a mut Spares,
    pub events: &'a mut VecDeque<Event>,
}

impl Conn {
    /// A connection that is about to be opened by us.
    pub fn connecting(
        id: PeerId,
        addr: LinkAddr,
        link: Link,
        token: u64,
        path: Path,
        now: Instant,
        config: &Config,
    ) -> Self {
        let give_up_at = now + config.connect_timeout;
        let mut conn = Self::new(id, addr, link, token, path, now, Phase::Connecting { tries: 0, give_up_at }, config);
        conn.owed.add(Owed::HELLO);
        conn.timers.set(Timer::Life, now + HELLO_INTERVAL);
        conn
    }

    /// A connection that a peer's Hello opened.
    #[allow(clippy::too_many_arguments, reason = "each is a different thing, named at its place")]
    pub fn accepted(
        id: PeerId,
        addr: LinkAddr,
        link: Link,
        token: u64,
        path: Path,
        now: Instant,
        config: &Config,
        hello: &Hello,
        seen_len: usize,
    ) -> Self {
        let give_up_at = now + config.keep_alive.saturating_mul(SILENT_KEEP_ALIVES);
        let phase = Phase::Accepted { asked: false, give_up_at };
        let mut conn = Self::new(id, addr, link, token, path, now, phase, config);
        conn.learn(hello, seen_len);
        conn.owed.add(Owed::HELLO_ACK);
        conn.timers.set(Timer::Life, give_up_at);
        conn
    }

    #[allow(clippy::too_many_arguments, reason = "each is a different thing, named at its place")]
    fn new(
        id: PeerId,
        addr: LinkAddr,
        link: Link,
        token: u64,
        path: Path,
        now: Instant,
        phase: Phase,
        config: &Config,
    ) -> Self {
        let first = Seq(0);
        let recv_capacity = path.recv_capacity;
        Self {
            id,
            addr,
            link,
            phase,
            queued: false,
            ready: false,
            fifo: SendFifo::new(path.send_fifo(config), path.frame_max),
            inbox: RecvFifo::new(recv_capacity, path.frame_max),
            reorder: Reorder::new(first, recv_capacity),
            ack: AckState::new(path.ack_delay, u32::from(path.window), recv_capacity as u64),
            rtt: Rtt::new(path.rto_floor),
            path,
            keys: Keys { own: token, theirs: 0, remote: NO_PEER, check_in: Check::OPEN, check_out: Check::OPEN },
            in_flight: InFlight::new(first),
            window: 1,
            window_max: 1,
            window_credit: 0,
            position: 0,
            limit: 0,
            owed: Owed::default(),
            backoff: 0,
            active_at: now,
            heard_at: now,
            taken_at: now,
            timers: Timers::new(),
        }
    }

    // The user's calls.

    /// Largest message that travels as one record.
    #[inline]
    pub fn record_max(&self) -> usize {
        self.path.record_max
    }

    /// True while messages are taken from the user.
    #[inline]
    pub fn takes_messages(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Connecting { .. } | Phase::Accepted { .. })
            && !self.owed.has(Owed::CLOSE)
    }

    /// Puts a message that fits one record into the FIFO.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        if self.fifo.push(message) { Ok(()) } else { Err(SendError::Full) }
    }

    /// Queues a message that lives in its own buffer.
    pub fn send_large(&mut self, buffer: Vec<u8>, lent: bool) -> Result<(), Vec<u8>> {
        self.fifo.push_large(buffer, lent)
    }

    /// Largest message that the peer takes; unlimited until it has told.
    pub fn message_max(&self) -> usize {
        self.path.message_max
    }

    /// Shows the oldest message to `take`. After the peer's close was reached, the connection winds down.
    #[inline]
    pub fn recv<R>(&mut self, turn: &mut TurnContext<'_>, take: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match self.inbox.take(turn.spares, take) {
            Taken::Message(result) => {
                if matches!(self.phase, Phase::Open | Phase::Closing) {
                    self.ack.on_credit(self.inbox.grant(), self.path.recv_capacity);
                }
                Some(result)
            }
            Taken::Close => {
                self.on_close_taken(turn);
                None
            }
            Taken::Nothing => None,
        }
    }

    /// True when a message, or the peer's close, waits.
    #[inline]
    pub fn has_message(&self) -> bool {
        self.inbox.is_ready()
    }

    /// True when something is to be transmitted, as far as can be told cheaply.
    #[inline]
    pub fn wants_to_transmit(&self) -> bool {
        self.ack.is_urgent() || self.fifo.has_unsent() || self.in_flight.has_lost() || self.owed != Owed::NONE
    }

    /// True when an ack has to go out now.
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.ack.is_urgent()
    }

    /// True when everything that was sent is acknowledged.
    pub fn is_settled(&self) -> bool {
        self.fifo.is_empty()
    }

    /// True once nothing new can come of this connection, so that its address may be connected anew.
    #[inline]
    pub fn is_winding_down(&self) -> bool {
        matches!(self.phase, Phase::Gone | Phase::Lingering { .. })
    }

    /// True while only the peer wants this connection, and has not confirmed it.
    pub fn is_unconfirmed(&self) -> bool {
        matches!(self.phase, Phase::Accepted { asked: false, .. })
    }

    /// Our user wants this connection. One that only the peer wanted so far is waited for like one that we began.
    pub fn ask(&mut self, now: Instant, config: &Config) {
        if self.is_unconfirmed() {
            let give_up_at = now + config.connect_timeout;
            self.phase = Phase::Accepted { asked: true, give_up_at };
            self.timers.set(Timer::Life, now + HELLO_INTERVAL);
        }
    }

    /// True if `token` is the peer's in this connection.
    pub fn knows(&self, token: u64) -> bool {
        self.keys.theirs == token
    }

    /// True if the peer's tokens are those of this connection.
    pub fn is_between(&self, tokens: Tokens) -> bool {
        self.keys.theirs == tokens.from && self.keys.own == tokens.to
    }

    /// Ends the connection once everything is acknowledged.
    pub fn close(&mut self, turn: &mut TurnContext<'_>) {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Closing;
                self.owed.add(Owed::CLOSE);
            }
            Phase::Connecting { .. } | Phase::Accepted { .. } if self.fifo.is_empty() => {
                self.wind_up(turn);
                turn.events.push_back(Event::Closed { peer: self.id });
            }
            // What was sent has to arrive first: the close waits for the peer's answer.
            Phase::Connecting { .. } | Phase::Accepted { .. } => self.owed.add(Owed::CLOSE),
            Phase::Closing | Phase::Lingering { .. } | Phase::Gone => {}
        }
    }

    // Input.

    /// Takes in a Data, Ack or Ping frame of a driver that loses, reorders or alters.
    #[inline]
    pub fn handle_frame(&mut self, turn: &mut TurnContext<'_>, header: &Header, frame: &[u8]) -> Result<(), Reject> {
        self.admit(turn, header.epoch, Some(frame))?;
        let before = self.in_flight.len();
        let (fifo, spares, id) = (&mut self.fifo, &mut *turn.spares, self.id);
        let events = &mut *turn.events;
        let verdict = self.in_flight.on_ack(turn.now, header.ack, header.sack, &mut self.rtt, |span| {
            settle(fifo.release(span), id, spares, events);
        });
        match verdict {
            AckVerdict::Impossible => return Err(Reject::Window),
            AckVerdict::Stale => {}
            AckVerdict::Fresh { progress } => {
                self.raise_limit(header.credit);
                if !progress && self.in_flight.is_empty() {
                    // A Ping was answered: the peer lives, however long it gives no credit.
                    self.backoff = 0;
                }
                if progress {
                    self.on_progress(turn, before - self.in_flight.len(), header.sack != 0);
                }
                if header.flags & flags::DUPLICATE != 0 {
                    self.in_flight.on_spurious();
                }
            }
        }
        if header.kind == Kind::Data {
            self.on_data(turn, header.seq, &frame[FULL_LEN..])?;
        } else if header.kind == Kind::Ping {
            self.ack.on_request();
        }
        if header.flags & flags::ACK_NOW != 0 {
            self.ack.on_request();
        }
        Ok(())
    }

    /// Takes in a frame of a reliable driver.
    #[inline]
    pub fn handle_plain(
        &mut self,
        turn: &mut TurnContext<'_>,
        header: &PlainHeader,
        frame: &[u8],
    ) -> Result<(), Reject> {
        self.admit(turn, header.epoch, None)?;
        self.raise_limit(header.credit);
        if header.kind == Kind::Data {
            self.inbox.accept(&frame[PLAIN_LEN..], turn.config.message_max, turn.spares)?;
            self.taken_at = turn.now;
            self.ack.on_credit(self.inbox.grant(), self.path.recv_capacity);
        }
        Ok(())
    }

    /// Takes in a Hello from this peer's address. `seen_len` is the length of its frame.
    pub fn handle_hello(&mut self, hello: &Hello, seen_len: usize) -> Result<(), Reject> {
        match self.phase {
            // Both sides connect at once: each answers on the connection that it has.
            Phase::Connecting { give_up_at, .. } => {
                self.learn(hello, seen_len);
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

    /// Takes in the answer to our Hello.
    pub fn handle_hello_ack(&mut self, turn: &mut TurnContext<'_>, hello: &Hello) -> Result<(), Reject> {
        if hello.echo != self.keys.own {
            return Err(Reject::Epoch);
        }
        match self.phase {
            Phase::Connecting { .. } => {
                self.learn(hello, hello.seen_len as usize);
                self.open(turn);
                // Without this the peer would learn that its answer arrived only by our first message.
                self.ack.on_request();
                Ok(())
            }
            // The echo proves that this peer saw our Hello, which the Hello that we accepted does not prove of its sender.
            Phase::Accepted { asked: true, .. } if hello.token != self.keys.theirs => {
                self.learn(hello, hello.seen_len as usize);
                self.open(turn);
                self.ack.on_request();
                Ok(())
            }
            Phase::Accepted { .. } if hello.token == self.keys.theirs => {
                self.open(turn);
                self.ack.on_request();
                Ok(())
            }
            // A late copy.
            _ => Ok(()),
        }
    }

    /// Takes in a Reset: the peer knows nothing of a connection with these tokens.
    pub fn handle_reset(&mut self, turn: &mut TurnContext<'_>, tokens: Tokens) -> Result<(), Reject> {
        if tokens.to != self.keys.own || tokens.from != self.keys.theirs || self.keys.theirs == 0 {
            return Err(Reject::Epoch);
        }
        self.lost(turn, GoneReason::Restarted);
        Ok(())
    }

    /// The driver knows that the peer cannot be reached any more.
    pub fn handle_link_gone(&mut self, turn: &mut TurnContext<'_>) {
        self.lost(turn, GoneReason::LinkGone);
    }

    /// Fires every timer that is due.
    pub fn handle_timeout(&mut self, turn: &mut TurnContext<'_>, plain: bool) {
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
            self.on_retransmit_timeout(now);
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

    /// True when the endpoint can forget this connection.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Gone && !self.inbox.is_ready()
    }

    // Output.

    /// The next frame to write, if any may go out now.
    #[inline]
    pub fn poll_transmit(&mut self, turn: &mut TurnContext<'_>, plain: bool) -> Option<Plan> {
        match self.phase {
            Phase::Open => {}
            Phase::Connecting { tries, .. } => {
                return self.owed.has(Owed::HELLO).then(|| Plan::Hello { len: self.path.hello_len(tries) });
            }
            Phase::Accepted { .. } | Phase::Closing | Phase::Lingering { .. } => {}
            Phase::Gone => return None,
        }
        if (self.owed != Owed::NONE || self.in_flight.has_lost())
            && let Some(plan) = self.poll_owed()
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

    /// Length of the frame that takes a lone message past the FIFO, where the driver is reliable and nothing waits before
    /// it. `None`: [`Self::send`].
    #[inline]
    pub fn lone_frame_len(&self, message: &[u8]) -> Option<usize> {
        let body = RECORD_LEN + message.len();
        let free = self.phase == Phase::Open
            && !self.queued
            && self.owed == Owed::NONE
            && !self.fifo.has_unsent()
            && message.len() <= self.path.record_max
            && self.position + body as u64 <= self.limit;
        free.then_some(PLAIN_LEN + body)
    }

    /// Writes the frame with a lone message.
    #[inline]
    pub fn emit_lone(&mut self, turn: &mut TurnContext<'_>, message: &[u8], frame: &mut [u8]) {
        put_message(&mut frame[PLAIN_LEN..], message);
        self.position += (frame.len() - PLAIN_LEN) as u64;
        self.finish_plain(turn, frame);
    }

    /// The next frame in the common case: whole records, and nothing else to do. Where they stand, and the frame's
    /// length. `None`: ask [`Self::poll_transmit`].
    #[inline]
    pub fn poll_run(&self, plain: bool) -> Option<(usize, usize)> {
        if self.phase != Phase::Open || self.owed != Owed::NONE {
            return None;
        }
        if !plain && (self.in_flight.has_lost() || !self.window_has_room()) {
            return None;
        }
        let header = if plain { PLAIN_LEN } else { FULL_LEN };
        let credit = usize::try_from(self.limit.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let (at, len) = self.fifo.next_run((self.path.mtu - header).min(credit))?;
        Some((at, header + len))
    }

    /// Writes the frame from [`Self::poll_run`].
    #[inline]
    pub fn emit_run(&mut self, turn: &mut TurnContext<'_>, at: usize, frame: &mut [u8], plain: bool) {
        if !plain {
            let span = Span::Run { at, len: frame.len() - FULL_LEN };
            self.emit_new(turn, span, frame, false);
            turn.counters.frames_sent += 1;
            return;
        }
        self.position += (frame.len() - PLAIN_LEN) as u64;
        self.fifo.hand_over_run(at, &mut frame[PLAIN_LEN..]);
        self.finish_plain(turn, frame);
    }

    #[inline]
    fn finish_plain(&mut self, turn: &mut TurnContext<'_>, frame: &mut [u8]) {
        self.active_at = turn.now;
        self.emit_plain_header(Kind::Data, frame);
        turn.counters.frames_sent += 1;
    }

    #[cold]
    fn poll_owed(&mut self) -> Option<Plan> {
        if self.owed.has(Owed::CLOSE) && self.phase == Phase::Closing && self.fifo.push_close() {
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
                Plan::New { span } | Plan::Again { span, .. } => SendFifo::body_len(span),
                Plan::Ack => 0,
                Plan::Ping => PING_LEN,
                Plan::HelloAck => HELLO_LEN,
                Plan::Hello { len } => return len.max(header + HELLO_LEN),
            }
    }

    /// Writes the frame that `plan` makes; it is then considered sent.
    #[inline]
    pub fn emit(&mut self, turn: &mut TurnContext<'_>, plan: Plan, frame: &mut [u8], plain: bool) {
        if let Plan::New { span } = plan {
            self.emit_new(turn, span, frame, plain);
        } else {
            self.emit_other(turn, plan, frame, plain);
        }
        turn.counters.frames_sent += 1;
    }

    #[inline]
    fn emit_new(&mut self, turn: &mut TurnContext<'_>, span: Span, frame: &mut [u8], plain: bool) {
        if plain {
            self.fifo.write(span, &mut frame[PLAIN_LEN..]);
            self.position += SendFifo::body_len(span) as u64;
            self.fifo.advance(span);
            settle(self.fifo.release(span), self.id, turn.spares, turn.events);
            self.active_at = turn.now;
            self.emit_plain_header(Kind::Data, frame);
            self.finish_close(turn);
            return;
        }
        self.fifo.write(span, &mut frame[FULL_LEN..]);
        self.position += SendFifo::body_len(span) as u64;
        self.fifo.advance(span);
        let seq = self.in_flight.next_seq();
        self.in_flight.on_sent(turn.now, span);
        // The last frame that the window takes: nothing follows before an ack does.
        let ask = !self.window_has_room();
        self.emit_header(Kind::Data, seq, if ask { flags::ACK_NOW } else { 0 }, frame);
        self.active_at = turn.now;
        self.start_retransmit_timer(turn.now);
    }

    #[cold]
    fn emit_other(&mut self, turn: &mut TurnContext<'_>, plan: Plan, frame: &mut [u8], plain: bool) {
        let header = if plain { PLAIN_LEN } else { FULL_LEN };
        match plan {
            Plan::New { .. } => unreachable!("emit_new writes these"),
            Plan::Again { seq, span, probe } => {
                self.fifo.write(span, &mut frame[header..]);
                self.in_flight.on_resent(turn.now, seq);
                self.active_at = turn.now;
                if probe {
                    self.owed.remove(Owed::PROBE);
                    turn.counters.probes_sent += 1;
                } else {
                    turn.counters.retransmitted += 1;
                }
                self.emit_header(Kind::Data, seq, flags::ACK_NOW, frame);
                self.start_retransmit_timer(turn.now);
            }
            Plan::Ack => {
                turn.counters.acks_sent += 1;
                self.emit_any_header(Kind::Ack, frame, plain);
            }
            Plan::Ping => {
                self.owed.remove(Owed::PING);
                turn.counters.pings_sent += 1;
                Tokens { from: self.keys.own, to: self.keys.theirs }.emit(&mut frame[header..]);
                self.emit_any_header(Kind::Ping, frame, plain);
            }
            Plan::HelloAck => {
                self.owed.remove(Owed::HELLO_ACK);
                self.hello(self.keys.theirs).emit(&mut frame[header..]);
                self.emit_open_header(Kind::HelloAck, self.keys.remote, frame, plain);
            }
            Plan::Hello { .. } => {
                self.owed.remove(Owed::HELLO);
                if let Phase::Connecting { tries, .. } = &mut self.phase {
                    *tries += 1;
                }
                self.hello(0).emit(&mut frame[header..]);
                self.emit_open_header(Kind::Hello, NO_PEER, frame, plain);
            }
        }
    }

    #[inline]
    fn emit_header(&mut self, kind: Kind, seq: Seq, extra: u8, frame: &mut [u8]) {
        let limit = self.inbox.grant();
        let duplicate = if self.ack.saw_duplicate() { flags::DUPLICATE } else { 0 };
        Header {
            kind,
            flags: extra | duplicate,
            peer: self.keys.remote,
            seq,
            ack: self.reorder.next(),
            sack: self.reorder.sack(),
            credit: (limit / CREDIT_UNIT) as u16,
            epoch: self.keys.theirs as u16,
        }
        .emit(frame);
        self.keys.check_out.seal(frame);
        self.ack.on_sent(limit);
    }

    #[inline]
    fn emit_plain_header(&mut self, kind: Kind, frame: &mut [u8]) {
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

    fn emit_any_header(&mut self, kind: Kind, frame: &mut [u8], plain: bool) {
        if plain {
            self.emit_plain_header(kind, frame);
        } else {
            self.emit_header(kind, self.in_flight.next_seq(), 0, frame);
        }
    }

    /// The header of a frame that belongs to no connection yet.
    fn emit_open_header(&self, kind: Kind, peer: u16, frame: &mut [u8], plain: bool) {
        open_header(kind, peer, self.keys.theirs as u16, frame, plain);
    }

    fn hello(&self, echo: u64) -> Hello {
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

    // What frames and timers bring about.

    /// Lets in what belongs to this connection's life and, where there is a check to hold, is undamaged.
    #[inline]
    fn admit(&mut self, turn: &mut TurnContext<'_>, epoch: u16, checked: Option<&[u8]>) -> Result<(), Reject> {
        if epoch != self.keys.own as u16 {
            return Err(Reject::Epoch);
        }
        if matches!(self.phase, Phase::Connecting { .. } | Phase::Gone) {
            return Err(Reject::NoPeer);
        }
        if checked.is_some_and(|frame| !self.keys.check_in.holds(frame)) {
            return Err(Reject::Check);
        }
        self.heard_at = turn.now;
        if matches!(self.phase, Phase::Accepted { .. }) {
            self.open(turn);
        }
        Ok(())
    }

    /// Notes what the peer's Hello says.
    fn learn(&mut self, hello: &Hello, proven_len: usize) {
        self.keys.theirs = hello.token;
        self.keys.remote = hello.index;
        self.keys.check_in = Check::between(hello.token, self.keys.own);
        self.keys.check_out = Check::between(self.keys.own, hello.token);
        self.path.learn(hello, proven_len);
        self.limit = u64::from(hello.credit) / CREDIT_UNIT * CREDIT_UNIT;
        self.window_max = u32::from(hello.window).clamp(1, WINDOW_MAX);
        self.window = self.window_max;
    }

    #[cold]
    fn open(&mut self, turn: &mut TurnContext<'_>) {
        self.phase = if self.owed.has(Owed::CLOSE) { Phase::Closing } else { Phase::Open };
        self.heard_at = turn.now;
        self.timers.set(Timer::Life, turn.now + turn.config.keep_alive);
        turn.events.push_back(Event::Connected { peer: self.id, addr: self.addr });
        if self.fifo.longest_large() > self.path.message_max {
            self.gone(turn, GoneReason::MessageTooLong);
        }
    }

    /// The peer does not answer any more. Where both sides had closed already, that is as agreed.
    #[cold]
    fn lost(&mut self, turn: &mut TurnContext<'_>, reason: GoneReason) {
        match self.phase {
            Phase::Lingering { .. } | Phase::Gone => {}
            // It closed, and forgot us while our user had not come so far.
            Phase::Open if self.inbox.is_closed() && self.fifo.is_empty() => {}
            Phase::Open if self.inbox.is_closed() => self.gone(turn, GoneReason::ClosedByPeer),
            // It has all but perhaps our Close, whose acks were lost.
            Phase::Closing if !self.owed.has(Owed::CLOSE) && self.fifo.holds_only_close() => self.linger(turn),
            _ => self.gone(turn, reason),
        }
    }

    #[cold]
    fn gone(&mut self, turn: &mut TurnContext<'_>, reason: GoneReason) {
        self.wind_up(turn);
        turn.counters.peers_gone += 1;
        turn.events.push_back(Event::Gone { peer: self.id, reason });
    }

    /// Hands back what was not acknowledged, and stops. The endpoint forgets the connection at the next timer.
    fn wind_up(&mut self, turn: &mut TurnContext<'_>) {
        let peer = self.id;
        turn.events.extend(self.fifo.drain_lent().map(|buffer| Event::Unsent { peer, buffer }));
        self.fifo = SendFifo::new(0, 0);
        self.in_flight = InFlight::new(Seq(0));
        self.owed = Owed::default();
        self.timers = Timers::new();
        self.timers.set(Timer::Life, turn.now);
        self.phase = Phase::Gone;
    }

    /// The user has taken everything up to the peer's Close.
    #[cold]
    fn on_close_taken(&mut self, turn: &mut TurnContext<'_>) {
        match self.phase {
            Phase::Open if self.fifo.is_empty() => self.linger(turn),
            Phase::Open => self.gone(turn, GoneReason::ClosedByPeer),
            // Our own Close is under way, and ends this as well.
            _ => {}
        }
    }

    fn linger(&mut self, turn: &mut TurnContext<'_>) {
        let until = turn.now + LINGER;
        self.phase = Phase::Lingering { until };
        self.timers = Timers::new();
        self.timers.set(Timer::Life, until);
        turn.events.push_back(Event::Closed { peer: self.id });
    }

    /// Ends a close whose Close record is acknowledged.
    #[inline]
    fn finish_close(&mut self, turn: &mut TurnContext<'_>) {
        if self.phase == Phase::Closing && !self.owed.has(Owed::CLOSE) && self.fifo.is_empty() {
            self.linger(turn);
        }
    }

    #[inline]
    fn raise_limit(&mut self, credit: u16) {
        let units = self.limit / CREDIT_UNIT;
        let ahead = credit.wrapping_sub(units as u16).cast_signed();
        if ahead > 0 {
            self.limit = (units + ahead.unsigned_abs() as u64) * CREDIT_UNIT;
        }
    }

    /// Something new was acknowledged: `passed` frames left the window.
    #[inline]
    fn on_progress(&mut self, turn: &mut TurnContext<'_>, passed: usize, has_sack: bool) {
        self.active_at = turn.now;
        if self.backoff > 0 {
            self.backoff = 0;
            self.owed.remove(Owed::PROBE);
            self.timers.set(Timer::Retransmit, turn.now + self.probe_timeout());
        }
        self.window_credit += passed as u32;
        if self.window_credit >= self.window {
            self.window_credit = 0;
            self.window = (self.window + 1).min(self.window_max);
        }
        if self.in_flight.is_empty() {
            self.finish_close(turn);
        } else if has_sack {
            self.detect_losses(turn.now);
        }
    }

    #[inline]
    fn on_data(&mut self, turn: &mut TurnContext<'_>, seq: Seq, body: &[u8]) -> Result<(), Reject> {
        match self.reorder.turn(seq) {
            Turn::Now => {
                self.inbox.accept(body, turn.config.message_max, turn.spares)?;
                if self.reorder.has_gap() {
                    self.close_gap(turn);
                } else {
                    self.reorder.advance();
                }
                self.taken_at = turn.now;
                self.ack.on_frame(turn.now);
                self.ack.on_credit(self.inbox.grant(), self.path.recv_capacity);
                if self.timers.is_idle(Timer::Ack)
                    && let Some(due) = self.ack.due()
                {
                    self.timers.set(Timer::Ack, due);
                }
                Ok(())
            }
            Turn::Early => {
                turn.counters.reordered += 1;
                self.ack.on_gap();
                if self.reorder.keep(seq, body) { Ok(()) } else { Err(Reject::Overrun) }
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
    fn close_gap(&mut self, turn: &mut TurnContext<'_>) {
        while let Some(body) = self.reorder.take_following() {
            self.reorder.advance();
            if let Err(reason) = self.inbox.accept(&body, turn.config.message_max, turn.spares) {
                // It counts as never arrived, and comes again.
                turn.counters.reject(reason);
                return;
            }
        }
        self.reorder.advance();
        self.ack.on_gap();
    }

    fn detect_losses(&mut self, now: Instant) {
        match self.in_flight.detect(now, &self.rtt) {
            Some(look_again) => self.timers.set(Timer::Reorder, look_again),
            None => self.timers.stop(Timer::Reorder),
        }
    }

    /// Once set it is left alone, and checked against [`Self::active_at`] when it fires: acks come far more often.
    #[inline]
    fn start_retransmit_timer(&mut self, now: Instant) {
        if self.timers.is_idle(Timer::Retransmit) {
            self.timers.set(Timer::Retransmit, now + self.probe_timeout());
        }
    }

    #[inline]
    fn window_has_room(&self) -> bool {
        self.in_flight.flying() < self.window as usize && self.in_flight.len() < WINDOW_MAX as usize
    }

    fn probe_timeout(&self) -> Duration {
        self.rtt.probe_timeout(self.path.probe_floor, self.path.peer_ack_delay, self.backoff)
    }

    /// Messages wait, and the peer's credit is used up.
    #[cold]
    fn on_stall(&mut self, turn: &mut TurnContext<'_>, plain: bool) {
        turn.counters.credit_stalls += 1;
        if !plain {
            // The ack that opens the window again may be lost: then a Ping fetches another.
            self.start_retransmit_timer(turn.now);
        }
    }

    /// Nothing was acknowledged for a while. Timers are set once and checked late, so first: is it really due?
    #[cold]
    fn on_retransmit_timeout(&mut self, now: Instant) {
        let waiting = self.fifo.has_unsent();
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
            self.window = (self.window / 2).max(WINDOW_MIN.min(self.window_max));
            if self.backoff >= 2 {
                self.owed.add(Owed::PING);
            }
        }
        self.active_at = now;
        self.backoff += 1;
        self.timers.set(Timer::Retransmit, now + self.probe_timeout());
    }

    #[cold]
    fn on_life_timeout(&mut self, turn: &mut TurnContext<'_>, plain: bool) {
        let now = turn.now;
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
                let next = now + HELLO_INTERVAL.saturating_mul(1 << HELLO_BACKOFF_MAX);
                self.timers.set(Timer::Life, next.min(give_up_at));
            }
            // It said Hello and was never heard again. The user has not heard of it either.
            Phase::Accepted { asked: false, .. } => self.wind_up(turn),
            Phase::Open | Phase::Closing => {
                // A reliable driver knows when the other process dies, and a peer that closed owes no sign of life.
                let owes_life = !self.inbox.is_closed() || !self.fifo.is_empty();
                if !plain && owes_life {
                    let gone_at = self.heard_at + turn.config.keep_alive.saturating_mul(SILENT_KEEP_ALIVES);
                    if now >= gone_at {
                        self.lost(turn, GoneReason::Silent);
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
                self.timers.set(Timer::Life, now + turn.config.keep_alive);
            }
            Phase::Lingering { .. } => self.wind_up(turn),
            Phase::Gone if self.inbox.is_ready() => self.timers.set(Timer::Life, now + LINGER),
            Phase::Gone => {}
        }
    }

    /// A peer that has been quiet for long gives its FIFOs' memory back.
    fn shrink_if_idle(&mut self, now: Instant, keep_alive: Duration) {
        if now.since(self.active_at.max(self.taken_at)) > keep_alive.saturating_mul(IDLE_KEEP_ALIVES) {
            self.fifo.shrink();
            self.in_flight.shrink();
            self.reorder.shrink();
            if !self.inbox.is_ready() {
                self.inbox.shrink();
            }
        }
    }

    /// Bytes of memory held by the FIFOs and tables, beside `size_of::<Conn>()`.
    pub fn memory(&self) -> usize {
        self.fifo.memory() + self.inbox.memory() + self.in_flight.memory() + self.reorder.memory()
    }
}

/// Writes the header of Hello, HelloAck and Reset, whose check is keyed for everybody.
pub(crate) fn open_header(kind: Kind, peer: u16, epoch: u16, frame: &mut [u8], plain: bool) {
    if plain {
        PlainHeader { kind, flags: 0, peer, epoch, credit: 0 }.emit(frame);
    } else {
        Header { kind, flags: 0, peer, seq: Seq(0), ack: Seq(0), sack: 0, credit: 0, epoch }.emit(frame);
        Check::OPEN.seal(frame);
    }
}

#[inline]
fn settle(released: Released, peer: PeerId, spares: &mut Spares, events: &mut VecDeque<Event>) {
    match released {
        Released::Room => {}
        Released::Buffer(buffer) => events.push_back(Event::Sent { peer, buffer }),
        Released::Spare(buffer) => spares.give(buffer),
    }
}

/// Credit travels in these units, so that 16 bits span 4 MiB; half of that is the largest FIFO.
pub(crate) const CREDIT_UNIT: u64 = 64;
/// Frames that fly at least, however often the time-out struck.
const WINDOW_MIN: u32 = 4;
/// First wait for the answer to a Hello; doubles each time, up to 64 ms.
const HELLO_INTERVAL: Duration = Duration::from_millis(2);
const HELLO_BACKOFF_MAX: u32 = 5;
/// A peer that was silent for so many keep-alive spans is gone.
const SILENT_KEEP_ALIVES: u64 = 4;
/// A peer without messages for so many keep-alive spans gives memory back.
const IDLE_KEEP_ALIVES: u64 = 16;
/// Longer than a peer's first six time-outs on a kernel driver, so that its last frames still find an answer.
const LINGER: Duration = Duration::from_millis(50);
