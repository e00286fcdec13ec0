//! Context ids, which tell the messages of communicators apart: numbers that all members of a new one have free.

use std::ops::Range;

/// Of one communicator's contexts, what a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Point to point.
    Point = 0,
    /// Collectives.
    Collective = 1,
    /// What some of the members agree on, with tags of the program's (`MPI_Comm_create_group`).
    Creation = 2,
    /// Partitioned messages.
    Partitioned = 3,
}

/// The numbers in use here. A communicator's is the same in all its processes.
#[derive(Debug, Clone)]
pub(super) struct ContextIds {
    free: Mask,
    /// Given up by the program; what it has begun there may not be over.
    retired: Vec<u32>,
    /// A thread is agreeing on an id with others, and may take any of those that are free.
    offered: bool,
}

/// One bit an id, set where it is free. Masks of several processes are agreed upon by "and".
pub(super) type Mask = [u64; WORDS];

/// Of a mask.
pub(super) const WORDS: usize = IDS / 64;

/// Communicators that a process may be in at a time.
const IDS: usize = 4096;

/// Of what is said about the communicators themselves: behind those of all ids.
pub(super) const FAILURES: u32 = on_wire(IDS as u32, Kind::Point);

/// Of the communicators that there are from the start.
pub(super) const WORLD: u32 = 0;
pub(super) const OWN: u32 = 1;

impl ContextIds {
    pub const fn new() -> Self {
        let mut free = [u64::MAX; WORDS];
        free[0] = !(1 << WORLD | 1 << OWN);
        Self { free, retired: Vec::new(), offered: false }
    }

    /// What is free, for one thread at a time: it ends with [`Self::take`] or [`Self::withdraw`].
    pub const fn offer(&mut self) -> Option<Mask> {
        if self.offered {
            return None;
        }
        self.offered = true;
        Some(self.free)
    }

    /// Nothing was agreed upon.
    pub const fn withdraw(&mut self) {
        self.offered = false;
    }

    /// The lowest id that is free in all of a mask; `None` when there is none, which all processes find alike.
    pub fn lowest(mask: &Mask) -> Option<u32> {
        let word = mask.iter().position(|word| *word != 0)?;
        Some(word as u32 * 64 + mask[word].trailing_zeros())
    }

    /// Takes an id that was agreed upon.
    pub fn take(&mut self, id: u32) {
        self.offered = false;
        let bit = 1 << (id % 64);
        let word = &mut self.free[id as usize / 64];
        debug_assert!(*word & bit != 0, "an id that is agreed upon is free");
        *word &= !bit;
    }

    pub fn give_back(&mut self, id: u32) {
        self.free[id as usize / 64] |= 1 << (id % 64);
    }

    /// Gives an id back when nothing is under way there any more.
    pub fn retire(&mut self, id: u32) {
        self.retired.push(id);
    }

    /// Gives back what was retired and is not in use.
    pub fn reclaim(&mut self, in_use: impl Fn(u32) -> bool) {
        let retired = std::mem::take(&mut self.retired);
        let (kept, over) = retired.into_iter().partition(|id| in_use(*id));
        self.retired = kept;
        over.into_iter().for_each(|id| self.give_back(id));
    }
}

/// The number on the wire.
pub(super) const fn on_wire(id: u32, kind: Kind) -> u32 {
    id * KINDS + kind as u32
}

/// All of one communicator.
pub(super) const fn all(id: u32) -> Range<u32> {
    id * KINDS..(id + 1) * KINDS
}

const KINDS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_from_the_lowest_that_all_have() {
        let (mut here, mut there) = (ContextIds::new(), ContextIds::new());
        here.take(2);
        there.take(3);
        let both = |here: &ContextIds, there: &ContextIds| {
            let mut mask = here.free;
            mask.iter_mut().zip(&there.free).for_each(|(a, b)| *a &= b);
            ContextIds::lowest(&mask)
        };
        assert_eq!(both(&here, &there), Some(4));
        assert!(here.offer().is_some() && here.offer().is_none());
        here.withdraw();
        assert!(here.offer().is_some());
        here.give_back(2);
        there.give_back(3);
        assert_eq!(both(&here, &there), Some(2));
        (2..IDS as u32).for_each(|id| here.take(id));
        assert_eq!(both(&here, &there), None);
        here.give_back(IDS as u32 - 1);
        assert_eq!(both(&here, &there), Some(IDS as u32 - 1));
    }
}
