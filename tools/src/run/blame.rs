//! Which of several ranks that failed is named as the reason of a job's end.

use std::time::Instant;

use super::verdict::End;

/// A rank that ended as it should not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    pub rank: usize,
    pub how: End,
    /// When its end became known.
    pub seen: Instant,
}

/// Ranks that failed, until no other one is expected any more that failed before them.
///
/// Of two that ended in the same way within a moment, nobody knows which was the other's reason: who panics tells the others by
/// messages, and those may be gone before itself. So all are named.
#[derive(Debug)]
pub struct Blame {
    since: Instant,
    failed: Vec<Failed>,
}

impl Blame {
    /// Of the first one, which is judged now.
    pub fn new(now: Instant, first: Failed) -> Self {
        Self { since: now, failed: vec![first] }
    }

    /// Another one, or one that is known.
    pub fn add(&mut self, failed: Failed) {
        if self.failed.iter().all(|known| known.rank != failed.rank) {
            self.failed.push(failed);
        }
    }

    /// When it is decided, unless another one comes.
    pub fn due(&self) -> Instant {
        self.since + self.first().how.patience()
    }

    /// The rank to be named first: of those that are most to blame, the one whose end was seen first.
    pub fn first(&self) -> Failed {
        let first = self.failed.iter().min_by_key(|failed| (failed.how.order(), failed.seen));
        *first.expect("somebody has failed")
    }

    /// The others that are as much to blame, by rank.
    pub fn others(&self) -> Vec<usize> {
        let first = self.first();
        let others = self.failed.iter().filter(|it| it.rank != first.rank && it.how.order() == first.how.order());
        let mut others: Vec<usize> = others.map(|other| other.rank).collect();
        others.sort_unstable();
        others
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_that_failed_alike_are_named_and_first_the_one_seen_first() {
        let began = Instant::now();
        let failed = |rank, how, after| Failed { rank, how, seen: began + Duration::from_millis(after) };
        let mut blame = Blame::new(began, failed(0, End::Early, 0));
        assert_eq!((blame.first().rank, blame.others()), (0, vec![]));
        for (rank, code, after) in [(4, 1, 20), (2, 101, 10), (1, 1, 20), (4, 1, 30)] {
            blame.add(failed(rank, End::Exited(code), after));
        }
        assert_eq!((blame.first().rank, blame.others()), (2, vec![1, 4]));
        assert!(blame.due() > began);
        // Nobody is killed by what another rank says.
        blame.add(failed(3, End::Killed(9), 40));
        assert_eq!((blame.first().rank, blame.others(), blame.due()), (3, vec![], began));
    }
}
