//! Records of one-sided operations (`crate::rma`). A frame carries these, or messages, or these and then messages.

use sidelane_nic::copy::copy;

use super::record::is_whole_messages;
use super::{RECORD_LEN, u16_at, u32_at, u64_at};
use crate::counters::Reject;
use crate::rma::OpError;

mod field {
    use std::ops::Range;
    pub const KIND: usize = 0;
    pub const FLAGS: usize = 1;
    /// Bytes of payload behind the record's header; 0 where there is none.
    pub const LEN: Range<usize> = 2..4;
    // Put, Get, Atomic.
    pub const REGION: Range<usize> = 4..8;
    pub const KEY: Range<usize> = 8..16;
    pub const OFFSET: Range<usize> = 16..24;
    pub const GET_LEN: Range<usize> = 24..28;
    pub const OPERAND: Range<usize> = 24..32;
    pub const EXPECTED: Range<usize> = 32..40;
    // Answer, Fetched, Done, Refused.
    pub const OP: Range<usize> = 4..8;
    pub const ANSWER_OFFSET: Range<usize> = 8..12;
    pub const VALUE: Range<usize> = 8..16;
    pub const COUNT: Range<usize> = 8..12;
}

/// Length of a Put record's header.
pub(crate) const PUT_LEN: usize = field::OFFSET.end;
/// Length of an Answer record's header.
pub(crate) const ANSWER_LEN: usize = field::ANSWER_OFFSET.end;
const GET_LEN: usize = field::GET_LEN.end;
const ATOMIC_LEN: usize = field::EXPECTED.end;
const FETCHED_LEN: usize = field::VALUE.end;
const DONE_LEN: usize = field::OP.end;
const REFUSED_LEN: usize = field::COUNT.end;
const _: () = assert!(ATOMIC_LEN <= 64, "every frame has room for 64 bytes of body (path.rs)");

const PUT: u8 = 16;
const GET: u8 = 17;
const ATOMIC: u8 = 18;
const ANSWER: u8 = 19;
const FETCHED: u8 = 20;
const DONE: u8 = 21;
const REFUSED: u8 = 22;

/// Bits of a Put's flags; LAST is an Answer's too.
pub(crate) mod put_flags {
    /// The operation's last bytes.
    pub const LAST: u8 = 1 << 0;
    /// Once all of it is in place the region is signalled. Only with LAST.
    pub const SIGNAL: u8 = 1 << 1;
    /// Not to be placed before everything that was sent earlier is.
    pub const ORDERED: u8 = 1 << 2;
    /// The sender wants a Done. Only with LAST.
    pub const DONE: u8 = 1 << 3;
}

const FETCH_ADD: u8 = 0;
const COMPARE_SWAP: u8 = 1;

/// A place in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub region: u32,
    pub key: u64,
    pub offset: u64,
}

/// What an atomic does to a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Add(u64),
    Swap { expected: u64, new: u64 },
}

