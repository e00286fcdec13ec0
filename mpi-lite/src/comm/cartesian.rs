//! Cartesian topologies (MPI-4.1 8.5).

/// A grid of ranks, numbered in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cartesian {
    dimensions: Vec<Side>,
}

/// One dimension of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// Ranks.
    pub size: u32,
    /// Whether the last is next to the first.
    pub periodic: bool,
}

/// Why a grid or a place in it was refused (`MPI_ERR_DIMS` for [`Self::Dimensions`], else `MPI_ERR_ARG`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CartesianError {
    /// The fixed dimensions don't divide the number of ranks, or there are none to fill.
    #[error("{nodes} ranks can't fill the dimensions that are fixed")]
    Dimensions {
        /// The ranks.
        nodes: u32,
    },
    /// More ranks than a communicator can have, or a dimension without any.
    #[error("a grid has at least one rank in each dimension, and at most as many in all as fit a rank's number")]
    Size,
    /// As many values are needed as there are dimensions.
    #[error("{given} values for {dimensions} dimensions")]
    Values {
        /// Values that were given.
        given: usize,
        /// Values that are needed.
        dimensions: usize,
    },
    /// A coordinate outside of a dimension that is not periodic.
    #[error("a coordinate is outside of dimension {0}")]
    Coordinate(usize),
}

impl Cartesian {
    /// A grid; one of no dimensions is a single rank.
    pub fn new(dimensions: &[Side]) -> Result<Self, CartesianError> {
        let size = dimensions.iter().try_fold(1u32, |size, side| size.checked_mul(side.size));
        match size {
            Some(1..=RANKS_MAX) => Ok(Self { dimensions: dimensions.to_vec() }),
            _ => Err(CartesianError::Size),
        }
    }

    /// Ranks in all. Others of a communicator that is larger have no place.
    pub fn size(&self) -> u32 {
        self.dimensions.iter().map(|side| side.size).product()
    }

    /// The dimensions, slowest first.
    pub fn dimensions(&self) -> &[Side] {
        &self.dimensions
    }

    /// Where a rank is.
    ///
    /// # Panics
    ///
    /// When the grid has no such rank.
    pub fn coordinates(&self, rank: u32) -> Vec<u32> {
        assert!(rank < self.size(), "no rank of the grid");
        let mut rest = rank;
        let mut coordinates = vec![0; self.dimensions.len()];
        for (coordinate, side) in coordinates.iter_mut().zip(&self.dimensions).rev() {
            *coordinate = rest % side.size;
            rest /= side.size;
        }
        coordinates
    }

    /// Who is there. Coordinates of periodic dimensions may be any number.
    pub fn rank(&self, coordinates: &[i32]) -> Result<u32, CartesianError> {
        let dimensions = self.dimensions.len();
        if coordinates.len() != dimensions {
            return Err(CartesianError::Values { given: coordinates.len(), dimensions });
        }
        let mut rank = 0;
        for (index, (coordinate, side)) in coordinates.iter().zip(&self.dimensions).enumerate() {
            let within = side.wrap((*coordinate).into()).ok_or(CartesianError::Coordinate(index))?;
            rank = rank * side.size + within;
        }
        Ok(rank)
    }

    /// Whom `rank` receives from and sends to when all pass something `by` steps along a dimension; `None` beyond the border.
    ///
    /// # Panics
    ///
    /// When there is no such rank or dimension.
    pub fn shift(&self, rank: u32, dimension: usize, by: i32) -> (Option<u32>, Option<u32>) {
        let side = self.dimensions[dimension];
        let here = self.coordinates(rank)[dimension];
        // Ranks from one to its neighbour in this dimension.
        let stride: u32 = self.dimensions[dimension + 1..].iter().map(|side| side.size).product();
        let at = |steps: i64| {
            let there = side.wrap(i64::from(here) + steps)?;
            Some(rank - here * stride + there * stride)
        };
        (at(-i64::from(by)), at(by.into()))
    }

    /// The neighbours in the order of neighbourhood collectives: in each dimension the one before, then the one behind
    /// (MPI-4.1 8.6).
    pub fn neighbors(&self, rank: u32) -> Vec<Option<u32>> {
        let of = |dimension| {
            let (before, behind) = self.shift(rank, dimension, 1);
            [before, behind]
        };
        (0..self.dimensions.len()).flat_map(of).collect()
    }

