use std::collections::HashMap;
use std::hash::Hash;

/// Which host each rank of a communicator is on. Hosts are numbered in the order of their first ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    /// Of each rank its host, and its place there.
    places: Vec<(usize, usize)>,
    /// All ranks, host by host.
    ranks: Vec<u32>,
    /// Where in `ranks` each host begins, and the end.
    starts: Vec<usize>,
    /// The first rank of each.
    firsts: Vec<u32>,
    even: bool,
    in_order: bool,
}

impl Hosts {
    /// Ranks on hosts with these names.
    pub fn new<T: Eq + Hash>(names: impl IntoIterator<Item = T>) -> Self {
        let mut numbers = HashMap::new();
        let mut on: Vec<Vec<u32>> = Vec::new();
        let place = |(rank, name): (u32, T)| {
            let host = *numbers.entry(name).or_insert(on.len());
            on.resize(on.len().max(host + 1), Vec::new());
            on[host].push(rank);
            (host, on[host].len() - 1)
        };
        let places = (0..).zip(names).map(place).collect();
        let ranks = on.concat();
        let mut starts = vec![0];
        starts.extend(on.iter().scan(0, |end, ranks| {
            *end += ranks.len();
            Some(*end)
        }));
        let even = on.windows(2).all(|pair| pair[0].len() == pair[1].len());
        let in_order = ranks.is_sorted();
        Self { places, starts, firsts: on.iter().map(|ranks| ranks[0]).collect(), ranks, even, in_order }
    }

    /// How many hosts there are.
    pub fn count(&self) -> usize {
        self.firsts.len()
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// The number of a rank's host, below [`Self::count`].
    pub fn of(&self, rank: usize) -> usize {
        self.places[rank].0
    }

    /// The ranks of a host, in their order.
    pub fn on(&self, host: usize) -> &[u32] {
        &self.ranks[self.starts[host]..self.starts[host + 1]]
    }

    /// A rank's place among those of its host.
    pub fn place(&self, rank: usize) -> usize {
        self.places[rank].1
    }

    /// The first rank of each.
    pub(super) fn firsts(&self) -> &[u32] {
        &self.firsts
    }

    /// Whether all have as many ranks.
    pub(super) fn are_even(&self) -> bool {
        self.even
    }

    /// Whether the order of hosts is that of ranks.
    pub(super) fn are_in_order(&self) -> bool {
        self.in_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_their_first_ranks() {
        let hosts = Hosts::new(["b", "a", "b", "c"]);
        assert_eq!((hosts.count(), hosts.ranks(), hosts.firsts()), (3, 4, &[0, 1, 3][..]));
        assert_eq!([0, 1, 2, 3].map(|rank| (hosts.of(rank), hosts.place(rank))), [(0, 0), (1, 0), (0, 1), (2, 0)]);
        assert_eq!([0, 1, 2].map(|host| hosts.on(host)), [&[0, 2][..], &[1], &[3]]);
        assert_eq!((hosts.are_even(), hosts.are_in_order()), (false, false));
    }

    #[test]
    fn hosts_of_as_many_ranks_that_follow_each_other_are_even_and_in_order() {
        for (names, even, in_order) in
            [([5, 5, 3, 3], true, true), ([5, 3, 5, 3], true, false), ([5, 3, 3, 3], false, true), ([5; 4], true, true)]
        {
            let hosts = Hosts::new(names);
            assert_eq!((hosts.are_even(), hosts.are_in_order()), (even, in_order), "{names:?}");
        }
    }
}
