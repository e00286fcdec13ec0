//! A reliable, ordered, exactly-once message protocol. The core does no I/O and reads no clock; [`Endpoint`] runs it on
//! any [`sidelane_nic::Nic`].
#![deny(unsafe_code)]

mod config;
mod endpoint;
mod error;
mod event;

pub use config::Config;
pub use endpoint::Endpoint;
pub use error::{ConnectError, Refused, SendError};
pub use event::{Event, GoneReason, PeerId};
