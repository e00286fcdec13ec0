//! Active Messages: as words and as bytes, written from `PROTOCOL.md`; and an endpoint whose user speaks them.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use sidelane_proto::am::{ActiveMessages, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::{Endpoint, Event, PeerId, SendError};

use crate::frame::{content, u16_at, u32_at};
use crate::nic::ScriptNic;
use crate::script::number;

const KINDS: [&str; 4] = ["Request", "Reply", "Credit", "Ask"];
const CREDIT: u8 = 4;

/// The message that `word` says: `Request(HANDLER,WORDS,BYTES,ROOM)`, `Reply(...)`, each perhaps with a credit behind, `HANDLED/FREED`;
/// `Credit(HANDLED/FREED)`, `Ask`. `None` when it is none of these.
pub fn build(name: &str, inner: &str) -> Option<Vec<u8>> {
    let kind = KINDS.iter().position(|kind| *kind == name)? as u8;
    let mut fields: Vec<&str> = inner.split(',').filter(|field| !field.is_empty()).collect();
    let credit = fields.pop_if(|field| field.contains('/'));
    let value = |at: usize| fields.get(at).map_or(0, |field| number(field)) as usize;
    let (handler, words, bytes, room) = (value(0), value(1), value(2), value(3));
    let mut message = vec![kind | credit.map_or(0, |_| CREDIT) | (words as u8) << 3, handler as u8];
    message.extend((room as u16).to_le_bytes());
    if let Some((handled, freed)) = credit.and_then(|credit| credit.split_once('/')) {
        message.extend((number(handled) as u32).to_le_bytes());
        message.extend((number(freed) as u32).to_le_bytes());
    }
    message.extend(behind(words, bytes));
    Some(message)
}

/// A message as a word.
pub fn read(message: &[u8]) -> String {
    let Some((&[first, handler, ..], rest)) = message.split_first_chunk::<4>() else {
        return format!("{message:02x?}").replace(' ', "");
    };
    let (name, words) = (KINDS[usize::from(first & 3)], usize::from(first >> 3));
    let (credit, rest) = if first & CREDIT == 0 {
        (String::new(), rest)
    } else {
        (format!("{}/{}", u32_at(rest, 0), u32_at(rest, 4)), &rest[8..])
    };
    let altered = if rest == behind(words, rest.len() - 8 * words) { "" } else { ",altered" };
    match first & 3 {
        0 | 1 => {
            let credit = if credit.is_empty() { credit } else { format!(",{credit}") };
            let (bytes, room) = (rest.len() - 8 * words, u16_at(message, 2));
            format!("{name}({handler},{words},{bytes},{room}{credit}{altered})")
        }
        2 => format!("{name}({credit}{altered})"),
        _ => format!("{name}{altered}"),
    }
}

/// Arguments and payload, which are known by their lengths.
fn behind(words: usize, bytes: usize) -> Vec<u8> {
    let len = 8 * words + bytes;
    (0..len).map(|at| content(len, at)).collect()
}

fn split(words: usize, bytes: usize) -> (Vec<u64>, Vec<u8>) {
    let all = behind(words, bytes);
    let (args, payload) = all.split_at(8 * words);
    let args = args.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    (args.collect(), payload.to_vec())
}

/// What handlers have been called with, in words.
pub type Ran = VecDeque<String>;

fn told(what: &str, handler: u8, args: Args<'_>, payload: &[u8]) -> String {
    let args: Vec<u64> = args.iter().collect();
    let sound = split(args.len(), payload.len()) == (args.clone(), payload.to_vec());
    let altered = if sound { "" } else { ",altered" };
    format!("{what}({handler},{},{}{altered})", args.len(), payload.len())
}

/// Of requests 0 does nothing, 1 replies with what it got. Replies are 1.
fn handlers() -> Handlers<Ran> {
    Handlers::new()
        .request(0, |ran: &mut Ran, _: Replier<'_>, args, payload| ran.push_back(told("Request", 0, args, payload)))
        .request(1, |ran: &mut Ran, replier: Replier<'_>, args, payload| {
            let words: Vec<u64> = args.iter().collect();
            let refused = replier.reply(1, &words, payload).err().map_or(String::new(), |error| format!(":{error:?}"));
            ran.push_back(told("Request", 1, args, payload) + &refused);
        })
        .reply(1, |ran: &mut Ran, _: PeerId, args, payload| ran.push_back(told("Reply", 1, args, payload)))
}

/// An endpoint, as its user has it.
pub enum User {
    Plain(Box<Endpoint<ScriptNic>>),
    Active(Box<ActiveMessages<ScriptNic, Ran>>, Ran),
}

impl User {
    pub fn active(endpoint: Endpoint<ScriptNic>) -> Self {
        Self::Active(Box::new(ActiveMessages::new(endpoint, handlers())), Ran::new())
    }

    /// The messages, and which handlers ran.
    pub fn am(&mut self) -> (&mut ActiveMessages<ScriptNic, Ran>, &mut Ran) {
        match self {
            Self::Active(am, ran) => (am, ran),
            Self::Plain(_) => panic!("`config active=true` is missing"),
        }
    }

    pub fn poll(&mut self) -> usize {
        match self {
            Self::Plain(endpoint) => endpoint.poll(),
            Self::Active(am, ran) => am.poll(ran),
        }
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Plain(endpoint) => endpoint.poll_event(),
            Self::Active(am, _) => am.poll_event(),
        }
    }

    pub fn close(&mut self, peer: PeerId) {
        match self {
            Self::Plain(endpoint) => endpoint.close(peer),
            Self::Active(am, _) => am.close(peer),
        }
    }

    /// `request HANDLER WORDS BYTES ROOM`.
    pub fn request(&mut self, peer: PeerId, words: &[&str]) -> Result<(), SendError> {
        let value = |at: usize| number(words[at]) as usize;
        let (args, payload) = split(value(1), value(2));
        // The room of a reply: its record, and a credit on it.
        let payload_max = (8 * value(3)).checked_sub(RECORD);
        let room = payload_max.map_or(ReplyRoom::NONE, |payload_max| ReplyRoom::medium(0, payload_max));
        self.am().0.request(peer, value(0) as u8, &args, &payload, room)
    }
}

/// What a reply takes besides its arguments and its payload: the record's header, its own, and a credit.
const RECORD: usize = 4 + 4 + 8;

impl Deref for User {
    type Target = Endpoint<ScriptNic>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Plain(endpoint) => endpoint,
            Self::Active(am, _) => am.endpoint(),
        }
    }
}

impl DerefMut for User {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Plain(endpoint) => endpoint,
            Self::Active(am, _) => am.endpoint_mut(),
        }
    }
}
