//! What tokens and regions' keys are drawn from where there is no job key.

use ring::hmac;
use sidelane_nic::LinkAddr;

/// 64 bits at a time: HMAC-SHA256 (RFC 2104) of a counter under a seed and an endpoint's address. The same two give the same numbers; who
/// is shown some, as every stranger that says Hello is, learns nothing of the others, or of those of another endpoint of the process.
#[derive(Debug)]
pub(crate) struct TokenSource {
    key: hmac::Key,
    drawn: u64,
}

impl TokenSource {
    /// The source of `seed` at `own`, an endpoint's address.
    pub fn new(seed: u64, own: LinkAddr) -> Self {
        let key = [&seed.to_le_bytes()[..], own.to_string().as_bytes()].concat();
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), drawn: 0 }
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
        assert_eq!(numbers(7, 1), numbers(7, 1));
        let all = [numbers(7, 1), numbers(7, 2), numbers(8, 1), numbers(1 << 63, 1)].concat();
        assert_eq!(all.into_iter().collect::<HashSet<u64>>().len(), 400);
    }
}
