//! Sending from any thread.

use std::sync::Arc;

use sidelane_nic::Nic;
use sidelane_nic::copy::copy;

use super::driven::Driven;
use super::gauge::cost;
use super::order::{Order, SHORT_MAX};
use super::shared::Shared;
use crate::{Endpoint, PeerId, SendError};

/// A way into an engine for any number of threads; a clone is another. What one thread sends arrives in that order; what a port
/// sends to the same peer may overtake it.
pub struct Sender<D: Driven> {
    pub(super) shared: Arc<Shared<D>>,
}

impl<D: Driven> Sender<D> {
    pub(super) fn new(shared: Arc<Shared<D>>) -> Self {
        Self { shared }
    }

    /// As [`super::Port::run`].
    pub fn run<F: FnOnce(&mut D) + Send + 'static>(&self, work: F) -> Result<(), F> {
        // Somebody else may take the last place meanwhile; then it waits for the next.
        if self.shared.has_ended() || self.shared.orders.is_full() {
            return Err(work);
        }
        let mut order = Order::Run(Box::new(work));
        while let Err(refused) = self.shared.orders.push(order) {
            if self.shared.has_ended() {
                break;
            }
            order = refused;
            self.flush();
            std::thread::yield_now();
        }
        self.shared.drop_late_orders();
        Ok(())
    }

    /// Wakes the engine if it sleeps.
    #[inline]
    pub fn flush(&self) {
        self.shared.ring();
    }

    /// Gives the engine what `write` puts into `len` bytes, to be sent.
    pub(super) fn keep(&self, peer: PeerId, len: usize, write: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let gauge = self.shared.gauge(peer).ok_or(SendError::NoPeer)?;
        gauge.check(peer, len)?;
        if self.shared.has_ended() {
            return Err(SendError::NoPeer);
        }
        let cost = cost(len);
        if !gauge.take_shared(cost) {
            return Err(SendError::Full);
        }
        let order = if len <= SHORT_MAX {
            let mut bytes = [0; SHORT_MAX];
            write(&mut bytes[..len]);
            Order::Short { peer, len: len as u8, bytes }
        } else {
            let mut buffer = vec![0; len];
            write(&mut buffer);
            Order::Large { peer, buffer, lent: false }
        };
        self.shared.orders.push(order).map_err(|_| {
            gauge.give_shared(cost);
            SendError::Full
        })
    }
}

impl<N: Nic + Send + 'static> Sender<Endpoint<N>> {
    /// As [`super::Port::send`].
    pub fn send(&self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
        self.keep(peer, message.len(), |place| copy(place, message))
    }
}

impl<D: Driven> Clone for Sender<D> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}
