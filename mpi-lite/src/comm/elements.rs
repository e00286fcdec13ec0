#![allow(unsafe_code)]
//! The elements that a collective call gives or gets: where they are, and their bytes in one piece.
//!
//! Unsafe, since they are at addresses that the caller vouches for.

use std::ptr::{NonNull, slice_from_raw_parts_mut};
use std::slice;

use sidelane_nic::copy::copy_raw;

use crate::datatype::Datatype;

use super::counts::Checked;
use super::pending::Memory;
use super::pieces::Piece;
use super::{Equivalence, ErrorClass};

/// Pieces of a buffer, each so many elements at so many bytes from its address, of one type or of a type each.
#[derive(Debug, Clone)]
pub struct Elements {
    memory: Memory,
    of: Of,
}

/// What elements are: for numbers one after the other nothing has to be found out, or allocated.
#[derive(Debug, Clone)]
enum Of {
    /// `count` numbers of `size` bytes.
    Numbers {
        size: usize,
        count: usize,
    },
    Pieces(Pieces),
}

#[derive(Debug, Clone)]
struct Pieces {
    list: List,
    form: Form,
}

#[derive(Debug, Clone)]
enum List {
    OfOneType(Vec<(isize, usize)>, Datatype),
    OfTypes(Vec<Piece>),
}

/// What the bytes are that travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Data without gaps.
    Packed,
    /// Elements as in memory, each at its extent from the one before: what operators work on.
    Native,
}

impl Elements {
    /// None.
    pub fn none() -> Self {
        Self { memory: Memory(std::ptr::null_mut()), of: Of::Numbers { size: 1, count: 0 } }
    }

    /// A slice, to be read.
    #[inline]
    pub(super) fn of<T: Equivalence>(data: &[T]) -> Self {
        Self::of_slice::<T>(data.as_ptr().cast::<u8>().cast_mut(), data.len())
    }

    /// A slice, to be written.
    #[inline]
    pub(super) fn of_mut<T: Equivalence>(data: &mut [T]) -> Self {
        Self::of_slice::<T>(data.as_mut_ptr().cast(), data.len())
    }

    /// Blocks of a slice, which are within it, to be read.
    pub(super) fn of_blocks<T: Equivalence>(data: &[T], of: Checked<'_>) -> Self {
        Self::blocks::<T>(data.as_ptr().cast::<u8>().cast_mut(), data.len(), of)
    }

    /// The same, to be written.
    pub(super) fn of_blocks_mut<T: Equivalence>(data: &mut [T], of: Checked<'_>) -> Self {
        Self::blocks::<T>(data.as_mut_ptr().cast(), data.len(), of)
    }

    fn blocks<T: Equivalence>(memory: *mut u8, count: usize, of: Checked<'_>) -> Self {
        let Some(starts) = of.starts else { return Self::of_slice::<T>(memory, count) };
        let bytes = |start: &usize| (start * size_of::<T>()) as isize;
        let pieces: Vec<_> = starts.iter().map(bytes).zip(of.counts.iter().copied()).collect();
        Self::new(memory, &pieces, &T::datatype())
    }

    #[inline]
    fn of_slice<T: Equivalence>(memory: *mut u8, count: usize) -> Self {
        let is_gapless = const { matches!(T::KIND, Some(kind) if kind.size() == kind.extent()) };
        if is_gapless {
            // What it extends to, as whoever says what it is promises.
            return Self { memory: Memory(memory), of: Of::Numbers { size: size_of::<T>(), count } };
        }
        Self::at(memory, count, &T::datatype())
    }

    /// `count` elements at an address.
    pub fn at(memory: *mut u8, count: usize, datatype: &Datatype) -> Self {
        match datatype.predefined() {
            Some(kind) if kind.size() == kind.extent() => {
                Self { memory: Memory(memory), of: Of::Numbers { size: kind.size(), count } }
            }
            _ => Self::new(memory, &[(0, count)], datatype),
        }
    }

    /// Pieces of a buffer, in the order of ranks: their bytes from its address, and their numbers of elements.
    pub fn new(memory: *mut u8, pieces: &[(isize, usize)], datatype: &Datatype) -> Self {
        Self::of_list(memory, List::OfOneType(pieces.to_vec(), datatype.clone()))
    }

