//! The arguments of an Active Message, where they arrived.

/// Up to [`super::ARGS_MAX`] words. How many came is the sender's choice, so a handler asks before it believes.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    words: &'a [[u8; 8]],
}

impl<'a> Args<'a> {
    /// `bytes` are whole words.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { words: bytes.as_chunks().0 }
    }

    /// How many came.
    #[inline]
    pub const fn len(&self) -> usize {
        self.words.len()
    }

    /// True when none came.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Argument `place`, if it came.
    #[inline]
    pub fn get(&self, place: usize) -> Option<u64> {
        self.words.get(place).map(|word| u64::from_le_bytes(*word))
    }

    /// All of them, if they are exactly `M`.
    #[inline]
    pub fn array<const M: usize>(&self) -> Option<[u64; M]> {
        let words: &[[u8; 8]; M] = self.words.try_into().ok()?;
        Some(words.map(u64::from_le_bytes))
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = u64> + 'a {
        self.words.iter().map(|word| u64::from_le_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_is_there() {
        let bytes: Vec<u8> = [7u64, 8].iter().flat_map(|word| word.to_le_bytes()).collect();
        let args = Args::new(&bytes);
        assert_eq!((args.len(), args.get(1), args.get(2)), (2, Some(8), None));
        assert_eq!((args.array(), args.array::<1>(), args.array::<3>()), (Some([7, 8]), None, None));
    }
}
