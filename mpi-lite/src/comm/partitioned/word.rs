//! What a pair tells each other when it is made, and the tags of its messages.

/// What a sender tells its receiver, in 64-bit words, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    pub partitions: usize,
    pub bytes: usize,
    /// Of partition 0, the next ones below: negative, as programs' tags are not.
    pub tag: i32,
}

impl Word {
    pub const LEN: usize = 24;

    pub fn write(self) -> Vec<u8> {
        let words = [self.partitions as u64, self.bytes as u64, self.tag as i64 as u64];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub fn read(bytes: &[u8]) -> Option<Self> {
        let ([partitions, bytes, tag], []) = bytes.as_chunks::<8>() else { return None };
        let number = |word: &[u8; 8]| usize::try_from(u64::from_le_bytes(*word)).ok();
        let (partitions, bytes) = (number(partitions)?, number(bytes)?);
        partitions.checked_mul(bytes)?;
        let tag = i32::try_from(i64::from_le_bytes(*tag)).ok()?;
        (tag < 0 && i32::try_from(partitions).is_ok()).then_some(Self { partitions, bytes, tag })
    }
}

/// Of a partition's messages: down from that of the first one, round and round among the negative ones.
pub const fn tag(first: i32, partition: usize) -> i32 {
    let below = (-1 - first) as usize + partition;
    -1 - (below % TAGS) as i32
}

/// Negative tags but the one that no message has (`adi::Envelope`). They come again when as many partitions of one sender were made, which
/// a pair that lives so long must not be begun after (README, "What is not supported").
pub const TAGS: usize = i32::MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_partitions_are_negative_and_no_wildcard() {
        assert_eq!((tag(-1, 0), tag(-1, 5), tag(-3, 1)), (-1, -6, -4));
        let last = -(TAGS as i32);
        assert_eq!((tag(last, 0), tag(last, 1)), (last, -1));
        assert!(last > i32::MIN);
    }

    #[test]
    fn a_senders_word_reads_back_and_nonsense_is_refused() {
        let word = Word { partitions: 7, bytes: 1 << 40, tag: -9 };
        assert_eq!(Word::read(&word.write()), Some(word));
        for other in [Word { tag: 9, ..word }, Word { bytes: usize::MAX, ..word }] {
            assert_eq!(Word::read(&other.write()), None);
        }
        assert_eq!(Word::read(&word.write()[1..]), None);
    }
}
