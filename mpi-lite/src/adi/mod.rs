//! The abstract device: the few calls that everything above uses. Messages are matched by MPI's rules and go the way
//! that is best for their size and their receiver.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `device`, `open`, `envelope` | the calls, how they become possible, what they ask for |
//! | `engine` | what is under way, and its turns |
//! | `eager`, `parts`, `rendezvous`, `own` | how a message travels: at once, in several frames at once, by announcement, to oneself |
//! | `service` | what is done for others within turns |
//! | `living` | who of this host has ended, by its process number |
//! | `pull`, `shared_copy` | reading and writing another process's memory; long messages that both ends copy so |
//! | `record` | what devices say to each other: the wire format |
//! | `matching`, `posted`, `unexpected`, `lists` | which receive takes which message |
//! | `request`, `memory` | what is under way, by handle; the user's bytes |
//! | `credit`, `buffers` | how much a peer may send unasked, and where that is kept |
//! | `peer`, `process`, `port` | who is where, and by which driver |
//! | `threads` | a job in one process |
//! | `config`, `idle`, `turns`, `counters` | thresholds; how to wait, and with what else; what went a longer way |
//!
//! One process with itself, for a beginning:
//!
//! ```
//! use sidelane_mpi::adi::{Config, Device, Envelope, Incoming, Mode, Outgoing, Pattern, Process};
//!
//! let config = Config::default();
//! let mut device = Device::open(0, vec![Process::here("host", &[])], vec![], &config)?;
//! let mut room = [0; 5];
//! // SAFETY: both stay where they are until the requests are over, and `room` is not touched before.
//! let (hello, into) = unsafe { (Outgoing::lend(b"hello"), Incoming::lend(&raw mut room)) };
//! let receive = device.recv(Pattern { context: 1, source: None, tag: Some(7) }, into);
//! let send = device.send(0, Envelope::new(1, 0, 7), hello, Mode::Standard);
//! assert_eq!(device.wait(receive).bytes, 5);
//! device.wait(send);
//! assert_eq!(&room, b"hello");
//! # Ok::<(), sidelane_mpi::adi::OpenError>(())
//! ```

mod buffers;
mod config;
mod counters;
mod credit;
mod device;
mod eager;
mod ending;
mod engine;
mod envelope;
mod idle;
mod lists;
mod living;
mod lock;
mod matching;
mod memory;
mod open;
mod own;
mod parts;
mod peer;
mod port;
mod posted;
mod process;
mod pull;
mod record;
mod rendezvous;
mod request;
mod service;
mod shared_copy;
mod threads;
mod turns;
mod unexpected;

#[cfg(test)]
mod tests;

pub use config::{Config, Limits, Patience};
pub use counters::Counters;
pub(crate) use device::unknown;
pub use device::{Device, Informant};
pub use envelope::{Envelope, Message, Mode, Pattern, Source};
pub use idle::Idle;
pub(crate) use lock::lock;
pub use memory::{Incoming, Outgoing};
pub use open::OpenError;
pub use port::Port;
pub use process::{Process, ProcessError, cores_of, host_identity};
pub use pull::let_siblings_read;
pub use request::{Error, Request, Status};
pub use service::Service;
pub use threads::in_threads;
pub use turns::Turns;
