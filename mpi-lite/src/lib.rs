//! MPI over Sidelane's protocol.
//!
//! | module | what it is | stands on |
//! | --- | --- | --- |
//! | `adi` | the few calls that everything above uses: post a receive, start a send, match, probe, progress, wait, cancel | `giving_way`, `sidelane-proto` |
//! | `datatype` | what a message's bytes mean: layouts, packing, unpacking | nothing |
//! | `op` | operators of reductions | `datatype` |
//! | `coll` | collectives, one algorithm a file with its cost, each a schedule of sends, receives and local steps that knows no network; chosen by size and ranks from a measured table | nothing |
//! | `host` | collectives of ranks on one host, by memory that they share | `coll`, `giving_way` |
//! | `giving_way` | how long who waits lets others run before it sleeps | nothing |
//! | `launch` | who started this process, and with whom: the PMI-1 wire protocol, both sides | nothing |
//! | `comm` | groups, communicators, context ids, topologies, attributes; point-to-point in all its modes; runs the schedules of `coll` | `adi`, `datatype`, `op`, `coll`, `host`, `giving_way` |
//! | `rma` | windows: one-sided put, get and accumulate | `adi`, `datatype`, `op`, `coll`, `comm` |
//! | `window` | one-sided communication of slices: windows whose epochs are guards | `adi`, `datatype`, `op`, `comm`, `rma` |
//! | `world` | a job's begin and end: launches, opens drivers, exchanges addresses; measured thresholds from a file | `launch`, `adi`, `coll`, `comm` |
//! | `capi` | the C interface, MPI's standard ABI | all of these |
//!
//! A module uses what its row names, and nothing else of this crate. What has no file yet is planned.

#![deny(unsafe_code)]

pub mod adi;
pub mod coll;
pub mod comm;
pub mod datatype;
mod giving_way;
pub mod host;
pub mod launch;
pub mod op;
pub mod rma;
pub mod window;
pub mod world;
