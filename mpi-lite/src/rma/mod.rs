//! One-sided communication: windows, and operations on other processes' memory (MPI-4.1 12).
//!
//! | file | what it knows |
//! | --- | --- |
//! | `window` | the window, and waiting for its operations |
//! | `create` | how windows begin |
//! | `access` | put, get, accumulates |
//! | `epoch`, `words` | when they are allowed, and when they are done; words of several ranks |
//! | `queue` | an origin's side: what is under way at a target |
//! | `exposure` | the target's side: requests served within the device's turns |
//! | `request`, `runs` | what an origin asks: the wire format; which bytes |
//! | `combine`, `lock_table` | accumulates; who has the lock |
//! | `memory`, `lent`, `direct` | the window's bytes; the user's buffers; memory that both map |
//! | `members`, `error`, `named` | who, why not, and what the program hangs on a window |
//!
//! An origin sends its target requests, as messages of a context that is the window's. A target does them in its turns, one after
//! another, so every accumulate is atomic for all others, and an origin's are done in its order. Nothing is answered but what
//! fetches something: whoever wants to know that all is done asks for a verdict. Long data travels as messages of its own,
//! straight between the origin's buffer and the window, with all that the device knows of long messages.
//!
//! A process alone:
//!
//! ```
//! use sidelane_mpi::adi::{Config, Device, Process};
//! use sidelane_mpi::datatype::Predefined;
//! use sidelane_mpi::op::Op;
//! use sidelane_mpi::rma::{Contexts, Lock, Members, Window};
//!
//! let mut device = Device::open(0, vec![Process::here("host", &[])], vec![], &Config::default())?;
//! let contexts = Contexts { requests: 8, answers: 9, collective: 10 };
//! let members = Members { processes: [0].into(), rank: 0, contexts };
//! let window = Window::allocate(&mut device, members, 64, 8)?;
//! window.lock(&mut device, 0, Lock::Shared)?;
//! let (two, mut before) = (2u64, 7u64);
//! for _ in 0..3 {
//!     let (value, result) = ((&raw const two).cast(), (&raw mut before).cast());
//!     // SAFETY: both stay, and `before` is not looked at before the operation is over.
//!     unsafe { window.fetch_and_op(&mut device, value, result, Predefined::Uint64, 0, 5, &Op::Sum)? };
//!     window.flush(&mut device, 0)?;
//! }
//! assert_eq!(before, 4);
//! window.unlock(&mut device, 0)?;
//! window.free(&mut device)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod combine;
mod create;
mod direct;
mod epoch;
mod error;
mod exposure;
mod lent;
mod lock_table;
mod members;
mod memory;
mod named;
mod queue;
mod request;
mod runs;
#[cfg(test)]
mod tests;
mod window;
mod words;

use crate::adi::lock;

pub use error::RmaError;
pub use lent::{Lent, NOWHERE, Room, Target};
pub use lock_table::Lock;
pub use members::{Contexts, Members};
pub use queue::Operation;
pub use window::{Flavor, Window};
