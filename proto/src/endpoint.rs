//! Many connections over one [`Nic`]. It only routes.

use std::collections::VecDeque;
use std::io;

use sidelane_nic::rng::Rng;
use sidelane_nic::time::Instant;
use sidelane_nic::{Link, LinkAddr, Nic, TxSlot};

use crate::conn::{Conn, TurnContext, open_header};
use crate::counters::{Counters, Reject};
use crate::path::Path;
use crate::peers::Peers;
use crate::queue::PeerQueue;
use crate::spares::Spares;
use crate::wire::{Check, FULL_LEN, Header, Hello, Kind, NO_PEER, PING_LEN, PLAIN_LEN, PlainHeader, Tokens};
use crate::{Config, ConnectError, Event, PeerId, Refused, SendError};

/// Reliable, ordered, exactly-once messages to and from many peers over one NIC. Used by one thread.
///
/// `send` puts a message into the peer's FIFO; `flush` or the next `poll` puts it on the wire, together with what else
/// waits for that peer. `poll` receives, runs timers and transmits; nothing blocks but `wait`. A peer hears from us only
/// while `poll` is called: one that is not polled for [`Config::keep_alive`] times four counts as gone.
pub struct Endpoint<N: Nic> {
    nic: N,
    state: State,
    /// Connections whose timers may be due; kept for its memory.
    due: Vec<u16>,
    /// Turns taken.
    turns: u32,
    /// A lone message was committed to the driver since its last flush.
    committed: bool,
}

/// Everything but the NIC, so that frames can be handled while the NIC lends them.
struct State {
    config: Config,
    peers: Peers,
    counters: Counters,
    spares: Spares,
    events: VecDeque<Event>,
    /// Connections that may have something to transmit.
    active: PeerQueue,
    /// Connections with messages to receive.
    ready: PeerQueue,
    /// Messages that the front of `ready` may still give before the next one's turn.
    ready_turns: u32,
    /// When the last turn began: near enough for what a user's call sets off.
    now: Instant,
    /// Frames that need the NIC for an answer, put off until the burst is over.
    strangers: Vec<Stranger>,
    rng: Rng,
}

/// A frame from somebody with whom there is no connection.
enum Stranger {
    Hello {
        from: LinkAddr,
        hello: Hello,
        seen_len: usize,
    },
    /// A Ping to a connection that is not here: `tokens` as the answer has them.
    Lost {
        from: LinkAddr,
        tokens: Tokens,
    },
}

impl<N: Nic> Endpoint<N> {
    /// An endpoint without peers. It answers whoever connects.
    pub fn new(nic: N, config: Config) -> Self {
        let state = State {
            peers: Peers::default(),
            counters: Counters::default(),
            spares: Spares::default(),
            events: VecDeque::new(),
            active: PeerQueue::new(),
            ready: PeerQueue::new(),
            ready_turns: READY_TURNS,
            now: nic.now(),
            strangers: Vec::new(),
            rng: Rng::new(config.seed),
            config,
        };
        Self { nic, state, due: Vec::new(), turns: 0, committed: false }
    }

