//! One connection: routes frames, timers and the user's calls to the parts that know what to do.

mod handshake;
mod life;
#[cfg(test)]
mod phases;
mod plan;
mod progress;
mod receive;
mod rma;
#[cfg(test)]
mod tests;
mod transmit;
mod turn;

pub(crate) use plan::Plan;
pub(crate) use transmit::open_header;
pub(crate) use turn::TurnContext;

use life::{HELLO_INTERVAL, SILENT_KEEP_ALIVES};
use plan::Owed;

use std::collections::VecDeque;

use sidelane_nic::time::Instant;
use sidelane_nic::{Link, LinkAddr};

use crate::ack::AckState;
use crate::congestion::Congestion;
use crate::event::{Event, PeerId};
use crate::in_flight::InFlight;
use crate::path::Path;
use crate::recv_fifo::{RecvFifo, Taken};
use crate::reorder::Reorder;
use crate::rma::OneSided;
use crate::rtt::Rtt;
use crate::seal::{Job, Seal};
use crate::send_fifo::{Released, SendFifo};
use crate::spares::Spares;
use crate::timers::{Timer, Timers};
use crate::wire::{Check, Hello, NO_PEER, Seq, Tokens, flags};
use crate::{Config, SendError};

/// One side of a connection, without I/O and without a clock.
///
/// Frames go in by `handle_*`, which send nothing. What is to be sent comes out of `poll_transmit`, one frame a call, and is
/// written by `emit`. After any call, `next_timeout` says when `handle_timeout` is due. Time never runs backwards.
///
/// `plain` tells whether the driver is reliable; it is a constant wherever these methods are inlined.
#[derive(Debug)]
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
    /// Came with a message, and is taken in when there is time: [`Self::take_in_noted_ack`].
    noted: Option<NotedAck>,
    rtt: Rtt,
    congestion: Congestion,
    /// Frames that may be flying: what `congestion` says, or none during a pause.
    window: u32,
    /// New frames since the last one that asked for an ack.
    unasked: u32,
    /// Stream position behind everything that was sent.
    position: u64,
    /// Stream position up to which the peer lets us send.
    limit: u64,
    owed: Owed,
    /// Time-outs in a row that nothing answered.
    backoff: u32,
    /// Of which the peer was heard before the next, and yet had taken nothing in.
    unheeded: u8,
    /// When a frame with records was last written, or an ack last brought something.
    active_at: Instant,
    // Receiving.
    reorder: Reorder,
    inbox: RecvFifo,
    /// A message waits before all of `inbox`, in [`TurnContext::lone`].
    has_lone: bool,
    ack: AckState,
    /// Exists from the first one-sided operation on, of either side.
    one_sided: Option<Box<OneSided>>,
    /// The peer closed and has nothing of this connection any more, though our user has not come to its Close.
    forgotten: bool,
    heard_at: Instant,
    /// When a frame with records was last taken in; or when we closed, behind the peer's Close.
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
    /// The user has heard of the end; still answers what the peer sends again for want of our ack.
    Lingering { until: Instant },
    /// Nothing is taken in any more, and nothing sent but [`Owed::RESET`]; messages that had arrived can still be received.
    Gone,
}

/// What both sides know each other by.
#[derive(Debug)]
struct Keys {
    own: u64,
    /// Zero while the peer has not answered.
    theirs: u64,
    /// Index of this connection at the peer.
    remote: u16,
    check_in: Check,
    check_out: Check,
    /// TAG where frames are sealed, which also says that checks are not used.
    tag: u8,
    /// Where frames are sealed: somebody of the job has said by a Reset that the peer has nothing of this connection, and no frame of it
    /// has come since.
    denied: bool,
    /// Made when the first frame needs it; the tokens are known then.
    seal: Option<Box<Seal>>,
}

impl Keys {
    /// The peer has not answered yet.
    const fn new(own: u64, tagged: bool) -> Self {
        let tag = if tagged { flags::TAG } else { 0 };
        let check = Check::OPEN;
        Self { own, theirs: 0, remote: NO_PEER, check_in: check, check_out: check, tag, denied: false, seal: None }
    }

    /// What seals the frames of both directions. Both tokens are known.
    fn seal(&mut self, job: &Job) -> &mut Seal {
        self.seal.get_or_insert_with(|| Box::new(Seal::new(job, self.own, self.theirs)))
    }

    /// What a sealed Ping says in the place of its sequence number: see [`Seal::number_high`].
    fn number_high(&self) -> Seq {
        Seq(self.seal.as_ref().map_or(0, |seal| seal.number_high()))
    }
}

/// A possible ack that nothing waits for, and when it came.
#[derive(Debug, Clone, Copy)]
struct NotedAck {
    ack: Seq,
    at: Instant,
}

