//! What an engine can drive.

use std::io;

use sidelane_nic::{LinkAddr, Nic};

use crate::am::{ActiveMessages, ReplyRoom};
use crate::{ConnectError, Endpoint, Event, PeerId, Refused, SendError};

/// An [`Endpoint`], or [`WithState`].
pub trait Driven: Turns + Send + 'static {}

/// Active Messages on an engine. Their handlers, of requests and of replies, run on the engine's thread, with `state`; the
/// application requests by [`super::Port::request`], and sees the state by [`super::Port::call`].
pub struct WithState<N: Nic, S> {
    /// The messages.
    pub am: ActiveMessages<N, S>,
    /// What their handlers work on.
    pub state: S,
}

/// How an engine drives it.
#[doc(hidden)]
pub trait Turns {
    /// The driver below.
    type Nic: Nic;
    /// The endpoint within.
    fn endpoint(&mut self) -> &mut Endpoint<Self::Nic>;
    /// One turn. True if there was something to do.
    fn turn(&mut self) -> bool;
    /// Sends what a port or a sender was given, as it stands in their rings.
    fn send(&mut self, peer: PeerId, kept: &[u8]) -> Result<(), SendError>;
    /// The same in a buffer, which comes back if it was `lent`.
    fn send_buffer(&mut self, peer: PeerId, kept: Vec<u8>, lent: bool) -> Result<(), Refused>;
    /// Bytes of the longest that `peer` takes of these, as far as is known.
    fn kept_max(&mut self, peer: PeerId) -> usize;
    /// What is sent may be replied to.
    const REPLIES: bool;
    /// The most room that may be asked for there for a reply, once that is known.
    fn room_max(&self, peer: PeerId) -> Option<ReplyRoom>;
    /// Begins a connection.
    fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError>;
    /// Ends one.
    fn close(&mut self, peer: PeerId);
    /// Takes an event.
    fn poll_event(&mut self) -> Option<Event>;
    /// Puts one back, before those that wait.
    fn give_back(&mut self, event: Event);
    /// Sleeps.
    fn sleep(&mut self) -> io::Result<()>;
    /// Runs `tries`, of what waits for room: no refusal of it is counted, since nobody is refused.
    fn uncounted<R>(&mut self, tries: impl FnOnce(&mut Self) -> R) -> R;
}

impl<N: Nic + Send + 'static> Driven for Endpoint<N> {}

impl<N: Nic> Turns for Endpoint<N> {
    type Nic = N;

    #[inline]
    fn endpoint(&mut self) -> &mut Endpoint<N> {
        self
    }

    #[inline]
    fn turn(&mut self) -> bool {
        self.poll() > 0
    }

    #[inline]
    fn send(&mut self, peer: PeerId, kept: &[u8]) -> Result<(), SendError> {
        self.send(peer, kept)
    }

    fn send_buffer(&mut self, peer: PeerId, kept: Vec<u8>, lent: bool) -> Result<(), Refused> {
        self.send_buffer(peer, kept, lent)
    }

    fn kept_max(&mut self, peer: PeerId) -> usize {
        self.message_max(peer)
    }

    const REPLIES: bool = false;

    fn room_max(&self, _: PeerId) -> Option<ReplyRoom> {
        None
    }

    fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        self.connect(to)
    }

    fn close(&mut self, peer: PeerId) {
        self.close(peer);
    }

    fn sleep(&mut self) -> io::Result<()> {
        self.wait_for_frames(None)
    }

    fn uncounted<R>(&mut self, tries: impl FnOnce(&mut Self) -> R) -> R {
        let counts = self.refusals().map(|count| *count);
        let result = tries(self);
        self.refusals().into_iter().zip(counts).for_each(|(count, before)| *count = before);
        result
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }

    fn give_back(&mut self, event: Event) {
        self.give_back(event);
    }
}

impl<N: Nic + Send + 'static, S: Send + 'static> Driven for WithState<N, S> {}

impl<N: Nic, S> Turns for WithState<N, S> {
    type Nic = N;

    #[inline]
    fn endpoint(&mut self) -> &mut Endpoint<N> {
        self.am.endpoint_mut()
    }

    #[inline]
    fn turn(&mut self) -> bool {
        // What peers put and get is work too, and no message.
        let frames_before = self.am.endpoint().counters().frames_received;
        self.am.poll(&mut self.state) > 0 || self.am.endpoint().counters().frames_received != frames_before
    }

    #[inline]
    fn send(&mut self, peer: PeerId, kept: &[u8]) -> Result<(), SendError> {
        self.am.request_kept(peer, kept)
    }

    fn send_buffer(&mut self, peer: PeerId, kept: Vec<u8>, _: bool) -> Result<(), Refused> {
        self.am.request_kept(peer, &kept).map_err(|reason| Refused { reason, buffer: kept })
    }

    fn kept_max(&mut self, peer: PeerId) -> usize {
        self.am.kept_max(peer).unwrap_or_else(|| self.am.endpoint_mut().message_max(peer))
    }

    const REPLIES: bool = true;

    fn room_max(&self, peer: PeerId) -> Option<ReplyRoom> {
        self.am.room_told(peer)
    }

    fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        self.am.connect(to)
    }

    fn close(&mut self, peer: PeerId) {
        self.am.close(peer);
    }

    fn sleep(&mut self) -> io::Result<()> {
        self.am.wait_for_frames()
    }

    fn uncounted<R>(&mut self, tries: impl FnOnce(&mut Self) -> R) -> R {
        let counts = self.am.refusals().map(|count| *count);
        let result = tries(self);
        self.am.refusals().into_iter().zip(counts).for_each(|(count, before)| *count = before);
        result
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.am.poll_event()
    }

    fn give_back(&mut self, event: Event) {
        self.am.give_back(event);
    }
}

#[cfg(test)]
mod tests {
    use sidelane_nic::mem::{Config, Fabric, MemNic};
    use sidelane_nic::time::Duration;

    use super::*;
    use crate::am::Handlers;
    use crate::{PutHow, Rights};

    /// An engine that took it for idleness would sleep while peers put and get.
    #[test]
    fn a_turn_in_which_a_peer_puts_has_done_something() {
        let fabric = Fabric::new(1);
        let endpoint = || Endpoint::new(fabric.nic(Config::default()), crate::Config::default());
        let (mut a, b) = (endpoint(), endpoint());
        let to_b = a.connect(b.nic().caps().addr).unwrap();
        let mut b = WithState { am: ActiveMessages::<MemNic, ()>::new(b, Handlers::new()), state: () };
        let region = b.endpoint().register(vec![0; 8]);
        let key = b.endpoint().publish(region, Rights::WRITE, None).unwrap();
        let busy_turns = |a: &mut Endpoint<MemNic>, b: &mut WithState<MemNic, ()>| {
            let mut busy = 0;
            for _ in 0..100 {
                a.poll();
                busy += u32::from(b.turn());
                fabric.advance_to(fabric.now() + Duration::from_micros(100));
            }
            busy
        };
        busy_turns(&mut a, &mut b);
        assert!(matches!(a.poll_event(), Some(Event::Connected { .. })));
        assert_eq!(busy_turns(&mut a, &mut b), 0);
        a.put(to_b, &key, 0, &[7; 8], PutHow::default()).unwrap();
        a.flush();
        assert!(busy_turns(&mut a, &mut b) > 0);
        assert_eq!(b.endpoint().region(region).unwrap(), [7; 8]);
    }
}
