//! What tokens and regions' keys are drawn from where there is no job key.

use ring::hmac;

/// 64 bits at a time: HMAC-SHA256 (RFC 2104) of a counter under a seed. The same seed gives the same numbers; who is shown some, as every
/// stranger that says Hello is, learns nothing of the others.
#[derive(Debug)]
pub(crate) struct TokenSource {
    key: hmac::Key,
    drawn: u64,
}

impl TokenSource {
    /// The source of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &seed.to_le_bytes()), drawn: 0 }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let tag = hmac::sign(&self.key, &self.drawn.to_le_bytes());
        u64::from_le_bytes(*tag.as_ref().first_chunk().expect("a hash has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_seed_repeats_and_no_number_comes_twice() {
        let numbers = |seed| {
            let mut source = TokenSource::new(seed);
            std::array::from_fn::<u64, 100, _>(|_| source.draw())
        };
        assert_eq!(numbers(7), numbers(7));
        let all: HashSet<u64> = [numbers(7), numbers(8), numbers(1 << 63)].concat().into_iter().collect();
        assert_eq!(all.len(), 300);
    }
}