    /// Begins a connection. Messages may be sent at once; they leave when the peer has answered. To an address with
    /// which there is a connection it returns that one.
    pub fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        let now = self.nic.now();
        if let Some(conn) = self.state.peers.by_addr(to) {
            conn.ask(now, &self.state.config);
            let id = conn.id;
            self.state.after_change(id.index);
            return Ok(id);
        }
        if !self.state.has_room() {
            return Err(ConnectError::TableFull(self.state.config.peers_max));
        }
        let link = self.nic.link(to)?;
        let path = Path::new(self.nic.caps(), &self.state.config, N::RELIABLE);
        let token = self.state.draw_token();
        let id = self.state.peers.next_id();
        self.state.peers.insert(Conn::connecting(id, to, link, token, path, now, &self.state.config));
        self.state.activate(id.index);
        Ok(id)
    }

    /// Copies `message` into the send FIFO, or to the heap when it needs several frames.
    #[inline]
    pub fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
        let state = &mut self.state;
        let State { peers, config, counters, spares, events, active, now, .. } = state;
        let conn = peers.get(peer).filter(|conn| conn.takes_messages()).ok_or(SendError::NoPeer)?;
        if N::RELIABLE
            && let Some(len) = conn.lone_frame_len(message)
            && let Some(mut slot) = self.nic.tx_slot(conn.link, len)
        {
            let mut turn = TurnContext { now: *now, config, counters, spares, events };
            conn.emit_lone(&mut turn, message, &mut slot);
            slot.commit();
            self.committed = true;
        } else if message.len() <= conn.record_max() {
            conn.send(message)?;
        } else {
            send_copied(conn, message, config, spares)?;
        }
        counters.messages_sent += 1;
        if !conn.queued {
            conn.queued = true;
            active.push_back(peer.index);
        }
        Ok(())
    }

    /// Sends straight from `buffer`, without a copy; it comes back in [`Event::Sent`] once the peer has it all, or in
    /// [`Event::Unsent`].
    pub fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused> {
        let state = &mut self.state;
        let Some(conn) = state.peers.get(peer).filter(|conn| conn.takes_messages()) else {
            return Err(Refused { reason: SendError::NoPeer, buffer });
        };
        if buffer.len() > state.config.message_max.min(conn.message_max()) {
            return Err(Refused { reason: SendError::TooLong, buffer });
        }
        conn.send_large(buffer, true).map_err(|buffer| Refused { reason: SendError::Full, buffer })?;
        state.counters.messages_sent += 1;
        state.activate(peer.index);
        Ok(())
    }

    /// Puts on the wire what waits in the FIFOs, as far as windows and credits go.
    #[inline]
    pub fn flush(&mut self) {
        if !self.state.active.is_empty() {
            let now = self.turn_time();
            self.transmit(now);
        }
    }

    /// One turn: receives a burst, runs due timers, transmits. Returns the number of frames received.
    #[inline]
    pub fn poll(&mut self) -> usize {
        let now = self.turn_time();
        let state = &mut self.state;
        let received = self.nic.rx_burst(BURST, |frame, from| state.handle_frame(now, frame, from, N::RELIABLE));
        if !self.state.strangers.is_empty() {
            self.answer_strangers(now);
        }
        if self.state.peers.earliest().is_some_and(|due| due <= now) {
            self.run_timers(now);
        }
        if !self.state.active.is_empty() {
            self.transmit(now);
        }
        received
    }

    /// Shows the oldest message that waits, and takes it out of its FIFO. Peers take turns.
    #[inline]
    pub fn recv<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        if self.state.ready.is_empty() { None } else { self.state.recv_ready(take) }
    }

    /// Takes the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.state.events.pop_front()
    }

    /// When `poll` has to be called next even if no frame comes; `None` when no timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.state.peers.earliest()
    }

    /// Sleeps until a frame may be there, a timer is due, or `deadline`. Flushes first; returns at once when something
    /// is still to be sent or taken.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.flush();
        if !self.state.ready.is_empty() || !self.state.events.is_empty() || !self.state.active.is_empty() {
            return Ok(());
        }
        let timer = self.poll_timeout();
        let until = match (timer, deadline) {
            (Some(timer), Some(deadline)) => Some(timer.min(deadline)),
            (timer, deadline) => timer.or(deadline),
        };
        let woken = self.nic.wait(until);
        self.state.now = self.nic.now();
        woken
    }

    /// Ends a connection once all that was sent is acknowledged; [`Event::Closed`] follows.
    pub fn close(&mut self, peer: PeerId) {
        let now = self.nic.now();
        let Some((conn, mut turn)) = self.state.conn_turn(peer.index, now) else { return };
        if conn.id == peer {
            conn.close(&mut turn);
            self.state.activate(peer.index);
            self.state.after_change(peer.index);
        }
    }

    /// Counts since the endpoint was made.
    pub fn counters(&self) -> &Counters {
        &self.state.counters
    }

    /// Connections held, including those that only linger.
    pub fn peers(&self) -> usize {
        self.state.peers.len()
    }

    /// Bytes of memory that a peer takes: its state, and its FIFOs and tables.
    pub fn peer_memory(&mut self, peer: PeerId) -> Option<(usize, usize)> {
        self.state.peers.get(peer).map(|conn| (size_of::<Conn>(), conn.memory()))
    }

    /// True when everything that was sent to `peer` is acknowledged. False too when there is no such peer.
    pub fn is_settled(&mut self, peer: PeerId) -> bool {
        self.state.peers.get(peer).is_some_and(|conn| conn.is_settled())
    }

    /// True when a message waits to be received.
    pub fn has_messages(&self) -> bool {
        !self.state.ready.is_empty()
    }

    /// The driver below.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// The driver below, to change its settings.
    pub fn nic_mut(&mut self) -> &mut N {
        &mut self.nic
    }

    /// Ends the endpoint and gives the driver back. Peers notice by their time-outs.
    pub fn into_nic(self) -> N {
        self.nic
    }

    /// Reads the clock, once a turn. A reliable driver's connections have only slow timers: for them every 32nd turn
    /// does (`bench/NOTES.md`, "Clock reads").
    #[inline]
    fn turn_time(&mut self) -> Instant {
        self.turns = self.turns.wrapping_add(1);
        if !N::RELIABLE || self.turns.is_multiple_of(CLOCK_TURNS) {
            self.state.now = self.nic.now();
        }
        self.state.now
    }

    /// Lets every connection that may have something to transmit do so, each a burst at the most.
    fn transmit(&mut self, now: Instant) {
        let mut committed = std::mem::take(&mut self.committed);
        for _ in 0..self.state.active.len() {
            let Some(index) = self.state.active.pop_front() else { break };
            let Some((conn, mut turn)) = self.state.conn_turn(index, now) else { continue };
            let verdict = transmit_one(&mut self.nic, conn, &mut turn);
            committed |= verdict.committed;
            conn.queued = verdict.more;
            if let Some(next) = conn.take_timeout_change() {
                self.state.peers.note_due(index, next);
            }
            if verdict.more {
                self.state.active.push_back(index);
            }
            if verdict.nic_full {
                self.state.counters.nic_full += 1;
                break;
            }
        }
        if committed {
            self.nic.flush();
        }
    }

    #[cold]
    fn run_timers(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.due);
        self.state.peers.collect_due(now, &mut due);
        for index in due.drain(..) {
            let Some((conn, mut turn)) = self.state.conn_turn(index, now) else { continue };
            if self.nic.is_gone(conn.link) {
                conn.handle_link_gone(&mut turn);
            }
            conn.handle_timeout(&mut turn, N::RELIABLE);
            let (next, over, link) = (conn.next_timeout(), conn.is_over(), conn.link);
            if over {
                self.forget(index, link);
            } else {
                self.state.peers.note_due(index, next);
                self.state.activate(index);
            }
        }
        self.due = due;
    }

    fn forget(&mut self, index: u16, link: Link) {
        let Some(conn) = self.state.peers.remove(index) else { return };
        // The same address has the same link: one that is connected anew still needs it.
        if !self.state.peers.holds_addr(conn.addr) {
            self.nic.unlink(link);
        }
    }

    #[cold]
    fn answer_strangers(&mut self, now: Instant) {
        let mut strangers = std::mem::take(&mut self.state.strangers);
        for stranger in strangers.drain(..) {
            match stranger {
                Stranger::Hello { from, hello, seen_len } => {
                    if let Err(reason) = self.answer_hello(now, from, &hello, seen_len) {
                        self.state.counters.reject(reason);
                    }
                }
                Stranger::Lost { from, tokens } => self.send_reset(from, tokens),
            }
        }
        self.state.strangers = strangers;
    }

    fn answer_hello(&mut self, now: Instant, from: LinkAddr, hello: &Hello, seen_len: usize) -> Result<(), Reject> {
        if let Some(conn) = self.state.peers.by_addr(from) {
            let (index, link, known) = (conn.id.index, conn.link, conn.knows(hello.token));
            if conn.is_unconfirmed() && !known {
                // The earlier Hello was never confirmed: the newer one stands.
                self.forget(index, link);
            } else {
                let answered = conn.handle_hello(hello, seen_len);
                self.state.activate(index);
                self.state.after_change(index);
                return answered;
            }
        }
        if !self.state.has_room() {
            return Err(Reject::TableFull);
        }
        let link = self.nic.link(from).map_err(|_| Reject::TableFull)?;
        let path = Path::new(self.nic.caps(), &self.state.config, N::RELIABLE);
        let token = self.state.draw_token();
        let id = self.state.peers.next_id();
        let config = &self.state.config;
        self.state.peers.insert(Conn::accepted(id, from, link, token, path, now, config, hello, seen_len));
        self.state.activate(id.index);
        Ok(())
    }

    fn send_reset(&mut self, to: LinkAddr, tokens: Tokens) {
        let header = if N::RELIABLE { PLAIN_LEN } else { FULL_LEN };
        let Ok(link) = self.nic.link(to) else { return };
        if let Some(mut slot) = self.nic.tx_slot(link, header + PING_LEN) {
            tokens.emit(&mut slot[header..]);
            open_header(Kind::Reset, NO_PEER, tokens.to as u16, &mut slot, N::RELIABLE);
            slot.commit();
        }
        self.nic.flush();
        if !self.state.peers.holds_addr(to) {
            self.nic.unlink(link);
        }
    }
}

