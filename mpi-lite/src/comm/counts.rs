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

impl Counts for Placed<'_> {
    fn counts(&self) -> &[usize] {
        self.counts
    }

    fn displacements(&self) -> Option<&[usize]> {
        Some(self.displacements)
    }
}

impl Communicator {
    /// The counts, if there is one for each of `ranks`, and `elements` for all.
    pub(super) fn check_counts<'a>(
        &self,
        of: &'a (impl Counts + ?Sized),
        ranks: usize,
        elements: usize,
    ) -> Result<&'a [usize], ErrorClass> {
        let counts = of.counts();
        let fits = match of.displacements() {
            None => counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count)) == Some(elements),
            Some(starts) => {
                let ends = starts.iter().zip(counts).map(|(start, count)| start.checked_add(*count));
                let are_within = || ends.into_iter().all(|end| end.is_some_and(|end| end <= elements));
                starts.len() == counts.len() && are_within()
            }
        };
        self.check(counts.len() == ranks && fits)?;
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::{Config, Device, Process};

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
}
