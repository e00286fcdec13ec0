//! How a node talks: by plain messages, or by requests that the other side replies to.

use std::collections::VecDeque;
use std::fmt;

use sidelane_nic::LinkAddr;

use super::wire::WireNic;
use crate::am::{ActiveMessages, Handlers, ReplyRoom};
use crate::sim::oracle::{Stream, message};
use crate::{ConnectError, Endpoint, Event, PeerId, SendError};

pub(super) enum Talk<const RELIABLE: bool> {
    Plain(Box<Endpoint<WireNic<RELIABLE>>>),
    Active(Box<ActiveMessages<WireNic<RELIABLE>, Inbox>>, Inbox),
}

/// What the handlers see and do.
#[derive(Debug)]
pub(super) struct Inbox {
    base: Stream,
    got: VecDeque<(PeerId, Vec<u8>)>,
    /// Whom requests were replied to last, in which stream, and how many.
    replied: Option<(PeerId, Stream, u32)>,
}

impl Inbox {
    /// Of the next reply to `to`: each connection is a stream of its own.
    fn next_reply(&mut self, to: PeerId) -> &mut (PeerId, Stream, u32) {
        if self.replied.is_none_or(|(last, ..)| last != to) {
            let stream = Stream { number: self.base.number + 1 + to.generation, ..self.base };
            self.replied = Some((to, stream, 0));
        }
        self.replied.as_mut().expect("just set")
    }
}

impl<const RELIABLE: bool> Talk<RELIABLE> {
    pub fn new(endpoint: Endpoint<WireNic<RELIABLE>>, stream: Stream, active: bool) -> Self {
        if !active {
            return Self::Plain(Box::new(endpoint));
        }
        let handlers = Handlers::new()
            .request(ECHO, |inbox: &mut Inbox, replier, _, payload: &[u8]| {
                let from = replier.from();
                inbox.got.push_back((from, payload.to_vec()));
                let (_, stream, count) = inbox.next_reply(from);
                if replier.reply(ECHO, &[], &message(*stream, *count, REPLY_LEN)).is_ok() {
                    *count += 1;
                }
            })
            .reply(ECHO, |inbox: &mut Inbox, from, _, payload| inbox.got.push_back((from, payload.to_vec())));
        let inbox = Inbox { base: stream, got: VecDeque::new(), replied: None };
        Self::Active(Box::new(ActiveMessages::new(endpoint, handlers)), inbox)
    }

    pub fn endpoint(&self) -> &Endpoint<WireNic<RELIABLE>> {
        match self {
            Self::Plain(endpoint) => endpoint,
            Self::Active(am, _) => am.endpoint(),
        }
    }

    pub fn endpoint_mut(&mut self) -> &mut Endpoint<WireNic<RELIABLE>> {
        match self {
            Self::Plain(endpoint) => endpoint,
            Self::Active(am, _) => am.endpoint_mut(),
        }
    }

    pub fn poll(&mut self) {
        match self {
            Self::Plain(endpoint) => endpoint.poll(),
            Self::Active(am, inbox) => am.poll(inbox),
        };
    }

    pub fn recv<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        match self {
            Self::Plain(endpoint) => endpoint.recv(take),
            Self::Active(_, inbox) => inbox.got.pop_front().map(|(from, bytes)| take(from, &bytes)),
        }
    }

    /// What was replied on the last connection, and how often.
    pub fn replied(&self) -> Option<(Stream, u32)> {
        match self {
            Self::Active(_, Inbox { replied: Some((_, stream, count)), .. }) => Some((*stream, *count)),
            _ => None,
        }
    }

    pub fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        self.endpoint_mut().connect(to)
    }

    /// A request is only taken when the peer has told what it keeps for its reply.
    pub fn has_room(&self, peer: PeerId) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Active(am, _) => am.room_max(peer) >= REPLY,
        }
    }

    /// False if there is no room, or the peer does not take so long a message.
    pub fn send(&mut self, peer: PeerId, bytes: &[u8]) -> bool {
        let sent = match self {
            Self::Plain(endpoint) => endpoint.send(peer, bytes),
            Self::Active(am, _) => am.request(peer, ECHO, &[], bytes, REPLY),
        };
        assert_ne!(sent, Err(SendError::NoPeer), "its end was not told");
        sent.is_ok()
    }

    pub fn close(&mut self, peer: PeerId) {
        match self {
            Self::Plain(endpoint) => endpoint.close(peer),
            Self::Active(am, _) => am.close(peer),
        }
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Plain(endpoint) => endpoint.poll_event(),
            Self::Active(am, _) => am.poll_event(),
        }
    }
}

/// All that its future depends on.
impl<const RELIABLE: bool> fmt::Debug for Talk<RELIABLE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(endpoint) => endpoint.fmt(f),
            Self::Active(am, inbox) => write!(f, "{am:?} {inbox:?}"),
        }
    }
}

const ECHO: u8 = 0;
const REPLY_LEN: usize = 16;
const REPLY: ReplyRoom = ReplyRoom::medium(0, REPLY_LEN);