/// What came of one connection's turn to transmit.
struct Transmitted {
    committed: bool,
    more: bool,
    nic_full: bool,
}

#[inline]
fn transmit_one<N: Nic>(nic: &mut N, conn: &mut Conn, turn: &mut TurnContext<'_>) -> Transmitted {
    let mut committed = false;
    for _ in 0..BURST {
        if let Some((at, len)) = conn.poll_run(N::RELIABLE)
            && let Some(mut slot) = nic.tx_slot(conn.link, len)
        {
            conn.emit_run(turn, at, &mut slot, N::RELIABLE);
            slot.commit();
            committed = true;
            if !conn.wants_to_transmit() {
                return Transmitted { committed, more: false, nic_full: false };
            }
            continue;
        }
        let Some(plan) = conn.poll_transmit(turn, N::RELIABLE) else {
            return Transmitted { committed, more: false, nic_full: false };
        };
        let len = Conn::frame_len(plan, N::RELIABLE);
        if let Some(mut slot) = nic.tx_slot(conn.link, len) {
            conn.emit(turn, plan, &mut slot, N::RELIABLE);
            slot.commit();
            committed = true;
            if !conn.wants_to_transmit() {
                return Transmitted { committed, more: false, nic_full: false };
            }
            continue;
        }
        if !committed {
            return Transmitted { committed, more: true, nic_full: true };
        }
        nic.flush();
        committed = false;
    }
    Transmitted { committed, more: true, nic_full: false }
}

