//! Active Messages: a message names a handler, which runs where the message arrived.
//!
//! After GASNet-EX's classes and the calls of SP Active Messages (Chang and others, 1996). *Short*: up to [`ARGS_MAX`] words.
//! *Medium*: words and a payload, as much as one frame takes.
//! *Long*: words, and bytes that are put into a region first. A request may be answered by one reply; a handler gets no
//! endpoint, so it can neither request nor wait.

mod args;
mod budget;
mod counters;
mod handlers;
mod incoming;
mod long;
mod long_reply;
mod peer;
mod prepared;
mod replier;
mod sp;
pub(crate) mod wire;

pub use args::Args;
pub use budget::ReplyRoom;
pub use counters::{Counters, Reject};
pub use handlers::{Handlers, ReplyHandler, RequestHandler};
pub use long::LongError;
pub use prepared::Prepared;
pub use replier::{PreparedReply, Replier};

use std::collections::VecDeque;
use std::fmt;
use std::io;

use sidelane_nic::time::Instant;
use sidelane_nic::{LinkAddr, Nic};

use crate::lone::nobody;
use crate::wire::RECORD_LEN;
use crate::{ConnectError, Endpoint, Event, PeerId, SendError};
use peer::{Peer, Peers};
use replier::Outlets;
use wire::{Head, Kind, Parsed, put_whole, record_len};

/// Words that a message takes besides its payload. GASNet's number; ours have 8 bytes, so that an address or an offset is one.
pub const ARGS_MAX: usize = 16;

/// Active Messages to and from the peers of one endpoint, whose messages are all theirs. Used by one thread.
///
/// `request` puts a message into the peer's FIFO; `flush` or the next `poll` puts it on the wire. `poll` runs the handlers of
/// what has arrived, on the state that it is given, and sends their replies. When `request` returns, arguments and payload may
/// be used again (local completion). That the handler has run is known by its reply, or when [`Self::handled`] has reached
/// what [`Self::sent`] was (remote completion).
pub struct ActiveMessages<N: Nic, S> {
    endpoint: Endpoint<N>,
    handlers: Handlers<S>,
    peers: Peers,
    events: VecDeque<Event>,
    counters: Counters,
    /// Peers that have to be told of their credit, each once.
    owing: Vec<u16>,
    /// Peers to whom long replies wait to be handed over, each once.
    replying: Vec<u16>,
}

impl<N: Nic, S> ActiveMessages<N, S> {
    /// Over `endpoint`, which has no peers yet.
    pub fn new(endpoint: Endpoint<N>, handlers: Handlers<S>) -> Self {
        assert_eq!(endpoint.peers(), 0, "the endpoint's first message is an Active Message");
        let mut endpoint = endpoint;
        endpoint.show_with_am();
        Self {
            endpoint,
            handlers,
            peers: Peers::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            owing: Vec::new(),
            replying: Vec::new(),
        }
    }

