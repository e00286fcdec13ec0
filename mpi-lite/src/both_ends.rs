//! Long bytes that go from one process's memory to another's by pieces, which both copy: the reader from the front, the owner from the
//! back, until they meet. Two cores copy twice as fast as one (`bench/NOTES.md` 83), and nobody waits for who is elsewhere: whoever does not
//! come takes no piece. The reader is done when no piece is left and those that the owner has taken are there.
//!
//! ```text
//! pieces   0 1 2 3 4 5 6 7 8 9
//!          reader -->  <-- owner
//! ```
//! Two words of memory that both share: how many pieces each has taken, and how many of the owner's are there.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
use std::ops::Range;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// How bytes are cut, which both find alike.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    len: usize,
    piece: usize,
}

impl Cut {
    /// Of `len` bytes.
    pub const fn of(len: usize) -> Self {
        let short = least(len.div_ceil(2), SHORT);
        let long = least(len.div_ceil(FEW), LONG);
        let piece = most(most(short, long), len.div_ceil(MOST));
        Self { len, piece: piece.next_multiple_of(PAGE) }
    }

    const fn count(self) -> u32 {
        self.len.div_ceil(self.piece) as u32
    }

    fn range(self, index: u32) -> Range<usize> {
        let start = index as usize * self.piece;
        start..self.len.min(start + self.piece)
    }
}

/// The pieces of one transfer. Of another one's, with another `number`, none is taken.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    taken: &'a AtomicU32,
    there: &'a AtomicU32,
    number: u16,
    cut: Cut,
}

impl<'a> Pieces<'a> {
    /// Of the transfer `number`, by the two words.
    pub const fn new([taken, there]: [&'a AtomicU32; 2], number: u16, cut: Cut) -> Self {
        Self { taken, there, number, cut }
    }

    /// The reader's: from now on pieces are taken. No other transfer by these words is under way.
    pub fn open(&self) {
        self.there.store(0, Ordering::Relaxed);
        self.taken.store(Taken { number: self.number, front: 0, back: 0 }.bits(), Ordering::Release);
    }

    /// The reader's next piece.
    pub fn take_front(&self) -> Option<Range<usize>> {
        let before = self.take(|taken| Taken { front: taken.front + 1, ..taken })?;
        Some(self.cut.range(u32::from(before.front)))
    }

    /// The owner's next piece. It writes it, and says [`Self::put`].
    pub fn take_back(&self) -> Option<Range<usize>> {
        let before = self.take(|taken| Taken { back: taken.back + 1, ..taken })?;
        Some(self.cut.range(self.cut.count() - 1 - u32::from(before.back)))
    }

    fn take(&self, more: impl Fn(Taken) -> Taken) -> Option<Taken> {
        let next = |taken| self.has_left(Taken::of(taken)).then(|| more(Taken::of(taken)).bits());
        // What the owner is to write was the reader's until it opened, so this acquires it; and releases what it has shown, for who closes.
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok().map(Taken::of)
    }

    /// Whether there may be something to take.
    pub fn are_left(&self) -> bool {
        self.has_left(Taken::of(self.taken.load(Ordering::Relaxed)))
    }

    fn has_left(&self, taken: Taken) -> bool {
        taken.number == self.number && u32::from(taken.front) + u32::from(taken.back) < self.cut.count()
    }

    /// The owner's: a piece that it has taken is there.
    pub fn put(&self) {
        self.there.fetch_add(1, Ordering::Release);
    }

    /// The owner's: a piece that it has taken will never be written.
    pub fn give_up(&self) {
        self.there.fetch_add(1 | GIVEN_UP, Ordering::Release);
    }

    /// The reader's: whether all that the owner has taken is there, or was given up.
    pub fn are_there(&self) -> bool {
        let taken = Taken::of(self.taken.load(Ordering::Relaxed));
        self.there.load(Ordering::Acquire) & !GIVEN_UP == u32::from(taken.back)
    }

    /// The reader's: whether a piece was given up. The owner gives up only one, and takes no other.
    pub fn is_given_up(&self) -> bool {
        self.there.load(Ordering::Relaxed) & GIVEN_UP != 0
    }

    /// The reader's: from now on the owner takes no more. What it has taken it may still write, until [`Self::are_there`].
    pub fn close(&self) {
        let close = |taken| Some(Taken { front: u8::MAX, ..Taken::of(taken) }.bits());
        let _ = self.taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, close);
    }
}

/// How many pieces of a transfer each has taken.
#[derive(Clone, Copy)]
struct Taken {
    number: u16,
    front: u8,
    back: u8,
}

impl Taken {
    const fn of(bits: u32) -> Self {
        Self { number: (bits >> 16) as u16, front: (bits >> 8) as u8, back: bits as u8 }
    }

    const fn bits(self) -> u32 {
        (self.number as u32) << 16 | (self.front as u32) << 8 | self.back as u32
    }
}

