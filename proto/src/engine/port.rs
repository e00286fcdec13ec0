//! The application's end of an engine.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use sidelane_nic::copy::copy;
use sidelane_nic::shm::lane::{End, RECORD_MAX};
use sidelane_nic::time::Instant;
use sidelane_nic::{LinkAddr, Nic};

use super::driven::Driven;
use super::gauge::{Gauge, cost};
use super::one_sided::Ordered;
use super::order::{HEAD_LEN, Head, Order};
use super::place::Anything;
use super::sender::Sender;
use super::shared::Shared;
use super::{ConnectError, Ended, Engine};
use crate::{Counters, Endpoint, Event, PeerId, Refused, RmaError, SendError};

/// What one thread of the application has of an endpoint that an engine drives. Dropping it ends that: the engine takes what was
/// ordered before, and peers find out by their time-outs, as with an endpoint that is dropped. What they have not acknowledged by then may
/// be lost: [`Self::close`] each, and go on until [`Event::Closed`], to have it arrive.
///
/// As with an endpoint, what was sent leaves with `flush` or `wait` at the latest; an engine that is awake needs neither.
/// When the engine has panicked, `send` says `NoPeer`, and everything that can says why.
pub struct Port<D: Driven> {
    lane: End,
    pub(super) shared: Arc<Shared<D>>,
    /// Bytes sent to each peer, by its index; the gauges say how many of them the endpoint has taken.
    sent: Box<[u64]>,
    /// The same of one-sided operations.
    pub(super) operations: Box<[Ordered]>,
    /// Something was refused for want of room at its peer or among the orders: the engine is asked to tell of some.
    was_full: bool,
    /// Bytes of the shortest record that the ring had no room for: its other end tells of some unasked.
    unfit: Option<usize>,
    /// Gives `D` back when the engine has ended with it; nothing, after a panic.
    returned: mpsc::Receiver<Anything>,
    engine: Engine,
}

type Work<D> = Box<dyn FnOnce(&mut D) -> Anything + Send>;

impl<D: Driven> Port<D> {
    pub(super) fn new(lane: End, shared: Arc<Shared<D>>, returned: mpsc::Receiver<Anything>, engine: Engine) -> Self {
        let sent = vec![0; shared.gauges.len()].into();
        let operations = vec![Ordered::default(); shared.gauges.len()].into();
        Self { lane, shared, sent, operations, was_full: false, unfit: None, returned, engine }
    }

    /// The engine, for more endpoints.
    pub fn engine(&self) -> Engine {
        self.engine.clone()
    }

    /// As [`Endpoint::connect`]. Waits for the engine's answer: a turn of it.
    pub fn connect(&mut self, to: LinkAddr) -> Result<PeerId, ConnectError> {
        let shared = Arc::clone(&self.shared);
        let connected = self.call(move |driven| {
            let peer = driven.connect(to)?;
            shared.open(driven, peer);
            Ok::<_, crate::ConnectError>(peer)
        })?;
        Ok(connected?)
    }

    /// As [`Endpoint::close`], after what was sent here before.
    pub fn close(&mut self, peer: PeerId) {
        if let Some(gauge) = self.shared.gauge(peer) {
            gauge.close(peer);
        }
        // Without an engine everything is closed.
        let _ = self.order_at_last(Order::Close { peer });
    }

