//! Processes on one host, through shared memory. Reliable, in order, with back-pressure.
//!
//! Endpoints are numbered within a domain, a name that the processes of one user agree on. Each pair that talks shares
//! one memory with a ring of frames for each direction ([`ring`](self)) and cells for long ones, which go to and fro with them
//! (`cells`), and each endpoint has one word that it sleeps on.
//! Nothing has a name in the file system: memory is memfds, and endpoints find each other through abstract sockets, so
//! that nothing is left behind even by a process that is killed. The open socket of a pair tells each when the other is
//! gone; what the other had sent is received first. (A process that was forked and did not execute another program keeps its parent's
//! sockets open: a parent that is killed is gone for its peers only with it.)
//!
//! Within one endpoint a thread of its own, asleep but when peers come and go, makes the connections (`steward`); the
//! datapath makes no system call unless it sleeps or wakes a peer that sleeps.

mod doorbell;
mod draft;
mod ring;
mod sync;
mod want;

#[cfg(not(loom))]
mod cells;
#[cfg(not(loom))]
mod datapath;
#[cfg(not(loom))]
mod handshake;
#[cfg(not(loom))]
pub mod lane;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod open;
#[cfg(not(loom))]
mod steward;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod waker;
#[cfg(not(loom))]
mod wire;

#[cfg(all(loom, test))]
mod models;
#[cfg(all(not(loom), test))]
mod tests;

#[cfg(not(loom))]
pub use datapath::ShmNic;
#[cfg(not(loom))]
pub use open::OpenError;
