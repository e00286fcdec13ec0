//! What tokens and regions' keys are drawn from where there is no job key.

use ring::hmac;
use ring::rand::SystemRandom;
use sidelane_nic::LinkAddr;

/// 64 bits at a time: HMAC-SHA256 (RFC 2104) of a counter under a random key, or under a seed and an endpoint's address: the same two give
/// the same numbers. Who is shown some, as every stranger that says Hello is, learns nothing of the others, or of those of another
/// endpoint.
#[derive(Debug)]
pub(crate) struct TokenSource {
    key: hmac::Key,
    drawn: u64,
}

impl TokenSource {
    /// The source of `seed` at `own`, an endpoint's address; without a seed one that no other is like.
    pub fn new(seed: Option<u64>, own: LinkAddr) -> Self {
        let key = if let Some(seed) = seed {
            let key = [&seed.to_le_bytes()[..], own.to_string().as_bytes()].concat();
            hmac::Key::new(hmac::HMAC_SHA256, &key)
        } else {
            hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).expect("the system has random numbers")
        };
        Self { key, drawn: 0 }
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
    fn a_seed_repeats_and_no_number_comes_twice_or_at_two_endpoints() {
        let numbers = |seed, node| {
            let mut source = TokenSource::new(seed, LinkAddr::Shm { endpoint: node });
            std::array::from_fn::<u64, 100, _>(|_| source.draw())
        };
        assert_eq!(numbers(Some(7), 1), numbers(Some(7), 1));
        let seeded = [numbers(Some(7), 1), numbers(Some(7), 2), numbers(Some(8), 1), numbers(Some(1 << 63), 1)];
        let all = [seeded.concat(), numbers(None, 1).into(), numbers(None, 1).into()].concat();
        assert_eq!(all.into_iter().collect::<HashSet<u64>>().len(), 600);
    }
}
