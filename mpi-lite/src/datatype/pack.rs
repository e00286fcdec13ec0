#![allow(unsafe_code)]
//! Packing and unpacking, from any position in the packed bytes.
//!
//! Unsafe, for the versions on raw memory that the C interface and `MPI_BOTTOM` need; those on slices check, then call them.

use super::copy::{repeat_part, whole};
use super::{Datatype, Overflow};

/// A buffer does not hold all bytes of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the buffer does not hold all bytes of its elements")]
pub struct OutOfBounds;

impl Datatype {
    /// Bytes that `count` elements take packed (`MPI_Pack_size`): their data and nothing else.
    pub fn pack_size(&self, count: usize) -> Result<usize, Overflow> {
        let size = self.size().checked_mul(count).ok_or(Overflow)?;
        isize::try_from(size).map_err(|_| Overflow)?;
        Ok(size)
    }

    /// Where the data of `count` elements is, when that is one run of bytes: its offset from the buffer's address, and its
    /// length. Such a buffer needs no packing.
    pub fn contiguous_run(&self, count: usize) -> Option<(isize, usize)> {
        let one = &self.0.map.layout;
        if one.is_run() && count > 0 && self.extent() == one.size as isize {
            return Some((one.at, one.size * count));
        }
        let all = one.widened(count, self.extent())?;
        all.is_run().then_some((all.at, all.size))
    }

    /// Which bytes, relative to the buffer's address, hold the data of `count` elements: from the first to behind the last.
    pub fn span(&self, count: usize) -> Result<(isize, isize), Overflow> {
        let (Some(data), Some(last)) = (self.0.map.data, count.checked_sub(1)) else { return Ok((0, 0)) };
        let last = isize::try_from(last).map_err(|_| Overflow)?.checked_mul(self.extent()).ok_or(Overflow)?;
        let low = data.low.checked_add(last.min(0)).ok_or(Overflow)?;
        Ok((low, data.high.checked_add(last.max(0)).ok_or(Overflow)?))
    }

    /// Packs the bytes from `position` on, of `count` elements whose address is `memory[origin]`, as many as there are or
    /// `out` holds. Returns how many.
    pub fn pack(
        &self,
        memory: &[u8],
        origin: usize,
        count: usize,
        position: usize,
        out: &mut [u8],
    ) -> Result<usize, OutOfBounds> {
        self.check(memory.len(), origin, count)?;
        // SAFETY: `check` found all data within `memory`, and `out` is exclusively borrowed.
        Ok(unsafe { self.pack_raw(memory.as_ptr().wrapping_add(origin), count, position, out) })
    }

    /// Unpacks the bytes of `packed`, which are those from `position` on, into `count` elements whose address is
    /// `memory[origin]`. Returns how many bytes there was room for.
    pub fn unpack(
        &self,
        memory: &mut [u8],
        origin: usize,
        count: usize,
        position: usize,
        packed: &[u8],
    ) -> Result<usize, OutOfBounds> {
        self.check(memory.len(), origin, count)?;
        // SAFETY: `check` found all data within `memory`, which is exclusively borrowed.
        Ok(unsafe { self.unpack_raw(memory.as_mut_ptr().wrapping_add(origin), count, position, packed) })
    }

    /// As [`Self::pack`], from memory at an address.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` can be read, and `out` is none of it.
    pub unsafe fn pack_raw(&self, memory: *const u8, count: usize, position: usize, out: &mut [u8]) -> usize {
        let len = self.rest(count, position).min(out.len());
        // SAFETY: packing only reads the memory, as the caller allows; `len` is within the data and within `out`.
        unsafe { self.copy::<true>(memory.cast_mut(), position, out.as_mut_ptr(), len) };
        len
    }

    /// As [`Self::unpack`], into memory at an address.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` can be written, nobody else uses it meanwhile, and `packed` is none of it.
    pub unsafe fn unpack_raw(&self, memory: *mut u8, count: usize, position: usize, packed: &[u8]) -> usize {
        let len = self.rest(count, position).min(packed.len());
        // SAFETY: unpacking only reads the stream; `len` is within the data and within `packed`.
        unsafe { self.copy::<false>(memory, position, packed.as_ptr().cast_mut(), len) };
        len
    }

    /// # Safety
    ///
    /// The bytes from `position` to `position + len` of elements at `memory`, and `len` bytes at `stream`, can be read, and
    /// written on the side that is copied to.
    #[inline]
    unsafe fn copy<const PACK: bool>(&self, memory: *mut u8, position: usize, stream: *mut u8, len: usize) {
        let layout = &self.0.map.layout;
        // SAFETY: passed on; a length above zero means that the layout has bytes, so that it can be divided by.
        unsafe {
            if position == 0 && len == layout.size {
                whole::<PACK>(layout, memory, stream);
            } else if len > 0 {
                repeat_part::<PACK>(layout, self.extent(), memory, position, stream, len);
            }
        }
    }

    /// Packed bytes of `count` elements from `position` on.
    fn rest(&self, count: usize, position: usize) -> usize {
        self.pack_size(count).expect("memory holds no more than addresses can say").saturating_sub(position)
    }

    pub(super) fn check(&self, len: usize, origin: usize, count: usize) -> Result<(), OutOfBounds> {
        self.pack_size(count).map_err(|Overflow| OutOfBounds)?;
        let (low, high) = self.span(count).map_err(|Overflow| OutOfBounds)?;
        let low = origin.checked_add_signed(low).ok_or(OutOfBounds)?;
        let high = origin.checked_add_signed(high).ok_or(OutOfBounds)?;
        if low <= high && high <= len { Ok(()) } else { Err(OutOfBounds) }
    }
}