    /// The grid without the dimensions that `keep` names false, and which of those grids `rank` falls into
    /// (`MPI_Cart_sub`): its colour and its rank there.
    pub fn sub(&self, rank: u32, keep: &[bool]) -> Result<(Self, u32, u32), CartesianError> {
        let dimensions = self.dimensions.len();
        if keep.len() != dimensions {
            return Err(CartesianError::Values { given: keep.len(), dimensions });
        }
        let (mut color, mut key) = (0, 0);
        for ((side, coordinate), keep) in self.dimensions.iter().zip(self.coordinates(rank)).zip(keep) {
            let number = if *keep { &mut key } else { &mut color };
            *number = *number * side.size + coordinate;
        }
        let kept = self.dimensions.iter().zip(keep).filter(|(_, keep)| **keep);
        Ok((Self { dimensions: kept.map(|(side, _)| *side).collect() }, color, key))
    }
}

impl Side {
    /// The coordinate brought into the dimension, if it can be.
    fn wrap(self, coordinate: i64) -> Option<u32> {
        let size = i64::from(self.size);
        (self.periodic || (0..size).contains(&coordinate)).then(|| coordinate.rem_euclid(size) as u32)
    }
}

/// Fills the dimensions that are zero so that they hold `nodes` ranks in all, as evenly as can be and in falling order
/// (`MPI_Dims_create`): the largest is as small as possible, then the next.
pub fn dims_create(nodes: u32, dimensions: &mut [u32]) -> Result<(), CartesianError> {
    let refused = CartesianError::Dimensions { nodes };
    let fixed = dimensions.iter().filter(|size| **size > 0).try_fold(1u32, |all, size| all.checked_mul(*size));
    let fixed = fixed.ok_or(refused)?;
    let free = dimensions.iter().filter(|size| **size == 0).count();
    let rest = nodes / fixed;
    if nodes == 0 || !nodes.is_multiple_of(fixed) || (free == 0 && rest > 1) {
        return Err(refused);
    }
    let sizes = even(rest, free, rest).expect("one dimension can have them all");
    dimensions.iter_mut().filter(|size| **size == 0).zip(sizes).for_each(|(size, found)| *size = found);
    Ok(())
}

/// `count` factors of `nodes`, falling, none above `largest`; of all such the one that is first in order.
fn even(nodes: u32, count: usize, largest: u32) -> Option<Vec<u32>> {
    if count == 0 {
        return (nodes == 1).then(Vec::new);
    }
    // Smaller than this, and `count` of them could not make up `nodes`.
    let enough = |size: &u32| u64::from(*size).checked_pow(count as u32).is_none_or(|most| most >= nodes.into());
    let mut sizes = divisors(nodes).into_iter().filter(|size| *size <= largest).filter(enough);
    sizes.find_map(|size| {
        let mut found = vec![size];
        found.extend(even(nodes / size, count - 1, size)?);
        Some(found)
    })
}

/// Rising.
fn divisors(number: u32) -> Vec<u32> {
    let small: Vec<u32> = (1..).take_while(|part| u64::from(*part).pow(2) <= number.into()).collect();
    let small = small.into_iter().filter(|part| number.is_multiple_of(*part));
    let large = small.clone().map(|part| number / part).filter(|part| u64::from(*part).pow(2) > number.into());
    let mut all: Vec<u32> = small.chain(large).collect();
    all.sort_unstable();
    all
}

