//! Random numbers that a run can be repeated from: the same seed gives the same numbers on every machine.

/// xoshiro256++ (Blackman and Vigna, 2019), seeded through SplitMix64 as its authors advise. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed`. Every seed is a good one.
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut counter)) }
    }

    /// An independent generator, for a part that draws in an order of its own.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let drawn = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// A number from `0..bound`; zero when `bound` is zero. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with the given probability. Draws nothing for 0.0 and below, nor for 1.0 and above.
    pub fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        // 53 bits are what an f64 in 0..1 can tell apart.
        probability >= 1.0 || ((self.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Fills `bytes` at random.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let drawn = self.next_u64().to_le_bytes();
            part.copy_from_slice(&drawn[..part.len()]);
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
fn split_mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *counter;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_numbers_of_the_reference_implementation() {
        // SplitMix64 and xoshiro256++ of the authors' C code, seed 0.
        let mut counter = 0;
        assert_eq!(split_mix(&mut counter), 0xe220_a839_7b1d_cdaf);
        let mut rng = Rng { state: [1, 2, 3, 4] };
        assert_eq!([rng.next_u64(), rng.next_u64(), rng.next_u64()], [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut rng = Rng::new(7);
        let mut seen = [0; 5];
        for _ in 0..1_000 {
            seen[rng.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn chances_come_out_as_often_as_they_say() {
        let mut rng = Rng::new(1);
        for (probability, expected) in [(0.0, 0), (0.25, 2_500), (1.0, 10_000)] {
            let hits = (0..10_000).filter(|_| rng.chance(probability)).count();
            assert!(hits.abs_diff(expected) < 200, "{probability}: {hits}");
        }
    }

    #[test]
    fn every_byte_of_a_slice_is_filled() {
        let mut rng = Rng::new(3);
        let mut bytes = [0; 13];
        let mut touched = [false; 13];
        for _ in 0..10 {
            rng.fill(&mut bytes);
            (0..13).for_each(|at| touched[at] |= bytes[at] != 0);
        }
        assert_eq!(touched, [true; 13]);
    }
}
