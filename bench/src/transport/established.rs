//! The wait for the one peer of Active Messages that a measurement makes its own calls of.

use sidelane_nic::Nic;
use sidelane_proto::am::{ActiveMessages, ReplyRoom};
use sidelane_proto::{Event, PeerId};

use super::Broken;
use crate::clock::now_ns;

/// The peer, once requests may go to it.
pub(crate) fn established<N: Nic, S>(
    am: &mut ActiveMessages<N, S>,
    seen: &mut S,
    deadline_ns: u64,
) -> Result<PeerId, Broken> {
    let mut connected = None;
    while now_ns() < deadline_ns {
        am.poll(seen);
        match am.poll_event() {
            Some(Event::Connected { peer, .. }) => connected = Some(peer),
            Some(Event::Gone { .. }) => return Err(Broken::PeerGone),
            _ => {}
        }
        if let Some(peer) = connected.filter(|peer| am.room_max(*peer) > ReplyRoom::NONE) {
            return Ok(peer);
        }
        crate::idle::relax();
    }
    Err(Broken::Deadline)
}
