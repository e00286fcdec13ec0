//! What messages are matched by, and what asks for them.

use super::unexpected::Found;

/// What a message is matched by (MPI-4.1 3.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// Of the communicator.
    pub context: u32,
    /// Rank of the sender in it.
    pub source: u32,
    /// Any but `i32::MIN`.
    pub tag: i32,
}

/// What a receive or probe takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// Of the communicator.
    pub context: u32,
    /// `None`: from anybody.
    pub source: Option<Source>,
    /// `None`: with any tag.
    pub tag: Option<i32>,
}

/// A sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// Its rank in the communicator.
    pub rank: u32,
    /// Which process of the job that is.
    pub process: u32,
}

/// How a send completes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// When its bytes may be overwritten. Ready sends are these, too.
    Standard,
    /// When a receive has matched it.
    Synchronous,
}

/// A message that a matched probe has found, and that only [`Device::recv_matched`](super::Device::recv_matched) can receive.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Message(pub(super) Found);
