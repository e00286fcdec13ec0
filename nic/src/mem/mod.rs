//! A simulated network within one thread, in virtual time and repeatable from a seed.
//!
//! A [`Fabric`] joins any number of [`MemNic`]s. Frames take the time and meet the faults that [`LinkModel`] says;
//! nothing moves but by [`Fabric::advance_to`] (or [`crate::Nic::wait`], which calls it). Without a model a frame is
//! at its receiver as soon as it is flushed, which makes the fabric a driver whose wire costs nothing.
//!
//! The way of a frame, in order: staged by `commit`, on the wire with `flush`, through the sender's uplink (a full one
//! pushes back), partitions, the link's faults, rate and delay, the receiver's downlink (a full one drops: the output
//! port of a switch, where an incast meets), the receive queue of [`Config::rx_frames`].

mod datapath;
mod fabric;
mod frame;
mod line;
mod state;
#[cfg(test)]
mod tests;

pub use datapath::MemNic;
pub use fabric::{Config, Fabric, LinkModel, NODES_MAX};
pub use line::LineModel;
pub use state::FabricCounters;
