//! Orders on their way into the endpoint, and those that wait for room there.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use super::backlog::{Backlog, Source, What};
use super::driven::Driven;
use super::gauge::cost;
use super::operation::{Operation, failure};
use super::order::Order;
use super::shared::Shared;
use super::underway::Underway;
use crate::{Event, PeerId, Refused, RmaError, SendError};

/// Takes each peer's orders in turn: what waits for one peer's FIFO keeps nobody else's waiting.
#[derive(Default)]
pub(super) struct Intake {
    /// By the peer's index; none is empty.
    backlogs: HashMap<u16, Backlog>,
    /// What the port is to hear, as soon as there is room: of the endpoint's, with the port's numbers; of buffers that were lent to peers
    /// that are gone; of operations that could not be begun.
    pub events: VecDeque<Event>,
    /// The port's one-sided operations that were begun.
    pub underway: Underway,
    /// Room was made for the port since this was last looked at.
    pub made_room: bool,
}

impl Intake {
    /// A short message.
    #[inline]
    pub fn short<D: Driven>(
        &mut self,
        driven: &mut D,
        shared: &Shared<D>,
        source: Source,
        peer: PeerId,
        message: &[u8],
    ) {
        if self.backlogs.is_empty() || !self.backlogs.contains_key(&peer.index) {
            match driven.send(peer, message) {
                Err(SendError::Full) => {}
                sent => return self.settle(driven, shared, source, peer, message.len(), sent),
            }
        }
        self.backlogs.entry(peer.index).or_default().push_short(peer, source, message);
    }

    /// Any other order; `behind` its record stand the bytes of a short put.
    pub fn obey<D: Driven>(
        &mut self,
        driven: &mut D,
        shared: &Shared<D>,
        source: Source,
        order: Order<D>,
        behind: &[u8],
    ) {
        self.made_room |= source == Source::Port;
        let (peer, what) = match order {
            Order::Short { peer, len, bytes } => {
                return self.short(driven, shared, source, peer, &bytes[..usize::from(len)]);
            }
            Order::Run(run) => {
                // It comes after what was ordered before, as far as there is room for that.
                self.retry(driven, shared);
                return run(driven);
            }
            Order::Large { peer, buffer, lent } => (peer, What::Large { buffer, lent }),
            Order::Operation(operation) => return self.operation(driven, shared, operation, behind),
            Order::Close { peer } => (peer, What::Close),
        };
        self.backlogs.entry(peer.index).or_default().push(peer, source, what);
    }

    /// A one-sided operation. Messages that wait keep none waiting: it needs none of their room.
    fn operation<D: Driven>(&mut self, driven: &mut D, shared: &Shared<D>, mut operation: Operation, bytes: &[u8]) {
        let peer = operation.peer;
        let waits = self.backlogs.get(&peer.index).is_some_and(Backlog::has_operations);
        if waits || !self.begin(driven, shared, &mut operation, bytes) {
            operation.keep(bytes);
            self.backlogs.entry(peer.index).or_default().push_operation(operation);
        }
    }

    /// Has the endpoint begin an operation; an event tells if it never can. False: there is no room.
    fn begin<D: Driven>(
        &mut self,
        driven: &mut D,
        shared: &Shared<D>,
        operation: &mut Operation,
        bytes: &[u8],
    ) -> bool {
        let Operation { peer, number, cost, .. } = *operation;
        match operation.begin(driven.endpoint(), bytes) {
            Ok(op) => self.underway.on_begun(op, number),
            Err(RmaError::Full) => return false,
            Err(error) => self.events.push_back(self.underway.on_failed(peer, number, failure(error))),
        }
        if let Some(gauge) = shared.gauge(peer) {
            add(&gauge.operations_taken, cost);
        }
        self.made_room = true;
        true
    }

    /// What the port is yet to hear when the engine ends. What it lent and no peer had room for comes back.
    pub fn into_events(mut self) -> VecDeque<Event> {
        self.backlogs.into_values().for_each(|backlog| self.events.extend(backlog.into_unsent()));
        self.events
    }

    /// True while something waits for a peer's FIFO.
    pub fn has_backlog(&self) -> bool {
        !self.backlogs.is_empty()
    }

    /// Tries again what waits. True if something went on.
    pub fn retry<D: Driven>(&mut self, driven: &mut D, shared: &Shared<D>) -> bool {
        if self.backlogs.is_empty() {
            return false;
        }
        let mut backlogs = std::mem::take(&mut self.backlogs);
        let mut worked = false;
        backlogs.retain(|_, backlog| {
            while let Some(operation) = backlog.operation()
                && driven.uncounted(|driven| self.begin(driven, shared, operation, &[]))
            {
                backlog.pop_operation();
                worked = true;
            }
            while driven.uncounted(|driven| self.retry_oldest(driven, shared, backlog)) {
                backlog.pop();
                worked = true;
            }
            !backlog.is_empty()
        });
        self.backlogs = backlogs;
        worked
    }

    /// True when the oldest order is done.
    fn retry_oldest<D: Driven>(&mut self, driven: &mut D, shared: &Shared<D>, backlog: &mut Backlog) -> bool {
        let Some((item, bytes)) = backlog.front() else { return false };
        let (peer, source) = (item.peer, item.source);
        let (len, sent) = match &mut item.what {
            What::Short(len) => (*len, driven.send(peer, bytes)),
            What::Large { buffer, lent } => {
                let (len, lent) = (buffer.len(), *lent);
                let sent = driven.send_buffer(peer, std::mem::take(buffer), lent);
                (len, sent.map_err(|refused| self.take_back(refused, peer, lent, buffer)))
            }
            What::Close => {
                driven.close(peer);
                return true;
            }
        };
        if sent == Err(SendError::Full) {
            return false;
        }
        self.settle(driven, shared, source, peer, len, sent);
        true
    }

    /// A buffer that was refused: back to its place, or to its owner when there is no peer.
    fn take_back(&mut self, refused: Refused, peer: PeerId, lent: bool, place: &mut Vec<u8>) -> SendError {
        let Refused { reason, buffer } = refused;
        if reason == SendError::Full {
            *place = buffer;
        } else if lent {
            self.events.push_back(Event::Unsent { peer, buffer });
        }
        reason
    }

    /// The message has left, or has nowhere to go: then an event says so.
    #[inline]
    fn settle<D: Driven>(
        &mut self,
        driven: &mut D,
        shared: &Shared<D>,
        source: Source,
        peer: PeerId,
        len: usize,
        sent: Result<(), SendError>,
    ) {
        if sent == Err(SendError::TooLong) {
            // It was ordered before the peer had said what it takes.
            driven.endpoint().end_too_long(peer);
        }
        let Some(gauge) = shared.gauge(peer) else { return };
        let taken = match source {
            Source::Port => &gauge.port_taken,
            Source::Shared => &gauge.shared_taken,
        };
        self.made_room |= source == Source::Port;
        add(taken, cost(len));
    }
}

/// Nobody else writes it.
#[inline]
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}
