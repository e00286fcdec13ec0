//! Records: what a Data frame carries. Several to one peer share a frame.

use super::{u16_at, u32_at};
use crate::copy::copy_words;
use crate::counters::Reject;

mod field {
    pub const KIND: usize = 0;
    /// Bytes of payload behind the record's header.
    pub const LEN: usize = 2;
    /// Bytes of the whole message; only in First.
    pub const TOTAL: usize = 4;
}

/// Length of a record's header. Byte 1 is reserved and zero.
pub(crate) const RECORD_LEN: usize = 4;
/// Length of a First record's header.
pub(crate) const FIRST_LEN: usize = 8;

const MESSAGE: u8 = 1;
const FIRST: u8 = 2;
const MORE: u8 = 3;
const CLOSE: u8 = 4;

/// One record, as a receiver reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record<'a> {
    /// A whole message.
    Message(&'a [u8]),
    /// The first bytes of a message of `total` bytes.
    First { total: u32, part: &'a [u8] },
    /// The next bytes of the message that First began.
    More(&'a [u8]),
    /// Nothing follows in this direction.
    Close,
}

/// The header of a record with a whole message of `len` bytes, for who writes it as one word with what follows.
#[inline]
pub(crate) const fn message_word(len: u16) -> u32 {
    MESSAGE as u32 | (len as u32) << 16
}

/// Writes a whole message. Header and first bytes are one store, since they are read as one word next.
#[inline]
pub(crate) fn put_message(out: &mut [u8], message: &[u8]) {
    let [low, high] = (message.len() as u16).to_le_bytes();
    if let (Some((first, rest)), Some((word, out))) =
        (message.split_first_chunk::<4>(), out.split_first_chunk_mut::<8>())
    {
        let [a, b, c, d] = *first;
        *word = [MESSAGE, 0, low, high, a, b, c, d];
        copy_words(out, rest);
    } else {
        put(out, MESSAGE, message.len() as u16);
        out[RECORD_LEN..].copy_from_slice(message);
    }
}

/// Writes a whole message that is `front` and then `rest`.
#[inline]
pub(crate) fn put_message_of_two<const N: usize>(out: &mut [u8], front: &[u8; N], rest: &[u8]) {
    const { assert!(N >= 8 && N.is_multiple_of(8)) };
    let [low, high] = ((N + rest.len()) as u16).to_le_bytes();
    let (Some((rest_first, rest_last)), Some((head, tail))) =
        (rest.split_first_chunk::<4>(), front.split_first_chunk::<4>())
    else {
        put(out, MESSAGE, (N + rest.len()) as u16);
        out[RECORD_LEN..RECORD_LEN + N].copy_from_slice(front);
        out[RECORD_LEN + N..].copy_from_slice(rest);
        return;
    };
    // In the words in which the record is read next, as in `put_message`.
    let (words, out) = out.split_at_mut(N + 8);
    let words = words.as_chunks_mut::<8>().0;
    let [a, b, c, d] = *head;
    words[0] = [MESSAGE, 0, low, high, a, b, c, d];
    let (middle, end) = tail.as_chunks::<8>();
    for (word, bytes) in words[1..].iter_mut().zip(middle) {
        *word = *bytes;
    }
    let ([a, b, c, d], [e, f, g, h]) = (*end.first_chunk::<4>().expect("a multiple of 8, less 4"), *rest_first);
    words[N / 8] = [a, b, c, d, e, f, g, h];
    copy_words(out, rest_last);
}

/// Writes the header of the first `len` bytes of a message of `total`.
#[inline]
pub(crate) fn put_first(out: &mut [u8], len: u16, total: u32) {
    put(out, FIRST, len);
    out[field::TOTAL..field::TOTAL + 4].copy_from_slice(&total.to_le_bytes());
}

/// Writes the header of the next `len` bytes of a message.
#[inline]
pub(crate) fn put_more(out: &mut [u8], len: u16) {
    put(out, MORE, len);
}

/// Writes a Close record.
pub(crate) fn put_close(out: &mut [u8]) {
    put(out, CLOSE, 0);
}

#[inline]
fn put(out: &mut [u8], kind: u8, len: u16) {
    let [low, high] = len.to_le_bytes();
    out[..RECORD_LEN].copy_from_slice(&[kind, 0, low, high]);
}

/// True if `body` begins as one of whole messages does, or with Close.
#[inline]
pub(crate) fn is_whole_messages(body: &[u8]) -> bool {
    matches!(body.first(), Some(&(MESSAGE | CLOSE)))
}

/// True if `body` is one message from end to end.
#[inline]
pub(crate) fn is_lone_message(body: &[u8]) -> bool {
    matches!(body, [MESSAGE, _, low, high, message @ ..]
        if usize::from(u16::from_le_bytes([*low, *high])) == message.len())
}

/// How many bytes a body of `len` bytes that begins with `front` continues a message with, if it does nothing else.
#[inline]
pub(crate) fn more_len(front: &[u8], len: usize) -> Option<usize> {
    let &[MORE, _, low, high] = front.first_chunk()? else { return None };
    let part = usize::from(u16::from_le_bytes([low, high]));
    (RECORD_LEN + part == len).then_some(part)
}

/// Walks the records of a frame's body; ends after the first that cannot be read.
pub(crate) struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Records in `body`, in order.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Reject>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = split_record(self.rest);
        self.rest = parsed.map_or(&[], |(_, rest)| rest);
        Some(parsed.map(|(record, _)| record))
    }
}

