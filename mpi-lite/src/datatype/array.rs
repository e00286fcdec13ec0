//! Parts of arrays: `MPI_Type_create_subarray` and `MPI_Type_create_darray` (MPI-4.1 5.1.3 and 5.1.4).

use super::map::{Bounds, Map};
use super::{Datatype, Made, Overflow, TypeError};

/// Which of an array's indices is next to another in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The last, as in C.
    C,
    /// The first, as in Fortran.
    Fortran,
}

/// How one dimension of an array is dealt out to processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Not at all: its process grid is one process wide.
    None,
    /// One block each, of so many elements; `None` for the smallest that covers the array (`MPI_DISTRIBUTE_DFLT_DARG`).
    Block(Option<usize>),
    /// Blocks of so many elements in turn; `None` for one (`MPI_DISTRIBUTE_DFLT_DARG`).
    Cyclic(Option<usize>),
}

/// One dimension of a distributed array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimension {
    /// Elements of the whole array.
    pub size: usize,
    /// How they are dealt out.
    pub distribution: Distribution,
    /// Processes of the grid in this dimension.
    pub processes: usize,
}

impl Datatype {
    /// The part of an array of `sizes` that starts at `starts` and has `subsizes` elements. Its extent is the whole array.
    pub fn subarray(
        sizes: &[usize],
        subsizes: &[usize],
        starts: &[usize],
        order: Order,
        of: &Self,
    ) -> Result<Self, TypeError> {
        if sizes.len() != subsizes.len() || sizes.len() != starts.len() {
            return Err(TypeError::Lengths);
        }
        let mut array = Array::new(of);
        for dimension in nearest_first(sizes.len(), order) {
            let (size, part, start) = (sizes[dimension], subsizes[dimension], starts[dimension]);
            if part == 0 || start.checked_add(part).is_none_or(|end| end > size) {
                return Err(TypeError::Subarray(dimension));
            }
            let map = array.map.repeated(part, array.stride)?.shifted(array.bytes(start)?)?;
            array.grow(map, size)?;
        }
        let (sizes, subsizes, starts) = (sizes.to_vec(), subsizes.to_vec(), starts.to_vec());
        Self::new(array.marked(), Made::Subarray { sizes, subsizes, starts, order, of: of.clone() })
    }

    /// What process `rank` of a grid has of an array. Ranks fill the grid in row-major order, whatever the array's is.
    pub fn darray(rank: usize, dimensions: &[Dimension], order: Order, of: &Self) -> Result<Self, TypeError> {
        let mut coordinates = vec![0; dimensions.len()];
        let mut rest = rank;
        for (coordinate, dimension) in coordinates.iter_mut().zip(dimensions).rev() {
            *coordinate = rest % dimension.processes.max(1);
            rest /= dimension.processes.max(1);
        }
        if rest > 0 {
            return Err(TypeError::Rank);
        }
        let mut array = Array::new(of);
        for index in nearest_first(dimensions.len(), order) {
            let dimension = &dimensions[index];
            let map = array.dealt(dimension, coordinates[index], index)?;
            array.grow(map, dimension.size)?;
        }
        let dimensions = dimensions.to_vec();
        Self::new(array.marked(), Made::Darray { rank, dimensions, order, of: of.clone() })
    }
}

/// An array with as many of its dimensions as were gone through, from the one whose elements are neighbours.
struct Array {
    /// The part of it.
    map: Map,
    /// Bytes of the whole, which is the stride of the next dimension.
    stride: isize,
}

impl Array {
    fn new(of: &Datatype) -> Self {
        Self { map: of.0.map.clone(), stride: of.extent() }
    }

    fn bytes(&self, elements: usize) -> Result<isize, Overflow> {
        self.stride.checked_mul(isize::try_from(elements).map_err(|_| Overflow)?).ok_or(Overflow)
    }

    fn grow(&mut self, map: Map, size: usize) -> Result<(), Overflow> {
        *self = Self { map, stride: self.bytes(size)? };
        Ok(())
    }

    fn marked(self) -> Map {
        Map { marked: Some(Bounds { low: 0, high: self.stride }), ..self.map }
    }

    /// The elements of this dimension that fall to the process at `coordinate`.
    fn dealt(&self, dimension: &Dimension, coordinate: usize, index: usize) -> Result<Map, TypeError> {
        let Dimension { size, distribution, processes } = *dimension;
        let refused = TypeError::Distribution(index);
        let covers = |block: usize| block > 0 && block.saturating_mul(processes) >= size;
        let block = match distribution {
            _ if processes == 0 => return Err(refused),
            Distribution::None if processes > 1 => return Err(refused),
            Distribution::None => size,
            Distribution::Block(None) => size.div_ceil(processes),
            Distribution::Block(Some(block)) if covers(block) => block,
            Distribution::Block(Some(_)) | Distribution::Cyclic(Some(0)) => return Err(refused),
            Distribution::Cyclic(block) => block.unwrap_or(1),
        };
        // What is beyond the array, where blocks and rounds may be, is nobody's.
        let block = block.min(size);
        let start = block.saturating_mul(coordinate);
        if start >= size {
            return Ok(Map::EMPTY);
        }
        let round = block.saturating_mul(processes);
        // Whole blocks, then what the array's end leaves of one more.
        let left = size - start;
        let (whole, rest) = match (left / round, left % round) {
            (rounds, rest) if rest >= block => (rounds + 1, 0),
            (rounds, rest) => (rounds, rest),
        };
        let body = self.map.repeated(block, self.stride)?;
        let front = body.repeated(whole, self.bytes(if whole > 1 { round } else { 0 })?)?;
        let end =
            self.map.repeated(rest, self.stride)?.shifted(self.bytes(if rest > 0 { round * whole } else { 0 })?)?;
        Ok(Map::sequence(vec![front, end])?.shifted(self.bytes(start)?)?)
    }
}

/// The dimensions, beginning with the one whose neighbours are neighbours in memory.
fn nearest_first(dimensions: usize, order: Order) -> Vec<usize> {
    match order {
        Order::C => (0..dimensions).rev().collect(),
        Order::Fortran => (0..dimensions).collect(),
    }
}
