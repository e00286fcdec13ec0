//! What devices say to each other. A record is one message of the protocol, and has this on the wire:
//!
//! | offset | bytes | field | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 1 | kind | see [`kind`] |
//! | 1 | 1 | | 0 |
//! | 2 | 2 | credit | units of eager credit given back to who gets this record ([`super::credit`]) |
//!
//! Eager, Begin and Announce go on with the message's envelope, the others with four zeros:
//!
//! | offset | bytes | field | meaning |
//! | --- | --- | --- | --- |
//! | 4 | 4 | context | of the communicator |
//! | 8 | 4 | source | rank of the sender in it |
//! | 12 | 4 | tag | |
//!
//! Then, by kind (`send` and `receive` name a request of the sender's or the receiver's, 8 bytes each):
//!
//! | kind | bytes | behind it |
//! | --- | --- | --- |
//! | Eager | 16 | the whole message |
//! | Begin | 24 | length (8), then the message's first part; no other message begins before its last Part |
//! | Part | 16 | offset (8), then the bytes from there on of the message that was begun |
//! | Announce | 40 | send, length (8), address of what is missing (8; 0: none is told), then the message's first bytes |
//! | Accept | 64 | send, receive, offset (8), bytes wanted from there on (8), zeros (4), key to put them by (20; zeros: send Data) |
//! | Share | 72 | send, address of the room for what is missing (8), offset of that (8), bytes wanted (8), line (1), zero (1), number (2), zeros (4), ticket of the board (24): see [`super::shared_copy`] |
//! | Data | 24 | receive, offset (8), then the message's bytes from there on |
//! | Finished | 16 | receive: all was put |
//! | Taken | 16 | send: the receiver has all that it wants |
//! | Cancel | 16 | send: forget it, if nothing has matched it |
//! | Cancelled | 16 | send: it was forgotten |
//! | Refused | 16 | send: its context was revoked, or nobody is there to receive any more |
//! | Credit | 8 | |
//!
//! Numbers are little-endian.

use sidelane_nic::share::Ticket;
use sidelane_proto::RemoteKey;

use super::envelope::Envelope;
use super::shared_copy::Place;

/// Kinds of records.
mod kind {
    pub const EAGER: u8 = 1;
    pub const ANNOUNCE: u8 = 2;
    pub const ACCEPT: u8 = 3;
    pub const DATA: u8 = 4;
    pub const FINISHED: u8 = 5;
    pub const TAKEN: u8 = 6;
    pub const CANCEL: u8 = 7;
    pub const CANCELLED: u8 = 8;
    pub const REFUSED: u8 = 9;
    pub const CREDIT: u8 = 10;
    pub const BEGIN: u8 = 11;
    pub const PART: u8 = 12;
    pub const SHARE: u8 = 13;
}

/// Bytes before an eager message's payload.
pub(super) const EAGER_LEN: usize = 16;
/// Bytes before the first part of a message in parts.
pub(super) const BEGIN_LEN: usize = EAGER_LEN + 8;
/// Bytes before what comes along with an announcement.
pub(super) const ANNOUNCE_LEN: usize = EAGER_LEN + 24;
const ACCEPT_LEN: usize = NOTE_LEN + 28 + RemoteKey::LEN;
const SHARE_LEN: usize = NOTE_LEN + 32 + Ticket::LEN;
const DATA_LEN: usize = NOTE_LEN + 8;
const NOTE_LEN: usize = 16;
const CREDIT_LEN: usize = 8;
const _: () = assert!(ANNOUNCE_LEN == 40 && ACCEPT_LEN == 64 && SHARE_LEN == 72 && DATA_LEN == 24);

/// What a record with nothing but a request's name says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Note {
    Finished,
    Taken,
    Cancel,
    Cancelled,
    Refused,
}

/// The receiver of an announced message wants `want` bytes from `at` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Accept {
    pub send: u64,
    pub receive: u64,
    pub at: u64,
    pub want: u64,
    /// To put them by.
    pub key: Option<RemoteKey>,
}

/// The receiver of an announced message reads `want` bytes from `at` on, and lets the sender write some of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    pub send: u64,
    /// Address of the room for them.
    pub room: u64,
    pub at: u64,
    pub want: u64,
    /// Where on the board the words of their pieces are.
    pub place: Place,
}