    /// As [`Self::new`], of a type each, for calls without an operator: what `MPI_Alltoallw` gives and gets. Their packed lengths
    /// are [`Piece::lens`].
    pub fn each(memory: *mut u8, pieces: &[Piece]) -> Self {
        let all = pieces.iter().map(|piece| (&piece.datatype, piece.at, piece.count));
        match one_run(Memory(memory), all, Form::Packed) {
            Some(run) => Self { memory: Memory(run.cast()), of: Of::Numbers { size: 1, count: run.len() } },
            None => Self::of_list(memory, List::OfTypes(pieces.to_vec())),
        }
    }

    fn of_list(memory: *mut u8, list: List) -> Self {
        Self { memory: Memory(memory), of: Of::Pieces(Pieces { list, form: Form::Packed }) }
    }

    /// The same, not packed but as in memory, for operators.
    pub(super) fn native(mut self) -> Self {
        if let Of::Pieces(pieces) = &mut self.of {
            pieces.form = Form::Native;
        }
        self
    }

    /// Bytes in one piece.
    pub(super) fn len(&self) -> Result<usize, ErrorClass> {
        match &self.of {
            Of::Numbers { size, count } => Ok(size * count),
            Of::Pieces(pieces) => pieces.len(),
        }
    }

    /// The bytes of numbers one after the other, whatever is done with them.
    #[inline]
    pub(super) fn numbers(&self) -> Option<*mut [u8]> {
        if matches!(self.of, Of::Numbers { .. }) { self.in_place() } else { None }
    }

    /// Their bytes where they are, if they are in one piece.
    #[inline]
    pub(super) fn in_place(&self) -> Option<*mut [u8]> {
        match &self.of {
            // Without elements there may be no memory either.
            Of::Numbers { count: 0, .. } => Some(slice_from_raw_parts_mut(NonNull::dangling().as_ptr(), 0)),
            Of::Numbers { size, count } => Some(slice_from_raw_parts_mut(self.memory.0, size * count)),
            Of::Pieces(pieces) => pieces.in_place(self.memory),
        }
    }

    /// Their bytes copied to one piece.
    ///
    /// # Safety
    ///
    /// All data of the elements can be read.
    pub(super) unsafe fn gather(&self) -> Result<Vec<u8>, ErrorClass> {
        match &self.of {
            Of::Numbers { count: 0, .. } => Ok(Vec::new()),
            // SAFETY: the elements' data, as the caller says.
            Of::Numbers { size, count } => Ok(unsafe { slice::from_raw_parts(self.memory.0, size * count) }.to_vec()),
            // SAFETY: passed on.
            Of::Pieces(pieces) => unsafe { pieces.gather(self.memory) },
        }
    }

    /// The bytes of one piece copied to where the elements are.
    ///
    /// # Safety
    ///
    /// All data of the elements can be written, and nobody else uses it.
    pub(super) unsafe fn scatter(&self, bytes: &mut [u8]) -> Result<(), ErrorClass> {
        match &self.of {
            Of::Numbers { count: 0, .. } => Ok(()),
            Of::Numbers { size, count } => {
                assert_eq!(bytes.len(), size * count, "the piece has all elements");
                // SAFETY: the elements' data, as the caller says; the piece is another's.
                unsafe { copy_raw(bytes.as_ptr(), self.memory.0, bytes.len()) };
                Ok(())
            }
            // SAFETY: passed on.
            Of::Pieces(pieces) => unsafe { pieces.scatter(self.memory, bytes) },
        }
    }
}

impl Pieces {
    /// Of each: its type, its bytes from the address, and its elements.
    fn each(&self) -> impl Iterator<Item = (&Datatype, isize, usize)> {
        let pieces = match &self.list {
            List::OfOneType(pieces, _) => pieces.len(),
            List::OfTypes(pieces) => pieces.len(),
        };
        (0..pieces).map(|index| match &self.list {
            List::OfOneType(pieces, datatype) => (datatype, pieces[index].0, pieces[index].1),
            List::OfTypes(pieces) => (&pieces[index].datatype, pieces[index].at, pieces[index].count),
        })
    }

    /// Bytes in one piece.
    fn len(&self) -> Result<usize, ErrorClass> {
        let sum = self.each().try_fold(0usize, |sum, (datatype, _, count)| {
            sum.checked_add(count.checked_mul(self.form.element(datatype))?)
        });
        sum.ok_or(ErrorClass::Count)
    }

