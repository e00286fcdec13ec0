//! A window, and operations that are waited for.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use crate::adi::Device;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::rma::{Flavor, Lent, Members, RmaError, Room, Target, Window};

/// A window of `kept` or of memory of its own.
pub fn window(device: &mut Device, members: Members, flavor: Flavor, kept: &mut [u64]) -> Window {
    let memory = std::ptr::slice_from_raw_parts_mut(kept.as_mut_ptr().cast::<u8>(), kept.len() * 8);
    match flavor {
        // SAFETY: callers keep it until the window is freed, and do not look at it before.
        Flavor::Create => unsafe { Window::create(device, members, memory, 8) },
        _ => Window::allocate(device, members, memory.len(), 8),
    }
    .unwrap()
}

pub fn word() -> Datatype {
    Predefined::Uint64.into()
}

pub fn put(w: &mut Window, device: &mut Device, words: &[u64], rank: usize, displacement: i64) -> Result<(), RmaError> {
    let datatype = &word();
    let from = Lent { address: words.as_ptr().cast(), count: words.len(), datatype };
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.put(device, from, Target { rank, displacement, count: words.len(), datatype })? };
    w.wait(device, operation)
}

pub fn get(
    w: &mut Window,
    device: &mut Device,
    words: &mut [u64],
    rank: usize,
    displacement: i64,
) -> Result<(), RmaError> {
    let (datatype, count) = (&word(), words.len());
    let into = Room { address: words.as_mut_ptr().cast(), count, datatype };
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.get(device, into, Target { rank, displacement, count, datatype })? };
    w.wait(device, operation)
}

pub fn fetch_and_add(w: &mut Window, device: &mut Device, value: u64, rank: usize, displacement: i64) -> u64 {
    let mut before = 0u64;
    let (value, result) = ((&raw const value).cast(), (&raw mut before).cast());
    // SAFETY: we wait until it is over.
    let operation = unsafe { w.fetch_and_op(device, value, result, Predefined::Uint64, rank, displacement, &Op::Sum) };
    w.wait(device, operation.unwrap()).unwrap();
    before
}
