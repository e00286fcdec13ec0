//! Windows of several ranks: threads of this process, over shared memory.
#![allow(unsafe_code)] // Windows over memory that others do not map are made by address.

mod behaviour;
mod beside;
mod endings;
mod threads;

use crate::adi::Config;
use crate::comm::{Communicator, in_threads};
use crate::rma;

use super::Window;

/// Runs `each` as every rank.
fn job(size: u32, each: impl Fn(Communicator) + Sync) {
    in_threads(size, &Config::default(), false, each);
}

/// How a window is made.
type Make = fn(&Communicator, usize) -> Window<u64>;

/// Others access it by plain copies; by messages, as on another host.
const BOTH: [Make; 2] = [|comm, len| comm.window(len).unwrap(), unmapped];

/// A window over memory that others do not map.
fn unmapped(comm: &Communicator, len: usize) -> Window<u64> {
    let (made_of, comm) = (comm.clone(), comm.for_window().unwrap());
    let memory = Box::leak(vec![0u64; len].into_boxed_slice());
    let memory = std::ptr::slice_from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), len * 8);
    // SAFETY: the memory stays for ever, and nobody else uses it; the device stays where it is.
    let raw = unsafe { comm.with_device(|device| rma::Window::create(device, comm.members(), memory, 8)) };
    Window::of(made_of, comm, raw.unwrap(), len)
}