/// Of the word of what is there.
const GIVEN_UP: u32 = 1 << 31;
/// Pieces of what is long: so much of it one of the two waits for at the end, at most.
const FEW: usize = 8;
/// The shortest pieces of what is longer than two of them; of what is shorter each copies a half (`bench/NOTES.md` 83).
const SHORT: usize = 64 << 10;
/// The longest, unless there would be too many: a tenth of a millisecond, in which who copies does nothing else.
const LONG: usize = 1 << 20;
/// The most pieces: a count has 8 bits, of which the last value is that of what is closed.
const MOST: usize = 200;
/// The kernel pins pages.
const PAGE: usize = 4096;

const _: () = assert!(MOST < u8::MAX as usize, "what is closed has no piece left");

const fn least(one: usize, other: usize) -> usize {
    if one < other { one } else { other }
}

const fn most(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_byte_is_one_s_piece_however_turns_go(len in 1usize..1 << 34, shift in 0u32..34, turns in proptest::collection::vec(any::<bool>(), MOST)) {
            let len = (len >> shift).max(1);
            let (taken, there) = Default::default();
            let pieces = Pieces::new([&taken, &there], 9, Cut::of(len));
            prop_assert!(!pieces.are_left(), "of another transfer");
            pieces.open();
            let (mut front, mut back) = (0, len);
            for reads in turns {
                if reads {
                    if let Some(piece) = pieces.take_front() {
                        prop_assert_eq!(piece.start, front);
                        front = piece.end;
                    }
                } else if let Some(piece) = pieces.take_back() {
                    prop_assert_eq!(piece.end, back);
                    back = piece.start;
                    prop_assert!(!pieces.are_there());
                    pieces.put();
                }
                prop_assert!(front <= back && pieces.are_there());
                prop_assert_eq!(pieces.are_left(), front < back);
            }
            prop_assert_eq!(front, back);
            prop_assert!(Pieces::new([&taken, &there], 8, Cut::of(len)).take_back().is_none());
        }
    }

    #[test]
    fn nothing_is_taken_of_what_is_closed() {
        for taken_before in 0..=FEW {
            let (taken, there) = Default::default();
            let pieces = Pieces::new([&taken, &there], 1, Cut::of(FEW * SHORT));
            pieces.open();
            let backs = (0..taken_before).filter(|_| pieces.take_back().is_some()).count();
            pieces.close();
            assert_eq!((backs, pieces.take_front(), pieces.take_back()), (taken_before, None, None));
            for _ in 0..backs {
                assert!(!pieces.are_there());
                pieces.put();
            }
            assert!(pieces.are_there());
        }
    }
}

/// Every interleaving of a reader and an owner, under loom's model of memory:
/// `RUSTFLAGS="--cfg loom" cargo test --release -p sidelane-mpi --lib both_ends`
#[cfg(all(test, loom))]
#[allow(unsafe_code)] // Cells that loom watches are reached by raw pointers.
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    struct Transfer {
        words: [AtomicU32; 2],
        room: [UnsafeCell<u8>; COUNT],
    }

    const COUNT: usize = 3;
    const CUT: Cut = Cut::of(COUNT * SHORT);

    impl Transfer {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                words: std::array::from_fn(|_| AtomicU32::new(0)),
                room: std::array::from_fn(|_| UnsafeCell::new(0)),
            })
        }

        fn pieces(&self) -> Pieces<'_> {
            Pieces::new([&self.words[0], &self.words[1]], 1, CUT)
        }

        fn write(&self, piece: &Range<usize>, by: u8) {
            // SAFETY: whoever has taken the piece writes it alone, or loom says otherwise.
            self.room[piece.start / SHORT].with_mut(|byte| unsafe { *byte = by });
        }

        /// The owner, which finds no piece when it comes too early.
        fn give(&self) {
            while self.pieces().are_left()
                && let Some(piece) = self.pieces().take_back()
            {
                self.write(&piece, 2);
                self.pieces().put();
            }
        }

        fn await_there(&self) {
            while !self.pieces().are_there() {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn the_reader_has_all_when_both_are_done_and_its_room_for_itself() {
        loom::model(|| {
            let transfer = Transfer::new();
            let owner = {
                let transfer = Arc::clone(&transfer);
                thread::spawn(move || transfer.give())
            };
            // What was there before is the reader's until it opens.
            transfer.room.iter().for_each(|byte| byte.with_mut(|byte| unsafe { *byte = 9 }));
            transfer.pieces().open();
            while let Some(piece) = transfer.pieces().take_front() {
                transfer.write(&piece, 1);
            }
            transfer.await_there();
            transfer.room.iter().for_each(|byte| assert!(matches!(byte.with(|byte| unsafe { *byte }), 1 | 2)));
            owner.join().unwrap();
        });
    }

    #[test]
    fn a_reader_that_leaves_has_its_room_for_itself() {
        loom::model(|| {
            let transfer = Transfer::new();
            let owner = {
                let transfer = Arc::clone(&transfer);
                thread::spawn(move || transfer.give())
            };
            transfer.pieces().open();
            transfer.pieces().close();
            transfer.await_there();
            transfer.room.iter().for_each(|byte| byte.with_mut(|byte| unsafe { *byte = 0 }));
            owner.join().unwrap();
        });
    }
}
