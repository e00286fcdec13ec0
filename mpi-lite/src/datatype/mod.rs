//! What a message's bytes mean: datatypes, how they are put together, and their bytes packed.
//!
//! ```
//! use sidelane_mpi::datatype::{Datatype, Predefined};
//!
//! // The second column of a matrix of 3 rows and 4 columns.
//! let column = Datatype::vector(3, 1, 4, &Predefined::Uint8.into())?;
//! let matrix = [10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33];
//! let mut packed = [0; 3];
//! column.pack(&matrix, 1, 1, 0, &mut packed)?;
//! assert_eq!(packed, [11, 21, 31]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod array;
mod construct;
mod contents;
mod copy;
mod elements;
mod external;
mod fortran;
mod layout;
mod made;
mod map;
mod named;
mod number;
mod pack;
mod predefined;
mod runs;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::attribute::{Attributes, Name};

pub use array::{Dimension, Distribution, Order};
pub use construct::TypeError;
pub use contents::Argument;
pub use external::ExternalError;
pub use fortran::TypeClass;
pub use made::Made;
use map::{Bounds, Map};
pub use number::Number;
pub use pack::OutOfBounds;
pub use predefined::{Class, Predefined, Repr};

/// A datatype: which bytes of memory a message takes, in what order, and what numbers they are (MPI-4.1 5.1).
///
/// Immutable; a clone is the same type and costs a reference. There is nothing to commit: a type is flattened when it is
/// made.
#[derive(Clone)]
pub struct Datatype(Arc<Inner>);

struct Inner {
    map: Map,
    bounds: Bounds,
    made: Made,
    name: Name,
    attributes: Attributes<Datatype>,
    /// Types within one another.
    depth: usize,
}

impl Datatype {
    /// Bytes of data in one element.
    pub fn size(&self) -> usize {
        self.0.map.layout.size
    }

    /// Where an element begins, seen from a buffer's address.
    pub fn lower_bound(&self) -> isize {
        self.0.bounds.low
    }

    /// Where it ends.
    pub fn upper_bound(&self) -> isize {
        self.0.bounds.high
    }

    /// From one element of an array to the next. Negative when `resized` said so.
    pub fn extent(&self) -> isize {
        self.0.bounds.len()
    }

    /// Where the first byte of data is.
    pub fn true_lower_bound(&self) -> isize {
        self.0.map.data.map_or(0, |data| data.low)
    }

    /// From the first byte of data to behind the last.
    pub fn true_extent(&self) -> usize {
        self.0.map.data.map_or(0, |data| data.len() as usize)
    }

    /// The largest alignment that C demands of its elements.
    pub fn alignment(&self) -> usize {
        self.0.map.alignment
    }

    /// How it was made, for `MPI_Type_get_envelope` and `MPI_Type_get_contents`.
    pub fn made(&self) -> &Made {
        &self.0.made
    }

    /// The predefined type that it is; those of Fortran that were asked for by what they hold count too.
    pub fn predefined(&self) -> Option<Predefined> {
        match *self.made() {
            Made::Named(kind) => Some(kind),
            Made::F90Integer { of, .. } | Made::F90Real { of, .. } | Made::F90Complex { of, .. } => Some(of),
            _ => None,
        }
    }

    /// The predefined type of all its elements, when it is one: what accumulates demand (MPI-4.1 12.3.4).
    pub fn element_kind(&self) -> Option<Predefined> {
        self.0.map.elements.single()
    }

    /// How many predefined elements one of it has.
    pub fn element_count(&self) -> usize {
        self.0.map.elements.count()
    }

    /// How many basic elements `bytes` packed bytes hold (`MPI_Get_elements`), of which a value and its index are two; `None` when the
    /// last is not whole.
    pub fn elements_in(&self, bytes: usize) -> Option<usize> {
        if self.size() == 0 {
            return (bytes == 0).then_some(0);
        }
        let (whole, mut rest) = (bytes / self.size(), bytes % self.size());
        let mut found = whole * self.0.map.elements.sum(|kind| basic(kind).count());
        self.0.map.elements.visit(0, &mut |kind, _| {
            basic(kind).all(|size| {
                let fits = size <= rest;
                if fits {
                    rest -= size;
                    found += 1;
                }
                fits && rest > 0
            })
        });
        (rest == 0).then_some(found)
    }

    fn new(map: Map, made: Made) -> Result<Self, TypeError> {
        let depth = 1 + made.datatypes().iter().map(|of| of.0.depth).max().unwrap_or(0);
        if depth > DEPTH_MAX {
            return Err(TypeError::Depth);
        }
        let (name, attributes) = Default::default();
        Ok(Self(Arc::new(Inner { bounds: map.bounds()?, map, made, depth, name, attributes })))
    }
}

/// What goes through a type goes as deep as it is: so deep in less than the 2 MiB of stack that a thread of Rust's has, printed too.
const DEPTH_MAX: usize = 1000;

/// The sizes of an element's basic ones: pairs are as structs of both (MPI-4.1 6.9.4).
fn basic(kind: Predefined) -> impl Iterator<Item = usize> {
    let (first, second) = match kind.repr() {
        Repr::Pair(value, index) => (value.size(), Some(index.size())),
        Repr::One(_) | Repr::Complex(_) => (kind.size(), None),
    };
    std::iter::once(first).chain(second)
}

impl From<Predefined> for Datatype {
    fn from(kind: Predefined) -> Self {
        static TYPES: LazyLock<Vec<Datatype>> = LazyLock::new(|| {
            let new = |kind: &Predefined| {
                let datatype = Datatype::new(Map::predefined(*kind), Made::Named(*kind));
                let datatype = datatype.expect("a predefined type is small");
                datatype.set_name(kind.name());
                datatype
            };
            Predefined::ALL.iter().map(new).collect()
        });
        TYPES[Predefined::ALL.partition_point(|other| *other < kind)].clone()
    }
}

/// Types are equal when they are clones of one, as handles are in C.
impl PartialEq for Datatype {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Datatype {}

impl fmt::Debug for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.made.fmt(f)
    }
}

/// A size, a displacement or a bound exceeds what an address can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a size or displacement exceeds the address space")]
pub struct Overflow;
