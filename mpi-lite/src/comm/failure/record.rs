//! What processes tell each other of a communicator's failures: the wire format. 64-bit words, little-endian:
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | kind (bits 0 to 7), the communicator's context id (bits 32 to 63) |
//! | 1 | fingerprint of its members |
//! | 2 | number of the agreement (bits 0 to 31); of Locked, the rank that proposed it (bits 32 to 63) |
//! | 3.. | who is alive, 64 ranks a word |
//! | .. | of Locked, Propose and Agreed: who is alive by the verdict |
//! | .. | what is offered, or the verdict's value |
//!
//! Revoke has the first two words only.

use super::agreement::{Verdict, Word};
use super::ranks::Ranks;

/// Which communicator is meant. Two that have the same context id at the same time, in two processes, differ in their members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    pub id: u32,
    pub fingerprint: u64,
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The communicator was revoked.
    Revoke,
    /// A word of the agreement of this number.
    Word { number: u32, alive: Ranks, word: Word },
}

mod kind {
    pub const REVOKE: u8 = 1;
    pub const CALL: u8 = 2;
    pub const OFFER: u8 = 3;
    pub const LOCKED: u8 = 4;
    pub const PROPOSE: u8 = 5;
    pub const ACCEPT: u8 = 6;
    pub const AGREED: u8 = 7;
}

impl Name {
    /// Of members in any order.
    pub fn of(id: u32, members: &[u32]) -> Self {
        // FNV-1a: the offset basis and prime for 64 bits.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let fingerprint = members.iter().flat_map(|process| process.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, mix);
        Self { id, fingerprint }
    }

    /// Whom a record is about; `None` of what is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [first, fingerprint] = [word(bytes, 0)?, word(bytes, 1)?];
        Some(Self { id: (first >> 32) as u32, fingerprint })
    }
}

impl Record {
    pub fn write(&self, name: Name) -> Box<[u8]> {
        let head = |kind: u8| [u64::from(kind) | u64::from(name.id) << 32, name.fingerprint];
        let words = match self {
            Self::Revoke => head(kind::REVOKE).to_vec(),
            Self::Word { number, alive, word } => {
                let (kind, by, verdict, value) = match word {
                    Word::Call => (kind::CALL, 0, None, &[][..]),
                    Word::Offer(value) => (kind::OFFER, 0, None, &value[..]),
                    Word::Locked(by, verdict) => (kind::LOCKED, *by as u64, Some(&verdict.alive), &verdict.value[..]),
                    Word::Propose(verdict) => (kind::PROPOSE, 0, Some(&verdict.alive), &verdict.value[..]),
                    Word::Accept => (kind::ACCEPT, 0, None, &[][..]),
                    Word::Agreed(verdict) => (kind::AGREED, 0, Some(&verdict.alive), &verdict.value[..]),
                };
                let number = [u64::from(*number) | by << 32];
                [&head(kind)[..], &number, alive.words(), verdict.map_or(&[], Ranks::words), value].concat()
            }
        };
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads a record about a communicator of `size` members; `None` of what is none.
    pub fn read(bytes: &[u8], size: usize) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (head, rest) = words.split_at_checked(2)?;
        let kind = head[0] as u8;
        if kind == kind::REVOKE {
            return rest.is_empty().then_some(Self::Revoke);
        }
        let (number, rest) = rest.split_first()?;
        let (alive, rest) = rest.split_at_checked(size.div_ceil(64))?;
        let alive = Ranks::from_words(alive, size)?;
        let by = (number >> 32) as usize;
        let verdict = || {
            let (alive, value) = rest.split_at_checked(size.div_ceil(64))?;
            Some(Verdict { alive: Ranks::from_words(alive, size)?, value: value.to_vec() })
        };
        let word = match kind {
            kind::CALL if rest.is_empty() => Word::Call,
            kind::OFFER => Word::Offer(rest.to_vec()),
            kind::LOCKED if by < size => Word::Locked(by, verdict()?),
            kind::PROPOSE => Word::Propose(verdict()?),
            kind::ACCEPT if rest.is_empty() => Word::Accept,
            kind::AGREED => Word::Agreed(verdict()?),
            _ => return None,
        };
        Some(Self::Word { number: *number as u32, alive, word })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at * 8..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_record_reads_back() {
        let name = Name::of(77, &[3, 1, 2]);
        assert_ne!(name, Name::of(77, &[3, 1, 4]));
        for size in [1, 64, 65] {
            let verdict = Verdict { alive: Ranks::all(size), value: vec![1, 2, u64::MAX] };
            let words = [
                Word::Call,
                Word::Offer(vec![7; 65]),
                Word::Locked(size - 1, verdict.clone()),
                Word::Propose(verdict.clone()),
                Word::Accept,
                Word::Agreed(verdict),
            ];
            let records = words.map(|word| Record::Word { number: u32::MAX, alive: Ranks::all(size), word });
            for record in records.into_iter().chain([Record::Revoke]) {
                let bytes = record.write(name);
                assert_eq!(Name::read(&bytes), Some(name));
                assert_eq!(Record::read(&bytes, size), Some(record));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0u8..9, size in 1usize..70) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let _ = (Name::read(&bytes), Record::read(&bytes, size));
        }
    }
}
