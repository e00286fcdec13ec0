//! A one-sided operation that the port has ordered and the endpoint has not begun.

use std::ops::Range;

use sidelane_nic::Nic;

use crate::wire::Change;
use crate::{Endpoint, Op, OpError, PeerId, PutHow, Region, RemoteKey, RmaError};

pub(super) struct Operation {
    pub peer: PeerId,
    /// Of the port's operations to the peer's place in the table, counted from 0.
    pub number: u64,
    /// What it counts for in the gauge until it is begun.
    pub cost: u64,
    /// A fence was called since the operation before.
    pub is_fenced: bool,
    /// Its memory at the peer.
    pub key: RemoteKey,
    pub offset: u64,
    pub what: What,
}

pub(super) enum What {
    /// `kept`: its bytes, unless they stand behind the order's record in the ring.
    Put {
        kept: Vec<u8>,
        how: PutHow,
    },
    PutFrom {
        region: Region,
        range: Range<usize>,
        how: PutHow,
    },
    Get {
        region: Region,
        range: Range<usize>,
    },
    Atomic(Change),
}

impl Operation {
    /// Has the endpoint begin it; `bytes` stand behind its record. After `Full` it may be begun again.
    pub fn begin<N: Nic>(&mut self, endpoint: &mut Endpoint<N>, bytes: &[u8]) -> Result<Op, RmaError> {
        let (peer, key, offset) = (self.peer, &self.key, self.offset);
        if self.is_fenced {
            endpoint.fence(peer);
        }
        match &mut self.what {
            What::Put { kept, how } if kept.is_empty() => endpoint.put(peer, key, offset, bytes, *how),
            What::Put { kept, how } => {
                endpoint.put_buffer(peer, key, offset, std::mem::take(kept), *how).map_err(|(error, buffer)| {
                    *kept = buffer;
                    error
                })
            }
            What::PutFrom { region, range, how } => endpoint.put_from(peer, key, offset, *region, range.clone(), *how),
            What::Get { region, range } => endpoint.get(peer, key, offset, *region, range.clone()),
            What::Atomic(change) => endpoint.atomic(peer, key, offset, *change),
        }
    }

    /// Keeps the bytes that stand behind its record, which is given back.
    #[cold]
    pub fn keep(&mut self, bytes: &[u8]) {
        if let What::Put { kept, .. } = &mut self.what {
            kept.extend_from_slice(bytes);
        }
    }
}

/// How the port hears of what the endpoint refused for good.
pub(super) const fn failure(error: RmaError) -> OpError {
    match error {
        RmaError::NoPeer => OpError::PeerGone,
        RmaError::NoRegion => OpError::NoRegion,
        RmaError::Bounds => OpError::Bounds,
        RmaError::Misaligned => OpError::Misaligned,
        RmaError::Full => unreachable!(),
    }
}
