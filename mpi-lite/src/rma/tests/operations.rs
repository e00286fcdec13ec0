//! A window, and operations that are waited for.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use crate::adi::Turns;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::rma::{Flavor, Lent, Members, RmaError, Room, Target, Window};

/// A window of `kept` or of memory of its own.
pub fn window(turns: &mut impl Turns, members: Members, flavor: Flavor, kept: &mut [u64]) -> Window {
    let memory = std::ptr::slice_from_raw_parts_mut(kept.as_mut_ptr().cast::<u8>(), kept.len() * 8);
    match flavor {
        // SAFETY: callers keep it until the window is freed, and do not look at it before.
        Flavor::Create => unsafe { Window::create(turns, members, memory, 8) },
        _ => Window::allocate(turns, members, memory.len(), 8),
    }
    .unwrap()
}

pub fn word() -> Datatype {
    Predefined::Uint64.into()
}

pub fn put(w: &Window, turns: &mut impl Turns, words: &[u64], rank: usize, displacement: i64) -> Result<(), RmaError> {
    let datatype = &word();
    let from = Lent { address: words.as_ptr().cast(), count: words.len(), datatype };
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.put(turns, from, Target { rank, displacement, count: words.len(), datatype })? };
    w.wait(turns, operation)
}

pub fn get(
    w: &Window,
    turns: &mut impl Turns,
    words: &mut [u64],
    rank: usize,
    displacement: i64,
) -> Result<(), RmaError> {
    let (datatype, count) = (&word(), words.len());
    let into = Room { address: words.as_mut_ptr().cast(), count, datatype };
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.get(turns, into, Target { rank, displacement, count, datatype })? };
    w.wait(turns, operation)
}

pub fn fetch_and_add(w: &Window, turns: &mut impl Turns, value: u64, rank: usize, displacement: i64) -> u64 {
    let mut before = 0u64;
    let (value, result) = ((&raw const value).cast(), (&raw mut before).cast());
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.fetch_and_op(turns, value, result, Predefined::Uint64, rank, displacement, &Op::Sum) };
    w.wait(turns, operation.unwrap()).unwrap();
    before
}
