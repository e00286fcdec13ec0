//! How a datatype was made.

use super::{Datatype, Dimension, Order, Predefined};

/// The constructor and its arguments, as they were given. `MPI_Type_get_contents` returns them as [`Self::arguments`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the arguments of the function of the same name")]
pub enum Made {
    Named(Predefined),
    Dup { of: Datatype },
    Contiguous { count: usize, of: Datatype },
    Vector { count: usize, block_length: usize, stride: isize, of: Datatype },
    Hvector { count: usize, block_length: usize, stride: isize, of: Datatype },
    Indexed { block_lengths: Vec<usize>, displacements: Vec<isize>, of: Datatype },
    Hindexed { block_lengths: Vec<usize>, displacements: Vec<isize>, of: Datatype },
    IndexedBlock { block_length: usize, displacements: Vec<isize>, of: Datatype },
    HindexedBlock { block_length: usize, displacements: Vec<isize>, of: Datatype },
    Struct { block_lengths: Vec<usize>, displacements: Vec<isize>, of: Vec<Datatype> },
    Subarray { sizes: Vec<usize>, subsizes: Vec<usize>, starts: Vec<usize>, order: Order, of: Datatype },
    Darray { rank: usize, dimensions: Vec<Dimension>, order: Order, of: Datatype },
    Resized { lower_bound: isize, extent: isize, of: Datatype },
    F90Integer { range: u32, of: Predefined },
    F90Real { precision: Option<u32>, range: Option<u32>, of: Predefined },
    F90Complex { precision: Option<u32>, range: Option<u32>, of: Predefined },
}

impl Made {
    /// The value of `MPI_COMBINER_*` in the standard ABI (`mpi.h` of the MPI Forum's `mpi-abi-stubs`).
    pub const fn combiner(&self) -> i32 {
        match self {
            Self::Named(_) => 101,
            Self::Dup { .. } => 102,
            Self::Contiguous { .. } => 103,
            Self::Vector { .. } => 104,
            Self::Hvector { .. } => 105,
            Self::Indexed { .. } => 106,
            Self::Hindexed { .. } => 107,
            Self::IndexedBlock { .. } => 108,
            Self::HindexedBlock { .. } => 109,
            Self::Struct { .. } => 110,
            Self::Subarray { .. } => 111,
            Self::Darray { .. } => 112,
            Self::F90Real { .. } => 113,
            Self::F90Complex { .. } => 114,
            Self::F90Integer { .. } => 115,
            Self::Resized { .. } => 116,
        }
    }
}
