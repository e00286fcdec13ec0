//! Groups: ordered sets of processes (MPI-4.1 7.3).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An ordered set of processes. A process is its number in the job; its rank is its place in the group.
///
/// Immutable; a clone costs a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group(Arc<[u32]>);

/// How two groups or communicators compare. Values are those of the standard ABI (`mpi.h` of the MPI Forum's
/// `mpi-abi-stubs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Comparison {
    /// The same processes in the same order; of communicators, the same one.
    Ident = 201,
    /// Communicators whose groups are the same.
    Congruent = 202,
    /// The same processes in another order.
    Similar = 203,
    /// Different processes.
    Unequal = 204,
}

/// Why a group was not made (`MPI_ERR_RANK`, or `MPI_ERR_ARG` for a stride).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The group has no such rank.
    #[error("the group has no rank {0}")]
    Rank(i64),
    /// A rank was named twice.
    #[error("rank {0} is named twice")]
    Twice(u32),
    /// A range of stride zero.
    #[error("a range's stride is zero")]
    Stride,
}

/// Ranks from `first` to at most `last`, `stride` apart. A negative stride counts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "said above")]
pub struct Range {
    pub first: i32,
    pub last: i32,
    pub stride: i32,
}

impl Group {
    /// No processes (`MPI_GROUP_EMPTY`).
    pub fn empty() -> Self {
        Self(Arc::new([]))
    }

    /// All processes of a job, in order.
    pub fn world(size: u32) -> Self {
        Self((0..size).collect())
    }

    /// These processes, in this order; `None` when one is there twice.
    pub fn new(processes: impl IntoIterator<Item = u32>) -> Option<Self> {
        let processes: Arc<[u32]> = processes.into_iter().collect();
        let distinct: HashSet<_> = processes.iter().collect();
        (distinct.len() == processes.len()).then(|| Self(Arc::clone(&processes)))
    }

    /// How many processes.
    pub fn size(&self) -> u32 {
        self.0.len() as u32
    }

    /// The process that has this rank.
    pub fn process(&self, rank: u32) -> Option<u32> {
        self.0.get(rank as usize).copied()
    }

    /// All processes, by rank.
    pub fn processes(&self) -> &[u32] {
        &self.0
    }

    /// The rank of a process.
    pub fn rank_of(&self, process: u32) -> Option<u32> {
        // In the world and all that keep its order from the start, a process's rank is its number.
        if self.process(process) == Some(process) {
            return Some(process);
        }
        self.0.iter().position(|other| *other == process).map(|rank| rank as u32)
    }

    /// The ranks in `other` of the processes that have `ranks` here; `None` for those it lacks.
    pub fn translate(&self, ranks: &[u32], other: &Self) -> Result<Vec<Option<u32>>, GroupError> {
        let there: HashMap<u32, u32> = other.0.iter().copied().zip(0..).collect();
        let translate = |rank: &u32| {
            let process = self.process(*rank).ok_or(GroupError::Rank((*rank).into()))?;
            Ok(there.get(&process).copied())
        };
        ranks.iter().map(translate).collect()
    }

    /// Same processes, same order?
    pub fn compare(&self, other: &Self) -> Comparison {
        if self == other {
            return Comparison::Ident;
        }
        let here: HashSet<_> = self.0.iter().collect();
        if self.size() == other.size() && other.0.iter().all(|process| here.contains(process)) {
            Comparison::Similar
        } else {
            Comparison::Unequal
        }
    }

    /// All of this group, then those of `other` that are not in it.
    pub fn union(&self, other: &Self) -> Self {
        let here: HashSet<_> = self.0.iter().collect();
        let more = other.0.iter().filter(|process| !here.contains(process));
        Self(self.0.iter().chain(more).copied().collect())
    }

    /// Those that are in `other` too, in this group's order.
    pub fn intersection(&self, other: &Self) -> Self {
        let there: HashSet<_> = other.0.iter().collect();
        Self(self.0.iter().filter(|process| there.contains(process)).copied().collect())
    }

    /// Those that are not in `other`, in this group's order.
    pub fn difference(&self, other: &Self) -> Self {
        let there: HashSet<_> = other.0.iter().collect();
        Self(self.0.iter().filter(|process| !there.contains(process)).copied().collect())
    }

    /// Those of these ranks, in the order of `ranks`.
    pub fn incl(&self, ranks: &[u32]) -> Result<Self, GroupError> {
        self.distinct(ranks)?;
        Ok(Self(ranks.iter().map(|rank| self.0[*rank as usize]).collect()))
    }

    /// Those of all other ranks, in this group's order.
    pub fn excl(&self, ranks: &[u32]) -> Result<Self, GroupError> {
        let out = self.distinct(ranks)?;
        let kept = (0..).zip(self.0.iter()).filter(|(rank, _)| !out.contains(rank));
        Ok(Self(kept.map(|(_, process)| *process).collect()))
    }

    /// [`Self::incl`] of all ranks in the ranges.
    pub fn range_incl(&self, ranges: &[Range]) -> Result<Self, GroupError> {
        self.incl(&self.ranks(ranges)?)
    }

    /// [`Self::excl`] of all ranks in the ranges.
    pub fn range_excl(&self, ranges: &[Range]) -> Result<Self, GroupError> {
        self.excl(&self.ranks(ranges)?)
    }

