//! Reliable messages: our protocol over a driver.

use std::collections::VecDeque;

use sidelane_nic::time::Duration;
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::{Config, Endpoint, Event, JobKey, PeerId, Protection, Refused, SendError};

use super::{Broken, Transport};
use crate::clock::now_ns;
use crate::side::Sealing;

/// One end of a connection.
pub struct Proto<N: Nic> {
    endpoint: Endpoint<N>,
    peer: PeerId,
    size: usize,
    /// Buffers for messages that are sent without a copy; those under way are with the endpoint.
    free: VecDeque<Vec<u8>>,
    closed: bool,
}

impl<N: Nic> Proto<N> {
    /// Connects to `peer`.
    pub fn connect(nic: N, sealing: Sealing, peer: LinkAddr, size: usize, deadline_ns: u64) -> Result<Self, Broken> {
        let mut endpoint = Endpoint::new(nic, config(sealing));
        endpoint.connect(peer).map_err(Broken::driver)?;
        Self::established(endpoint, size, deadline_ns)
    }

    /// Waits for a peer that connects.
    pub fn accept(nic: N, sealing: Sealing, size: usize, deadline_ns: u64) -> Result<Self, Broken> {
        Self::established(Endpoint::new(nic, config(sealing)), size, deadline_ns)
    }

    /// Both ends of a connection within one thread; `pass` lets time go by on the wire between them.
    pub fn pair(
        (a, b): (N, N),
        sealing: Sealing,
        to_b: LinkAddr,
        size: usize,
        deadline_ns: u64,
        mut pass: impl FnMut(),
    ) -> Result<(Self, Self), Broken> {
        let (mut a, mut b) = (Endpoint::new(a, config(sealing)), Endpoint::new(b, config(sealing)));
        a.connect(to_b).map_err(Broken::driver)?;
        let (mut peer_of_a, mut peer_of_b) = (None, None);
        while now_ns() < deadline_ns {
            peer_of_a = peer_of_a.or(poll_connected(&mut a)?);
            peer_of_b = peer_of_b.or(poll_connected(&mut b)?);
            if let (Some(peer_of_a), Some(peer_of_b)) = (peer_of_a, peer_of_b) {
                return Ok((Self::with_peer(a, peer_of_a, size), Self::with_peer(b, peer_of_b, size)));
            }
            pass();
        }
        Err(Broken::Deadline)
    }

    fn established(mut endpoint: Endpoint<N>, size: usize, deadline_ns: u64) -> Result<Self, Broken> {
        while now_ns() < deadline_ns {
            if let Some(peer) = poll_connected(&mut endpoint)? {
                return Ok(Self::with_peer(endpoint, peer, size));
            }
            crate::idle::relax();
        }
        Err(Broken::Deadline)
    }

    fn with_peer(endpoint: Endpoint<N>, peer: PeerId, size: usize) -> Self {
        let owned = if size > COPIED_MAX { owned_buffers::<N>() } else { 0 };
        let free = (0..owned).map(|_| vec![0x5a; size]).collect();
        Self { endpoint, peer, size, free, closed: false }
    }

    /// The endpoint and its peer, for what runs beside messages.
    pub(super) fn into_parts(self) -> (Endpoint<N>, PeerId) {
        (self.endpoint, self.peer)
    }

    /// The driver below.
    #[inline]
    pub(crate) fn nic_mut(&mut self) -> &mut N {
        self.endpoint.nic_mut()
    }

    #[inline]
    fn take_events(&mut self) -> Result<(), Broken> {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Sent { buffer, .. } => self.free.push_back(buffer),
                Event::Closed { peer } if peer == self.peer => self.closed = true,
                Event::Gone { peer, .. } if peer == self.peer => return Err(Broken::PeerGone),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends a buffer of our own, as a program does that hands its data over instead of having it copied.
    fn send_owned(&mut self, message: &[u8]) -> Result<bool, Broken> {
        let Some(mut buffer) = self.free.pop_front() else { return Ok(false) };
        buffer[0] = message[0];
        match self.endpoint.send_owned(self.peer, buffer) {
            Ok(()) => Ok(true),
            Err(Refused { reason: SendError::Full, buffer }) => {
                self.free.push_front(buffer);
                Ok(false)
            }
            Err(Refused { reason, .. }) => Err(Broken::Driver(reason.to_string())),
        }
    }

    #[inline]
    fn take_messages(&mut self, budget: usize, mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        if budget == 0 {
            return Ok(0);
        }
        let (mut wrong, expected, mut left) = (None, self.size, budget);
        // Shown whole where the one copy out of the frames has put it.
        let messages = self.endpoint.recv_each(|_, message| {
            each(message);
            wrong = (message.len() != expected).then_some(message.len());
            left -= 1;
            left > 0 && wrong.is_none()
        });
        wrong.map_or(Ok(messages), |got| Err(Broken::Length { got, expected }))
    }
}

impl<N: Nic> Transport for Proto<N> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
        if message.len() > COPIED_MAX {
            return self.send_owned(message);
        }
        match self.endpoint.send(self.peer, message) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(Broken::driver(error)),
        }
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Broken> {
        self.endpoint.flush();
        Ok(())
    }

    #[inline]
    fn recv(&mut self, budget: usize, _into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let waiting = self.take_messages(budget, &mut each)?;
        if waiting > 0 {
            return Ok(waiting);
        }
        self.endpoint.poll();
        self.take_events()?;
        self.take_messages(budget, &mut each)
    }

    fn finish(&mut self, deadline_ns: u64) -> Result<(), Broken> {
        let deadline_ns = deadline_ns.min(now_ns() + LINGER_NS);
        self.endpoint.close(self.peer);
        while !self.closed && now_ns() < deadline_ns {
            self.endpoint.poll();
            if self.take_events().is_err() {
                // The peer closed first and has left, which is no failure of what was measured.
                break;
            }
            crate::idle::relax();
        }
        Ok(())
    }
}

fn poll_connected<N: Nic>(endpoint: &mut Endpoint<N>) -> Result<Option<PeerId>, Broken> {
    endpoint.poll();
    match endpoint.poll_event() {
        Some(Event::Connected { peer, .. }) => Ok(Some(peer)),
        Some(Event::Gone { .. }) => Err(Broken::PeerGone),
        _ => Ok(None),
    }
}

pub(crate) fn config(sealing: Sealing) -> Config {
    Config {
        // A measurement has a limit of its own: a machine that stands still for a while, as emulated ones do, ends none.
        keep_alive: Duration::from_millis(2_500),
        protection: match sealing {
            Sealing::None => Protection::Checked,
            Sealing::Authenticated => Protection::Authenticated(KEY),
            Sealing::Encrypted => Protection::Encrypted(KEY),
        },
        ..Config::default()
    }
}

/// A measurement has no secrets.
const KEY: JobKey = JobKey::from_bytes([0x6b; JobKey::LEN]);
/// Larger messages are handed over, smaller ones copied: the endpoint's own limit is a quarter of its FIFO.
const COPIED_MAX: usize = 64 << 10;
/// Large messages under way at once. A reliable driver's come back when they are written; where they do not before they are acknowledged, a
/// second one goes meanwhile.
const fn owned_buffers<N: Nic>() -> usize {
    if N::RELIABLE { 1 } else { 2 }
}
/// How long an end stays for the other's last acknowledgement.
pub(super) const LINGER_NS: u64 = 200_000_000;
