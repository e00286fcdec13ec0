//! Sets of ranks, one bit each.

/// Some of the ranks `0..size`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    words: Vec<u64>,
    size: usize,
}

impl Ranks {
    /// No rank.
    pub fn none(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)], size }
    }

    /// Every rank.
    pub fn all(size: usize) -> Self {
        let mut all = Self::none(size);
        (0..size).for_each(|rank| all.insert(rank));
        all
    }

    /// As they were in [`Self::words`]; `None` of what is not a set of so many.
    pub fn from_words(words: &[u64], size: usize) -> Option<Self> {
        let spare = words.len() * 64 - size.min(words.len() * 64);
        let fits =
            words.len() == size.div_ceil(64) && words.last().is_none_or(|last| last.leading_zeros() as usize >= spare);
        fits.then(|| Self { words: words.to_vec(), size })
    }

    /// Bit `rank % 64` of word `rank / 64` is set for those that are in.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn has(&self, rank: usize) -> bool {
        rank < self.size && self.words[rank / 64] >> (rank % 64) & 1 == 1
    }

    pub fn insert(&mut self, rank: usize) {
        self.words[rank / 64] |= 1 << (rank % 64);
    }

    pub fn remove(&mut self, rank: usize) {
        self.words[rank / 64] &= !(1 << (rank % 64));
    }

    /// The lowest.
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.size).filter(|rank| self.has(*rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_reads_back_and_bits_beyond_its_size_are_refused() {
        for size in [1, 63, 64, 65, 130] {
            let mut set = Ranks::all(size);
            set.remove(size / 2);
            assert_eq!(Ranks::from_words(set.words(), size), Some(set.clone()));
            assert_eq!(set.iter().count(), size - 1);
            assert_eq!(Ranks::from_words(&[u64::MAX; 3], size), None);
            assert_eq!(Ranks::from_words(&[], size), None);
        }
    }
}