/// One record, as a receiver reads it and a sender writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation<'a> {
    /// Bytes for a region of the receiver.
    Put { to: Target, flags: u8, bytes: &'a [u8] },
    /// Asks for bytes of a region of the receiver.
    Get { from: Target, len: u32 },
    /// Changes a word of a region of the receiver, once.
    Atomic { at: Target, change: Change },
    /// Bytes of Get number `op`, from its byte `offset` on.
    Answer { op: u32, offset: u32, last: bool, bytes: &'a [u8] },
    /// The word as it was before Atomic number `op`.
    Fetched { op: u32, value: u64 },
    /// Every operation before this number was taken in.
    Done { ops: u32 },
    /// Operations `op..op + count` were not carried out.
    Refused { op: u32, count: u32, why: OpError },
}

/// True when `body` is one of operations, told by its first record.
#[inline]
pub(crate) fn is_operations(body: &[u8]) -> bool {
    body.first().is_some_and(|kind| *kind >= PUT && *kind <= REFUSED)
}

/// The operations at the front of `body`, and the whole messages behind them.
#[inline]
pub(crate) fn split_messages(body: &[u8]) -> Result<(&[u8], &[u8]), Reject> {
    let mut at = 0;
    while let Some(rest) = body.get(at..).filter(|rest| is_operations(rest)) {
        if rest.len() < RECORD_LEN {
            return Err(Reject::Malformed);
        }
        at += operation_len(rest);
    }
    let (operations, messages) = body.split_at_checked(at).ok_or(Reject::Malformed)?;
    // A part of a message is alone in its frame.
    if !messages.is_empty() && !is_whole_messages(messages) {
        Err(Reject::Malformed)
    } else {
        Ok((operations, messages))
    }
}

/// Length of the record at the front of `bytes`, which one of the writers here has written.
#[inline]
pub(crate) fn operation_len(bytes: &[u8]) -> usize {
    header_len(bytes[field::KIND]).unwrap_or(RECORD_LEN) + u16_at(bytes, field::LEN.start) as usize
}

const fn header_len(kind: u8) -> Option<usize> {
    Some(match kind {
        PUT => PUT_LEN,
        GET => GET_LEN,
        ATOMIC => ATOMIC_LEN,
        ANSWER => ANSWER_LEN,
        FETCHED => FETCHED_LEN,
        DONE => DONE_LEN,
        REFUSED => REFUSED_LEN,
        _ => return None,
    })
}

/// Where a body of `len` bytes that begins with `front` goes, with which flags, and how many of its bytes: if it is nothing but one
/// record of a put.
pub(crate) fn lone_put(front: &[u8], len: usize) -> Option<(Target, u8, usize)> {
    let front: &[u8; PUT_LEN] = front.first_chunk()?;
    let bytes = usize::from(u16_at(front, field::LEN.start));
    let is_alone = front[field::KIND] == PUT && PUT_LEN + bytes == len;
    is_alone.then(|| (Target::parse(front), front[field::FLAGS], bytes))
}

/// Writes the header of a Put of `len` bytes.
#[inline]
pub(crate) fn put_put(out: &mut [u8], to: &Target, flags: u8, len: u16) {
    front(out, PUT, flags, len);
    to.emit(out);
}

/// Writes the header of `len` bytes of the answer to Get number `op`.
#[inline]
pub(crate) fn put_answer(out: &mut [u8], op: u32, offset: u32, last: bool, len: u16) {
    front(out, ANSWER, if last { put_flags::LAST } else { 0 }, len);
    out[field::OP].copy_from_slice(&op.to_le_bytes());
    out[field::ANSWER_OFFSET].copy_from_slice(&offset.to_le_bytes());
}

impl Operation<'_> {
    /// Bytes on the wire.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Put { bytes, .. } => PUT_LEN + bytes.len(),
            Self::Get { .. } => GET_LEN,
            Self::Atomic { .. } => ATOMIC_LEN,
            Self::Answer { bytes, .. } => ANSWER_LEN + bytes.len(),
            Self::Fetched { .. } => FETCHED_LEN,
            Self::Done { .. } => DONE_LEN,
            Self::Refused { .. } => REFUSED_LEN,
        }
    }

    /// Writes the record; `out` has [`Self::len`] bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        match *self {
            Self::Put { to, flags, bytes } => {
                put_put(out, &to, flags, bytes.len() as u16);
                copy(&mut out[PUT_LEN..], bytes);
            }
            Self::Get { from, len } => {
                front(out, GET, 0, 0);
                from.emit(out);
                out[field::GET_LEN].copy_from_slice(&len.to_le_bytes());
            }
            Self::Atomic { at, change } => {
                let (what, operand, expected) = match change {
                    Change::Add(value) => (FETCH_ADD, value, 0),
                    Change::Swap { expected, new } => (COMPARE_SWAP, new, expected),
                };
                front(out, ATOMIC, what, 0);
                at.emit(out);
                out[field::OPERAND].copy_from_slice(&operand.to_le_bytes());
                out[field::EXPECTED].copy_from_slice(&expected.to_le_bytes());
            }
            Self::Answer { op, offset, last, bytes } => {
                put_answer(out, op, offset, last, bytes.len() as u16);
                copy(&mut out[ANSWER_LEN..], bytes);
            }
            Self::Fetched { op, value } => {
                front(out, FETCHED, 0, 0);
                out[field::OP].copy_from_slice(&op.to_le_bytes());
                out[field::VALUE].copy_from_slice(&value.to_le_bytes());
            }
            Self::Done { ops } => {
                front(out, DONE, 0, 0);
                out[field::OP].copy_from_slice(&ops.to_le_bytes());
            }
            Self::Refused { op, count, why } => {
                front(out, REFUSED, why.code(), 0);
                out[field::OP].copy_from_slice(&op.to_le_bytes());
                out[field::COUNT].copy_from_slice(&count.to_le_bytes());
            }
        }
    }
}

impl Target {
    #[inline]
    fn parse(bytes: &[u8]) -> Self {
        Self {
            region: u32_at(bytes, field::REGION.start),
            key: u64_at(bytes, field::KEY.start),
            offset: u64_at(bytes, field::OFFSET.start),
        }
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) {
        out[field::REGION].copy_from_slice(&self.region.to_le_bytes());
        out[field::KEY].copy_from_slice(&self.key.to_le_bytes());
        out[field::OFFSET].copy_from_slice(&self.offset.to_le_bytes());
    }

    /// The same place `bytes` further on. One beyond any memory stays beyond it.
    #[inline]
    pub fn plus(self, bytes: usize) -> Self {
        Self { offset: self.offset.saturating_add(bytes as u64), ..self }
    }
}

#[inline]
fn front(out: &mut [u8], kind: u8, flags: u8, len: u16) {
    let [low, high] = len.to_le_bytes();
    out[..RECORD_LEN].copy_from_slice(&[kind, flags, low, high]);
}

