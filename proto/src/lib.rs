//! A reliable, ordered, exactly-once message protocol. The core does no I/O and reads no clock; [`Endpoint`] runs it on
//! any [`sidelane_nic::Nic`]. `PROTOCOL.md` beside the sources gives the rules and the wire format in words.
//!
//! | module | what it is |
//! | --- | --- |
//! | `endpoint` | the loop over a driver: turns to receive and to transmit, the user's calls |
//! | `router`, `peers` | an endpoint but for its driver: whose is a frame, whose turn is it |
//! | `conn` | one connection: its life, what comes in, what goes out; it routes to the parts below |
//! | `send_fifo`, `in_flight`, `rtt`, `congestion` | the sending end: messages until they are acknowledged, what is lost, how much may fly |
//! | `reorder`, `recv_fifo`, `ack` | the receiving end: frames before their turn, messages until they are taken, when to acknowledge |
//! | `path`, `timers` | what is known of the way to a peer; a connection's timers |
//! | `rma` | one-sided operations: regions, keys, what is under way |
//! | `wire`, `seal` | the format; tags and encryption under a job's key |
//! | [`am`] | Active Messages, on top of an endpoint |
//! | [`engine`] | a thread that drives endpoints, for applications that do not poll |
//! | `config`, `counters`, `display`, `error`, `event` | what a user sets, and is told |
//! | `ring`, `queue`, `spares`, `copy`, `hint` | bytes in a ring, peers in turn, buffers kept, short copies, what is seldom true |
//! | [`sim`] | endpoints on a simulated fabric, in virtual time, under an oracle |
// What it stands on has only what loom's models are of.
#![cfg(not(loom))]
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
mod hint;
mod in_flight;
mod lone;
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
mod token_source;
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