    /// Takes the next event. Whoever has a message of a new peer finds its [`Event::Connected`], unless there was no room for
    /// more events. Messages that came before a peer's end may
    /// still wait here when that is told: they can be received after it.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.shared.events.pop()?;
        self.shared.ring();
        Some(event)
    }

    /// Has the engine do `work` in its next turn, after what was ordered here before and found room at its peer; hands it back when there
    /// is no room, or no engine. When that ends first, `work` is dropped.
    pub fn run<F: FnOnce(&mut D) + Send + 'static>(&mut self, work: F) -> Result<(), F> {
        if self.shared.has_ended() || !self.has_room_beside(0) {
            return Err(work);
        }
        self.order(Order::Run(Box::new(work)), &[]);
        self.shared.drop_late_orders();
        Ok(())
    }

    /// Has the engine do `work`, as [`Self::run`], and waits for what comes of it. A panic in `work` ends this endpoint. Panics itself, as
    /// does whatever else waits for an answer, in work on the same engine: that cannot wait for itself.
    pub fn call<R: Send + 'static>(&mut self, work: impl FnOnce(&mut D) -> R + Send + 'static) -> Result<R, Ended> {
        let result = self.call_any(Box::new(move |driven| Box::new(work(driven))))?;
        Ok(*result.downcast().expect("it is what the work gave"))
    }

    /// The same of any work.
    fn call_any(&mut self, work: Work<D>) -> Result<Anything, Ended> {
        self.assert_elsewhere();
        let (done, is_done) = mpsc::sync_channel(1);
        let work = move |driven: &mut D| {
            let _ = done.send(work(driven));
        };
        self.order_at_last(Order::Run(Box::new(work)))?;
        self.flush();
        loop {
            match is_done.recv_timeout(LOOK) {
                Ok(result) => return Ok(result),
                // An order may be pushed just when the engine ends.
                Err(RecvTimeoutError::Timeout) => self.shared.alive()?,
                Err(RecvTimeoutError::Disconnected) => return self.ended(),
            }
        }
    }

    /// Wakes the engine if it sleeps: it puts on the wire what was sent.
    #[inline]
    pub fn flush(&mut self) {
        self.shared.ring();
    }

    /// Sleeps until a message or an event is there, a one-sided operation is done, there is room again where something was `Full`, or
    /// the time is `deadline`.
    /// Flushes first. May return for nothing. The error says that the engine is no more, once everything that came is taken.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.assert_elsewhere();
        self.flush();
        let Self { lane, shared, was_full, unfit, .. } = self;
        let has_room = has_room_again(lane, shared, *was_full, *unfit);
        if has_room {
            (*was_full, *unfit) = (false, None);
        }
        if shared.take_any_done() || has_room || lane.is_ready() || !shared.events.is_empty() {
            return Ok(());
        }
        shared.alive().map_err(io::Error::other)?;
        let ready = || {
            lane.is_ready()
                || !shared.events.is_empty()
                || shared.has_any_done()
                || shared.has_ended()
                || has_room_again(lane, shared, *was_full, *unfit)
        };
        shared.port_bell.sleep(ready, deadline)
    }

    /// Why there is no engine any more; `Ok` while there is one.
    pub fn alive(&self) -> Result<(), Ended> {
        self.shared.alive()
    }

    /// As [`Endpoint::counters`].
    pub fn counters(&mut self) -> Result<Counters, Ended> {
        self.call(|driven| *driven.endpoint().counters())
    }

    /// A handle for other threads.
    pub fn sender(&self) -> Sender<D> {
        Sender::new(Arc::clone(&self.shared))
    }

    /// Takes the endpoint back from the engine, with what was ordered before in its FIFOs; but what a peer made no room
    /// for within 200 ms is not sent. Messages and events that the engine has handed over are gone with the port: take
    /// them before. Of one-sided operations that are not done by then the endpoint tells by numbers of its own, and of those that found no
    /// room nothing.
    pub fn stop(mut self) -> Result<D, Ended> {
        self.assert_elsewhere();
        match self.join() {
            Some(driven) => Ok(driven),
            None => self.ended(),
        }
    }

    fn join(&mut self) -> Option<D> {
        self.shared.stop();
        let driven = self.returned.recv().ok()?;
        Some(*driven.downcast().expect("it is what was driven"))
    }

    /// The engine's own thread would wait for ever for what it does itself.
    fn assert_elsewhere(&self) {
        assert!(!self.engine.is_current(), "an engine cannot wait for itself: its ports' calls are for other threads");
    }

    /// It has ended, or does just now: waits for its last words.
    fn ended<R>(&self) -> Result<R, Ended> {
        loop {
            self.shared.alive()?;
            thread::yield_now();
        }
    }

    /// An order that must not fail. Waits for room.
    fn order_at_last(&mut self, order: Order<D>) -> Result<(), Ended> {
        while !self.has_room_beside(0) {
            self.assert_elsewhere();
            self.shared.alive()?;
            self.flush();
            thread::yield_now();
        }
        self.shared.alive()?;
        self.order(order, &[]);
        self.shared.drop_late_orders();
        Ok(())
    }

    /// True when the next order has room, with so many bytes; only this thread pushes.
    pub(super) fn has_room_beside(&mut self, len: usize) -> bool {
        if !self.lane.has_room(HEAD_LEN + len) {
            self.note_unfit(HEAD_LEN + len);
            return false;
        }
        let shared = &self.shared;
        !shared.port_orders.is_full()
            || !is_full_after_all(shared, &mut self.was_full, || !shared.port_orders.is_full())
    }

    /// The ring has no room for a record of so many bytes.
    #[cold]
    fn note_unfit(&mut self, len: usize) {
        self.unfit = Some(self.unfit.map_or(len, |shortest| shortest.min(len)));
    }

    /// There is room for it, and for the bytes that go with it.
    pub(super) fn order(&mut self, order: Order<D>, bytes: &[u8]) {
        let nobody = PeerId { index: u16::MAX, generation: 0 };
        let pushed = self.shared.port_orders.push(order).is_ok()
            && self.lane.push(HEAD_LEN + bytes.len(), |record| {
                Head { peer: nobody, beside: true }.emit(record);
                copy(&mut record[HEAD_LEN..], bytes);
            });
        debug_assert!(pushed, "there was room for it");
    }

    /// Whether the endpoint has taken all that was sent here to a peer.
    pub(super) fn is_taken(&self, peer: PeerId) -> bool {
        let sent = |gauge: &Gauge| {
            gauge.port_taken.load(Ordering::Relaxed) == self.sent[peer.index()]
                && gauge.operations_taken.load(Ordering::Relaxed) == self.operations[peer.index()].cost
        };
        self.shared.gauge(peer).is_some_and(sent)
    }

    /// Gives the engine what `write` puts into `len` bytes, to be sent.
    #[inline]
    pub(super) fn keep(&mut self, peer: PeerId, len: usize, write: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let cost = self.admit(peer, len)?;
        if len > RECORD_MAX - HEAD_LEN {
            let mut buffer = vec![0; len];
            write(&mut buffer);
            return self.send_beside(peer, buffer, false, cost).map_err(|refused| refused.reason);
        }
        let pushed = self.lane.push(HEAD_LEN + len, |record| {
            Head { peer, beside: false }.emit(record);
            write(&mut record[HEAD_LEN..]);
        });
        if !pushed {
            self.note_unfit(HEAD_LEN + len);
            return Err(SendError::Full);
        }
        self.sent[usize::from(peer.index)] += cost;
        Ok(())
    }

    /// What a message counts for, if it may be sent now.
    #[inline]
    fn admit(&mut self, peer: PeerId, len: usize) -> Result<u64, SendError> {
        let gauge: &Gauge = self.shared.gauge(peer).ok_or(SendError::NoPeer)?;
        gauge.check(peer, len)?;
        let (sent, cost) = (self.sent[usize::from(peer.index)], cost(len));
        let full = !gauge.fits_port(sent, cost)
            && is_full_after_all(&self.shared, &mut self.was_full, || gauge.fits_port(sent, cost));
        if self.shared.has_ended() {
            // It takes nothing, and makes no room.
            Err(SendError::NoPeer)
        } else if full {
            Err(SendError::Full)
        } else {
            Ok(cost)
        }
    }

    /// The same of a one-sided operation that counts for `cost`.
    pub(super) fn admit_operation(&mut self, peer: PeerId, cost: u64) -> Result<(), RmaError> {
        let gauge: &Gauge = self.shared.gauge(peer).ok_or(RmaError::NoPeer)?;
        gauge.check(peer, 0).map_err(|_| RmaError::NoPeer)?;
        let sent = self.operations[peer.index()].cost;
        let full = !gauge.fits_operation(sent, cost)
            && is_full_after_all(&self.shared, &mut self.was_full, || gauge.fits_operation(sent, cost));
        if self.shared.has_ended() {
            Err(RmaError::NoPeer)
        } else if full {
            Err(RmaError::Full)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn send_beside(&mut self, peer: PeerId, buffer: Vec<u8>, lent: bool, cost: u64) -> Result<(), Refused> {
        if !self.has_room_beside(0) {
            return Err(Refused { reason: SendError::Full, buffer });
        }
        self.order(Order::Large { peer, buffer, lent }, &[]);
        self.sent[usize::from(peer.index)] += cost;
        Ok(())
    }
}

impl<N: Nic + Send + 'static> Port<Endpoint<N>> {
    /// As [`Endpoint::send`]. `Full`: too much is on its way to this peer, or in the engine's ring.
    #[inline]
    pub fn send(&mut self, peer: PeerId, message: &[u8]) -> Result<(), SendError> {
        if message.len() > RECORD_MAX - HEAD_LEN {
            let cost = self.admit(peer, message.len())?;
            return self.send_beside(peer, message.to_vec(), false, cost).map_err(|refused| refused.reason);
        }
        self.keep(peer, message.len(), |place| copy(place, message))
    }

    /// As [`Endpoint::send_owned`].
    pub fn send_owned(&mut self, peer: PeerId, buffer: Vec<u8>) -> Result<(), Refused> {
        match self.admit(peer, buffer.len()) {
            Ok(cost) => self.send_beside(peer, buffer, true, cost),
            Err(reason) => Err(Refused { reason, buffer }),
        }
    }

    /// As [`Endpoint::recv`].
    #[inline]
    pub fn recv<R>(&mut self, take: impl FnOnce(PeerId, &[u8]) -> R) -> Option<R> {
        let shared = &self.shared;
        let (taken, starved) = self.lane.pop(|record| {
            let (head, message) = Head::parse(record);
            if !head.beside {
                return take(head.peer, message);
            }
            let message = shared.large.pop().expect("it was there before its record");
            let taken = take(head.peer, &message);
            shared.ring();
            taken
        })?;
        if starved {
            self.shared.ring();
        }
        Some(taken)
    }

    /// True when a message waits to be received.
    pub fn has_messages(&self) -> bool {
        self.lane.is_ready()
    }

    /// As [`Endpoint::is_settled`], of what was sent here. Waits for the engine's answer.
    pub fn is_settled(&mut self, peer: PeerId) -> Result<bool, Ended> {
        if !self.is_taken(peer) {
            self.flush();
            return self.alive().map(|()| false);
        }
        self.call(move |endpoint| endpoint.is_settled(peer))
    }
}

/// Asks the engine to tell when it has made room, and looks once more: either it sees that it is asked, or `has_room` sees what it
/// made.
#[cold]
fn is_full_after_all<D>(shared: &Shared<D>, was_full: &mut bool, has_room: impl FnOnce() -> bool) -> bool {
    let was_open = shared.port_wants.ask();
    let full = !has_room();
    // Told of room for something else that was refused: `wait` must not sleep on it because this is refused too.
    let is_told = *was_full && !was_open;
    if is_told || !full {
        shared.port_wants.withdraw();
    }
    *was_full |= full;
    full
}

/// True when there is room for something that was refused: see the fields of these names.
#[inline]
fn has_room_again<D>(lane: &mut End, shared: &Shared<D>, was_full: bool, unfit: Option<usize>) -> bool {
    was_full && !shared.port_wants.is_asked() || unfit.is_some_and(|len| lane.has_room(len))
}

impl<D: Driven> Drop for Port<D> {
    fn drop(&mut self) {
        if self.engine.is_current() {
            // By an order on its own engine, which cannot wait for itself.
            self.shared.stop();
        } else {
            self.join();
        }
    }
}

/// How long an order that just missed the engine's end may wait for nothing.
const LOOK: Duration = Duration::from_millis(50);
