//! How many elements of a slice are each rank's, in the calls that have blocks of a length each, and where those begin.

use crate::coll::Blocks;

use super::elements::Elements;
use super::prepare::bytes;
use super::{Communicator, Equivalence, ErrorClass};

/// A number of elements for each rank or neighbour: a slice, an array or a vector of counts, whose blocks lie one after the
/// other and are all of the data; or [`Placed`].
pub trait Counts {
    /// Of each.
    fn counts(&self) -> &[usize];

    /// Where each block begins, in elements; `None`: where the one before ends, the first at 0.
    fn displacements(&self) -> Option<&[usize]> {
        None
    }
}

/// Blocks anywhere in a slice (`displs` of `MPI_Gatherv` and its kind). What is between them stays as it is; those that are written
/// are not to overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Elements of each block.
    pub counts: &'a [usize],
    /// Where each begins, in elements.
    pub displacements: &'a [usize],
}

impl Counts for [usize] {
    fn counts(&self) -> &[usize] {
        self
    }
}

impl<const N: usize> Counts for [usize; N] {
    fn counts(&self) -> &[usize] {
        self
    }
}

impl Counts for Vec<usize> {
    fn counts(&self) -> &[usize] {
        self
    }
}

impl<C: Counts + ?Sized> Counts for &C {
    fn counts(&self) -> &[usize] {
        (**self).counts()
    }

    fn displacements(&self) -> Option<&[usize]> {
        (**self).displacements()
    }
}

impl Counts for Placed<'_> {
    fn counts(&self) -> &[usize] {
        self.counts
    }

    fn displacements(&self) -> Option<&[usize]> {
        Some(self.displacements)
    }
}

/// Blocks that are within their slice, as they were when that was checked.
#[derive(Clone, Copy)]
pub(super) struct Checked<'a> {
    pub counts: &'a [usize],
    pub starts: Option<&'a [usize]>,
}

impl<'a> Checked<'a> {
    /// Blocks of `data` that are read: what they are of, and where they are in its bytes.
    #[inline]
    pub fn read<T: Equivalence>(self, data: &[T]) -> (Elements, Blocks<'a>) {
        let Some(starts) = self.starts else { return (Elements::of(data), self.in_row::<T>()) };
        match self.places::<T>(Elements::of(data), data.len(), starts) {
            Some(placed) => placed,
            None => (Elements::of_blocks(data, self), self.in_row::<T>()),
        }
    }

    /// The same of blocks that are written. Those of which two have an element are copied to their places one after the other.
    #[inline]
    pub fn written<T: Equivalence>(self, data: &mut [T]) -> (Elements, Blocks<'a>) {
        let Some(starts) = self.starts else { return (Elements::of_mut(data), self.in_row::<T>()) };
        let (starts, count) = (Some(starts).filter(|starts| self.are_apart(starts)), data.len());
        match starts.and_then(|starts| self.places::<T>(Elements::of_mut(data), count, starts)) {
            Some(placed) => placed,
            None => self.copied(data),
        }
    }

    /// Blocks that are brought to one piece, one after the other, and back, for a call that would copy all of `data`.
    pub fn copied<T: Equivalence>(self, data: &mut [T]) -> (Elements, Blocks<'a>) {
        (Elements::of_blocks_mut(data, self), self.in_row::<T>())
    }

    /// Blocks at their places among `count` elements, if those are one run of bytes.
    fn places<T>(self, whole: Elements, count: usize, starts: &'a [usize]) -> Option<(Elements, Blocks<'a>)> {
        let is_gapless = whole.in_place().is_some_and(|bytes| bytes.len() == count * size_of::<T>());
        let element = size_of::<T>();
        let blocks = match self.each().filter(|count| follow_each_other(starts, *count)) {
            Some(count) => Blocks::Equal(count * element),
            None => Blocks::At { counts: self.counts, starts, element },
        };
        is_gapless.then_some((whole, blocks))
    }

