//! How an Active Message stands in its record. `PROTOCOL.md` says in words what stands here in offsets.

use super::args::Args;
use super::budget::ReplyRoom;
use super::counters::Reject;
use crate::copy::copy_words;
use crate::wire::{RECORD_LEN, message_word};

/// The four bytes before an Active Message's arguments. Behind the record's header, which is as long, they leave the
/// arguments on multiples of 8 within the record: each is written and read by one access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub kind: Kind,
    /// A [`Credit`] stands between this and the arguments.
    pub has_credit: bool,
    /// Arguments, at most [`super::ARGS_MAX`].
    pub words: u8,
    /// Index into the receiver's table.
    pub handler: u8,
    /// In a request: what its reply may take. In a reply: what its request gives back. In units of [`UNIT`] bytes.
    pub room: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Runs a handler, which may reply.
    Request = 0,
    /// Runs a handler at the requester. Tells, too, that one more request was handled.
    Reply = 1,
    /// Only gives credit.
    Credit = 2,
    /// Asks for a Credit.
    Ask = 3,
}

/// What a peer learns of its requests that were handled without a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Credit {
    /// Requests handled since the last word of them.
    pub handled: u32,
    /// Units that they give back.
    pub freed: u32,
}

/// Room for replies is counted in these.
pub(crate) const UNIT: usize = 8;
pub(crate) const HEAD_LEN: usize = 4;
pub(crate) const CREDIT_LEN: usize = 8;
const _: () = assert!(RECORD_LEN + HEAD_LEN == 8, "arguments stand on multiples of 8");

/// An Active Message as it was read.
pub(crate) struct Parsed<'a> {
    pub head: Head,
    pub credit: Option<Credit>,
    pub args: Args<'a>,
    pub payload: &'a [u8],
}

impl Head {
    #[inline]
    const fn emit(self) -> u32 {
        let first = self.kind as u32 | (self.has_credit as u32) << 2 | (self.words as u32) << 3;
        first | (self.handler as u32) << 8 | (self.room as u32) << 16
    }

    #[inline]
    fn parse(bytes: [u8; HEAD_LEN]) -> Result<Self, Reject> {
        let [first, handler, low, high] = bytes;
        let words = first >> 3;
        if usize::from(words) > super::ARGS_MAX {
            return Err(Reject::Words);
        }
        let kind = match first & 3 {
            0 => Kind::Request,
            1 => Kind::Reply,
            2 => Kind::Credit,
            _ => Kind::Ask,
        };
        Ok(Self { kind, has_credit: first & 4 != 0, words, handler, room: u16::from_le_bytes([low, high]) })
    }
}

/// Reads a message.
#[inline]
pub(crate) fn parse(message: &[u8]) -> Result<Parsed<'_>, Reject> {
    let Some((head, mut rest)) = message.split_first_chunk() else { return Err(Reject::Truncated) };
    let head = Head::parse(*head)?;
    let mut credit = None;
    if head.has_credit {
        let Some(([a, b, c, d, e, f, g, h], behind)) = rest.split_first_chunk::<CREDIT_LEN>() else {
            return Err(Reject::Truncated);
        };
        credit =
            Some(Credit { handled: u32::from_le_bytes([*a, *b, *c, *d]), freed: u32::from_le_bytes([*e, *f, *g, *h]) });
        rest = behind;
    }
    let Some((args, payload)) = rest.split_at_checked(8 * usize::from(head.words)) else {
        return Err(Reject::Truncated);
    };
    Ok(Parsed { head, credit, args: Args::new(args), payload })
}

/// Length of the record of a message.
#[inline]
pub(crate) const fn record_len(has_credit: bool, words: usize, payload: usize) -> usize {
    RECORD_LEN + HEAD_LEN + if has_credit { CREDIT_LEN } else { 0 } + 8 * words + payload
}

/// Writes a record up to its payload, whose place it returns. The record's length is that of its slice.
#[inline]
pub(crate) fn put<'a>(record: &'a mut [u8], head: Head, credit: Option<Credit>, args: &[u64]) -> &'a mut [u8] {
    let word = u64::from(message_word((record.len() - RECORD_LEN) as u16)) | u64::from(head.emit()) << 32;
    let (first, mut rest) = record.split_first_chunk_mut::<8>().expect("a record has room for its headers");
    *first = word.to_le_bytes();
    if let Some(Credit { handled, freed }) = credit {
        let (place, behind) = rest.split_first_chunk_mut().expect("the record's length allows for it");
        *place = (u64::from(handled) | u64::from(freed) << 32).to_le_bytes();
        rest = behind;
    }
    for arg in args {
        let (place, behind) = rest.split_first_chunk_mut().expect("the record's length allows for it");
        *place = arg.to_le_bytes();
        rest = behind;
    }
    rest
}

/// As [`put`], with the payload.
#[inline]
pub(crate) fn put_whole(record: &mut [u8], head: Head, credit: Option<Credit>, args: &[u64], payload: &[u8]) {
    let place = put(record, head, credit, args);
    if !payload.is_empty() {
        copy_words(place, payload);
    }
}

/// Writes the record of a request, to be sent later by [`super::ActiveMessages::request_kept`].
pub(crate) fn keep_request(record: &mut [u8], handler: u8, args: &[u64], payload: &[u8], reply: ReplyRoom) {
    let head = Head { kind: Kind::Request, has_credit: false, words: args.len() as u8, handler, room: reply.units() };
    put_whole(record, head, None, args, payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_reads_back_as_it_was_written(
            (kind, handler, room, credit) in (0u8..4, any::<u8>(), any::<u16>(), any::<Option<(u32, u32)>>()),
            (args, payload) in (proptest::collection::vec(any::<u64>(), 0..=16), proptest::collection::vec(any::<u8>(), 0..100)),
        ) {
            let credit = credit.map(|(handled, freed)| Credit { handled, freed });
            let kind = [Kind::Request, Kind::Reply, Kind::Credit, Kind::Ask][usize::from(kind)];
            let head = Head { kind, has_credit: credit.is_some(), words: args.len() as u8, handler, room };
            let mut record = vec![0xee; record_len(credit.is_some(), args.len(), payload.len())];
            put_whole(&mut record, head, credit, &args, &payload);
            let mut records = crate::wire::Records::new(&record);
            let Some(Ok(crate::wire::Record::Message(message))) = records.next() else { panic!("no message") };
            prop_assert!(records.next().is_none());
            let parsed = parse(message).unwrap_or_else(|_| panic!("unreadable"));
            prop_assert_eq!((parsed.head, parsed.credit, parsed.payload), (head, credit, &payload[..]));
            prop_assert_eq!(parsed.args.iter().collect::<Vec<_>>(), args);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let why = |bytes: &[u8]| parse(bytes).err();
        assert_eq!(why(&[]), Some(Reject::Truncated));
        assert_eq!(why(&[0, 0, 0]), Some(Reject::Truncated));
        assert_eq!(why(&[17 << 3, 0, 0, 0]), Some(Reject::Words));
        assert_eq!(why(&[1 << 3, 0, 0, 0, 1, 2, 3]), Some(Reject::Truncated), "an argument is cut");
        assert_eq!(why(&[4, 0, 0, 0, 1, 2, 3]), Some(Reject::Truncated), "the credit is cut");
        assert_eq!(why(&[0; 4]), None);
    }
}
