//! Sending from any thread.

use std::sync::{Arc, Mutex, PoisonError};

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
        if self.shared.has_ended() {
            return Err(work);
        }
        // Nobody waits for a place, least of all the engine's own thread, which alone makes some: the work is kept where it can be handed
        // back from.
        let kept = Arc::new(Mutex::new(Some(work)));
        let take = |kept: &Mutex<Option<F>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ordered = Arc::clone(&kept);
        let run = move |driven: &mut D| {
            if let Some(work) = take(&ordered) {
                work(driven);
            }
        };
        if self.shared.orders.push(Order::Run(Box::new(run))).is_err() {
            return take(&kept).map_or(Ok(()), Err);
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
