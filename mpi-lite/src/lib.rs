//! MPI over Sidelane's protocol. A program gets its communicator from [`world::run_or_abort`], and `sidelane run` starts its ranks:
//!
//! ```no_run
//! use sidelane_mpi::comm::{Communicator, ErrorClass};
//! use sidelane_mpi::op::Op;
//! use sidelane_mpi::world::{self, WorldError};
//!
//! fn main() -> Result<(), WorldError> {
//!     world::run_or_abort(|world: &Communicator| {
//!         let mut sum = [0];
//!         world.allreduce(&[world.rank()], &mut sum, &Op::Sum)?;
//!         println!("rank {} of {}: the ranks' sum is {}", world.rank(), world.size(), sum[0]);
//!         Ok::<_, ErrorClass>(())
//!     })
//! }
//! ```
//!
//! | module | what it is | stands on |
//! | --- | --- | --- |
//! | `adi` | the few calls that everything above uses: post a receive, start a send, match, probe, progress, wait, cancel | `giving_way`, `both_ends`, `sidelane-proto` |
//! | `error` | error classes; codes and texts of the program's own | `adi` |
//! | `attribute` | what a program hangs on communicators, datatypes and windows | `adi`, `error` |
//! | `datatype` | what a message's bytes mean: layouts, packing, unpacking | `error`, `attribute` |
//! | `op` | operators of reductions | `datatype` |
//! | `coll` | collectives, one algorithm a file with its cost, each a schedule of sends, receives and local steps that knows no network; chosen by size and ranks from a measured table | nothing |
//! | `host` | collectives of ranks on one host, by memory that they share | `coll`, `giving_way`, `membarrier`, `both_ends` |
//! | `biased` | a lock that its usual thread takes without a locked instruction | `membarrier` |
//! | `both_ends` | who copies which piece of long bytes that two processes copy | nothing |
//! | `membarrier` | a memory barrier in other threads and processes, by who seldom needs one | nothing |
//! | `giving_way` | how long who waits lets others run before it sleeps, and how often who need not wait serves them | nothing |
//! | `launch` | who started this process, and with whom: the PMI-1 wire protocol, both sides | nothing |
//! | `comm` | groups, communicators, context ids, topologies; point-to-point in all its modes; runs the schedules of `coll` | `adi`, `error`, `attribute`, `datatype`, `op`, `coll`, `host`, `biased`, `giving_way` |
//! | `rma` | windows: one-sided put, get and accumulate | `adi`, `error`, `attribute`, `datatype`, `op`, `coll`, `comm`, `giving_way` |
//! | `window` | one-sided communication of slices: windows whose epochs are guards | `adi`, `error`, `attribute`, `datatype`, `op`, `comm`, `rma` |
//! | `world` | a job's begin and end: launches, opens drivers, exchanges addresses; measured thresholds from a file | `launch`, `adi`, `coll`, `comm` |
//!
//! A module uses what its row names, and nothing else of this crate.

#![deny(unsafe_code)]

#[cfg(not(loom))]
pub mod adi;
#[cfg(not(loom))]
pub mod attribute;
#[cfg(any(not(loom), test))]
mod biased;
#[cfg(any(not(loom), test))]
mod both_ends;
#[cfg(not(loom))]
pub mod coll;
#[cfg(not(loom))]
pub mod comm;
#[cfg(not(loom))]
pub mod datatype;
#[cfg(not(loom))]
pub mod error;
#[cfg(not(loom))]
mod giving_way;
#[cfg(not(loom))]
pub mod host;
#[cfg(not(loom))]
pub mod launch;
#[cfg(not(loom))]
mod membarrier;
#[cfg(not(loom))]
pub mod op;
#[cfg(all(test, not(loom)))]
#[path = "../../nic/tests/patience/mod.rs"]
mod patience;
#[cfg(not(loom))]
pub mod rma;
#[cfg(not(loom))]
pub mod window;
#[cfg(not(loom))]
pub mod world;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What loom's models are of. The rest stands on crates that have none of it under loom.
#[cfg(all(loom, test))]
mod host {
    mod models;
    mod sleepers;
}
