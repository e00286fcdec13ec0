//! Memory for the bytes of messages that came before their receive.

/// Used buffers by size, kept for the next message. What peers may send unasked bounds how many there ever are
/// ([`super::credit`]).
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Buffers of [`LEAST`]` << i` bytes.
    free: [Vec<Vec<u8>>; SIZES],
}

/// The smallest size: a message of a few words.
const LEAST: usize = 32;
/// Up to 512 KiB; longer ones go back to the system.
const SIZES: usize = 15;

impl Buffers {
    /// A copy of `bytes`.
    pub fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.room(bytes.len());
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// An empty buffer for `len` bytes.
    pub fn room(&mut self, len: usize) -> Vec<u8> {
        let size = Self::size(len);
        let spare = self.free.get_mut(size).and_then(Vec::pop);
        spare.unwrap_or_else(|| Vec::with_capacity(if size < SIZES { LEAST << size } else { len }))
    }

    /// Takes a buffer back.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        let size = Self::size(buffer.capacity());
        if let Some(free) = self.free.get_mut(size).filter(|_| buffer.capacity() == LEAST << size) {
            free.push(buffer);
        }
    }

    fn size(len: usize) -> usize {
        (len.max(LEAST).next_power_of_two() / LEAST).trailing_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_for_its_size() {
        let mut buffers = Buffers::default();
        for len in [0, 1, 64, 65, 100_000] {
            let buffer = buffers.copy(&vec![7; len]);
            assert_eq!(buffer, vec![7; len]);
            let (at, capacity) = (buffer.as_ptr(), buffer.capacity());
            buffers.give(buffer);
            let again = buffers.copy(&vec![8; len]);
            assert_eq!((again.as_ptr(), again.capacity()), (at, capacity));
            buffers.give(again);
        }
        buffers.give(buffers_of_the_system());
    }

    fn buffers_of_the_system() -> Vec<u8> {
        vec![0; 10 << 20]
    }
}
