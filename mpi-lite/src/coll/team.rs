/// Ranks that do something together, in their order, and which of them we are.
///
/// A member's number is its place in the team; its rank is what the communicator calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Team<'a> {
    /// Our number among the members.
    pub me: usize,
    /// How many there are, at least one.
    pub size: usize,
    first: usize,
    ranks: Option<&'a [u32]>,
}

impl Team<'static> {
    /// All ranks of a communicator of `size`, of which we are `rank`.
    pub fn all(rank: usize, size: usize) -> Self {
        assert!(rank < size, "a rank is below the communicator's size");
        Self { me: rank, size, first: 0, ranks: None }
    }
}

impl<'a> Team<'a> {
    /// These ranks of a communicator, of which we are number `me`.
    pub fn of(ranks: &'a [u32], me: usize) -> Self {
        assert!(me < ranks.len(), "we are one of the team");
        Self { me, size: ranks.len(), first: 0, ranks: Some(ranks) }
    }

    /// The same team counted from what is now number `first`, round and round: a tree's root as number 0.
    pub fn counted_from(self, first: usize) -> Self {
        assert!(first < self.size, "the first is one of the team");
        let me = if self.me >= first { self.me - first } else { self.me + self.size - first };
        let first = self.first + first;
        Self { me, first: if first >= self.size { first - self.size } else { first }, ..self }
    }

    /// What the communicator calls member `number`.
    pub fn rank(self, number: usize) -> u32 {
        debug_assert!(number < self.size, "a member's number is below the team's size");
        let number = number + self.first;
        let number = if number >= self.size { number - self.size } else { number };
        self.ranks.map_or(number as u32, |ranks| ranks[number])
    }

    /// The member `steps` after us, round and round.
    pub fn after(self, steps: usize) -> usize {
        (self.me + steps) % self.size
    }

    /// The member `steps` before us, round and round.
    pub fn before(self, steps: usize) -> usize {
        (self.me + self.size - steps % self.size) % self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_from_another_member_keeps_everybodys_rank() {
        let ranks = [7, 5, 9];
        let team = Team::of(&ranks, 0).counted_from(2).counted_from(2);
        assert_eq!((team.me, [0, 1, 2].map(|number| team.rank(number))), (2, [5, 9, 7]));
        assert_eq!((team.after(2), team.before(4)), (1, 1));
    }
}