    fn distinct(&self, ranks: &[u32]) -> Result<HashSet<u32>, GroupError> {
        let mut seen = HashSet::new();
        for rank in ranks {
            if *rank >= self.size() {
                return Err(GroupError::Rank((*rank).into()));
            }
            if !seen.insert(*rank) {
                return Err(GroupError::Twice(*rank));
            }
        }
        Ok(seen)
    }

    fn ranks(&self, ranges: &[Range]) -> Result<Vec<u32>, GroupError> {
        let mut ranks = Vec::new();
        for Range { first, last, stride } in ranges {
            let (first, last, stride) = (i64::from(*first), i64::from(*last), i64::from(*stride));
            if stride == 0 {
                return Err(GroupError::Stride);
            }
            let mut rank = first;
            while if stride > 0 { rank <= last } else { rank >= last } {
                // Checked one by one, so that a range from here to nowhere ends at the group's border.
                if rank < 0 || rank >= self.size().into() {
                    return Err(GroupError::Rank(rank));
                }
                ranks.push(rank as u32);
                rank += stride;
            }
        }
        Ok(ranks)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group() -> impl Strategy<Value = Group> {
        (Just((0..12).collect::<Vec<u32>>()).prop_shuffle(), 0..=12usize)
            .prop_map(|(processes, len)| Group::new(processes[..len].to_vec()).unwrap())
    }

    proptest! {
        #[test]
        fn set_operations_are_those_of_sets_in_the_standards_order(a in group(), b in group()) {
            let (left, right) = (a.processes(), b.processes());
            let keep = |from: &[u32], wanted: &dyn Fn(&u32) -> bool| -> Vec<u32> {
                from.iter().copied().filter(wanted).collect()
            };
            let both = keep(left, &|process| right.contains(process));
            let only_left = keep(left, &|process| !right.contains(process));
            let only_right = keep(right, &|process| !left.contains(process));
            prop_assert_eq!(a.intersection(&b), Group(both.into()));
            prop_assert_eq!(a.difference(&b), Group(only_left.clone().into()));
            prop_assert_eq!(a.union(&b), Group([left, &only_right].concat().into()));
            let same = only_left.is_empty() && only_right.is_empty();
            let expected = if left == right {
                Comparison::Ident
            } else if same {
                Comparison::Similar
            } else {
                Comparison::Unequal
            };
            prop_assert_eq!(a.compare(&b), expected);
        }

        #[test]
        fn ranks_translate_by_process(a in group(), b in group()) {
            let all: Vec<u32> = (0..a.size()).collect();
            for (rank, there) in all.iter().zip(a.translate(&all, &b).unwrap()) {
                prop_assert_eq!(there, b.rank_of(a.process(*rank).unwrap()));
                prop_assert_eq!(there.map(|there| b.process(there)), there.map(|_| a.process(*rank)));
            }
            prop_assert_eq!(a.translate(&[a.size()], &b), Err(GroupError::Rank(a.size().into())));
        }

        #[test]
        fn including_and_excluding_share_out_all(a in group(), picked in prop::collection::vec(0..12u32, 0..5)) {
            let mut sorted = picked.clone();
            sorted.sort_unstable();
            sorted.dedup();
            let bad = sorted.len() < picked.len() || picked.iter().any(|rank| *rank >= a.size());
            match (a.incl(&picked), a.excl(&picked)) {
                (Ok(chosen), Ok(rest)) => {
                    let expected: Vec<u32> = picked.iter().map(|rank| a.process(*rank).unwrap()).collect();
                    prop_assert!(!bad && chosen.processes() == &expected[..]);
                    prop_assert_eq!(rest, a.difference(&chosen));
                }
                (chosen, rest) => prop_assert!(bad && chosen == rest),
            }
        }
    }

    /// MPI-4.1 7.3.2, the explanation of `MPI_GROUP_RANGE_INCL` and its example.
    #[test]
    fn ranges_count_up_and_down() {
        let group = Group::world(10);
        let range = |first, last, stride| Range { first, last, stride };
        let ranges = [range(6, 7, 1), range(1, 5, 2), range(9, 8, -4)];
        assert_eq!(group.range_incl(&ranges).unwrap().processes(), [6, 7, 1, 3, 5, 9]);
        assert_eq!(group.range_excl(&ranges).unwrap().processes(), [0, 2, 4, 8]);
        assert_eq!(group.range_incl(&[range(5, 3, 1)]).unwrap(), Group::empty());
        assert_eq!(group.range_incl(&[range(5, 9, 0)]), Err(GroupError::Stride));
        assert_eq!(group.range_incl(&[range(8, 10, 1)]), Err(GroupError::Rank(10)));
        assert_eq!(group.range_incl(&[range(2, -1, -1)]), Err(GroupError::Rank(-1)));
        assert_eq!(group.range_incl(&[range(2, 3, 1), range(3, 4, 1)]), Err(GroupError::Twice(3)));
        assert_eq!(group.range_incl(&[range(0, i32::MAX, 1)]), Err(GroupError::Rank(10)));
        assert_eq!(Group::new([1, 2, 1]), None);
    }
}
