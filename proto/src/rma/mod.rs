//! One-sided operations: put, get and atomics on regions of memory that peers have published.

mod calls;
mod key;
mod memory;
mod one_sided;
mod outbox;
mod precedence;
mod region;
mod served;

pub(crate) use calls::target;
pub use key::{Op, OpError, PutHow, Region, RemoteKey, Rights, RmaError};
pub(crate) use memory::Memory;
pub(crate) use one_sided::OneSided;
pub(crate) use outbox::OpSpan;
pub(crate) use precedence::Progress;
pub(crate) use served::Placed;

use crate::counters::Reject;
use region::Regions;

/// What all connections of an endpoint share.
#[derive(Debug, Default)]
pub(crate) struct Rma {
    pub regions: Regions,
    /// Connections that owe their peer a Done. It is said a turn later, when an answer of the user's may carry it.
    pub owing: Vec<u16>,
}

impl From<OpError> for Reject {
    fn from(why: OpError) -> Self {
        match why {
            OpError::NoRegion | OpError::PeerGone => Self::NoRegion,
            OpError::Rights => Self::Rights,
            OpError::Bounds | OpError::Misaligned => Self::Bounds,
        }
    }
}
