//! Memory of a message, where programs have theirs.

use std::ops::{Deref, DerefMut};

/// Bytes of a message. Long ones begin where programs' large arrays do.
///
/// How long a copy takes depends on where in their pages both ends of it stand (`bench/NOTES.md`, 57).
pub struct Buffer {
    area: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` bytes. They are not zeros, since pages of a zeroed allocation are all one page until they are written.
    pub fn new(len: usize) -> Self {
        let slack = if len < LONG { 0 } else { PAGE };
        let area = vec![0x5a; len + slack].into_boxed_slice();
        let start = if slack == 0 { 0 } else { BEHIND.wrapping_sub(area.as_ptr().addr()) % PAGE };
        Self { area, start, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.area[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.area[self.start..self.start + self.len]
    }
}

/// Shorter messages stand anywhere: a window of them, each at the same place of its page, would leave the first cache.
const LONG: usize = 2 << 10;
/// Where glibc's malloc has an allocation of pages of its own begin: behind two words.
const BEHIND: usize = 16;
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_stand_behind_a_pages_beginning() {
        for len in [1, LONG - 1, LONG, PAGE, 1 << 20] {
            let mut buffer = Buffer::new(len);
            assert!(buffer.len() == len && buffer.iter().all(|byte| *byte == 0x5a));
            assert!(len < LONG || buffer.as_ptr().addr() % PAGE == BEHIND, "{len}");
            buffer[len - 1] = 1;
            assert_eq!(buffer[len - 1], 1);
        }
    }
}
