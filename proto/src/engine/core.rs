//! The engine's thread: its turns, and its sleep.

use std::sync::Arc;

use sidelane_nic::Nic;
use sidelane_nic::shm::lane::{End, RECORD_MAX};
use sidelane_nic::time::{Duration, Instant};

use super::backlog::Source;
use super::driven::Driven;
use super::idle::Idle;
use super::intake::Intake;
use super::order::{HEAD_LEN, Head};
use super::shared::Shared;
use crate::{Event, PeerId};

pub(super) struct Core<D: Driven> {
    driven: D,
    lane: End,
    shared: Arc<Shared<D>>,
    intake: Intake,
    idle: Idle,
    /// Never sleep.
    spin: bool,
    /// What the application has to take before more can come.
    stuck: Stuck,
}

#[derive(Default)]
struct Stuck {
    events: bool,
    large: bool,
}

impl<D: Driven> Core<D> {
    pub fn new(driven: D, lane: End, shared: Arc<Shared<D>>, spin: bool) -> Self {
        Self { driven, lane, shared, intake: Intake::default(), idle: Idle::new(), spin, stuck: Stuck::default() }
    }

    /// Takes turns until it is to stop, and then what was ordered before that.
    pub fn run(mut self) -> D {
        while !self.shared.is_stopping() {
            if self.turn() {
                self.idle.on_work();
            } else if !self.spin && self.idle.on_none(|| self.driven.endpoint().nic().now()) {
                self.sleep();
            }
        }
        for _ in 0..LAST_TURNS {
            if !self.take_orders() {
                break;
            }
            self.driven.endpoint().flush();
        }
        // What waits for room finds it as peers take what was sent before. What comes meanwhile stays in the endpoint.
        let end = self.now() + LAST_WAIT;
        while self.intake.has_backlog() && self.now() < end {
            self.driven.turn();
            self.take_orders();
        }
        self.driven.endpoint().flush();
        self.driven
    }

    fn now(&mut self) -> Instant {
        self.driven.endpoint().nic().now()
    }

    /// True if there was anything to do.
    fn turn(&mut self) -> bool {
        let ordered = self.take_orders();
        if ordered {
            // Before anything is received: what is there already can wait until what was ordered is on its way.
            self.driven.endpoint().flush();
        }
        let received = self.driven.turn();
        self.deliver() | ordered | received
    }

    fn take_orders(&mut self) -> bool {
        let Self { driven, lane, shared, intake, .. } = self;
        let mut taken = intake.retry(driven, shared);
        for _ in 0..BURST {
            let order = lane.pop(|record| {
                let (head, message) = Head::parse(record);
                if !head.beside {
                    intake.short(driven, shared, Source::Port, head.peer, message);
                } else if let Some(order) = shared.port_orders.pop() {
                    intake.obey(driven, shared, Source::Port, order);
                }
            });
            let Some(((), starved)) = order else { break };
            taken = true;
            if starved {
                shared.port_bell.ring();
            }
        }
        for _ in 0..BURST {
            let Some(order) = shared.orders.pop() else { break };
            intake.obey(driven, shared, Source::Shared, order);
            taken = true;
        }
        if taken {
            intake.retry(driven, shared);
        }
        if std::mem::take(&mut intake.made_room) && shared.port_wants.made_room() {
            shared.port_bell.ring();
        }
        taken
    }

    /// Puts what came where the application finds it, as far as there is room.
    fn deliver(&mut self) -> bool {
        let Self { driven, lane, shared, .. } = self;
        self.stuck = Stuck::default();
        let mut told = false;
        let endpoint = driven.endpoint();
        while endpoint.has_messages() {
            self.stuck.large = shared.large.is_full();
            if self.stuck.large || !lane.has_room(RECORD_MAX) {
                break;
            }
            endpoint.recv(|peer, message| put(lane, shared, peer, message));
            told = true;
        }
        loop {
            self.stuck.events = shared.events.is_full();
            if self.stuck.events {
                break;
            }
            let Some(event) = self.intake.returned.pop_front().or_else(|| driven.poll_event()) else { break };
            note(driven, shared, &event);
            let _ = shared.events.push(event);
            told = true;
        }
        if told {
            shared.port_bell.ring();
        }
        told
    }

    #[cold]
    fn sleep(&mut self) {
        let Self { driven, lane, shared, stuck, .. } = self;
        let began = driven.endpoint().nic().now();
        let has_messages = driven.endpoint().has_messages();
        let ready = || {
            lane.is_ready()
                || !shared.orders.is_empty()
                || shared.is_stopping()
                || has_messages && lane.may_have_room()
                || stuck.large && !shared.large.is_full()
                || stuck.events && !shared.events.is_full()
        };
        let slept = shared.bell.sleep_by(ready, || driven.sleep());
        slept.unwrap_or_else(|error| panic!("the driver cannot sleep: {error}"));
        let now = self.driven.endpoint().nic().now();
        self.idle.on_wake(now.since(began));
    }
}

/// There is room for it.
#[inline]
fn put<D>(lane: &mut End, shared: &Shared<D>, peer: PeerId, message: &[u8]) {
    let beside = message.len() > RECORD_MAX - HEAD_LEN;
    let inline = if beside { &[] } else { message };
    if beside {
        let _ = shared.large.push(message.to_vec());
    }
    let put = lane.push(HEAD_LEN + inline.len(), |record| {
        Head { peer, beside }.emit(record);
        record[HEAD_LEN..].copy_from_slice(inline);
    });
    debug_assert!(put, "there was room for the longest record");
}

/// What applications are to know of a peer before they hear of the event.
fn note<D: Driven>(driven: &mut D, shared: &Shared<D>, event: &Event) {
    match event {
        Event::Connected { peer, .. } => {
            let message_max = driven.endpoint().message_max(*peer);
            shared.gauges[usize::from(peer.index)].open(*peer, message_max);
        }
        Event::Gone { peer, .. } | Event::Closed { peer } => shared.gauges[usize::from(peer.index)].close(*peer),
        _ => {}
    }
}

/// Orders of each kind that are taken in one turn.
const BURST: usize = 64;
/// Turns in which a stopping engine takes what was ordered before: all that the ring and the queue can hold.
const LAST_TURNS: usize = 256;
/// How long a stopping engine waits for peers to make room for it: what a peer that answers at all needs.
const LAST_WAIT: Duration = Duration::from_millis(200);