/// What an answer to a message goes into while the message is shown.
pub(crate) struct Answering<'a> {
    pub fifo: &'a mut SendFifo,
    /// Buffers for what is longer than a frame.
    pub spares: &'a mut Spares,
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
        conn.timers.set(Timer::Life, now + config.keep_alive);
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
            has_lone: false,
            reorder: Reorder::new(first, recv_capacity),
            one_sided: None,
            forgotten: false,
            ack: AckState::new(path.ack_delay, u32::from(path.window), recv_capacity as u64),
            rtt: Rtt::new(path.rto_floor),
            path,
            keys: Keys::new(token, config.protection.has_key()),
            in_flight: InFlight::new(first),
            noted: None,
            congestion: Congestion::new(path.slack(config)),
            window: 1,
            unasked: 0,
            position: 0,
            limit: 0,
            owed: Owed::default(),
            backoff: 0,
            unheeded: 0,
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

    /// True once both sides have agreed.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// True while messages are taken from the user.
    #[inline]
    pub fn takes_messages(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Connecting { .. } | Phase::Accepted { .. })
            && !self.owed.has(Owed::CLOSE)
    }

    /// Puts a record of `len` bytes, at most [`Self::record_max`] and its header, into the FIFO; `write` fills it.
    #[inline]
    pub fn send(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        if self.fifo.push(len, write) { Ok(()) } else { Err(SendError::Full) }
    }

    /// The FIFO, for a record that is written before it is known whether it will be sent.
    #[inline]
    pub const fn outbox(&mut self) -> &mut SendFifo {
        &mut self.fifo
    }

    /// Queues a message that lives in its own buffer.
    pub fn send_large(&mut self, buffer: Vec<u8>, lent: bool) -> Result<(), Vec<u8>> {
        self.fifo.push_large(buffer, lent)
    }

    /// Lends out the buffer of a large message while one of its parts is sent from it, until [`Self::put_large`].
    pub fn take_large(&mut self, number: u32) -> Vec<u8> {
        self.fifo.take_large(number)
    }

    /// Takes a buffer back.
    pub fn put_large(&mut self, number: u32, buffer: Vec<u8>) {
        self.fifo.put_large(number, buffer);
    }

    /// Largest message that both sides take; that we take, until the peer has told.
    pub fn message_max(&self) -> usize {
        self.path.message_max
    }

    /// Shows the oldest message to `take`. After the peer's close was reached, the connection winds down.
    #[inline]
    pub fn recv<R>(&mut self, turn: &mut TurnContext, take: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let taken = self.inbox.take(&mut turn.spares, |message, _| take(message));
        self.after_take(turn, taken)
    }

    /// The same of messages one behind the other ([`RecvFifo::take_run`]), each with what an answer to it goes into: how many were shown.
    #[inline]
    pub fn recv_run(
        &mut self,
        turn: &mut TurnContext,
        most: u32,
        mut take: impl FnMut(&[u8], Answering<'_>) -> bool,
    ) -> Option<u32> {
        let fifo = &mut self.fifo;
        let taken =
            self.inbox.take_run(most, &mut turn.spares, |message, spares| take(message, Answering { fifo, spares }));
        self.after_take(turn, taken)
    }

    #[inline]
    fn after_take<R>(&mut self, turn: &mut TurnContext, taken: Taken<R>) -> Option<R> {
        // Also where nothing is left: who panicked on a message has taken some, and nobody has said so.
        if !matches!(taken, Taken::Close) && matches!(self.phase, Phase::Open | Phase::Closing) {
            self.ack.on_credit(self.inbox.grant(), self.path.recv_capacity);
        }
        match taken {
            Taken::Message(result) => Some(result),
            Taken::Close => {
                self.on_close_taken(turn);
                None
            }
            Taken::Nothing => None,
        }
    }

    /// What an answer to the message goes into that was in [`TurnContext::lone`].
    #[inline]
    pub fn on_lone_taken<'a>(&'a mut self, spares: &'a mut Spares) -> Answering<'a> {
        self.has_lone = false;
        Answering { fifo: &mut self.fifo, spares }
    }

    /// True when a message, or the peer's close, waits in the FIFO.
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
        self.fifo.is_empty() && self.operations_are_settled()
    }

    /// True when all but perhaps our Close is acknowledged.
    fn lacks_only_close(&self) -> bool {
        if self.owed.has(Owed::CLOSE) { self.is_settled() } else { self.fifo.holds_only_close() }
    }

    /// True once nothing new can come of this connection, so that its address may be connected anew.
    #[inline]
    pub fn is_winding_down(&self) -> bool {
        self.forgotten || matches!(self.phase, Phase::Gone | Phase::Lingering { .. })
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

    /// True if `token` is ours in this connection, and it has not ended: who asks for one that has is told so.
    pub fn answers_to(&self, token: u64) -> bool {
        self.keys.own == token && self.phase != Phase::Gone
    }

    /// True if the peer's tokens are those of this connection, as for [`Self::answers_to`].
    pub fn is_between(&self, tokens: Tokens) -> bool {
        self.keys.theirs == tokens.from && self.answers_to(tokens.to)
    }

    /// Ends the connection once everything is acknowledged.
    pub fn close(&mut self, turn: &mut TurnContext) {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Closing;
                self.owed.add(Owed::CLOSE);
                if self.inbox.is_closed() {
                    // What was begun since it arrived.
                    self.on_close_arrived(turn);
                    // What was sent before has time from now on, however long ago the peer's Close came.
                    self.taken_at = turn.now;
                }
            }
            Phase::Connecting { .. } if self.is_settled() => {
                self.wind_up(turn);
                turn.events.push_back(Event::Closed { peer: self.id });
            }
            // What was sent has to arrive first, and a peer that dialled too may be Open already: the close waits for
            // its answer.
            Phase::Connecting { .. } | Phase::Accepted { .. } => self.owed.add(Owed::CLOSE),
            Phase::Closing | Phase::Lingering { .. } | Phase::Gone => {}
        }
    }

    /// Bytes of memory held by the FIFOs and tables, beside `size_of::<Conn>()`.
    pub fn memory(&self) -> usize {
        self.fifo.memory()
            + self.inbox.memory()
            + self.in_flight.memory()
            + self.reorder.memory()
            + self.one_sided.as_ref().map_or(0, |one_sided| one_sided.memory())
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
