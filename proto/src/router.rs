//! Whose is a frame, and whose turn is it: all of an endpoint but its driver.

mod ready;
mod receive;

use std::collections::HashSet;
use std::fmt;

use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::{Begun, LinkAddr};

use crate::Config;
use crate::conn::{Conn, TurnContext};
use crate::counters::Reject;
use crate::hint::{cold, seldom};
use crate::lone::{Taker, nobody};
use crate::peers::Peers;
use crate::queue::PeerQueue;
use crate::seal::JobKey;
use crate::token_source::TokenSource;
use crate::wire::{Check, FULL_LEN, Header, Hello, Kind, NO_PEER, PING_LEN, PLAIN_LEN, PlainHeader, Tokens};

use ready::Ready;

/// Everything but the NIC, so that frames can be handled while the NIC lends them.
pub(crate) struct Router {
    pub peers: Peers,
    pub turn: TurnContext,
    /// Connections that may have something to transmit.
    pub active: PeerQueue,
    /// Connections with messages to receive.
    pub ready: Ready,
    /// Connections with an ack that waits until there is time.
    pub late: PeerQueue,
    /// Where the records of a sealed frame are decrypted; kept for its memory.
    opened: Vec<u8>,
    /// Frames that need the NIC for an answer, put off until the burst is over.
    pub strangers: Vec<Stranger>,
    /// Where strangers may come from; from anywhere, if there is no such list.
    pub expected: Option<HashSet<LinkAddr>>,
    tokens: TokenSource,
}

/// A frame from somebody with whom there is no connection.
pub(crate) enum Stranger {
    Hello {
        from: LinkAddr,
        hello: Hello,
        seen_len: usize,
    },
    /// A Ping or HelloAck to a connection that is not here: `tokens` as the answer has them.
    Lost {
        from: LinkAddr,
        tokens: Tokens,
    },
}

impl Router {
    /// Nobody to talk to yet.
    pub fn new(config: Config, own: LinkAddr, now: Instant, plain: bool) -> Self {
        Self {
            opened: Vec::new(),
            peers: Peers::default(),
            active: PeerQueue::new(),
            ready: Ready::new(),
            late: PeerQueue::new(),
            strangers: Vec::new(),
            expected: None,
            tokens: TokenSource::new(config.seed, own),
            turn: TurnContext::new(config, now, plain),
        }
    }

    /// Routes one frame to its connection.
    #[inline]
    pub fn handle_frame(&mut self, frame: &[u8], from: LinkAddr, plain: bool, taker: Taker<'_>) {
        let taken = if plain { self.route_plain(frame, from, taker) } else { self.route(frame, from, taker) };
        match taken {
            Ok(()) => self.turn.counters.frames_received += 1,
            Err(reason) => self.turn.counters.reject(reason),
        }
    }

    /// As [`Self::handle_frame`], of a frame whose end waits for being told where it goes. Never of a reliable driver.
    #[inline(never)]
    pub fn handle_begun(&mut self, begun: Begun<'_>, from: LinkAddr, taker: Taker<'_>) {
        match self.route_begun(begun, from, taker) {
            Ok(()) => self.turn.counters.frames_received += 1,
            Err(reason) => self.turn.counters.reject(reason),
        }
    }

    fn route_begun(&mut self, begun: Begun<'_>, from: LinkAddr, taker: Taker<'_>) -> Result<(), Reject> {
        if self.turn.job.is_none() {
            let header = Header::parse(begun.head(), false)?;
            if header.kind == Kind::Data {
                return self.with_conn(header.peer, |conn, turn| conn.handle_begun(turn, &header, begun, taker));
            }
        }
        self.route(begun.whole().ok_or(Reject::Truncated)?, from, taker)
    }

    #[inline]
    fn route(&mut self, frame: &[u8], from: LinkAddr, taker: Taker<'_>) -> Result<(), Reject> {
        let is_sealed = self.turn.job.is_some();
        let header = Header::parse(frame, is_sealed)?;
        if seldom(is_sealed || !matches!(header.kind, Kind::Data | Kind::Ack)) {
            return self.route_seldom(&header, frame, from);
        }
        self.with_conn(header.peer, |conn, turn| conn.handle_frame(turn, &header, frame, taker))
    }

