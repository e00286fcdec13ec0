//! What an origin asks of a target: the wire format.
//!
//! | offset | bytes | field | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 1 | kind | see [`Kind`] |
//! | 1 | 1 | detail | of accumulates the operator's place in [`Op::PREDEFINED`]; of `Lock` 1 if it is exclusive, 2 if it is one of all targets' |
//! | 2 | 2 | element | of accumulates the predefined type, by its handle in the standard ABI |
//! | 4 | 4 | number | the tag of the answer; long data of a put has its complement |
//! | 8 | 8 | displacement | in the target's units |
//! | 16 | 8 | bytes | how many bytes are accessed |
//! | 24 | 4 | runs | how many runs they are |
//! | 28 | 4 | | 0 |
//!
//! Then 16 bytes for each run, begin relative to the displacement and length, and then data. Numbers are little-endian.
//!
//! | kind | data | answer |
//! | --- | --- | --- |
//! | Put | what is put | none |
//! | PutLong | none: it follows as a message of its own | none |
//! | Get | none | what is there; nothing if that was refused |
//! | Accumulate | the origin's operand | none |
//! | GetAccumulate | the origin's operand | what was there; nothing if that was refused |
//! | CompareSwap | what is compared, what is put | what was there; nothing if that was refused |
//! | Lock | none | nothing, once it is granted |
//! | Flush | none | one byte, once all before is done: the first error since the last of these |
//! | Unlock | none | the same; what was got has left the window then too |

use crate::datatype::Predefined;
use crate::op::Op;

use super::members::tag;
use super::runs::Run;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Put = 1,
    PutLong = 2,
    Get = 3,
    Accumulate = 4,
    GetAccumulate = 5,
    CompareSwap = 6,
    Lock = 7,
    Unlock = 8,
    Flush = 9,
}

/// The fixed part of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub kind: Kind,
    pub detail: u8,
    pub element: Option<Predefined>,
    pub number: i32,
    pub displacement: i64,
    pub bytes: u64,
}

/// A request as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request<'a> {
    pub head: Head,
    runs: &'a [[u8; RUN_LEN]],
    pub data: &'a [u8],
}

impl Head {
    /// Writes a request into `out`, whose bytes are lost.
    pub fn write(&self, runs: &[Run], data: &[&[u8]], out: &mut Vec<u8>) {
        out.clear();
        out.push(self.kind as u8);
        out.push(self.detail);
        out.extend_from_slice(&self.element.map_or(0, |element| element as u16).to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.displacement.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&(runs.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for run in runs {
            out.extend_from_slice(&run.at.to_le_bytes());
            out.extend_from_slice(&run.len.to_le_bytes());
        }
        data.iter().for_each(|part| out.extend_from_slice(part));
    }
}

impl<'a> Request<'a> {
    /// Reads a request; `None` of what is none.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>()?;
        let two = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let four = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let eight = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let kinds = [
            Kind::Put,
            Kind::PutLong,
            Kind::Get,
            Kind::Accumulate,
            Kind::GetAccumulate,
            Kind::CompareSwap,
            Kind::Lock,
            Kind::Unlock,
            Kind::Flush,
        ];
        let head = Head {
            kind: kinds.into_iter().find(|kind| *kind as u8 == head[0])?,
            detail: head[1],
            element: match two(2) {
                0 => None,
                handle => Some(Predefined::from_abi(handle.into())?),
            },
            number: four(4) as i32,
            displacement: eight(8) as i64,
            bytes: eight(16),
        };
        let runs = four(24) as usize;
        let (runs, data) = rest.split_at_checked(runs.checked_mul(RUN_LEN)?)?;
        (0..tag::NUMBERS as i32).contains(&head.number).then_some(Self { head, runs: runs.as_chunks().0, data })
    }

    pub fn runs(&self) -> impl ExactSizeIterator<Item = Run> {
        self.runs.iter().map(|run| Run {
            at: i64::from_le_bytes(std::array::from_fn(|i| run[i])),
            len: u64::from_le_bytes(std::array::from_fn(|i| run[8 + i])),
        })
    }

    /// The operator of an accumulate.
    pub fn op(&self) -> Option<&'static Op> {
        Op::PREDEFINED.get(usize::from(self.head.detail))
    }
}

/// Bytes before the runs.
pub(super) const HEAD_LEN: usize = 32;
/// Bytes of a run.
pub(super) const RUN_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: Head = Head {
        kind: Kind::Accumulate,
        detail: 1,
        element: Some(Predefined::Double),
        number: 77,
        displacement: -3,
        bytes: 16,
    };

    #[test]
    fn a_request_reads_back_as_it_was_written() {
        let (runs, mut bytes) = ([Run { at: -8, len: 12 }, Run { at: 100, len: 4 }], Vec::new());
        HEAD.write(&runs, &[b"0123", b"456789abcdef"], &mut bytes);
        let request = Request::parse(&bytes).unwrap();
        assert_eq!((request.head, request.data), (HEAD, &b"0123456789abcdef"[..]));
        assert!(request.runs().eq(runs));
        assert_eq!(request.op(), Some(&Op::Min));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_request_read_beyond_them(mut bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(kind) = bytes.first_mut() {
                *kind %= 12;
            }
            if let Some(request) = Request::parse(&bytes) {
                prop_assert_eq!(HEAD_LEN + request.runs().len() * RUN_LEN + request.data.len(), bytes.len());
            }
        }
    }
}