    #[inline]
    fn in_row<T: Equivalence>(self) -> Blocks<'a> {
        match self.each() {
            Some(count) => Blocks::Equal(bytes::<T>(count)),
            None => Blocks::Counts { counts: self.counts, element: bytes::<T>(1) },
        }
    }

    /// Elements of each block, if all have as many: of such blocks all that a call asks is found at once.
    // Not by `Blocks::equal`, for which blocks are written to memory first: a `scatterv` of 8 B takes half as long again (`bench/NOTES.md` 90).
    #[inline]
    fn each(self) -> Option<usize> {
        let (first, others) = self.counts.split_first()?;
        others.iter().all(|count| count == first).then_some(*first)
    }

    /// Whether no two blocks have an element in common.
    fn are_apart(self, starts: &[usize]) -> bool {
        let some = starts.iter().zip(self.counts).filter(|(_, count)| **count > 0);
        let mut all: Vec<_> = some.map(|(start, count)| (*start, start + count)).collect();
        all.sort_unstable();
        all.windows(2).all(|pair| pair[0].1 <= pair[1].0)
    }
}

/// Whether blocks of `count` elements that begin there, all of them within a slice, lie one after the other from its begin on.
fn follow_each_other(starts: &[usize], count: usize) -> bool {
    starts.first() == Some(&0) && starts.windows(2).all(|pair| pair[0] + count == pair[1])
}