impl State {
    /// Routes one frame to its connection.
    #[inline]
    fn handle_frame(&mut self, now: Instant, frame: &[u8], from: LinkAddr, plain: bool) {
        let taken = if plain { self.route_plain(now, frame, from) } else { self.route(now, frame, from) };
        match taken {
            Ok(()) => self.counters.frames_received += 1,
            Err(reason) => self.counters.reject(reason),
        }
    }

    #[inline]
    fn route(&mut self, now: Instant, frame: &[u8], from: LinkAddr) -> Result<(), Reject> {
        let header = Header::parse(frame)?;
        match header.kind {
            Kind::Data | Kind::Ack => {
                self.with_conn(header.peer, now, |conn, turn| conn.handle_frame(turn, &header, frame))
            }
            Kind::Ping => {
                let tokens = Tokens::parse(&frame[FULL_LEN..])?;
                if self.peers.at(header.peer).is_some_and(|conn| conn.is_between(tokens)) {
                    return self.with_conn(header.peer, now, |conn, turn| conn.handle_frame(turn, &header, frame));
                }
                // The check is keyed by both tokens, and both are in the frame.
                if !Check::between(tokens.from, tokens.to).holds(frame) {
                    return Err(Reject::Check);
                }
                self.meet(Stranger::Lost { from, tokens: Tokens { from: tokens.to, to: tokens.from } })
            }
            Kind::Hello | Kind::HelloAck | Kind::Reset => {
                if !Check::OPEN.holds(frame) {
                    return Err(Reject::Check);
                }
                self.route_open(now, header.kind, header.peer, &frame[FULL_LEN..], frame.len(), from)
            }
        }
    }

    #[inline]
    fn route_plain(&mut self, now: Instant, frame: &[u8], from: LinkAddr) -> Result<(), Reject> {
        let header = PlainHeader::parse(frame)?;
        match header.kind {
            Kind::Data | Kind::Ack => {
                self.with_conn(header.peer, now, |conn, turn| conn.handle_plain(turn, &header, frame))
            }
            Kind::Ping => {
                let tokens = Tokens::parse(&frame[PLAIN_LEN..])?;
                match self.peers.at(header.peer) {
                    Some(conn) if conn.is_between(tokens) => Ok(()),
                    _ => self.meet(Stranger::Lost { from, tokens: Tokens { from: tokens.to, to: tokens.from } }),
                }
            }
            Kind::Hello | Kind::HelloAck | Kind::Reset => {
                self.route_open(now, header.kind, header.peer, &frame[PLAIN_LEN..], frame.len(), from)
            }
        }
    }

    #[cold]
    fn route_open(
        &mut self,
        now: Instant,
        kind: Kind,
        peer: u16,
        body: &[u8],
        seen_len: usize,
        from: LinkAddr,
    ) -> Result<(), Reject> {
        match kind {
            Kind::Hello => self.meet(Stranger::Hello { from, hello: Hello::parse(body)?, seen_len }),
            Kind::HelloAck => {
                let hello = Hello::parse(body)?;
                let (conn, mut turn) = self.conn_turn(peer, now).ok_or(Reject::NoPeer)?;
                let taken = conn.handle_hello_ack(&mut turn, &hello);
                self.activate(peer);
                self.after_change(peer);
                taken
            }
            _ => {
                let tokens = Tokens::parse(body)?;
                let index = self.peers.by_addr(from).ok_or(Reject::NoPeer)?.id.index;
                let (conn, mut turn) = self.conn_turn(index, now).ok_or(Reject::NoPeer)?;
                let taken = conn.handle_reset(&mut turn, tokens);
                self.after_change(index);
                taken
            }
        }
    }

