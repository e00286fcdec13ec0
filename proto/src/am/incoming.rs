//! A message that has come: whose handler runs, and what is counted of it.

use super::counters::{Counters, Reject};
use super::handlers::Handlers;
use super::peer::{Peer, Peers};
use super::replier::{Outlets, Replier};
use super::wire::{self, Kind, Parsed};
use crate::PeerId;

/// Runs the handler of one message.
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
) {
    let Some(peer) = peers.get(from) else { return counters.reject(Reject::NoPeer) };
    let shown = Shown { peer, owing };
    let taken = wire::parse(message).and_then(|parsed| take(handlers, shown.peer, counters, state, &parsed, outlets));
    if let Err(reason) = taken {
        counters.reject(reason);
    }
}

#[inline]
fn take<S>(
    handlers: &Handlers<S>,
    peer: &mut Peer,
    counters: &mut Counters,
    state: &mut S,
    parsed: &Parsed<'_>,
    outlets: Outlets<'_>,
) -> Result<(), Reject> {
    let Parsed { head, credit, args, payload } = *parsed;
    if let Some(credit) = credit {
        peer.budget.on_credit(credit)?;
    }
    match head.kind {
        Kind::Request => {
            peer.budget.on_request(head.room)?;
            let mut handling = Handling { peer, counters, room: head.room, replied: false };
            let handler = handlers.of_request(head.handler).ok_or(Reject::NoHandler)?;
            let Handling { peer, room, replied, .. } = &mut handling;
            handler(state, Replier { peer, room: *room, outlets, replied }, args, payload);
            handling.counters.requests_handled += 1;
            Ok(())
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

/// A message that is shown. That its sender is owed word of its credit is noted also when the handler panics.
struct Shown<'a> {
    peer: &'a mut Peer,
    owing: &'a mut Vec<u16>,
}

impl Drop for Shown<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.peer.budget.is_due() && !self.peer.owing {
            self.peer.owing = true;
            self.owing.push(self.peer.id.index);
        }
    }
}

/// A request whose handler runs. It counts as handled also when the handler panics: its requester waits for that, and for the room.
struct Handling<'a> {
    peer: &'a mut Peer,
    counters: &'a mut Counters,
    room: u16,
    replied: bool,
}

impl Drop for Handling<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.replied {
            self.counters.replies_sent += 1;
        } else {
            self.peer.budget.on_handled(self.room);
        }
    }
}