/// Ranks are C's `int`.
const RANKS_MAX: u32 = i32::MAX as u32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grid() -> impl Strategy<Value = Cartesian> {
        let side = (1..5u32, any::<bool>()).prop_map(|(size, periodic)| Side { size, periodic });
        prop::collection::vec(side, 0..4).prop_map(|sides| Cartesian::new(&sides).unwrap())
    }

    proptest! {
        #[test]
        fn coordinates_and_ranks_are_inverse(grid in grid()) {
            for rank in 0..grid.size() {
                let coordinates: Vec<i32> = grid.coordinates(rank).into_iter().map(|at| at as i32).collect();
                prop_assert_eq!(grid.rank(&coordinates), Ok(rank));
            }
        }

        #[test]
        fn a_shift_is_a_walk_by_coordinates(grid in grid(), by in -9..9i32) {
            for rank in 0..grid.size() {
                let here: Vec<i32> = grid.coordinates(rank).into_iter().map(|at| at as i32).collect();
                for dimension in 0..here.len() {
                    let walk = |steps: i32| {
                        let mut there = here.clone();
                        there[dimension] += steps;
                        grid.rank(&there).ok()
                    };
                    prop_assert_eq!(grid.shift(rank, dimension, by), (walk(-by), walk(by)));
                }
            }
        }

        #[test]
        fn sub_grids_share_out_all_ranks(grid in grid(), keep in prop::collection::vec(any::<bool>(), 3)) {
            let keep = &keep[..grid.dimensions().len()];
            let mut seen = std::collections::HashSet::new();
            for rank in 0..grid.size() {
                let (sub, color, key) = grid.sub(rank, keep).unwrap();
                prop_assert!(key < sub.size() && color < grid.size() / sub.size());
                prop_assert!(seen.insert((color, key)));
                let all = grid.coordinates(rank).into_iter().zip(keep);
                let kept: Vec<u32> = all.filter(|(_, keep)| **keep).map(|(at, _)| at).collect();
                prop_assert_eq!(sub.coordinates(key), kept);
            }
        }

        #[test]
        fn dimensions_are_as_even_as_can_be(nodes in 1..400u32, count in 1..5usize) {
            let mut sizes = vec![0; count];
            dims_create(nodes, &mut sizes).unwrap();
            prop_assert_eq!(sizes.iter().product::<u32>(), nodes);
            prop_assert!(sizes.is_sorted_by(|a, b| a >= b));
            let possible = (1..=nodes).filter(|largest| fits(nodes, count, *largest)).min();
            prop_assert_eq!(Some(sizes[0]), possible);
        }
    }

    /// Whether `count` factors of at most `largest` make `nodes`.
    fn fits(nodes: u32, count: usize, largest: u32) -> bool {
        match count {
            0 => nodes == 1,
            _ => (1..=largest.min(nodes))
                .any(|part| nodes.is_multiple_of(part) && fits(nodes / part, count - 1, largest)),
        }
    }

    /// The table of MPI-4.1 8.5.2.
    #[test]
    fn dimensions_of_the_standards_examples() {
        let create = |nodes, mut sizes: [u32; 3], count: usize| dims_create(nodes, &mut sizes[..count]).map(|()| sizes);
        assert_eq!(create(6, [0, 0, 9], 2), Ok([3, 2, 9]));
        assert_eq!(create(7, [0, 0, 9], 2), Ok([7, 1, 9]));
        assert_eq!(create(6, [0, 3, 0], 3), Ok([2, 3, 1]));
        assert_eq!(create(7, [0, 3, 0], 3), Err(CartesianError::Dimensions { nodes: 7 }));
        assert_eq!(create(7, [7, 1, 1], 3), Ok([7, 1, 1]));
        assert_eq!(create(7, [1, 1, 1], 3), Err(CartesianError::Dimensions { nodes: 7 }));
        assert_eq!(create(0, [0, 0, 0], 3), Err(CartesianError::Dimensions { nodes: 0 }));
        assert_eq!(create(1 << 30, [0, 0, 0], 3), Ok([1 << 10; 3]));
        assert_eq!(create(2_147_483_647, [0, 0, 0], 3), Ok([2_147_483_647, 1, 1]));
    }

    #[test]
    fn grids_refuse_what_is_no_place() {
        let side = |size, periodic| Side { size, periodic };
        let grid = Cartesian::new(&[side(3, false), side(2, true)]).unwrap();
        assert_eq!(grid.rank(&[2, -1]), Ok(5));
        assert_eq!(grid.rank(&[3, 0]), Err(CartesianError::Coordinate(0)));
        assert_eq!(grid.rank(&[3]), Err(CartesianError::Values { given: 1, dimensions: 2 }));
        assert_eq!(grid.neighbors(0), [None, Some(2), Some(1), Some(1)]);
        assert_eq!(Cartesian::new(&[side(0, true)]), Err(CartesianError::Size));
        assert_eq!(Cartesian::new(&[side(1 << 16, true); 2]), Err(CartesianError::Size));
    }
}
