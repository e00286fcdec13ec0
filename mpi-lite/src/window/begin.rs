//! Operations on others' parts as they begin, of those that wait and of those in a scope: what slices are to the raw calls.
#![allow(unsafe_code)] // The raw calls take memory by address.

use crate::comm::{Destination, Equivalence, Held};
use crate::datatype::Datatype;
use crate::op::Op;
use crate::rma::{Lent, NOWHERE, Operation, RmaError, Room, Target, Window};

/// # Safety
///
/// Nobody writes `data` until the operation is over.
pub(super) unsafe fn put<T: Equivalence>(
    raw: &Window,
    turns: &mut Held,
    data: &[T],
    rank: Destination,
    at: usize,
) -> Result<Operation, RmaError> {
    let datatype = &T::datatype();
    // SAFETY: passed on.
    unsafe { raw.put(turns, lent(data, datatype), target(rank, at, data.len(), datatype)) }
}

/// # Safety
///
/// Nobody else uses `into` until the operation is over; any bytes make valid elements.
pub(super) unsafe fn get<T: Equivalence>(
    raw: &Window,
    turns: &mut Held,
    into: &mut [T],
    rank: Destination,
    at: usize,
) -> Result<Operation, RmaError> {
    let datatype = &T::datatype();
    let from = target(rank, at, into.len(), datatype);
    // SAFETY: passed on.
    unsafe { raw.get(turns, room(into, datatype), from) }
}

/// What is given is copied.
pub(super) fn accumulate<T: Equivalence>(
    raw: &Window,
    turns: &mut Held,
    data: &[T],
    rank: Destination,
    at: usize,
    op: &Op,
) -> Result<Operation, RmaError> {
    let datatype = &T::datatype();
    let to = target(rank, at, data.len(), datatype);
    // SAFETY: `data` is borrowed until this returns.
    unsafe { raw.accumulate(turns, lent(data, datatype), to, op) }
}

/// # Safety
///
/// As of [`get`], for `before`.
pub(super) unsafe fn get_accumulate<T: Equivalence>(
    raw: &Window,
    turns: &mut Held,
    (data, before): (&[T], &mut [T]),
    rank: Destination,
    at: usize,
    op: &Op,
) -> Result<Operation, RmaError> {
    let datatype = &T::datatype();
    let to = target(rank, at, before.len(), datatype);
    // SAFETY: passed on; `data` is borrowed, and is copied.
    unsafe { raw.get_accumulate(turns, lent(data, datatype), room(before, datatype), to, op) }
}

pub(super) fn lent<'a, T>(elements: &[T], datatype: &'a Datatype) -> Lent<'a> {
    Lent { address: elements.as_ptr().cast(), count: elements.len(), datatype }
}

pub(super) fn room<'a, T>(elements: &mut [T], datatype: &'a Datatype) -> Room<'a> {
    Room { address: elements.as_mut_ptr().cast(), count: elements.len(), datatype }
}

const fn target(rank: Destination, at: usize, count: usize, datatype: &Datatype) -> Target<'_> {
    Target { rank: rank_of(rank), displacement: displacement(at), count, datatype }
}

pub(super) const fn rank_of(to: Destination) -> usize {
    match to {
        Destination::Rank(rank) => rank as usize,
        Destination::Null => NOWHERE,
    }
}

/// What does not fit is in no window.
pub(super) const fn displacement(at: usize) -> i64 {
    if at as u64 > i64::MAX as u64 { i64::MAX } else { at as i64 }
}
