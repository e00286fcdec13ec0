//! A message that has come: whose handler runs, and what is counted of it.

use super::counters::{Counters, Reject};
use super::handlers::Handlers;
use super::peer::{Peer, Peers};
use super::replier::{Outlets, Replier};
use super::wire::{self, Kind, Parsed};
use crate::PeerId;

/// Runs the handler of one message. True when it has replied.
#[inline]
#[allow(
    clippy::too_many_arguments,
    reason = "the parts of `ActiveMessages` that are not lent to the endpoint meanwhile"
)]
pub(super) fn run<S>(
    handlers: &Handlers<S>,
    peers: &mut Peers,
    counters: &mut Counters,
    owing: &mut Vec<u16>,
    state: &mut S,
    from: PeerId,
    message: &[u8],
    outlets: Outlets<'_>,
) -> bool {
    let Some(peer) = peers.get(from) else {
        counters.reject(Reject::NoPeer);
        return false;
    };
    let mut replied = false;
    let taken =
        wire::parse(message).and_then(|parsed| take(handlers, peer, counters, state, &parsed, outlets, &mut replied));
    if let Err(reason) = taken {
        counters.reject(reason);
    }
    if peer.budget.is_due() && !peer.owing {
        peer.owing = true;
        owing.push(from.index);
    }
    replied
}

#[inline]
fn take<S>(
    handlers: &Handlers<S>,
    peer: &mut Peer,
    counters: &mut Counters,
    state: &mut S,
    parsed: &Parsed<'_>,
    outlets: Outlets<'_>,
    replied: &mut bool,
) -> Result<(), Reject> {
    let Parsed { head, credit, args, payload } = *parsed;
    if let Some(credit) = credit {
        peer.budget.on_credit(credit)?;
    }
    match head.kind {
        Kind::Request => {
            peer.budget.on_request(head.room)?;
            let mut handling = Handling { peer, room: head.room, replied };
            let handler = handlers.of_request(head.handler);
            if let Some(handler) = handler {
                let Handling { peer, room, replied } = &mut handling;
                handler(state, Replier { peer, room: *room, outlets, replied }, args, payload);
                counters.requests_handled += 1;
            }
            counters.replies_sent += u64::from(*handling.replied);
            handler.map(|_| ()).ok_or(Reject::NoHandler)
        }
        Kind::Reply => {
            peer.budget.on_reply(head.room)?;
            let handler = handlers.of_reply(head.handler).ok_or(Reject::NoHandler)?;
            handler(state, peer.id, args, payload);
            counters.replies_handled += 1;
            Ok(())
        }
        Kind::Credit => Ok(()),
        Kind::Ask => {
            peer.budget.on_ask();
            Ok(())
        }
    }
}

/// A request whose handler runs. It counts as handled also when the handler panics: its requester waits for that, and for the room.
struct Handling<'a> {
    peer: &'a mut Peer,
    room: u16,
    replied: &'a mut bool,
}

impl Drop for Handling<'_> {
    #[inline]
    fn drop(&mut self) {
        if !*self.replied {
            self.peer.budget.on_handled(self.room);
        }
    }
}
