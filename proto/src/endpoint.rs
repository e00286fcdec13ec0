//! Many connections over one [`Nic`]. It only routes.

use std::io;

use sidelane_nic::time::Instant;
use sidelane_nic::{LinkAddr, Nic};

use crate::{Config, ConnectError, Event, PeerId, Refused, SendError};

/// Reliable, ordered, exactly-once messages to and from many peers over one NIC. Used by one thread.
///
/// `send` puts a message into the peer's FIFO; `flush` or the next `poll` puts it on the wire, together with what else
/// waits for that peer. `poll` receives, runs timers and transmits; nothing blocks but `wait`.
pub struct Endpoint<N: Nic> {
    nic: N,
}

impl<N: Nic> Endpoint<N> {
    /// An endpoint without peers. It answers whoever connects.
    pub fn new(nic: N, config: Config) -> Self {
        let _ = config;
        Self { nic }
    }

    /// Begins a connection. Messages may be sent at once; they leave when the peer has answered.
    pub fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        let _ = to;
        todo!()
    }

    /// Copies `message` into the send FIFO. Messages larger than a quarter of the FIFO are copied to the heap instead.
    pub fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
        let _ = (peer, message);
        todo!()
    }

    /// Sends straight from `buffer`, without a copy; it comes back in [`Event::Sent`] once the peer has it all.
    pub fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused> {
        let _ = (peer, buffer);
        todo!()
    }

    /// Puts on the wire what waits in the FIFOs, as far as windows and credits go.
    pub fn flush(&mut self) {}

    /// One turn: receives a burst, runs due timers, transmits. Returns the number of frames received.
    pub fn poll(&mut self) -> usize {
        0
    }

    /// Shows the oldest message that waits, of whichever peer, and takes it out of its FIFO.
    pub fn recv<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        let _ = take;
        todo!()
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// When `poll` has to be called next even if no frame comes; `None` when no timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Sleeps until a frame may be there, a timer is due, or `deadline`. Flushes first.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.nic.wait(deadline)
    }

    /// Ends a connection once all that was sent is acknowledged; [`Event::Closed`] follows.
    pub fn close(&mut self, peer: PeerId) {
        let _ = peer;
    }

    /// The driver below.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// The driver below, to change its settings.
    pub fn nic_mut(&mut self) -> &mut N {
        &mut self.nic
    }
}
