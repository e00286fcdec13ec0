//! Begin and end of the connection of Active Messages that a measurement makes its own calls of.

use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{ActiveMessages, Handlers, ReplyRoom};
use sidelane_proto::{Endpoint, Event, PeerId};

use super::Broken;
use super::proto::{LINGER_NS, config};
use crate::clock::now_ns;
use crate::pattern::Role;
use crate::side::Sealing;

/// Calls the peer, or waits to be called: the endpoint and the peer, once requests may go there.
pub(crate) fn establish<N: Nic, S>(
    nic: N,
    handlers: Handlers<S>,
    state: &mut S,
    (role, to): (Role, LinkAddr),
    deadline_ns: u64,
) -> Result<(ActiveMessages<N, S>, PeerId), Broken> {
    let mut am = ActiveMessages::new(Endpoint::new(nic, config(Sealing::None)), handlers);
    if role == Role::Initiator {
        am.connect(to).map_err(Broken::driver)?;
    }
    let mut connected = None;
    while now_ns() < deadline_ns {
        if let Some(peer) = poll_established(&mut am, state, &mut connected)? {
            return Ok((am, peer));
        }
        crate::idle::relax();
    }
    Err(Broken::Deadline)
}

/// One turn of waiting for a peer, which counts only once its room is known.
pub(super) fn poll_established<N: Nic, S>(
    am: &mut ActiveMessages<N, S>,
    state: &mut S,
    connected: &mut Option<PeerId>,
) -> Result<Option<PeerId>, Broken> {
    am.poll(state);
    match am.poll_event() {
        Some(Event::Connected { peer, .. }) => *connected = Some(peer),
        Some(Event::Gone { .. }) => return Err(Broken::PeerGone),
        _ => {}
    }
    Ok(connected.filter(|peer| am.room_max(*peer) > ReplyRoom::NONE))
}

/// Closes, and stays for a while until the peer has.
pub(crate) fn close<N: Nic, S>(am: &mut ActiveMessages<N, S>, state: &mut S, peer: PeerId, deadline_ns: u64) {
    am.close(peer);
    let until = deadline_ns.min(now_ns() + LINGER_NS);
    while now_ns() < until && !matches!(am.poll_event(), Some(Event::Closed { .. } | Event::Gone { .. })) {
        am.poll(state);
        crate::idle::relax();
    }
}
