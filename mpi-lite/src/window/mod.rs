//! One-sided communication of slices: windows, and epochs that are guards (MPI-4.1 12).
//!
//! | file | what it knows |
//! | --- | --- |
//! | `own` | a window: how it begins and ends, and this process's part of it |
//! | `epoch` | when others' parts may be accessed: fence, start and complete, locks |
//! | `posted` | when others may access this part: post and wait |
//! | `begin` | put, get, accumulates, as they begin |
//! | `access` | the same until they are over |
//! | `scope` | several of them under way at once, on memory that is borrowed meanwhile |
//!
//! Everything is done by [`crate::rma`], whose calls take memory by address. Here an operation needs an [`Epoch`], and ends before what it
//! was lent can be used again.
//!
//! ```
//! use sidelane_mpi::adi::Config;
//! use sidelane_mpi::comm::in_threads;
//! use sidelane_mpi::op::Op;
//! use sidelane_mpi::window::Lock;
//!
//! in_threads(4, &Config::default(), false, |comm| {
//!     let window = comm.window::<u64>(1)?;
//!     let epoch = window.lock(0, Lock::Shared)?;
//!     // Nobody else gets the same number.
//!     let number = epoch.fetch_and_op(1, 0, 0, &Op::Sum)?;
//!     epoch.end()?;
//!     comm.barrier()?;
//!     if comm.rank() == 0 {
//!         assert_eq!(window.read(0..1)?, [4]);
//!     }
//!     assert!(number < 4);
//!     window.free()
//! });
//! ```
//!
//! What has to last is borrowed. An epoch that was ended accesses nothing any more:
//!
//! ```compile_fail,E0382
//! # use sidelane_mpi::comm::ErrorClass;
//! # use sidelane_mpi::window::{Lock, Window};
//! fn late(window: &Window<u64>) -> Result<(), ErrorClass> {
//!     let epoch = window.lock(0, Lock::Shared)?;
//!     epoch.end()?;
//!     epoch.put(&[1], 0, 0)
//! }
//! ```
//!
//! The room of a get that was begun is there until the get is over, and nobody looks at it before:
//!
//! ```compile_fail,E0597
//! # use sidelane_mpi::comm::ErrorClass;
//! # use sidelane_mpi::window::{AllLocked, Epoch};
//! fn short(epoch: &Epoch<u64, AllLocked>) -> Result<(), ErrorClass> {
//!     epoch.scope(|scope| {
//!         let mut room = [0; 8];
//!         scope.get(&mut room, 1, 0)?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Nor does a window end while one of its epochs is open:
//!
//! ```compile_fail,E0505
//! # use sidelane_mpi::comm::ErrorClass;
//! # use sidelane_mpi::window::Window;
//! fn early(window: Window<u64>) -> Result<(), ErrorClass> {
//!     let epoch = window.lock_all()?;
//!     window.free()?;
//!     epoch.end()
//! }
//! ```
//!
//! All three as they are meant:
//!
//! ```
//! # use sidelane_mpi::comm::ErrorClass;
//! # use sidelane_mpi::window::Window;
//! fn well(window: Window<u64>) -> Result<(), ErrorClass> {
//!     let epoch = window.lock_all()?;
//!     let mut room = [0; 8];
//!     epoch.scope(|scope| {
//!         scope.get(&mut room, 1, 0)?;
//!         Ok(())
//!     })?;
//!     epoch.put(&room, 0, 0)?;
//!     epoch.end()?;
//!     window.free()
//! }
//! ```

mod access;
mod begin;
mod epoch;
mod own;
mod posted;
mod scope;
#[cfg(test)]
mod tests;

pub use crate::rma::Lock;
pub use epoch::{AllLocked, Epoch, Fenced, Kind, Locked, Started};
pub use own::Window;
pub use posted::Posted;
pub use scope::{Request, Scope};