    fn meet(&mut self, stranger: Stranger) -> Result<(), Reject> {
        if self.strangers.len() >= STRANGERS_MAX {
            return Err(Reject::TableFull);
        }
        self.strangers.push(stranger);
        Ok(())
    }

    #[inline]
    fn recv_ready<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        let mut take = Some(take);
        while let Some(index) = self.ready.front() {
            let Some((conn, mut turn)) = self.conn_turn(index, self.now) else {
                self.ready.pop_front();
                continue;
            };
            let id = conn.id;
            let taken = conn.recv(&mut turn, |message| take.take().expect("called once")(id, message));
            let (more, urgent) = (conn.has_message(), conn.is_urgent());
            if !more {
                conn.ready = false;
            }
            self.ready_turns -= 1;
            if !more || self.ready_turns == 0 {
                self.ready_turns = READY_TURNS;
                self.ready.pop_front();
                if more {
                    self.ready.push_back(index);
                }
            }
            if urgent {
                self.activate(index);
            }
            if taken.is_some() {
                self.counters.messages_received += 1;
                return taken;
            }
            self.after_change(index);
        }
        None
    }

    /// A connection, and what a turn lends to it.
    #[inline]
    fn conn_turn(&mut self, index: u16, now: Instant) -> Option<(&mut Conn, TurnContext<'_>)> {
        let conn = self.peers.at(index)?;
        let turn = TurnContext {
            now,
            config: &self.config,
            counters: &mut self.counters,
            spares: &mut self.spares,
            events: &mut self.events,
        };
        Some((conn, turn))
    }

    /// Gives a frame to its connection, which may then have messages, and something to say.
    #[inline]
    fn with_conn(
        &mut self,
        index: u16,
        now: Instant,
        handle: impl FnOnce(&mut Conn, &mut TurnContext<'_>) -> Result<(), Reject>,
    ) -> Result<(), Reject> {
        let Self { peers, config, counters, spares, events, ready, active, .. } = self;
        let conn = peers.at(index).ok_or(Reject::NoPeer)?;
        let handled = handle(conn, &mut TurnContext { now, config, counters, spares, events });
        if conn.has_message() && !conn.ready {
            conn.ready = true;
            ready.push_back(index);
        }
        if conn.wants_to_transmit() && !conn.queued {
            conn.queued = true;
            active.push_back(index);
        }
        if let Some(next) = conn.take_timeout_change() {
            peers.note_due(index, next);
        }
        handled
    }

    /// The timers of a connection may have changed.
    #[inline]
    fn after_change(&mut self, index: u16) {
        if let Some(next) = self.peers.at(index).and_then(Conn::take_timeout_change) {
            self.peers.note_due(index, next);
        }
    }

    #[inline]
    fn activate(&mut self, index: u16) {
        let Some(conn) = self.peers.at(index) else { return };
        if !conn.queued {
            conn.queued = true;
            self.active.push_back(index);
        }
    }

    fn has_room(&self) -> bool {
        self.peers.len() < self.config.peers_max.min(usize::from(NO_PEER))
    }

    fn draw_token(&mut self) -> u64 {
        loop {
            let token = self.rng.next_u64();
            if token != 0 {
                return token;
            }
        }
    }
}

#[cold]
fn send_copied(conn: &mut Conn, message: &[u8], config: &Config, spares: &mut Spares) -> Result<(), SendError> {
    if message.len() > config.message_max.min(conn.message_max()) {
        return Err(SendError::TooLong);
    }
    let mut buffer = spares.take(message.len()).ok_or(SendError::Full)?;
    buffer.extend_from_slice(message);
    conn.send_large(buffer, false).map_err(|buffer| {
        spares.give(buffer);
        SendError::Full
    })
}

/// Frames received, and frames sent to one peer, in one turn.
const BURST: usize = 64;
/// Turns between two looks at the clock on a reliable driver.
const CLOCK_TURNS: u32 = 32;
/// Messages that one peer gives before the next one's turn.
const READY_TURNS: u32 = 64;
/// Strangers that are answered in one turn; the rest come again.
const STRANGERS_MAX: usize = 64;
