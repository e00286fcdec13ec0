//! Buffers of large messages, kept for the next one: a fresh page costs a microsecond and more to touch.

/// A small stock of used buffers.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// Buffers kept at most.
const SPARES_MAX: usize = 32;
/// Bytes kept at most.
const SPARE_BYTES_MAX: usize = 64 << 20;

impl Spares {
    /// An empty buffer with room for `len` bytes; `None` when the system has no memory for it.
    pub fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = self.take_used(len)?;
        buffer.clear();
        Some(buffer)
    }

    /// As [`Self::take`], with at most `len` bytes that mean nothing: what may be written where they are needs no new bytes.
    pub fn take_used(&mut self, len: usize) -> Option<Vec<u8>> {
        if let Some(place) = self.buffers.iter().rposition(|buffer| buffer.capacity() >= len) {
            let mut buffer = self.buffers.swap_remove(place);
            self.bytes -= buffer.capacity();
            buffer.truncate(len);
            return Some(buffer);
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(len).ok()?;
        Some(buffer)
    }

    /// Takes a buffer that is not needed any more.
    pub fn give(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < SPARES_MAX && self.bytes + buffer.capacity() <= SPARE_BYTES_MAX {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_large_enough() {
        let mut spares = Spares::default();
        spares.give(vec![1; 100]);
        spares.give(vec![2; 10]);
        let buffer = spares.take(50).unwrap();
        assert!(buffer.is_empty() && buffer.capacity() >= 100);
        assert_eq!(spares.bytes, 10);
    }

    #[test]
    fn a_used_buffer_keeps_no_more_bytes_than_wanted() {
        let mut spares = Spares::default();
        assert_eq!(spares.take_used(50), Some(vec![]));
        spares.give(vec![1; 100]);
        assert_eq!(spares.take_used(50), Some(vec![1; 50]));
    }

    #[test]
    fn the_stock_is_bounded() {
        let mut spares = Spares::default();
        for _ in 0..100 {
            spares.give(vec![0; 1 << 20]);
        }
        assert!(spares.buffers.len() <= SPARES_MAX && spares.bytes <= SPARE_BYTES_MAX);
    }
}