    /// Begins a connection. Requests are `Full` until the peer has answered.
    pub fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        self.endpoint.connect(to)
    }

    /// Runs `handler` at `to` with `args`, at most [`ARGS_MAX`] of them, and a copy of `payload`.
    ///
    /// `Full`: the FIFO, or the peer's room for replies, is used up; poll, and try again. `TooLong`: see [`Self::medium_max`]
    /// and [`Self::room_max`].
    #[inline]
    pub fn request(
        &mut self,
        to: PeerId,
        handler: u8,
        args: &[u64],
        payload: &[u8],
        reply: ReplyRoom,
    ) -> Result<(), SendError> {
        let Some(peer) = self.peers.get(to).filter(|peer| peer.budget.has_room(reply) && args.len() <= ARGS_MAX) else {
            return Err(self.refuse(to, args.len(), reply));
        };
        let credit = peer.budget.due();
        let head = Head {
            kind: Kind::Request,
            has_credit: credit.is_some(),
            words: args.len() as u8,
            handler,
            room: reply.units(),
        };
        let len = record_len(credit.is_some(), args.len(), payload.len());
        self.endpoint.send_record(to, len, |record| put_whole(record, head, credit, args, payload))?;
        peer.budget.on_request_sent(reply);
        peer.budget.on_told(credit);
        self.counters.requests_sent += 1;
        Ok(())
    }

    /// As [`Self::request`], of one that [`wire::keep_request`] wrote.
    pub(crate) fn request_kept(&mut self, to: PeerId, record: &[u8]) -> Result<(), SendError> {
        let Ok(Parsed { head, args, payload, .. }) = wire::parse(&record[RECORD_LEN..]) else {
            unreachable!("it was written here");
        };
        let mut words = [0; ARGS_MAX];
        words.iter_mut().zip(args.iter()).for_each(|(word, arg)| *word = arg);
        let sent = self.request(to, head.handler, &words[..args.len()], payload, ReplyRoom::of_units(head.room));
        if matches!(sent, Err(SendError::NoPeer | SendError::TooLong))
            && let Some(peer) = self.peers.get(to)
        {
            peer.lost = true;
        }
        sent
    }

    /// Longest record for [`Self::request_kept`], which may add a credit; `None` while `peer` is not connected.
    pub(crate) fn kept_max(&self, peer: PeerId) -> Option<usize> {
        self.peers.seen(peer).map(|peer| peer.record_max.saturating_sub(wire::CREDIT_LEN))
    }

    /// As [`Self::request`] with `words` arguments and up to `payload` bytes, which the caller writes where they leave from:
    /// one copy less.
    #[inline]
    pub fn prepare(
        &mut self,
        to: PeerId,
        words: usize,
        payload: usize,
        reply: ReplyRoom,
    ) -> Result<Prepared<'_>, SendError> {
        if self.peers.get(to).is_none_or(|peer| !peer.budget.has_room(reply) || words > ARGS_MAX) {
            return Err(self.refuse(to, words, reply));
        }
        let Self { endpoint, peers, counters, .. } = self;
        let budget = &mut peers.get(to).ok_or(SendError::NoPeer)?.budget;
        let credit = budget.due();
        let slot = endpoint.record_slot(to, record_len(credit.is_some(), words, payload))?;
        Ok(Prepared { slot, budget, counters, credit, words, payload, reply })
    }

    /// One turn: receives, runs the handlers of what has come, sends their replies. Returns how many messages came.
    #[inline]
    pub fn poll(&mut self, state: &mut S) -> usize {
        self.endpoint.turn(&mut nobody);
        if self.endpoint.has_events() {
            self.take_events();
        }
        let Self { endpoint, handlers, peers, counters, owing, replying, .. } = self;
        let messages = endpoint.recv_answering(|from, message, answer, answers| {
            let outlets = Outlets { short: answer, long: replying, count: answers };
            incoming::run(handlers, peers, counters, owing, state, from, message, outlets);
        });
        if !self.replying.is_empty() {
            self.send_long_replies();
        }
        if !self.owing.is_empty() {
            self.tell();
        }
        self.endpoint.flush();
        if self.endpoint.is_show_due() {
            self.endpoint.note_am(&self.counters);
            self.endpoint.show();
        }
        messages
    }

    /// Puts requests on the wire.
    #[inline]
    pub fn flush(&mut self) {
        self.endpoint.flush();
    }

    /// Takes the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        // The last message of a poll may have been followed by its connection's end.
        if self.endpoint.has_events() {
            self.take_events();
        }
        self.events.pop_front()
    }

    /// Puts back the last event that was taken.
    pub(crate) fn give_back(&mut self, event: Event) {
        self.events.push_front(event);
    }

    /// Sleeps until a frame may be there, a timer is due, or `deadline`; returns at once when an event waits.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if !self.events.is_empty() {
            return Ok(());
        }
        self.before_sleep();
        self.endpoint.wait(deadline)
    }

    /// As [`Self::wait`], also while messages and events wait for being taken.
    pub(crate) fn wait_for_frames(&mut self) -> io::Result<()> {
        self.before_sleep();
        self.endpoint.wait_for_frames(None)
    }

    /// Ends a connection once all that was sent, long replies that wait included, is acknowledged; [`Event::Closed`] follows. Requests that come meanwhile are
    /// handled, but cannot be replied to.
    pub fn close(&mut self, peer: PeerId) {
        if let Some(entry) = self.peers.get(peer) {
            entry.open = false;
            if !entry.long_replies.is_empty() {
                entry.long_replies.close_after = true;
                entry.budget.end_requests();
                return;
            }
        }
        self.endpoint.close(peer);
    }

    /// Requests sent to `peer`; 0 for one that never was connected, and for one whose place in the table another has taken.
    pub fn sent(&self, peer: PeerId) -> u64 {
        self.peers.seen(peer).map_or(0, |peer| peer.budget.sent)
    }

    /// Of which the peer has told that their handlers have run, in the order in which they were sent. It tells by replies, and
    /// now and then; at once after [`Self::ask`].
    pub fn handled(&self, peer: PeerId) -> u64 {
        self.peers.seen(peer).map_or(0, |peer| peer.budget.handled)
    }

    /// Whether [`Self::handled`] has reached [`Self::sent`], and nothing of [`Self::request_kept`] was lost. Never of one that is forgotten.
    pub(crate) fn is_all_handled(&mut self, peer: PeerId) -> bool {
        match self.peers.seen(peer) {
            Some(peer) => peer.budget.handled == peer.budget.sent && !peer.lost,
            // Before it has answered nothing is sent.
            None => self.endpoint.has_peer(peer),
        }
    }

    /// Asks `peer` to tell once it has handled everything that was sent so far. Asking twice for the same costs nothing.
    pub fn ask(&mut self, peer: PeerId) -> Result<(), SendError> {
        let to = peer;
        let Some(peer) = self.peers.get(to) else {
            // Before it has answered nothing is sent.
            return if self.endpoint.has_peer(to) { Ok(()) } else { Err(SendError::NoPeer) };
        };
        if peer.budget.handled == peer.budget.sent || peer.asked_at == Some(peer.budget.sent) {
            return Ok(());
        }
        let head = Head { kind: Kind::Ask, has_credit: false, words: 0, handler: 0, room: 0 };
        self.endpoint.send_record(to, record_len(false, 0, 0), |record| put_whole(record, head, None, &[], &[]))?;
        peer.asked_at = Some(peer.budget.sent);
        Ok(())
    }

    /// Longest payload beside `words` arguments in messages to and from `peer`; 0 while it is not connected.
    pub fn medium_max(&self, peer: PeerId, words: usize) -> usize {
        self.peers.seen(peer).map_or(0, |peer| peer.record_max.saturating_sub(record_len(true, words, 0)))
    }

    /// The most room that a request to `peer` may ask for; none while it is not connected.
    pub fn room_max(&self, peer: PeerId) -> ReplyRoom {
        self.room_told(peer).unwrap_or(ReplyRoom::NONE)
    }

    /// The same, once the peer has told.
    pub(crate) fn room_told(&self, peer: PeerId) -> Option<ReplyRoom> {
        self.peers.seen(peer)?.budget.room_max()
    }

    /// What is counted of Active Messages.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts of what found no room, messages, operations and requests: who tries again what was refused puts them back.
    pub(crate) const fn refusals(&mut self) -> [&mut u64; 3] {
        let [messages, operations] = self.endpoint.refusals();
        [messages, operations, &mut self.counters.budget_stalls]
    }

    /// The endpoint below.
    pub const fn endpoint(&self) -> &Endpoint<N> {
        &self.endpoint
    }

    /// The endpoint below, for its regions and one-sided operations. What `send` sends by it, the peer takes for an Active Message.
    pub const fn endpoint_mut(&mut self) -> &mut Endpoint<N> {
        &mut self.endpoint
    }

    /// Ends the Active Messages and gives the endpoint back.
    pub fn into_endpoint(self) -> Endpoint<N> {
        self.endpoint
    }

    #[cold]
    fn refuse(&mut self, to: PeerId, words: usize, reply: ReplyRoom) -> SendError {
        match self.peers.get(to) {
            _ if words > ARGS_MAX => SendError::TooLong,
            // It was there once.
            _ if !self.endpoint.has_peer(to) => SendError::NoPeer,
            Some(peer) if peer.long_replies.close_after => SendError::NoPeer,
            Some(peer) if peer.budget.room_max().is_some_and(|most| reply > most) => SendError::TooLong,
            Some(_) => {
                self.counters.budget_stalls += 1;
                SendError::Full
            }
            // It has not answered yet.
            None => SendError::Full,
        }
    }

    /// What has room since the last turn flushed does not wait for the next one; what the sleep's own flush makes room for ends the sleep.
    fn before_sleep(&mut self) {
        if !self.replying.is_empty() {
            self.send_long_replies();
        }
        if !self.owing.is_empty() {
            self.tell();
        }
        self.endpoint.note_am(&self.counters);
    }

    #[cold]
    fn take_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected { peer, .. } => {
                    if let Some((reserve, record_max)) = self.endpoint.reserve_for_replies(peer) {
                        self.peers.insert(Peer::new(peer, reserve, record_max));
                        self.owing.push(peer.index);
                    }
                }
                Event::Gone { peer, .. } | Event::Closed { peer } => {
                    if let Some(peer) = self.peers.get(peer) {
                        peer.open = false;
                    }
                }
                _ => {}
            }
            self.events.push_back(event);
        }
    }

    /// Tells peers of their credit. A full FIFO puts it off: what is in it leaves in any case, and this is tried each turn.
    #[cold]
    fn tell(&mut self) {
        let Self { endpoint, peers, counters, owing, .. } = self;
        owing.retain(|index| {
            let Some(peer) = peers.at(*index) else { return false };
            if let Some(credit) = peer.budget.due() {
                let head = Head { kind: Kind::Credit, has_credit: true, words: 0, handler: 0, room: 0 };
                let put = |record: &mut [u8]| put_whole(record, head, Some(credit), &[], &[]);
                let refused_before = *endpoint.refusals()[0];
                match endpoint.send_record(peer.id, record_len(true, 0, 0), put) {
                    Err(SendError::Full) => {
                        // Nobody was: it is ours, and goes out with what is in the FIFO.
                        *endpoint.refusals()[0] = refused_before;
                        return true;
                    }
                    Err(_) => {}
                    Ok(()) => {
                        peer.budget.on_told(Some(credit));
                        counters.credits_sent += 1;
                    }
                }
            }
            peer.owing = false;
            false
        });
    }
}

/// All that its future depends on, but for its handlers and the bytes of messages.
impl<N: Nic, S> fmt::Debug for ActiveMessages<N, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveMessages")
            .field("endpoint", &self.endpoint)
            .field("peers", &self.peers)
            .field("events", &self.events)
            .field("owing", &self.owing)
            .field("replying", &self.replying)
            .finish_non_exhaustive()
    }
}