/// What came before a message's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Announce {
    pub send: u64,
    pub len: u64,
    /// Where the bytes behind those that came are in the sender's memory; 0 if that is not told.
    pub address: u64,
}

/// A record as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record<'a> {
    Unasked(Unasked<'a>),
    Announce { key: Envelope, announce: Announce, bytes: &'a [u8] },
    Accept(Accept),
    Share(Share, Ticket),
    Data { receive: u64, at: u64, bytes: &'a [u8] },
    Note { note: Note, request: u64 },
    Credit,
}

/// What a sender does not ask before it sends, with the message's bytes in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unasked<'a> {
    Eager { key: Envelope, bytes: &'a [u8] },
    Begin { key: Envelope, len: u64, bytes: &'a [u8] },
    Part { at: u64, bytes: &'a [u8] },
}

/// The credit that an eager message's record brings, its key and its bytes. `None`: it is another record, or cannot be read. Not of what
/// another process may be writing: [`parse_shared`].
#[inline]
pub(super) fn parse_eager(message: &[u8]) -> Option<(u16, Envelope, &[u8])> {
    let (head, bytes) = message.split_first_chunk::<EAGER_LEN>()?;
    let key = key_of(head).filter(|_| head[0] == kind::EAGER)?;
    Some((u16::from_le_bytes([head[2], head[3]]), key, bytes))
}

/// The credit that a record brings, and the record. `None`: it cannot be read.
pub(super) fn parse(message: &[u8]) -> Option<(u16, Record<'_>)> {
    let head: &[u8; 4] = message.first_chunk()?;
    if matches!(head[0], kind::EAGER | kind::BEGIN | kind::PART) {
        return parse_shared(message).map(|(credit, unasked)| (credit, Record::Unasked(unasked)));
    }
    let credit = u16::from_le_bytes([head[2], head[3]]);
    parse_other(head[0], message).map(|record| (credit, record))
}

/// As [`parse`], of what is sent unasked; another process may be writing it while it is looked at.
pub(super) fn parse_shared(message: &[u8]) -> Option<(u16, Unasked<'_>)> {
    let (head, bytes) = message.split_first_chunk::<EAGER_LEN>()?;
    // From here on it is what was read, whatever stands there.
    let head = *head;
    let unasked = match head[0] {
        kind::EAGER => Unasked::Eager { key: key_of(&head)?, bytes },
        kind::BEGIN => {
            let (len, bytes) = bytes.split_first_chunk()?;
            Unasked::Begin { key: key_of(&head)?, len: u64::from_le_bytes(*len), bytes }
        }
        kind::PART => Unasked::Part { at: word(&head, 8)?, bytes },
        _ => return None,
    };
    Some((u16::from_le_bytes([head[2], head[3]]), unasked))
}

fn parse_other(kind: u8, message: &[u8]) -> Option<Record<'_>> {
    let note = |note| {
        let request = word(message, 8)?;
        (message.len() == NOTE_LEN).then_some(Record::Note { note, request })
    };
    match kind {
        kind::ANNOUNCE => {
            let (head, bytes) = message.split_first_chunk::<ANNOUNCE_LEN>()?;
            let announce = Announce { send: word(head, 16)?, len: word(head, 24)?, address: word(head, 32)? };
            let fits = bytes.len() as u64 <= announce.len && usize::try_from(announce.len).is_ok();
            let key = key_of(head.first_chunk()?)?;
            fits.then_some(Record::Announce { key, announce, bytes })
        }
        kind::ACCEPT if message.len() == ACCEPT_LEN => {
            let key: &[u8; RemoteKey::LEN] = message.last_chunk()?;
            let key = (*key != [0; RemoteKey::LEN]).then(|| RemoteKey::from_bytes(*key));
            let [send, receive, at, want] = [8, 16, 24, 32].map(|offset| word(message, offset));
            Some(Record::Accept(Accept { send: send?, receive: receive?, at: at?, want: want?, key }))
        }
        kind::SHARE if message.len() == SHARE_LEN => {
            let [send, room, at, want] = [8, 16, 24, 32].map(|offset| word(message, offset));
            let [line, _, low, high] = *message[40..].first_chunk()?;
            let place = Place { line, number: u16::from_le_bytes([low, high]) };
            let share = Share { send: send?, room: room?, at: at?, want: want?, place };
            Some(Record::Share(share, Ticket::from_bytes(*message.last_chunk()?)))
        }
        kind::DATA => {
            let (head, bytes) = message.split_first_chunk::<DATA_LEN>()?;
            Some(Record::Data { receive: word(head, 8)?, at: word(head, 16)?, bytes })
        }
        kind::FINISHED => note(Note::Finished),
        kind::TAKEN => note(Note::Taken),
        kind::CANCEL => note(Note::Cancel),
        kind::CANCELLED => note(Note::Cancelled),
        kind::REFUSED => note(Note::Refused),
        kind::CREDIT => (message.len() == CREDIT_LEN).then_some(Record::Credit),
        _ => None,
    }
}

/// The front of an eager message; the payload follows.
#[inline]
pub(super) const fn eager(envelope: Envelope, credit: u16) -> [u8; EAGER_LEN] {
    let (context, high) = envelope.to_words();
    let low = kind::EAGER as u64 | (credit as u64) << 16 | (context as u64) << 32;
    // Two words: what is written in one piece is read in one (`proto`'s copy.rs).
    (low as u128 | (high as u128) << 64).to_le_bytes()
}

/// The front of a message of `len` bytes in parts; the first one follows.
pub(super) fn begin(key: Envelope, credit: u16, len: u64) -> [u8; BEGIN_LEN] {
    let mut out = [0; BEGIN_LEN];
    out[..EAGER_LEN].copy_from_slice(&eager(key, credit));
    out[0] = kind::BEGIN;
    put_words(&mut out[EAGER_LEN..], [len]);
    out
}

/// The front of the part from `at` on of the message that was begun; the part follows.
pub(super) fn part(credit: u16, at: u64) -> [u8; NOTE_LEN] {
    with_word(kind::PART, credit, at)
}

/// The front of an announcement; the message's first bytes follow.
pub(super) fn announce(key: Envelope, credit: u16, Announce { send, len, address }: Announce) -> [u8; ANNOUNCE_LEN] {
    let mut out = [0; ANNOUNCE_LEN];
    out[..EAGER_LEN].copy_from_slice(&eager(key, credit));
    out[0] = kind::ANNOUNCE;
    put_words(&mut out[EAGER_LEN..], [send, len, address]);
    out
}

/// The whole of an Accept.
pub(super) fn accept(credit: u16, Accept { send, receive, at, want, key }: Accept) -> [u8; ACCEPT_LEN] {
    let mut out = [0; ACCEPT_LEN];
    out[..8].copy_from_slice(&front(kind::ACCEPT, credit));
    put_words(&mut out[8..], [send, receive, at, want]);
    if let Some(key) = key {
        out[ACCEPT_LEN - RemoteKey::LEN..].copy_from_slice(&key.to_bytes());
    }
    out
}

/// The whole of a Share.
pub(super) fn share(credit: u16, Share { send, room, at, want, place }: Share, board: Ticket) -> [u8; SHARE_LEN] {
    let mut out = [0; SHARE_LEN];
    out[..8].copy_from_slice(&front(kind::SHARE, credit));
    put_words(&mut out[8..], [send, room, at, want, u64::from(place.line) | u64::from(place.number) << 16]);
    out[SHARE_LEN - Ticket::LEN..].copy_from_slice(&board.to_bytes());
    out
}

/// The front of a part of a message; the part follows.
pub(super) fn data(credit: u16, receive: u64, at: u64) -> [u8; DATA_LEN] {
    let mut out = [0; DATA_LEN];
    out[..8].copy_from_slice(&front(kind::DATA, credit));
    put_words(&mut out[8..], [receive, at]);
    out
}

/// The whole of a note.
pub(super) fn note(credit: u16, note: Note, request: u64) -> [u8; NOTE_LEN] {
    let kind = match note {
        Note::Finished => kind::FINISHED,
        Note::Taken => kind::TAKEN,
        Note::Cancel => kind::CANCEL,
        Note::Cancelled => kind::CANCELLED,
        Note::Refused => kind::REFUSED,
    };
    with_word(kind, credit, request)
}

fn with_word(kind: u8, credit: u16, word: u64) -> [u8; NOTE_LEN] {
    let mut out = [0; NOTE_LEN];
    out[..8].copy_from_slice(&front(kind, credit));
    put_words(&mut out[8..], [word]);
    out
}

/// Nothing but credit.
pub(super) const fn credit(credit: u16) -> [u8; CREDIT_LEN] {
    front(kind::CREDIT, credit)
}

const fn front(kind: u8, credit: u16) -> [u8; 8] {
    (kind as u64 | (credit as u64) << 16).to_le_bytes()
}

fn put_words<const N: usize>(out: &mut [u8], words: [u64; N]) {
    for (place, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
}

/// `None` where a tag stands that only receives may have.
#[inline]
fn key_of(head: &[u8; EAGER_LEN]) -> Option<Envelope> {
    // Two words, as they were written: a load across both would wait for them (bench/NOTES.md 73).
    let [low, high] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte])));
    let envelope = Envelope::from_words((low >> 32) as u32, high);
    (!envelope.has_wildcard()).then_some(envelope)
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Envelope = Envelope::new(0x0102_0304, 5, -7);

    #[test]
    fn every_record_reads_back() {
        let with = |front: &[u8]| [front, b"bytes"].concat();
        let unasked = |record| (7, Record::Unasked(record));
        for (front, read) in [
            (&eager(KEY, 7)[..], Unasked::Eager { key: KEY, bytes: b"bytes" }),
            (&begin(KEY, 7, 1 << 33), Unasked::Begin { key: KEY, len: 1 << 33, bytes: b"bytes" }),
            (&part(7, 1 << 32), Unasked::Part { at: 1 << 32, bytes: b"bytes" }),
        ] {
            assert_eq!(parse(&with(front)), Some(unasked(read)));
            assert_eq!(parse_shared(&with(front)), Some((7, read)));
            assert_eq!(parse_shared(&front[..front.len() - 1]), None);
        }
        assert_eq!((parse_shared(&with(&data(0, 8, 9))), parse_shared(&[])), (None, None));
        let told = Announce { send: 1 << 40, len: 100, address: 9 };
        let key = RemoteKey::from_bytes([3; RemoteKey::LEN]);
        let accepted = |key| Accept { send: 1, receive: 2, at: 3, want: 4, key };
        assert_eq!(
            parse(&with(&announce(KEY, 0xffff, told))),
            Some((0xffff, Record::Announce { key: KEY, announce: told, bytes: b"bytes" }))
        );
        for key in [None, Some(key)] {
            assert_eq!(parse(&accept(1, accepted(key))), Some((1, Record::Accept(accepted(key)))));
        }
        let place = Place { line: 200, number: 0x1234 };
        let shared = Share { send: 1 << 63, room: 2 << 40, at: 3, want: 4, place };
        let ticket = Ticket::from_bytes(std::array::from_fn(|at| at as u8));
        assert_eq!(parse(&share(9, shared, ticket)), Some((9, Record::Share(shared, ticket))));
        assert_eq!(parse(&with(&share(9, shared, ticket))), None);
        assert_eq!(parse(&with(&data(0, 8, 9))), Some((0, Record::Data { receive: 8, at: 9, bytes: b"bytes" })));
        for said in [Note::Finished, Note::Taken, Note::Cancel, Note::Cancelled, Note::Refused] {
            assert_eq!(parse(&note(2, said, 77)), Some((2, Record::Note { note: said, request: 77 })));
        }
        assert_eq!(parse(&credit(300)), Some((300, Record::Credit)));
    }

    #[test]
    fn an_announcement_shorter_than_what_it_brings_is_refused() {
        let front = announce(KEY, 0, Announce { send: 0, len: 4, address: 0 });
        assert_eq!(parse(&[&front[..], b"bytes"].concat()), None);
    }

    #[test]
    fn a_wildcard_on_the_wire_is_refused() {
        for key in [KEY.with_tag(i32::MIN), Envelope::new(1, u32::MAX, 5)] {
            assert_eq!((parse(&eager(key, 0)), parse(&begin(key, 0, 9))), (None, None));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0u8..15) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let read = parse(&bytes);
            let shared = parse_shared(&bytes).map(|(credit, unasked)| (credit, Record::Unasked(unasked)));
            prop_assert!(shared.is_none() || shared == read);
            let eager = parse_eager(&bytes).map(|(credit, key, bytes)| (credit, Record::Unasked(Unasked::Eager { key, bytes })));
            prop_assert_eq!(eager, read.filter(|(_, record)| matches!(record, Record::Unasked(Unasked::Eager { .. }))));
        }
    }
}