    /// Their bytes where they are, if they are in one piece.
    fn in_place(&self, memory: Memory) -> Option<*mut [u8]> {
        one_run(memory, self.each(), self.form)
    }

    /// Their bytes copied to one piece.
    ///
    /// # Safety
    ///
    /// All data of the elements can be read.
    unsafe fn gather(&self, memory: Memory) -> Result<Vec<u8>, ErrorClass> {
        let mut bytes = vec![0; self.len()?];
        let mut at = 0;
        for (datatype, place, count) in self.each() {
            let memory = memory.0.wrapping_offset(place);
            match self.form {
                // SAFETY: the elements' data, as the caller says.
                Form::Packed => at += unsafe { datatype.pack_raw(memory, count, 0, &mut bytes[at..]) },
                Form::Native => {
                    let mut packed = vec![0; datatype.pack_size(count).map_err(|_| ErrorClass::Count)?];
                    // SAFETY: as above; then within `bytes`, as `native_origin` sees to.
                    unsafe {
                        datatype.pack_raw(memory, count, 0, &mut packed);
                        let origin = self.native_origin(datatype, &mut bytes[at..])?;
                        datatype.unpack_raw(origin, count, 0, &packed);
                    }
                    at += count * self.form.element(datatype);
                }
            }
        }
        Ok(bytes)
    }

    /// The bytes of one piece copied to where the elements are.
    ///
    /// # Safety
    ///
    /// All data of the elements can be written, and nobody else uses it.
    unsafe fn scatter(&self, memory: Memory, bytes: &mut [u8]) -> Result<(), ErrorClass> {
        let mut at = 0;
        for (datatype, place, count) in self.each() {
            let memory = memory.0.wrapping_offset(place);
            match self.form {
                // SAFETY: the elements' data, as the caller says.
                Form::Packed => at += unsafe { datatype.unpack_raw(memory, count, 0, &bytes[at..]) },
                Form::Native => {
                    let mut packed = vec![0; datatype.pack_size(count).map_err(|_| ErrorClass::Count)?];
                    // SAFETY: within `bytes`, as `native_origin` sees to; then as above.
                    unsafe {
                        let origin = self.native_origin(datatype, &mut bytes[at..])?;
                        datatype.pack_raw(origin, count, 0, &mut packed);
                        datatype.unpack_raw(memory, count, 0, &packed);
                    }
                    at += count * self.form.element(datatype);
                }
            }
        }
        Ok(())
    }

    /// The address of an element whose data begins with `bytes`: refused where it is longer than its extent.
    fn native_origin(&self, datatype: &Datatype, bytes: &mut [u8]) -> Result<*mut u8, ErrorClass> {
        if datatype.true_extent() > self.form.element(datatype) {
            return Err(ErrorClass::Type);
        }
        Ok(bytes.as_mut_ptr().wrapping_offset(-datatype.true_lower_bound()))
    }
}

impl Form {
    /// Bytes of one element in one piece.
    fn element(self, datatype: &Datatype) -> usize {
        match self {
            Self::Packed => datatype.size(),
            Self::Native => datatype.extent().unsigned_abs(),
        }
    }
}

/// The bytes of pieces where they are, if they follow each other.
fn one_run<'a>(
    memory: Memory,
    pieces: impl Iterator<Item = (&'a Datatype, isize, usize)>,
    form: Form,
) -> Option<*mut [u8]> {
    let mut end = None;
    let mut start = 0;
    for (datatype, at, count) in pieces.filter(|(.., count)| *count > 0) {
        let gapless = datatype.extent() == datatype.size() as isize;
        // The gaps of predefined pairs are the caller's memory too: a C struct has them. Those of other types may not be.
        let native = form == Form::Native && datatype.predefined().is_some();
        let (offset, len) = match datatype.contiguous_run(count) {
            Some(run) if gapless || form == Form::Packed => run,
            _ if native => (0, count * form.element(datatype)),
            _ => return None,
        };
        let first = at + offset;
        match end {
            None => start = first,
            Some(end) if end == first => {}
            Some(_) => return None,
        }
        end = Some(first + len as isize);
    }
    // Without elements there may be no memory either.
    Some(match end {
        Some(end) if end > start => slice_from_raw_parts_mut(memory.0.wrapping_offset(start), (end - start) as usize),
        _ => slice_from_raw_parts_mut(NonNull::dangling().as_ptr(), 0),
    })
}
