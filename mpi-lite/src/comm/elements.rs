#![allow(unsafe_code)]
//! The elements that a collective call gives or gets: where they are, and their bytes in one piece.
//!
//! Unsafe, since they are at addresses that the caller vouches for.

use std::ptr::{NonNull, slice_from_raw_parts_mut};

use crate::datatype::Datatype;

use super::pending::Memory;
use super::{Equivalence, ErrorClass};

/// Elements of one type: pieces of a buffer, each so many elements at so many bytes from its address.
#[derive(Debug, Clone)]
pub struct Elements {
    memory: Memory,
    datatype: Datatype,
    pieces: Vec<(isize, usize)>,
    form: Form,
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
        Self::new(std::ptr::null_mut(), &[], &crate::datatype::Predefined::Byte.into())
    }

    /// A slice, to be read.
    pub(super) fn of<T: Equivalence>(data: &[T]) -> Self {
        Self::at(data.as_ptr().cast::<u8>().cast_mut(), data.len(), &T::datatype())
    }

    /// A slice, to be written.
    pub(super) fn of_mut<T: Equivalence>(data: &mut [T]) -> Self {
        Self::at(data.as_mut_ptr().cast(), data.len(), &T::datatype())
    }

    /// `count` elements at an address.
    pub fn at(memory: *mut u8, count: usize, datatype: &Datatype) -> Self {
        Self::new(memory, &[(0, count)], datatype)
    }

    /// Pieces of a buffer, in the order of ranks: their bytes from its address, and their numbers of elements.
    pub fn new(memory: *mut u8, pieces: &[(isize, usize)], datatype: &Datatype) -> Self {
        Self { memory: Memory(memory), datatype: datatype.clone(), pieces: pieces.to_vec(), form: Form::Packed }
    }

    /// The same, not packed but as in memory, for operators.
    pub(super) fn native(self) -> Self {
        Self { form: Form::Native, ..self }
    }

    /// Elements in all.
    pub(super) fn count(&self) -> usize {
        self.pieces.iter().map(|(_, count)| count).sum()
    }

    /// Bytes of one element in one piece.
    pub(super) fn element(&self) -> usize {
        match self.form {
            Form::Packed => self.datatype.size(),
            Form::Native => self.datatype.extent().unsigned_abs(),
        }
    }

    /// Bytes in one piece.
    pub(super) fn len(&self) -> Result<usize, ErrorClass> {
        self.count().checked_mul(self.element()).ok_or(ErrorClass::Count)
    }

    /// Their bytes where they are, if they are in one piece.
    pub(super) fn in_place(&self) -> Option<*mut [u8]> {
        let gapless = self.datatype.extent() == self.datatype.size() as isize;
        // The gaps of predefined pairs are the caller's memory too: a C struct has them.
        let native = self.form == Form::Native && self.datatype.element_count() == 1;
        let mut end = None;
        let mut start = 0;
        for (at, count) in self.pieces.iter().filter(|(_, count)| *count > 0) {
            let (offset, len) = match self.datatype.contiguous_run(*count) {
                Some(run) if gapless || self.form == Form::Packed => run,
                _ if native && self.datatype.lower_bound() == 0 => (0, count * self.element()),
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
            Some(end) if end > start => {
                slice_from_raw_parts_mut(self.memory.0.wrapping_offset(start), (end - start) as usize)
            }
            _ => slice_from_raw_parts_mut(NonNull::dangling().as_ptr(), 0),
        })
    }

    /// Their bytes copied to one piece.
    ///
    /// # Safety
    ///
    /// All data of the elements can be read.
    pub(super) unsafe fn gather(&self) -> Result<Vec<u8>, ErrorClass> {
        let mut bytes = vec![0; self.len()?];
        let mut at = 0;
        for (place, count) in &self.pieces {
            let memory = self.memory.0.wrapping_offset(*place);
            match self.form {
                // SAFETY: the elements' data, as the caller says.
                Form::Packed => at += unsafe { self.datatype.pack_raw(memory, *count, 0, &mut bytes[at..]) },
                Form::Native => {
                    let mut packed = vec![0; self.datatype.pack_size(*count).map_err(|_| ErrorClass::Count)?];
                    // SAFETY: as above; then within `bytes`, as `native_origin` sees to.
                    unsafe {
                        self.datatype.pack_raw(memory, *count, 0, &mut packed);
                        let origin = self.native_origin(&mut bytes[at..])?;
                        self.datatype.unpack_raw(origin, *count, 0, &packed);
                    }
                    at += count * self.element();
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
    pub(super) unsafe fn scatter(&self, bytes: &mut [u8]) -> Result<(), ErrorClass> {
        let mut at = 0;
        for (place, count) in &self.pieces {
            let memory = self.memory.0.wrapping_offset(*place);
            match self.form {
                // SAFETY: the elements' data, as the caller says.
                Form::Packed => at += unsafe { self.datatype.unpack_raw(memory, *count, 0, &bytes[at..]) },
                Form::Native => {
                    let mut packed = vec![0; self.datatype.pack_size(*count).map_err(|_| ErrorClass::Count)?];
                    // SAFETY: within `bytes`, as `native_origin` sees to; then as above.
                    unsafe {
                        let origin = self.native_origin(&mut bytes[at..])?;
                        self.datatype.pack_raw(origin, *count, 0, &mut packed);
                        self.datatype.unpack_raw(memory, *count, 0, &packed);
                    }
                    at += count * self.element();
                }
            }
        }
        Ok(())
    }

    /// The address of an element whose extent is the front of `bytes`: refused where data is outside of its extent.
    fn native_origin(&self, bytes: &mut [u8]) -> Result<*mut u8, ErrorClass> {
        let (low, high) = (self.datatype.true_lower_bound(), self.datatype.true_extent() as isize);
        let (first, extent) = (self.datatype.lower_bound(), self.datatype.extent());
        if low < first || low + high > first + extent {
            return Err(ErrorClass::Type);
        }
        Ok(bytes.as_mut_ptr().wrapping_offset(-first))
    }
}
