//! What a datatype was made with, as the standard lists it (MPI-4.1 5.1.13).

use super::{Datatype, Dimension, Distribution, Made, Order};

/// One argument of a constructor. Values are those of the standard ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// An integer, in any case.
    Integer(i32),
    /// A number of elements or processes: an integer, or a large count of a type that was made with those (`MPI_Type_get_contents_c`).
    Count(isize),
    /// A number of bytes: an address, or a large count.
    Bytes(isize),
}

impl Made {
    /// The arguments but for datatypes, in the standard's order. `MPI_Type_get_envelope` counts them, by what they are.
    pub fn arguments(&self) -> Vec<Argument> {
        use Argument::{Bytes, Count, Integer};
        let count = |count: usize| Count(count as isize);
        let counts = |counts: &[usize]| counts.iter().map(|each| count(*each)).collect::<Vec<_>>();
        let digits = |digits: Option<u32>| Integer(digits.map_or(UNDEFINED, |digits| digits as i32));
        match self {
            Self::Named(_) | Self::Dup { .. } => vec![],
            Self::Contiguous { count: n, .. } => vec![count(*n)],
            Self::Vector { count: n, block_length, stride, .. } => {
                vec![count(*n), count(*block_length), Count(*stride)]
            }
            Self::Hvector { count: n, block_length, stride, .. } => {
                vec![count(*n), count(*block_length), Bytes(*stride)]
            }
            Self::Indexed { block_lengths, displacements, .. } => {
                listed(displacements.len(), counts(block_lengths), displacements, Count)
            }
            Self::Hindexed { block_lengths, displacements, .. } | Self::Struct { block_lengths, displacements, .. } => {
                listed(displacements.len(), counts(block_lengths), displacements, Bytes)
            }
            Self::IndexedBlock { block_length, displacements, .. } => {
                listed(displacements.len(), vec![count(*block_length)], displacements, Count)
            }
            Self::HindexedBlock { block_length, displacements, .. } => {
                listed(displacements.len(), vec![count(*block_length)], displacements, Bytes)
            }
            Self::Subarray { sizes, subsizes, starts, order, .. } => {
                let all = [sizes, subsizes, starts].map(|each| counts(each)).concat();
                [&[Integer(sizes.len() as i32)], &all[..], &[order.argument()]].concat()
            }
            Self::Darray { rank, dimensions, order, .. } => {
                let of = |each: fn(&Dimension) -> Argument| dimensions.iter().map(each);
                let size = dimensions.iter().map(|dimension| dimension.processes).product::<usize>();
                [size, *rank, dimensions.len()]
                    .map(|each| Integer(each as i32))
                    .into_iter()
                    .chain(of(|dimension| Count(dimension.size as isize)))
                    .chain(of(|dimension| dimension.distribution.arguments()[0]))
                    .chain(of(|dimension| dimension.distribution.arguments()[1]))
                    .chain(of(|dimension| Integer(dimension.processes as i32)))
                    .chain([order.argument()])
                    .collect()
            }
            Self::Resized { lower_bound, extent, .. } => vec![Bytes(*lower_bound), Bytes(*extent)],
            Self::F90Integer { range, .. } => vec![Integer(*range as i32)],
            Self::F90Real { precision, range, .. } | Self::F90Complex { precision, range, .. } => {
                vec![digits(*precision), digits(*range)]
            }
        }
    }

    /// The datatypes among the arguments.
    pub fn datatypes(&self) -> &[Datatype] {
        match self {
            Self::Named(_) | Self::F90Integer { .. } | Self::F90Real { .. } | Self::F90Complex { .. } => &[],
            Self::Struct { of, .. } => of,
            Self::Dup { of }
            | Self::Contiguous { of, .. }
            | Self::Vector { of, .. }
            | Self::Hvector { of, .. }
            | Self::Indexed { of, .. }
            | Self::Hindexed { of, .. }
            | Self::IndexedBlock { of, .. }
            | Self::HindexedBlock { of, .. }
            | Self::Subarray { of, .. }
            | Self::Darray { of, .. }
            | Self::Resized { of, .. } => std::slice::from_ref(of),
        }
    }
}

impl Order {
    const fn argument(self) -> Argument {
        Argument::Integer(match self {
            Self::C => 12,
            Self::Fortran => 15,
        })
    }
}

impl Distribution {
    /// What it is, and its own argument.
    fn arguments(self) -> [Argument; 2] {
        let (kind, block) = match self {
            Self::None => (16, None),
            Self::Block(block) => (17, block),
            Self::Cyclic(block) => (18, block),
        };
        [kind, block.map_or(DEFAULT_BLOCK, |block| block as i32)].map(Argument::Integer)
    }
}

/// How many, how long, and where they are.
fn listed(len: usize, lengths: Vec<Argument>, places: &[isize], place: fn(isize) -> Argument) -> Vec<Argument> {
    std::iter::once(Argument::Count(len as isize)).chain(lengths).chain(places.iter().copied().map(place)).collect()
}

/// `MPI_UNDEFINED`.
const UNDEFINED: i32 = -32766;
/// `MPI_DISTRIBUTE_DFLT_DARG`.
const DEFAULT_BLOCK: i32 = 19;