impl Communicator {
    /// What was asked once, if there is a count for each of `ranks`, and `elements` for all.
    pub(super) fn check_counts<'a>(
        &self,
        of: &'a (impl Counts + ?Sized),
        ranks: usize,
        elements: usize,
    ) -> Result<Checked<'a>, ErrorClass> {
        let (counts, starts) = (of.counts(), of.displacements());
        let fits = match starts {
            None => counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count)) == Some(elements),
            Some(starts) => {
                let ends = starts.iter().zip(counts).map(|(start, count)| start.checked_add(*count));
                let are_within = || ends.into_iter().all(|end| end.is_some_and(|end| end <= elements));
                starts.len() == counts.len() && are_within()
            }
        };
        self.check(counts.len() == ranks && fits)?;
        Ok(Checked { counts, starts })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::adi::{Config, Device, Process};
    use crate::comm::Located;
    use crate::comm::cartesian::Side;

    #[test]
    fn blocks_are_within_their_slice_or_refused() {
        let alone = vec![Process::here("", &[])];
        let world = Communicator::world(Device::open(0, alone, Vec::new(), &Config::default()).unwrap(), false);
        let fits = |of: &dyn Counts, ranks, elements| world.check_counts(of, ranks, elements).is_ok();
        assert!(fits(&[1, 0, 2], 3, 3) && fits(&vec![4; 2], 2, 8));
        assert!(!fits(&[1, 0, 2], 3, 4) && !fits(&[1, 2], 3, 3) && !fits(&[usize::MAX, 1], 2, 0));
        let placed = |counts, displacements| Placed { counts, displacements };
        assert!(fits(&placed(&[1, 2, 0], &[4, 1, 5]), 3, 5) && !fits(&placed(&[1, 2, 0], &[4, 1, 5]), 3, 4));
        assert!(!fits(&placed(&[1, 1], &[0]), 2, 9) && !fits(&placed(&[1], &[0, 1]), 1, 9));
        assert!(!fits(&placed(&[1], &[usize::MAX]), 1, 9) && !fits(&placed(&[0], &[10]), 1, 9));
    }

    #[test]
    fn blocks_of_what_has_no_gaps_are_where_they_are_unless_two_are_written_in_one_place() {
        let placed = |counts, starts| Checked { counts, starts: Some(starts) };
        let mut data = [3u32; 8];
        let at = data.as_mut_ptr().cast::<u8>();
        let whole =
            |elements: &Elements| elements.in_place().is_some_and(|bytes| (bytes.cast(), bytes.len()) == (at, 32));
        let apart = placed(&[2, 0, 3], &[6, 7, 3]);
        let expected = Blocks::At { counts: &[2, 0, 3], starts: &[6, 7, 3], element: 4 };
        let (elements, blocks) = apart.read(&data);
        assert!(whole(&elements) && blocks == expected);
        let (elements, blocks) = apart.written(&mut data);
        assert!(whole(&elements) && blocks == expected);
        let common = placed(&[2, 1, 3], &[4, 7, 2]);
        let (elements, blocks) = common.read(&data);
        assert!(whole(&elements) && matches!(blocks, Blocks::At { .. }));
        let (elements, blocks) = common.written(&mut data);
        assert!(elements.in_place().is_none() && blocks == Blocks::Counts { counts: &[2, 1, 3], element: 4 });
        let arrays = placed(&[1, 1], &[1, 0]).read(&[[1u8; 3]; 2]).1;
        assert_eq!(arrays, Blocks::At { counts: &[1, 1], starts: &[1, 0], element: 3 });
        let mut gaps = [Located::new(1.0f64, 2); 3];
        assert!(matches!(placed(&[1, 2], &[2, 0]).written(&mut gaps).1, Blocks::Counts { element: 12, .. }));
    }

    #[test]
    fn blocks_one_after_the_other_that_are_as_long_as_each_other_are_equal_ones() {
        let mut data = [3u32; 8];
        let mut blocks = |counts, starts| {
            let of = Checked { counts, starts };
            let (read, written) = (of.read(&data), of.written(&mut data));
            assert_eq!(read.1, written.1);
            assert!(read.0.in_place().is_some() && written.0.in_place().is_some());
            read.1
        };
        assert_eq!(blocks(&[4, 4], None), Blocks::Equal(16));
        assert_eq!(blocks(&[8], None), Blocks::Equal(32));
        assert_eq!(blocks(&[4, 3, 1], None), Blocks::Counts { counts: &[4, 3, 1], element: 4 });
        assert_eq!(blocks(&[2, 2, 2], Some(&[0, 2, 4])), Blocks::Equal(8));
        for starts in &[[1, 3, 5], [0, 2, 5], [0, 4, 2]] {
            let at = Blocks::At { counts: &[2, 2, 2], starts, element: 4 };
            assert_eq!(blocks(&[2, 2, 2], Some(starts)), at);
        }
        assert!(matches!(blocks(&[2, 2, 1], Some(&[0, 2, 4])), Blocks::At { .. }));
        let mut gaps = [Located::new(1.0f64, 2); 2];
        assert_eq!(Checked { counts: &[1, 1], starts: None }.written(&mut gaps).1, Blocks::Equal(12));
    }

    /// Says something else each time.
    struct Liar([Cell<bool>; 2]);

    impl Counts for Liar {
        fn counts(&self) -> &[usize] {
            if self.0[0].replace(true) { &[1 << 40] } else { &[1] }
        }

        fn displacements(&self) -> Option<&[usize]> {
            Some(if self.0[1].replace(true) { &[1 << 40] } else { &[1] })
        }
    }

    #[test]
    fn what_was_checked_is_what_is_done() {
        let alone = vec![Process::here("", &[])];
        let world = Communicator::world(Device::open(0, alone, Vec::new(), &Config::default()).unwrap(), false);
        let liar = || Liar([const { Cell::new(false) }; 2]);
        let (data, mut room) = ([3u64, 4], [0; 2]);
        world.allgather_varying(&data[..1], &mut room, &liar()).unwrap();
        assert_eq!(room, [0, 3]);
        world.gather_varying(&data[1..], &mut room, &liar(), 0).unwrap();
        world.alltoall_varying(&data, &mut room, &liar(), &liar()).unwrap();
        let mut one = [0];
        world.scatter_varying(&room, &mut one, &liar(), 0).unwrap();
        world.allgather_varying_in_place(&mut room, &liar()).unwrap();
        world.alltoall_varying_in_place(&mut room, &liar()).unwrap();
        assert_eq!((room, one), ([0, 4], [4]));
        let line = world.cartesian(&[Side { size: 1, periodic: true }]).unwrap().unwrap();
        assert!(line.neighbor_allgather_varying(&data, &mut room, &liar()).is_err(), "it has two neighbours");
    }
}
