#![allow(unsafe_code)]
//! Operators without communication (`MPI_Reduce_local`, MPI-4.1 6.9.7): of slices, and of raw memory. Unsafe, since that is lent.

use crate::coll::Access;
use crate::datatype::Datatype;
use crate::op::Op;

use super::elements::Elements;
use super::operand::{Operand, Operator, combine};
use super::side::Side;
use super::{Equivalence, ErrorClass};

/// Combines `result` with `data`, which is as long, element by element: `result[i] = data[i] OP result[i]`.
pub fn reduce_local<T: Equivalence>(data: &[T], result: &mut [T], op: &Op) -> Result<(), ErrorClass> {
    if data.len() != result.len() {
        return Err(ErrorClass::Count);
    }
    let (given, room) = (Elements::of(data), Elements::of_mut(result));
    // SAFETY: both are borrowed, and what operators make of elements are such.
    unsafe { reduce(given, room, Some((&Operand::of::<T>(), op))) }
}

/// As [`reduce_local`], of `count` elements.
///
/// # Safety
///
/// All data of `count` elements at `data` can be read, and at `result` be read and written; nobody else uses the latter.
pub unsafe fn reduce_local_raw(
    data: *const u8,
    result: *mut u8,
    count: usize,
    datatype: &Datatype,
    op: &Op,
) -> Result<(), ErrorClass> {
    let (given, room) = (Elements::at(data.cast_mut(), count, datatype), Elements::at(result, count, datatype));
    // SAFETY: passed on.
    unsafe { reduce(given, room, Some((&datatype.clone().into(), op))) }
}

/// # Safety
///
/// All data of `given` can be read, and of `room` be read and written; nobody else uses that.
unsafe fn reduce(given: Elements, room: Elements, operator: Operator) -> Result<(), ErrorClass> {
    let mut combine = combine(operator)?;
    // SAFETY: passed on.
    let (given, room) = unsafe { Side::both(Some(given), (room, Access::Both), operator) }?;
    let from = given.as_ref().map_or(std::ptr::slice_from_raw_parts_mut(room.bytes.cast(), 0), |given| given.bytes);
    // SAFETY: the caller's memory, or copies.
    unsafe {
        combine.as_dyn()(&mut *room.bytes, &*from);
        Side::end(given, room, Ok(()))
    }
}
