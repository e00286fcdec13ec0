//! The constructors of MPI-4.1 5.1.2, but those of arrays.

use super::map::{Bounds, Map};
use super::{DEPTH_MAX, Datatype, Made, Overflow};

/// Why a datatype was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// It would not fit into memory.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// Arrays of arguments that belong together have different lengths.
    #[error("arrays of arguments have different lengths")]
    Lengths,
    /// The part of this dimension of an array is empty or reaches beyond it.
    #[error("dimension {0}: its part is empty or reaches beyond the array")]
    Subarray(usize),
    /// This dimension of a distributed array can't be dealt out so.
    #[error("dimension {0}: its distribution does not cover the array, or its argument is zero")]
    Distribution(usize),
    /// A distributed array's rank is none of its process grid's.
    #[error("the rank is none of the process grid's")]
    Rank,
    /// Types of types, and so on.
    #[error("types within one another more than {DEPTH_MAX} times; one `structure` of many blocks has no depth")]
    Depth,
}

impl Datatype {
    /// `count` elements, one after another.
    pub fn contiguous(count: usize, of: &Self) -> Result<Self, TypeError> {
        let map = of.0.map.repeated(count, of.extent())?;
        Self::new(map, Made::Contiguous { count, of: of.clone() })
    }

    /// `count` blocks of `block_length` elements, `stride` elements from the start of one to the next.
    pub fn vector(count: usize, block_length: usize, stride: isize, of: &Self) -> Result<Self, TypeError> {
        let map = of.block(block_length)?.repeated(count, of.elements(stride)?)?;
        Self::new(map, Made::Vector { count, block_length, stride, of: of.clone() })
    }

    /// As [`Self::vector`], with a stride in bytes.
    pub fn hvector(count: usize, block_length: usize, stride: isize, of: &Self) -> Result<Self, TypeError> {
        let map = of.block(block_length)?.repeated(count, stride)?;
        Self::new(map, Made::Hvector { count, block_length, stride, of: of.clone() })
    }

    /// Blocks of these lengths, so many elements from the buffer's address.
    pub fn indexed(block_lengths: &[usize], displacements: &[isize], of: &Self) -> Result<Self, TypeError> {
        let places =
            displacements.iter().map(|displacement| of.elements(*displacement)).collect::<Result<Vec<_>, _>>()?;
        let map = blocks(block_lengths, &places, |_| of)?;
        let (block_lengths, displacements) = (block_lengths.to_vec(), displacements.to_vec());
        Self::new(map, Made::Indexed { block_lengths, displacements, of: of.clone() })
    }

    /// As [`Self::indexed`], with displacements in bytes.
    pub fn hindexed(block_lengths: &[usize], displacements: &[isize], of: &Self) -> Result<Self, TypeError> {
        let map = blocks(block_lengths, displacements, |_| of)?;
        let (block_lengths, displacements) = (block_lengths.to_vec(), displacements.to_vec());
        Self::new(map, Made::Hindexed { block_lengths, displacements, of: of.clone() })
    }

    /// As [`Self::indexed`], with blocks of one length.
    pub fn indexed_block(block_length: usize, displacements: &[isize], of: &Self) -> Result<Self, TypeError> {
        let places =
            displacements.iter().map(|displacement| of.elements(*displacement)).collect::<Result<Vec<_>, _>>()?;
        let map = blocks(&vec![block_length; places.len()], &places, |_| of)?;
        let displacements = displacements.to_vec();
        Self::new(map, Made::IndexedBlock { block_length, displacements, of: of.clone() })
    }

    /// As [`Self::hindexed`], with blocks of one length.
    pub fn hindexed_block(block_length: usize, displacements: &[isize], of: &Self) -> Result<Self, TypeError> {
        let map = blocks(&vec![block_length; displacements.len()], displacements, |_| of)?;
        let displacements = displacements.to_vec();
        Self::new(map, Made::HindexedBlock { block_length, displacements, of: of.clone() })
    }

    /// Blocks of several types (`MPI_Type_create_struct`); displacements are bytes.
    pub fn structure(block_lengths: &[usize], displacements: &[isize], of: &[Self]) -> Result<Self, TypeError> {
        if of.len() != displacements.len() {
            return Err(TypeError::Lengths);
        }
        let map = blocks(block_lengths, displacements, |index| &of[index])?;
        let (block_lengths, displacements) = (block_lengths.to_vec(), displacements.to_vec());
        Self::new(map, Made::Struct { block_lengths, displacements, of: of.to_vec() })
    }

    /// The same data with other bounds.
    pub fn resized(&self, lower_bound: isize, extent: isize) -> Result<Self, TypeError> {
        let high = lower_bound.checked_add(extent).ok_or(Overflow)?;
        let map = Map { marked: Some(Bounds { low: lower_bound, high }), ..self.0.map.clone() };
        Self::new(map, Made::Resized { lower_bound, extent, of: self.clone() })
    }

    fn block(&self, length: usize) -> Result<Map, Overflow> {
        self.0.map.repeated(length, self.extent())
    }

    /// So many elements in bytes.
    fn elements(&self, count: isize) -> Result<isize, Overflow> {
        count.checked_mul(self.extent()).ok_or(Overflow)
    }
}

/// Blocks of these lengths at these bytes, each of the type that `of` says for its index.
fn blocks<'a>(lengths: &[usize], places: &[isize], of: impl Fn(usize) -> &'a Datatype) -> Result<Map, TypeError> {
    if lengths.len() != places.len() {
        return Err(TypeError::Lengths);
    }
    let blocks = lengths.iter().zip(places).enumerate();
    // Empty blocks are no part of the type map, so their displacements don't move its bounds.
    let maps = blocks
        .filter(|(_, (length, _))| **length > 0)
        .map(|(index, (length, place))| of(index).block(*length)?.shifted(*place));
    Ok(Map::sequence(maps.collect::<Result<_, _>>()?)?)
}
