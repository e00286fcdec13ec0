//! Active Messages over a driver: up to 16 words of 8 bytes are arguments, other sizes are payloads, as many as a message takes.

use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{ARGS_MAX, ActiveMessages, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::{Endpoint, Event, PeerId, SendError};

use super::proto::{LINGER_NS, config};
use super::{Broken, Flow, Transport};
use crate::clock::now_ns;
use crate::side::Sealing;

/// One end of a connection. Where messages go back and forth, the one that answers does so in its handler.
pub struct Am<N: Nic> {
    am: ActiveMessages<N, Inbox>,
    inbox: Inbox,
    peer: PeerId,
    role: Role,
    /// Bytes of a message that one payload carries.
    piece: usize,
    /// Bytes of the message under way that were sent.
    sent: usize,
    reply: ReplyRoom,
    closed: bool,
}

/// What this end does when it is asked to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Requests,
    /// Its handler has replied already.
    Replies,
}

/// What the handlers write to: memory of the application.
struct Inbox {
    message: Vec<u8>,
    filled: usize,
    /// Whole messages that came in this poll, and how the last of them began: of the next one a part may be here already.
    messages: usize,
    begin: [u8; 1],
    replies: bool,
}

/// Index of the handlers of 8 bytes, and of those of a payload.
const WORD: u8 = 0;
const PIECE: u8 = 1;
/// Of several words.
const WORDS: u8 = 2;

impl Inbox {
    #[inline]
    fn take_word(&mut self, args: &Args<'_>) -> u64 {
        let word = args.get(0).unwrap_or(0);
        if let Some(place) = self.message.first_chunk_mut() {
            *place = word.to_le_bytes();
        }
        self.on_whole();
        word
    }

    #[inline]
    fn take_words(&mut self, args: &Args<'_>) {
        for (place, word) in self.message.as_chunks_mut::<8>().0.iter_mut().zip(args.iter()) {
            *place = word.to_le_bytes();
        }
        self.on_whole();
    }

    #[inline]
    fn take_piece(&mut self, payload: &[u8]) {
        let Some(place) = self.message.get_mut(self.filled..self.filled + payload.len()) else { return };
        place.copy_from_slice(payload);
        self.filled += payload.len();
        if self.filled == self.message.len() {
            self.filled = 0;
            self.on_whole();
        }
    }

    #[inline]
    fn on_whole(&mut self) {
        self.messages += 1;
        self.begin = [self.message[0]];
    }
}

fn handlers() -> Handlers<Inbox> {
    Handlers::new()
        .request(WORD, |inbox: &mut Inbox, replier: Replier<'_>, args, _| {
            let word = inbox.take_word(&args);
            if inbox.replies {
                // A requester that is gone needs no reply.
                let _ = replier.reply_m(WORD, [word]);
            }
        })
        .request(PIECE, |inbox: &mut Inbox, replier: Replier<'_>, _, payload: &[u8]| {
            inbox.take_piece(payload);
            if inbox.replies {
                let _ = replier.reply(PIECE, &[], payload);
            }
        })
        .request(WORDS, |inbox: &mut Inbox, replier: Replier<'_>, args, _| {
            inbox.take_words(&args);
            if inbox.replies {
                let mut words = [0; ARGS_MAX];
                words.iter_mut().zip(args.iter()).for_each(|(word, arg)| *word = arg);
                let _ = replier.reply(WORDS, &words[..args.len()], &[]);
            }
        })
        .reply(WORD, |inbox: &mut Inbox, _, args, _| {
            inbox.take_word(&args);
        })
        .reply(WORDS, |inbox: &mut Inbox, _, args, _| inbox.take_words(&args))
        .reply(PIECE, |inbox: &mut Inbox, _, _, payload| inbox.take_piece(payload))
}

impl<N: Nic> Am<N> {
    /// Connects to `peer`, to which messages go as `flow` says.
    pub fn connect(nic: N, peer: LinkAddr, size: usize, flow: Flow, deadline_ns: u64) -> Result<Self, Broken> {
        let mut end = Opening::new(nic, size, flow, Role::Requests);
        end.am.connect(peer).map_err(|error| Broken::Driver(error.to_string()))?;
        Self::established(end, flow, Role::Requests, deadline_ns)
    }

    /// Waits for a peer that connects.
    pub fn accept(nic: N, size: usize, flow: Flow, deadline_ns: u64) -> Result<Self, Broken> {
        Self::established(Opening::new(nic, size, flow, Role::Replies), flow, Role::Replies, deadline_ns)
    }

    /// Both ends of a connection within one thread; `pass` lets time go by on the wire between them.
    pub fn pair(
        (a, b): (N, N),
        to_b: LinkAddr,
        size: usize,
        flow: Flow,
        deadline_ns: u64,
        mut pass: impl FnMut(),
    ) -> Result<(Self, Self), Broken> {
        let mut a = Opening::new(a, size, flow, Role::Requests);
        let mut b = Opening::new(b, size, flow, Role::Replies);
        a.am.connect(to_b).map_err(|error| Broken::Driver(error.to_string()))?;
        while now_ns() < deadline_ns {
            // Both: the one that is ready first still answers the other.
            if a.is_open()? & b.is_open()? {
                return Ok((a.into_end(flow, Role::Requests), b.into_end(flow, Role::Replies)));
            }
            pass();
        }
        Err(Broken::Deadline)
    }

