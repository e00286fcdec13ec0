//! What the threads of an engine share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;

use crossbeam_queue::ArrayQueue;
use sidelane_nic::shm::lane::{Doorbell, Want};

use super::Ended;
use super::company::Ring;
use super::done::AnyDone;
use super::driven::Driven;
use super::gauge::Gauge;
use super::order::Order;
use crate::{Event, PeerId};

/// Everything but the rings, which have two ends.
pub(super) struct Shared<D> {
    /// The engine sleeps on this, by its driver's `wait`.
    pub bell: Doorbell,
    waker: Waker,
    /// The application sleeps on this.
    pub port_bell: Doorbell,
    // Of these four only `orders` is one that many push. The others are of the same kind since what they hold owns memory, which a ring of
    // bytes cannot carry, and goes seldom; and when the engine has ended both its thread and the port's take orders out, to drop them.
    /// Orders of the port; a record in its ring keeps the place of each.
    pub port_orders: ArrayQueue<Order<D>>,
    /// Orders of all senders.
    pub orders: ArrayQueue<Order<D>>,
    /// Messages that are too long for the ring; a record keeps the place of each.
    pub large: ArrayQueue<Vec<u8>>,
    pub events: ArrayQueue<Event>,
    /// The port wants to know when room is made.
    pub port_wants: Want,
    /// By the peer's index.
    pub gauges: Box<[Gauge]>,
    /// A gauge tells of more that is done than when the port last looked here.
    any_done: AnyDone,
    stopping: AtomicBool,
    /// Set when the engine is no more: with why, if it panicked.
    ended: OnceLock<Option<Ended>>,
}

impl<D> Shared<D> {
    pub fn new(waker: Waker, peers_max: usize) -> Self {
        Self {
            bell: Doorbell::default(),
            waker,
            port_bell: Doorbell::default(),
            port_orders: ArrayQueue::new(ORDERS_MAX),
            orders: ArrayQueue::new(ORDERS_MAX),
            large: ArrayQueue::new(LARGE_MAX),
            events: ArrayQueue::new(EVENTS_MAX),
            port_wants: Want::default(),
            gauges: (0..peers_max).map(|_| Gauge::default()).collect(),
            any_done: AnyDone::default(),
            stopping: AtomicBool::new(false),
            ended: OnceLock::new(),
        }
    }

    /// The gauge of `peer`'s place. None for one that was let in by an [`crate::Endpoint::expect_only`] on the engine: nothing can be sent
    /// to it from outside.
    #[inline]
    pub fn gauge(&self, peer: PeerId) -> Option<&Gauge> {
        self.gauges.get(peer.index())
    }

    /// Tells the port that its one-sided operations to a peer are done up to this number.
    pub fn publish_done(&self, index: u16, number: u64) {
        if let Some(gauge) = self.gauges.get(usize::from(index)) {
            gauge.operations_done.publish(number, &self.any_done);
        }
    }

    /// True when the port's operation `number` to the place of `peer` is done.
    #[inline]
    pub fn is_done(&self, peer: PeerId, number: u64) -> bool {
        self.gauge(peer).is_none_or(|gauge| gauge.operations_done.is_done(number))
    }

    /// True if any operation may be done that was not when this was last taken.
    pub fn take_any_done(&self) -> bool {
        self.any_done.take()
    }

    #[inline]
    pub fn has_any_done(&self) -> bool {
        self.any_done.is_set()
    }

    /// Wakes the engine if it sleeps.
    #[inline]
    pub fn ring(&self) {
        self.bell.ring_by(|| self.waker.wake_by_ref());
    }

    /// Asks the engine to end with this endpoint.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The engine is no more.
    pub fn end(&self, panic: Option<String>) {
        let _ = self.ended.set(panic.map(Ended));
        // Pairs with the one in `drop_late_orders`: an order is seen here, or the end is seen there.
        fence(Ordering::SeqCst);
        self.drop_orders();
        self.port_bell.ring();
    }

    /// An order was pushed, perhaps when the engine had ended: nobody else would drop it.
    pub fn drop_late_orders(&self) {
        fence(Ordering::SeqCst);
        if self.has_ended() {
            self.drop_orders();
        }
    }

    /// Whoever waits for an answer learns that there is none. A closure that panics as it is dropped keeps no other.
    fn drop_orders(&self) {
        let drop_next = || self.port_orders.pop().is_some() || self.orders.pop().is_some();
        while catch_unwind(AssertUnwindSafe(drop_next)).unwrap_or(true) {}
    }

    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Why there is no engine; `Ok` while there is one.
    pub fn alive(&self) -> Result<(), Ended> {
        match self.ended.get() {
            None => Ok(()),
            Some(panic) => Err(panic.clone().unwrap_or_else(|| Ended("it was stopped".into()))),
        }
    }
}

impl<D: Driven> Shared<D> {
    /// From now on applications may send to `peer`, as much as `driven` knows that it takes.
    pub fn open(&self, driven: &mut D, peer: PeerId) {
        if let Some(gauge) = self.gauge(peer) {
            gauge.open(peer, driven.kept_max(peer), driven.room_max(peer));
        }
    }
}

impl<D> Ring for Shared<D> {
    fn ring(&self) {
        Shared::ring(self);
    }
}

/// Two cache lines each.
const ORDERS_MAX: usize = 1024;
/// Messages longer than a record of the ring that wait for the application, at most.
const LARGE_MAX: usize = 64;
const EVENTS_MAX: usize = 1024;
