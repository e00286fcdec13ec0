//! How many elements of a slice are each rank's, in the calls that have blocks of a length each, and where those begin.

use super::{Communicator, ErrorClass};

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
