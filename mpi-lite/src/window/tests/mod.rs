//! Windows of several ranks: threads of this process, over shared memory.
#![allow(unsafe_code)] // Windows over memory that others do not map are made by address.

mod begun;
mod behaviour;
mod beside;
mod endings;
mod threads;

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

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

/// Memory of windows, which serve others as long as there are any. AddressSanitizer takes for lost what is not to be found.
static KEPT: Mutex<Vec<&[AtomicU64]>> = Mutex::new(Vec::new());

/// A window over memory that others do not map.
fn unmapped(comm: &Communicator, len: usize) -> Window<u64> {
    let (made_of, comm) = (comm.clone(), comm.for_window().unwrap());
    let words: &[AtomicU64] = Box::leak((0..len).map(|_| AtomicU64::new(0)).collect());
    KEPT.lock().unwrap().push(words);
    let memory = std::ptr::slice_from_raw_parts_mut(words.as_ptr().cast_mut().cast::<u8>(), len * 8);
    // SAFETY: the memory stays for ever, and nobody else uses it; the device stays where it is.
    let raw = unsafe { comm.with_device(|device| rma::Window::create(device, comm.members(), memory, 8)) };
    Window::of(made_of, comm, raw.unwrap(), len)
}
