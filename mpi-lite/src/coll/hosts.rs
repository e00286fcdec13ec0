/// Which host each rank of a communicator is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    /// Of each rank; hosts are numbered in the order of their first ranks.
    of: Vec<usize>,
    count: usize,
}

impl Hosts {
    /// Ranks on hosts that these stand for: equal for ranks of the same host.
    pub fn new<T: Eq + std::hash::Hash>(names: impl IntoIterator<Item = T>) -> Self {
        let mut numbers = std::collections::HashMap::new();
        let of = names.into_iter().map(|name| {
            let next = numbers.len();
            *numbers.entry(name).or_insert(next)
        });
        let of = of.collect();
        Self { of, count: numbers.len() }
    }

    /// How many hosts there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.of.len()
    }

    /// The number of a rank's host, below [`Self::count`].
    pub fn of(&self, rank: usize) -> usize {
        self.of[rank]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_their_first_ranks() {
        let hosts = Hosts::new(["b", "a", "b", "c"]);
        assert_eq!((hosts.count(), hosts.ranks()), (3, 4));
        assert_eq!([0, 1, 2, 3].map(|rank| hosts.of(rank)), [0, 1, 0, 2]);
    }
}
