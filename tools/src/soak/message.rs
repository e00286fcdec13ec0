//! A stream of messages that both sides can write from a seed.

use std::hash::{DefaultHasher, Hasher};
use std::ops::RangeInclusive;

use sidelane_nic::rng::Rng;

/// Message after message: number and random bytes, of random length. The first message is the seed, so that a receiver
/// needs to know nothing before; the last one is empty.
pub struct Script {
    rng: Rng,
    sizes: RangeInclusive<usize>,
    number: u64,
    message: Vec<u8>,
    digest: DefaultHasher,
}

/// A message that is not the next one of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The number that was due.
    due: u64,
    /// The number that it claims to be.
    claims: Option<u64>,
    len: usize,
    len_due: usize,
}

impl Script {
    /// The stream of `seed`; none of its messages is longer than `sizes` says, and none but the first and the last shorter.
    pub fn new(seed: u64, sizes: RangeInclusive<usize>) -> Self {
        let max = (*sizes.end()).max(OPENING_LEN);
        let sizes = (*sizes.start()).min(max)..=max;
        let mut message = Vec::with_capacity(max);
        for word in [seed, *sizes.start() as u64, max as u64] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        Self { rng: Rng::new(seed), sizes, number: 0, message, digest: DefaultHasher::new() }
    }

    /// The stream that begins with `opening`.
    pub fn of(opening: &[u8]) -> Option<Self> {
        let opening: &[u8; OPENING_LEN] = opening.try_into().ok()?;
        let word = |at: usize| opening[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let (seed, min, max) = (word(0)?, word(8)?, word(16)?);
        // A size from the network is not yet to be believed.
        (min <= max && max <= SIZE_MAX as u64).then(|| Self::new(seed, min as usize..=max as usize))
    }

    /// The next message.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Messages before the next one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Digest of all messages before the next one, the same in every process of one build.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Goes on to the message behind.
    pub fn advance(&mut self) {
        self.digest.write(&self.message);
        self.number += 1;
        let len = self.len();
        self.message.clear();
        self.message.extend_from_slice(&self.number.to_le_bytes());
        while self.message.len() < len {
            self.message.extend_from_slice(&self.rng.next_u64().to_le_bytes());
        }
        self.message.truncate(len);
    }

    /// Goes on if `message` is the next one.
    pub fn check(&mut self, message: &[u8]) -> Result<(), Wrong> {
        if message == self.message {
            self.advance();
            return Ok(());
        }
        let claims = message.first_chunk().map(|number| u64::from_le_bytes(*number));
        Err(Wrong { due: self.number, claims, len: message.len(), len_due: self.message.len() })
    }

    /// Nine of ten are small, one in a hundred is as large as can be: the usual mix of requests, replies and bulk.
    fn len(&mut self) -> usize {
        let size_max = *self.sizes.end();
        let max = match self.rng.below(100) {
            0 => size_max,
            1..10 => size_max.min(4096),
            _ => size_max.min(256),
        };
        (NUMBER_LEN + self.rng.below((max - NUMBER_LEN + 1) as u64) as usize).max(*self.sizes.start())
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { due, claims, len, len_due } = self;
        let kind = match claims {
            Some(number) if number == due => "altered",
            Some(number) if number < due => "repeated, or altered",
            _ => "out of order, or altered",
        };
        write!(f, "message {due} ({len_due} bytes) was due; received {len} bytes claiming number {claims:?}: {kind}")
    }
}

const NUMBER_LEN: usize = 8;
const OPENING_LEN: usize = 24;
/// What a receiver believes of an opening.
const SIZE_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(sender: &mut Script) -> Script {
        let mut receiver = Script::of(sender.message()).unwrap();
        receiver.check(sender.message()).unwrap();
        sender.advance();
        receiver
    }

    #[test]
    fn a_receiver_follows_from_the_first_message_on() {
        let mut sender = Script::new(7, 0..=5000);
        let mut receiver = receiver(&mut sender);
        for _ in 0..1000 {
            assert!((NUMBER_LEN..=5000).contains(&sender.message().len()));
            receiver.check(sender.message()).unwrap();
            sender.advance();
        }
        assert_eq!((sender.number(), sender.digest()), (receiver.number(), receiver.digest()));
    }

    #[test]
    fn a_stream_of_long_messages_has_no_short_ones() {
        let mut sender = Script::new(7, 3000..=5000);
        let mut receiver = receiver(&mut sender);
        for _ in 0..1000 {
            assert!((3000..=5000).contains(&sender.message().len()));
            receiver.check(sender.message()).unwrap();
            sender.advance();
        }
    }

    #[test]
    fn altered_repeated_and_missing_messages_are_told_apart() {
        let mut sender = Script::new(7, 0..=5000);
        let mut receiver = receiver(&mut sender);
        let mut altered = sender.message().to_vec();
        altered.push(1);
        assert!(receiver.check(&altered).unwrap_err().to_string().ends_with(": altered"));
        let first = sender.message().to_vec();
        receiver.check(&first).unwrap();
        assert!(receiver.check(&first).unwrap_err().to_string().contains("repeated"));
        sender.advance();
        sender.advance();
        assert!(receiver.check(sender.message()).unwrap_err().to_string().contains("out of order"));
    }

    #[test]
    fn nonsense_opens_no_stream() {
        assert!(Script::of(b"").is_none());
        assert!(Script::of(&[0xff; OPENING_LEN]).is_none());
    }
}
