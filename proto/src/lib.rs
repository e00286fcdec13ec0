//! A reliable, ordered, exactly-once message protocol. The core does no I/O and reads no clock; [`Endpoint`] runs it on
//! any [`sidelane_nic::Nic`]. `PROTOCOL.md` beside the sources gives the rules and the wire format in words.
#![deny(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod ack;
pub mod am;
mod config;
mod congestion;
mod conn;
mod copy;
mod counters;
mod display;
mod endpoint;
pub mod engine;
mod error;
mod event;
mod in_flight;
mod path;
mod peers;
mod queue;
mod recv_fifo;
mod reorder;
mod ring;
mod rma;
mod router;
mod rtt;
mod seal;
mod send_fifo;
pub mod sim;
mod spares;
mod timers;
mod wire;

pub use config::Config;
pub use counters::{Counters, Reject};
pub use endpoint::Endpoint;
pub use error::{ConnectError, Refused, SendError};
pub use event::{Event, GoneReason, PeerId};
pub use rma::{Op, OpError, PutHow, Region, RemoteKey, Rights, RmaError};
pub use seal::{JobKey, KeyError, Protection, ProtectionError};
pub use wire::VERSION;
#[cfg(fuzzing)]
pub use wire::read_and_write;