/// Walks the records of a frame's body; ends after the first that cannot be read.
pub(crate) struct Operations<'a> {
    rest: &'a [u8],
}

impl<'a> Operations<'a> {
    /// Records in `body`, in order.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, Reject>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = split(self.rest);
        self.rest = read.map_or(&[], |(_, rest)| rest);
        Some(read.map(|(operation, _)| operation))
    }
}

#[inline]
fn split(bytes: &[u8]) -> Result<(Operation<'_>, &[u8]), Reject> {
    if bytes.len() < RECORD_LEN {
        return Err(Reject::Malformed);
    }
    let (kind, flags, len) = (bytes[field::KIND], bytes[field::FLAGS], u16_at(bytes, field::LEN.start) as usize);
    let header = header_len(kind).ok_or(Reject::Malformed)?;
    if bytes.len() < header + len || (len > 0 && kind != PUT && kind != ANSWER) {
        return Err(Reject::Malformed);
    }
    let (whole, rest) = bytes.split_at(header + len);
    let payload = &whole[header..];
    let operation = match kind {
        PUT => Operation::Put { to: Target::parse(whole), flags, bytes: payload },
        GET => Operation::Get { from: Target::parse(whole), len: u32_at(whole, field::GET_LEN.start) },
        ATOMIC => {
            let (operand, expected) = (u64_at(whole, field::OPERAND.start), u64_at(whole, field::EXPECTED.start));
            let change = match flags {
                FETCH_ADD if expected == 0 => Change::Add(operand),
                COMPARE_SWAP => Change::Swap { expected, new: operand },
                _ => return Err(Reject::Malformed),
            };
            Operation::Atomic { at: Target::parse(whole), change }
        }
        ANSWER => Operation::Answer {
            op: u32_at(whole, field::OP.start),
            offset: u32_at(whole, field::ANSWER_OFFSET.start),
            last: flags & put_flags::LAST != 0,
            bytes: payload,
        },
        FETCHED => Operation::Fetched { op: u32_at(whole, field::OP.start), value: u64_at(whole, field::VALUE.start) },
        DONE => Operation::Done { ops: u32_at(whole, field::OP.start) },
        _ => Operation::Refused {
            op: u32_at(whole, field::OP.start),
            count: u32_at(whole, field::COUNT.start),
            why: OpError::from_code(flags).ok_or(Reject::Malformed)?,
        },
    };
    Ok((operation, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn operations_read_back_in_order() {
        let to = Target { region: 7, key: 8 << 40, offset: 9 << 33 };
        let written = [
            Operation::Put { to, flags: put_flags::LAST | put_flags::SIGNAL, bytes: b"eight or" },
            Operation::Put { to, flags: 0, bytes: b"" },
            Operation::Get { from: to, len: u32::MAX },
            Operation::Atomic { at: to, change: Change::Add(u64::MAX) },
            Operation::Atomic { at: to, change: Change::Swap { expected: 3, new: 4 } },
            Operation::Answer { op: 5, offset: 6, last: true, bytes: b"so" },
            Operation::Fetched { op: 7, value: 1 << 63 },
            Operation::Done { ops: 8 },
            Operation::Refused { op: 9, count: 2, why: OpError::Bounds },
        ];
        let mut body = Vec::new();
        for operation in &written {
            let at = body.len();
            body.resize(at + operation.len(), 0xaa);
            operation.emit(&mut body[at..]);
            assert_eq!(operation_len(&body[at..]), operation.len());
        }
        let read: Vec<_> = Operations::new(&body).map(Result::unwrap).collect();
        assert_eq!(read, written);
        assert!(is_operations(&body));
    }

    #[test]
    fn what_no_peer_writes_is_malformed() {
        let at = Target { region: 7, key: 8, offset: 9 };
        let written = |operation: Operation<'_>| {
            let mut body = vec![0; operation.len() + 8];
            operation.emit(&mut body[..operation.len()]);
            (operation.len(), body)
        };
        let read = |body: &[u8]| Operations::new(body).next().unwrap().map(drop);
        let (len, add) = written(Operation::Atomic { at, change: Change::Add(1) });
        assert_eq!(read(&add[..len]), Ok(()));
        for (place, value) in [(field::EXPECTED.start, 1), (field::FLAGS, 0xff), (field::LEN.start, 8)] {
            let mut wrong = add.clone();
            wrong[place] = value;
            assert_eq!(read(&wrong), Err(Reject::Malformed), "byte {place}");
        }
        let (len, mut refused) = written(Operation::Refused { op: 9, count: 2, why: OpError::Bounds });
        refused[field::FLAGS] = 0xff;
        assert_eq!(read(&refused[..len]), Err(Reject::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_end_after_at_most_one_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..256), kind in 15u8..24) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let read: Vec<_> = Operations::new(&bytes).collect();
            prop_assert!(read.iter().filter(|r| r.is_err()).count() <= 1);
            prop_assert!(read.iter().take(read.len().saturating_sub(1)).all(Result::is_ok));
        }
    }
}
