//! Memory for all but short frames, which goes to and fro with them: a cell belongs to whom the last frame in it was sent to.
//!
//! A cache line that one processor has read last is written at once by it, and not by the one that had written it: that one
//! waits until the reader's copy is gone, for each line. So who answers writes where the question stood. (Two virtual processors
//! of an EPYC 9004 in one L3, and in two: 64 KiB to and fro take 8.9 and 33.8 us half a round trip through memory of each
//! sender's own, 2.1 and 7.4 through memory that both take in turns; 4 KiB 0.63 and 2.3, 0.2 and 1.0.)
//!
//! Each side begins with half of them. Who has none left, since it sends more than it gets, sends through its ring, and if that is a
//! long frame, is given all back for it, each by a frame of no bytes in it.

use std::ops::Range;

use super::ring::CELLS;

/// The cells that are ours to write.
pub(super) struct Cells {
    /// Those that came with frames, from `first` on round and round, `len` of them.
    came: [u8; CELLS],
    first: usize,
    len: usize,
    /// Ours from the beginning.
    unused: Range<u8>,
    /// A bit for each of either kind.
    ours: u64,
}

impl Cells {
    /// Of the side that dialled, or of the one that answered.
    pub(super) fn new(dialled: bool) -> Self {
        const HALF: u8 = CELLS as u8 / 2;
        let unused = if dialled { 0..HALF } else { HALF..CELLS as u8 };
        let ours = unused.clone().fold(0, |ours, cell| ours | 1 << cell);
        Self { came: [0; CELLS], first: 0, len: 0, unused, ours }
    }

    /// All are the other side's.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.ours == 0
    }

    /// The one for the next frame: in the order in which they came, so that an answer's frames are as long as those before them.
    #[inline]
    pub(super) fn next(&self) -> Option<u8> {
        if self.len > 0 { Some(self.came[self.first]) } else { self.unused.clone().next() }
    }

    /// It was sent.
    #[inline]
    pub(super) fn give_next(&mut self) {
        let given = if self.len > 0 {
            let cell = self.came[self.first];
            self.first = (self.first + 1) % CELLS;
            self.len -= 1;
            Some(cell)
        } else {
            self.unused.next()
        };
        self.ours &= !given.map_or(0, |cell| 1 << cell);
    }

    /// A frame in `cell` has come. False if that was ours all the time: the other side breaks the rules.
    #[inline]
    pub(super) fn take(&mut self, cell: u8) -> bool {
        if usize::from(cell) >= CELLS || self.ours >> cell & 1 != 0 {
            return false;
        }
        self.ours |= 1 << cell;
        self.came[(self.first + self.len) % CELLS] = cell;
        self.len += 1;
        true
    }
}

/// A bit each.
const _: () = assert!(CELLS <= u64::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_on_one_side_and_goes_back_in_the_order_in_which_it_came() {
        let (mut a, mut b) = (Cells::new(true), Cells::new(false));
        for number in 0..CELLS as u8 / 2 {
            assert_eq!(a.next(), Some(number));
            a.give_next();
            assert!(b.take(number));
        }
        assert_eq!(a.next(), None);
        assert!(!b.take(0), "it has them all");
        for number in 0..CELLS as u8 {
            assert_eq!(b.next(), Some(number));
            b.give_next();
            assert!(a.take(number) && !a.take(number));
        }
        assert_eq!(b.next(), None);
        assert!(!b.take(CELLS as u8), "there is no such cell");
    }
}