    /// Routes what few frames are.
    #[inline(never)]
    fn route_seldom(&mut self, header: &Header, frame: &[u8], from: LinkAddr) -> Result<(), Reject> {
        if self.turn.job.is_some() {
            return self.route_sealed(header, frame, from);
        }
        match header.kind {
            Kind::Data | Kind::Ack => self.pass_on(header, frame),
            Kind::Ping => {
                let tokens = Tokens::parse(&frame[FULL_LEN..])?;
                if self.peers.at(header.peer).is_some_and(|conn| conn.is_between(tokens)) {
                    return self.pass_on(header, frame);
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
                self.route_open(header.kind, header.peer, &frame[FULL_LEN..], frame.len(), from)
            }
        }
    }

    fn route_sealed(&mut self, header: &Header, frame: &[u8], from: LinkAddr) -> Result<(), Reject> {
        let lost = header.kind == Kind::Ping && !self.is_known(header.peer, frame);
        let Some(job) = &self.turn.job else { return Err(Reject::Tag) };
        match header.kind {
            Kind::Hello | Kind::HelloAck | Kind::Reset => {
                let frame = job.open_opening(frame)?;
                self.route_open(header.kind, header.peer, &frame[FULL_LEN..], frame.len(), from)
            }
            Kind::Ping if lost => {
                let body = frame.get(FULL_LEN..FULL_LEN + PING_LEN).ok_or(Reject::Truncated)?;
                let tokens = Tokens::parse(body)?;
                job.check_lost_ping(tokens, header.seq.0, frame)?;
                self.meet(Stranger::Lost { from, tokens: Tokens { from: tokens.to, to: tokens.from } })
            }
            Kind::Data | Kind::Ack | Kind::Ping => {
                let mut opened = std::mem::take(&mut self.opened);
                let conn = self.peers.at(header.peer).ok_or(Reject::NoPeer);
                let frame = conn.and_then(|conn| conn.open_sealed(job, header, frame, &mut opened));
                let handled = frame.and_then(|frame| self.pass_on(header, frame));
                self.opened = opened;
                handled
            }
        }
    }

    #[inline(never)]
    fn pass_on(&mut self, header: &Header, frame: &[u8]) -> Result<(), Reject> {
        self.with_conn(header.peer, |conn, turn| conn.handle_frame(turn, header, frame, &mut nobody))
    }

    /// True if a Ping asks for a connection that is here.
    fn is_known(&mut self, peer: u16, ping: &[u8]) -> bool {
        let tokens = ping.get(FULL_LEN..FULL_LEN + PING_LEN).and_then(|body| Tokens::parse(body).ok());
        tokens.is_some_and(|tokens| self.peers.at(peer).is_some_and(|conn| conn.is_between(tokens)))
    }

    #[inline]
    fn route_plain(&mut self, frame: &[u8], from: LinkAddr, taker: Taker<'_>) -> Result<(), Reject> {
        let header = PlainHeader::parse(frame)?;
        match header.kind {
            Kind::Data | Kind::Ack => self
                .with_conn(header.peer, |conn, turn| conn.handle_plain(turn, &header, frame, taker))
                .inspect_err(|reason| self.tell_unknown(*reason, from)),
            Kind::Ping => {
                let tokens = Tokens::parse(&frame[PLAIN_LEN..])?;
                match self.peers.at(header.peer) {
                    Some(conn) if conn.is_between(tokens) => Ok(()),
                    _ => self.meet(Stranger::Lost { from, tokens: Tokens { from: tokens.to, to: tokens.from } }),
                }
            }
            Kind::Reset if Tokens::parse(&frame[PLAIN_LEN..]) == Ok(Tokens::UNKNOWN) => {
                let conn = self.peers.by_addr(from).ok_or(Reject::NoPeer)?;
                conn.handle_unknown();
                let index = conn.id.index;
                self.activate(index);
                Ok(())
            }
            Kind::Hello | Kind::HelloAck | Kind::Reset => {
                self.route_open(header.kind, header.peer, &frame[PLAIN_LEN..], frame.len(), from)
            }
        }
    }

    /// A reliable driver's peer would not notice by itself that its frames find nobody: it has no time-outs. A header does not say whose
    /// they are, so it is made to ask.
    #[cold]
    fn tell_unknown(&mut self, reason: Reject, from: LinkAddr) {
        let is_told = |stranger: &Stranger| matches!(stranger, Stranger::Lost { from: other, tokens } if *other == from && *tokens == Tokens::UNKNOWN);
        if matches!(reason, Reject::NoPeer | Reject::Epoch) && !self.strangers.iter().any(is_told) {
            // Whoever finds no place among them sends again, or has no more to lose.
            let _ = self.meet(Stranger::Lost { from, tokens: Tokens::UNKNOWN });
        }
    }

    #[cold]
    fn route_open(
        &mut self,
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
                let Some((conn, turn)) = self.conn_turn(peer).filter(|(conn, _)| conn.answers_to(hello.echo)) else {
                    let tokens = Tokens { from: hello.echo, to: hello.token };
                    return self.meet(Stranger::Lost { from, tokens });
                };
                conn.handle_hello_ack(turn, &hello);
                self.activate(peer);
                self.after_change(peer);
                Ok(())
            }
            _ => {
                let tokens = Tokens::parse(body)?;
                let index = self.peers.by_addr(from).ok_or(Reject::NoPeer)?.id.index;
                let fresh = self.draw_token();
                let (conn, turn) = self.conn_turn(index).ok_or(Reject::NoPeer)?;
                let taken = conn.handle_reset(turn, tokens, fresh);
                self.activate(index);
                self.after_change(index);
                taken
            }
        }
    }

    fn meet(&mut self, stranger: Stranger) -> Result<(), Reject> {
        let (Stranger::Hello { from, .. } | Stranger::Lost { from, .. }) = &stranger;
        if self.expected.as_ref().is_some_and(|expected| !expected.contains(from)) {
            return Err(Reject::NotExpected);
        }
        if self.strangers.len() >= STRANGERS_MAX {
            return Err(Reject::TableFull);
        }
        self.strangers.push(stranger);
        Ok(())
    }

    /// True when a message, or a peer's close, waits to be received.
    #[inline]
    pub fn has_messages(&self) -> bool {
        !self.turn.lone.is_empty() || !self.ready.is_empty()
    }

    /// A connection, and what a turn lends to it.
    #[inline]
    pub fn conn_turn(&mut self, index: u16) -> Option<(&mut Conn, &mut TurnContext)> {
        Some((self.peers.at(index)?, &mut self.turn))
    }

    /// Gives a frame to its connection, which may then have messages, and something to say.
    #[inline]
    fn with_conn(
        &mut self,
        index: u16,
        handle: impl FnOnce(&mut Conn, &mut TurnContext) -> Result<(), Reject>,
    ) -> Result<(), Reject> {
        let Self { peers, turn, ready, active, late, .. } = self;
        let Some(conn) = peers.at(index) else {
            cold();
            return Err(Reject::NoPeer);
        };
        let was_late = conn.has_noted_ack();
        let handled = handle(conn, turn);
        ready.note(conn);
        if conn.has_noted_ack() && !was_late {
            late.push_back(index);
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

    /// Takes in the acks that waited until there is time.
    #[inline]
    pub fn catch_up(&mut self) {
        if !self.late.is_empty() {
            self.take_in_noted_acks();
        }
    }

    #[inline(never)]
    fn take_in_noted_acks(&mut self) {
        while let Some(index) = self.late.pop_front() {
            let Some((conn, turn)) = self.conn_turn(index) else { continue };
            conn.take_in_noted_ack(turn);
            if conn.wants_to_transmit() {
                self.activate(index);
            }
            self.after_change(index);
        }
    }

    /// The timers of a connection may have changed.
    #[inline]
    pub fn after_change(&mut self, index: u16) {
        if let Some(next) = self.peers.at(index).and_then(Conn::take_timeout_change) {
            self.peers.note_due(index, next);
        }
    }

    #[inline]
    pub fn activate(&mut self, index: u16) {
        let Some(conn) = self.peers.at(index) else { return };
        if !conn.queued {
            conn.queued = true;
            self.active.push_back(index);
        }
    }

    /// Nobody called for the span `away`: the processor was another's, this process was stopped, its machine slept, or its
    /// clock leapt. Beyond a keep-alive, who could not be heard was not silent but for one, so that an endpoint that is seldom
    /// polled notices a dead peer too.
    #[cold]
    pub fn on_away(&mut self, away: Duration) {
        let Self { peers, turn, .. } = self;
        turn.was_away = true;
        if away <= turn.config.keep_alive {
            return;
        }
        let excess = Duration::from_nanos(away.as_nanos() - turn.config.keep_alive.as_nanos());
        let mut missed = false;
        peers.each(|conn| missed |= conn.on_absence(turn, excess));
        // Without a peer that is waited for nobody has to poll.
        turn.counters.absences += u64::from(missed);
    }

    /// Every peer that waits for a Done is told, with what else goes to it.
    #[cold]
    pub fn tell_done(&mut self) {
        let mut owing = std::mem::take(&mut self.turn.rma.owing);
        for index in owing.drain(..) {
            if let Some((conn, turn)) = self.conn_turn(index) {
                conn.push_done(turn);
                self.activate(index);
            }
        }
        if self.turn.rma.owing.is_empty() {
            self.turn.rma.owing = owing;
        }
    }

    /// True when there is a place for a peer at `addr`: always, where one is expected.
    pub fn has_room(&self, addr: LinkAddr) -> bool {
        let is_expected = || self.expected.as_ref().is_some_and(|expected| expected.contains(&addr));
        self.peers.len() < usize::from(NO_PEER) && (self.peers.len() < self.turn.config.peers_max || is_expected())
    }

    pub fn draw_token(&mut self) -> u64 {
        loop {
            // Keys follow from tokens: the same two tokens again would be the same keys again.
            let token = if self.turn.job.is_some() { JobKey::random_token() } else { self.tokens.draw() };
            if token != 0 {
                return token;
            }
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("peers", &self.peers)
            .field("events", &self.turn.events)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

/// Strangers that are answered in one turn. The rest come again, but for those of a reliable driver.
pub(crate) const STRANGERS_MAX: usize = 64;
