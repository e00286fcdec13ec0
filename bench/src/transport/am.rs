//! Active Messages over a driver: up to 16 words of 8 bytes are arguments, up to a frame is a payload, and what is longer is put into
//! a region of the receiver's, behind which the handler runs.

use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{ARGS_MAX, ActiveMessages, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::{Endpoint, Event, PeerId, Region, RemoteKey, Rights, SendError};

use super::establish::poll_established;
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
    flow: Flow,
    reply: ReplyRoom,
    /// Where messages are longer than a frame.
    long: Option<Long>,
    closed: bool,
}

/// What long messages are sent from: a region here, into places of one there.
struct Long {
    source: Region,
    size: usize,
    slots: usize,
    sent: usize,
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
    /// Messages that came in this poll, and how the last of them began.
    messages: usize,
    begin: [u8; 1],
    replies: bool,
    /// Of the other end's region. Long messages wait for it.
    key: Option<RemoteKey>,
}

/// Index of the handlers of 8 bytes, and of those of a payload.
const WORD: u8 = 0;
const PAYLOAD: u8 = 1;
/// Of several words.
const WORDS: u8 = 2;
/// Of a message that is in place, and of a region's key.
const LONG: u8 = 3;
const KEY: u8 = 4;

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
    fn take_payload(&mut self, payload: &[u8]) {
        if let Some(place) = self.message.get_mut(..payload.len()) {
            place.copy_from_slice(payload);
        }
        self.on_whole();
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
        .request(PAYLOAD, |inbox: &mut Inbox, replier: Replier<'_>, _, payload: &[u8]| {
            inbox.take_payload(payload);
            if inbox.replies {
                let _ = replier.reply(PAYLOAD, &[], payload);
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
        .request(LONG, |inbox: &mut Inbox, _, args, _| {
            inbox.messages += 1;
            inbox.begin = [args.get(0).unwrap_or(0) as u8];
        })
        .request(KEY, |inbox: &mut Inbox, _, _, key| inbox.key = key.try_into().ok().map(RemoteKey::from_bytes))
        .reply(WORD, |inbox: &mut Inbox, _, args, _| {
            inbox.take_word(&args);
        })
        .reply(WORDS, |inbox: &mut Inbox, _, args, _| inbox.take_words(&args))
        .reply(PAYLOAD, |inbox: &mut Inbox, _, _, payload| inbox.take_payload(payload))
}

impl<N: Nic> Am<N> {
    /// Connects to `peer`, to which messages go as `flow` says.
    pub fn connect(nic: N, peer: LinkAddr, size: usize, flow: Flow, deadline_ns: u64) -> Result<Self, Broken> {
        let mut end = Opening::new(nic, size, flow, Role::Requests);
        end.am.connect(peer).map_err(Broken::driver)?;
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
        a.am.connect(to_b).map_err(Broken::driver)?;
        while now_ns() < deadline_ns {
            // Both: the one that is ready first still answers the other.
            if a.is_open()? & b.is_open()? {
                return Ok((a.into_end(flow, Role::Requests)?, b.into_end(flow, Role::Replies)?));
            }
            pass();
        }
        Err(Broken::Deadline)
    }

    fn established(mut end: Opening<N>, flow: Flow, role: Role, deadline_ns: u64) -> Result<Self, Broken> {
        while now_ns() < deadline_ns {
            if end.is_open()? {
                return end.into_end(flow, role);
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
        self.am.request(self.peer, PAYLOAD, &[], message, self.reply)?;
        Ok(true)
    }

    /// A message that the handler finds in place. The source's bytes are always the same: what a message begins with goes with it.
    fn request_long(&mut self, begin: u8) -> Result<bool, Broken> {
        let (Some(long), Some(key)) = (&mut self.long, &self.inbox.key) else { return Ok(false) };
        // Where each message is the answer to one, the places of those before are free.
        let untold = (self.am.sent(self.peer) - self.am.handled(self.peer)) as usize;
        if self.flow != Flow::Alternating && untold >= long.slots / 2 {
            match self.am.ask(self.peer) {
                Ok(()) | Err(SendError::Full) => {}
                Err(error) => return Err(Broken::driver(error)),
            }
        }
        if self.flow != Flow::Alternating && untold >= long.slots {
            return Ok(false);
        }
        let place = (long.sent % long.slots * long.size) as u64;
        let args = [u64::from(begin)];
        match self.am.store_async(self.peer, (key, place), (long.source, 0..long.size), LONG, args) {
            Ok(_) => long.sent += 1,
            Err(error) if error.is_full() => return Ok(false),
            Err(error) => return Err(Broken::driver(error)),
        }
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
        if self.long.is_some() {
            return self.request_long(message[0]);
        }
        if self.role == Role::Replies {
            return Ok(true);
        }
        match self.request(message) {
            Ok(taken) => Ok(taken),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(Broken::driver(error)),
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
        let messages = std::mem::take(&mut self.inbox.messages);
        if messages == 0 {
            // Not before: the last of all may have come with the other end's close.
            self.take_events()?;
        }
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
        let inbox = Inbox { message: vec![0x5a; size], messages: 0, begin: [0], replies, key: None };
        Self { am: ActiveMessages::new(Endpoint::new(nic, config(Sealing::None)), handlers()), inbox, peer: None }
    }

    fn is_open(&mut self) -> Result<bool, Broken> {
        let Self { am, inbox, peer } = self;
        Ok(poll_established(am, inbox, peer)?.is_some())
    }

    fn into_end(mut self, flow: Flow, role: Role) -> Result<Am<N>, Broken> {
        let peer = self.peer.expect("it is open");
        let size = self.inbox.message.len();
        let reply = match flow == Flow::Alternating {
            false => ReplyRoom::NONE,
            true if are_words(size) => ReplyRoom::SHORT,
            true => ReplyRoom::medium(0, size),
        };
        let is_long = size > self.am.medium_max(peer, 0) || reply > self.am.room_max(peer);
        let long = if is_long { Some(self.open_long(peer, size)?) } else { None };
        let Self { am, inbox, .. } = self;
        Ok(Am { am, inbox, peer, role, flow, reply, long, closed: false })
    }

    /// Places for long messages here, whose key goes to the peer.
    fn open_long(&mut self, peer: PeerId, size: usize) -> Result<Long, Broken> {
        let slots = (SLOT_BYTES / size).max(2);
        let endpoint = self.am.endpoint_mut();
        let own = endpoint.register(vec![0x5a; slots * size]);
        let key = endpoint.publish(own, Rights::ALL, Some(peer)).map_err(Broken::driver)?;
        let source = endpoint.register(vec![0x5a; size]);
        self.am.request(peer, KEY, &[], &key.to_bytes(), ReplyRoom::NONE).map_err(Broken::driver)?;
        self.am.flush();
        Ok(Long { source, size, slots, sent: 0 })
    }
}

/// As those of [`super::Put`]: what stays in the cache.
const SLOT_BYTES: usize = 2 << 20;