    fn established(mut end: Opening<N>, flow: Flow, role: Role, deadline_ns: u64) -> Result<Self, Broken> {
        while now_ns() < deadline_ns {
            if end.is_open()? {
                return Ok(end.into_end(flow, role));
            }
            crate::idle::relax();
        }
        Err(Broken::Deadline)
    }

    #[inline]
    fn request(&mut self, message: &[u8]) -> Result<bool, SendError> {
        if let Ok(word) = message.try_into() {
            self.am.request(self.peer, WORD, &[u64::from_le_bytes(word)], &[], self.reply)?;
            return Ok(true);
        }
        if are_words(message.len()) {
            let mut words = [0; ARGS_MAX];
            for (word, bytes) in words.iter_mut().zip(message.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            self.am.request(self.peer, WORDS, &words[..message.len() / 8], &[], self.reply)?;
            return Ok(true);
        }
        while self.sent < message.len() {
            let end = message.len().min(self.sent + self.piece);
            self.am.request(self.peer, PIECE, &[], &message[self.sent..end], self.reply)?;
            self.sent = end;
        }
        self.sent = 0;
        Ok(true)
    }

    fn take_events(&mut self) -> Result<(), Broken> {
        while let Some(event) = self.am.poll_event() {
            match event {
                Event::Closed { peer } if peer == self.peer => self.closed = true,
                Event::Gone { peer, .. } if peer == self.peer => return Err(Broken::PeerGone),
                _ => {}
            }
        }
        Ok(())
    }
}

impl<N: Nic> Transport for Am<N> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        if self.role == Role::Replies {
            return Ok(true);
        }
        match self.request(message) {
            Ok(taken) => Ok(taken),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(Broken::Driver(error.to_string())),
        }
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        self.am.flush();
        Ok(())
    }

    #[inline]
    fn recv(&mut self, _budget: usize, _into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        self.am.poll(&mut self.inbox);
        self.take_events()?;
        let messages = std::mem::take(&mut self.inbox.messages);
        for _ in 0..messages {
            // Patterns look at the first byte, and only the very last message differs in it.
            each(&self.inbox.begin);
        }
        Ok(messages)
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        let deadline_ns = deadline_ns.min(now_ns() + LINGER_NS);
        self.am.close(self.peer);
        while !self.closed && now_ns() < deadline_ns {
            self.am.poll(&mut self.inbox);
            if self.take_events().is_err() {
                // The peer closed first and has left, which is no failure of what was measured.
                break;
            }
            crate::idle::relax();
        }
        Ok(())
    }
}

/// True of sizes that are arguments.
const fn are_words(size: usize) -> bool {
    size.is_multiple_of(8) && size <= 8 * ARGS_MAX
}

/// An end whose peer has not answered, or not yet told its room.
struct Opening<N: Nic> {
    am: ActiveMessages<N, Inbox>,
    inbox: Inbox,
    peer: Option<PeerId>,
}

impl<N: Nic> Opening<N> {
    fn new(nic: N, size: usize, flow: Flow, role: Role) -> Self {
        // From the start: the first request may come with what opens this end.
        let replies = flow == Flow::Alternating && role == Role::Replies;
        let inbox = Inbox { message: vec![0x5a; size], filled: 0, messages: 0, begin: [0], replies };
        Self { am: ActiveMessages::new(Endpoint::new(nic, config(Sealing::None)), handlers()), inbox, peer: None }
    }

    fn is_open(&mut self) -> Result<bool, Broken> {
        self.am.poll(&mut self.inbox);
        match self.am.poll_event() {
            Some(Event::Connected { peer, .. }) => self.peer = Some(peer),
            Some(Event::Gone { .. }) => return Err(Broken::PeerGone),
            _ => {}
        }
        Ok(self.peer.is_some_and(|peer| self.am.room_max(peer) > ReplyRoom::NONE))
    }

    fn into_end(self, flow: Flow, role: Role) -> Am<N> {
        let peer = self.peer.expect("it is open");
        let size = self.inbox.message.len();
        let alternates = flow == Flow::Alternating;
        let mut piece = size.min(self.am.medium_max(peer, 0));
        while alternates && ReplyRoom::medium(0, piece) > self.am.room_max(peer) {
            piece /= 2;
        }
        let reply = match (alternates, are_words(size)) {
            (false, _) => ReplyRoom::NONE,
            (true, true) => ReplyRoom::SHORT,
            (true, false) => ReplyRoom::medium(0, piece),
        };
        Am { am: self.am, inbox: self.inbox, peer, role, piece, sent: 0, reply, closed: false }
    }
}
