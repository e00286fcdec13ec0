//! MPI over Sidelane's protocol. There is nothing here yet but the map of what will stand where.
//!
//! | module | what it will be | stands on |
//! | --- | --- | --- |
//! | `adi` | the few calls that everything above uses: post a receive, start a send, match, progress, cancel, put and get | `sidelane-proto` |
//! | `p2p` | send modes, blocking, non-blocking and persistent; probe; eager, rendezvous and hybrid by size | `adi` |
//! | `datatype` | what a message's bytes mean: layouts, packing, unpacking | nothing |
//! | `comm` | groups, communicators, context ids, topologies, attributes | `p2p` |
//! | `coll` | collectives, one algorithm a file with its cost, chosen by size and ranks from a measured table | `p2p`, `comm`, `datatype` |
//! | `rma` | windows: one-sided put, get and accumulate | `adi`, `comm`, `datatype` |
//! | `capi` | the C interface, MPI's standard ABI | all of these |
//!
//! A module uses what its row names, and nothing else of this crate.

#![deny(unsafe_code)]