#[inline]
fn split_record(bytes: &[u8]) -> Result<(Record<'_>, &[u8]), Reject> {
    if bytes.len() < RECORD_LEN {
        return Err(Reject::Malformed);
    }
    let kind = bytes[field::KIND];
    let header = if kind == FIRST { FIRST_LEN } else { RECORD_LEN };
    let len = u16_at(bytes, field::LEN) as usize;
    if bytes.len() < header + len {
        return Err(Reject::Malformed);
    }
    let (whole, rest) = bytes.split_at(header + len);
    let payload = &whole[header..];
    let record = match kind {
        MESSAGE => Record::Message(payload),
        FIRST => Record::First { total: u32_at(bytes, field::TOTAL), part: payload },
        MORE => Record::More(payload),
        CLOSE if len == 0 => Record::Close,
        _ => return Err(Reject::Malformed),
    };
    Ok((record, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records_read_back_in_order() {
        let mut body = Vec::new();
        for len in [0u16, 1, 300] {
            let at = body.len();
            body.resize(at + RECORD_LEN + len as usize, 0);
            put_message(&mut body[at..], &vec![7; len as usize]);
        }
        let at = body.len();
        body.resize(at + FIRST_LEN + 2, 8);
        put_first(&mut body[at..], 2, 99);
        let at = body.len();
        body.resize(at + RECORD_LEN, 0);
        put_close(&mut body[at..]);
        let read: Vec<_> = Records::new(&body).map(Result::unwrap).collect();
        assert_eq!(read[0], Record::Message(&[]));
        assert_eq!(read[2], Record::Message(&[7; 300]));
        assert_eq!(read[3], Record::First { total: 99, part: &[8, 8] });
        assert_eq!(read[4], Record::Close);
    }

    #[test]
    fn a_close_has_nothing_in_it() {
        let mut body = [0; RECORD_LEN + 1];
        put_close(&mut body[..RECORD_LEN]);
        body[field::LEN] = 1;
        assert_eq!(Records::new(&body).next(), Some(Err(Reject::Malformed)));
    }

    #[test]
    fn a_message_of_two_parts_reads_as_one() {
        for len in [0usize, 1, 8, 50] {
            let mut body = vec![0; RECORD_LEN + 16 + len];
            put_message_of_two(&mut body, &[1; 16], &vec![2; len]);
            let whole = [vec![1; 16], vec![2; len]].concat();
            assert_eq!(Records::new(&body).next(), Some(Ok(Record::Message(&whole))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_after_at_most_one_error(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let read: Vec<_> = Records::new(&bytes).collect();
            prop_assert!(read.iter().filter(|r| r.is_err()).count() <= 1);
            prop_assert!(read.iter().take(read.len().saturating_sub(1)).all(Result::is_ok));
        }
    }
}
