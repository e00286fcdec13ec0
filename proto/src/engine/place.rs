//! One endpoint on an engine: its turns, and its sleep.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use sidelane_nic::Nic;
use sidelane_nic::copy::copy;
use sidelane_nic::shm::lane::{End, RECORD_MAX};
use sidelane_nic::time::{Duration, Instant};

use super::backlog::Source;
use super::company::{Company, Ring};
use super::driven::Driven;
use super::intake::Intake;
use super::order::{HEAD_LEN, Head};
use super::shared::Shared;
use crate::{Event, PeerId};

/// An endpoint of any type, with the FIFOs between it and the application.
pub(super) trait Place: Send {
    /// One turn.
    fn turn(&mut self) -> Turn;
    /// Sleeps by the driver's means until there is something to do, here or for somebody else of the company.
    fn sleep(&mut self, company: &Company) -> io::Result<()>;
    /// The driver's time.
    fn now(&mut self) -> Instant;
    /// What ends [`Self::sleep`].
    fn bell(&self) -> Arc<dyn Ring>;
    /// Gives the endpoint back to the application, unless there is a reason why not.
    fn end(self: Box<Self>, why: Option<String>);
}

/// What came of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Busy,
    /// There was nothing to do.
    Idle,
    /// It was to end, and everything that was ordered before is done.
    Over,
}

pub(super) struct Core<D: Driven> {
    driven: D,
    lane: End,
    shared: Arc<Shared<D>>,
    intake: Intake,
    /// What the application has to take before more can come.
    stuck: Stuck,
    /// Peers that have not told how much room they keep for replies.
    untold: Vec<PeerId>,
    /// It is to end: when at the latest.
    ends_at: Option<Instant>,
    back: mpsc::SyncSender<Anything>,
}

/// What comes through a channel: one of each type would be compiled for each, and keep room for it.
pub(super) type Anything = Box<dyn Any + Send>;

#[derive(Default)]
struct Stuck {
    events: bool,
    large: bool,
}

impl<D: Driven> Core<D> {
    /// `back` is how the application gets `driven` again.
    pub fn new(mut driven: D, lane: End, shared: Arc<Shared<D>>, back: mpsc::SyncSender<Anything>) -> Self {
        // It may have peers already, of whom no event will tell.
        let known = driven.endpoint().living();
        for peer in &known {
            shared.open(&mut driven, *peer);
        }
        Self {
            driven,
            lane,
            shared,
            intake: Intake::default(),
            stuck: Stuck::default(),
            untold: if D::REPLIES { known } else { Vec::new() },
            ends_at: None,
            back,
        }
    }

    /// A turn of one that is to end: takes what was ordered before that.
    #[cold]
    fn wind_up(&mut self) -> Turn {
        let now = self.now();
        let ends_at = self.ends_at.unwrap_or_else(|| {
            for _ in 0..LAST_TURNS {
                if !self.take_orders() {
                    break;
                }
                self.driven.endpoint().flush();
            }
            now + LAST_WAIT
        });
        self.ends_at = Some(ends_at);
        // What waits for room finds it as peers take what was sent before. What comes meanwhile stays in the endpoint.
        self.driven.turn();
        self.take_orders();
        if self.intake.has_backlog() && now < ends_at {
            return Turn::Busy;
        }
        self.driven.endpoint().flush();
        Turn::Over
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
                    intake.obey(driven, shared, Source::Port, order, message);
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
            intake.obey(driven, shared, Source::Shared, order, &[]);
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

    /// Lets the application know of room that peers have told of.
    #[cold]
    fn note_rooms(&mut self) {
        let Self { driven, shared, untold, .. } = self;
        untold.retain(|peer| {
            if !driven.endpoint().has_peer(*peer) {
                return false;
            }
            let Some(most) = driven.room_max(*peer) else { return true };
            if let Some(gauge) = shared.gauge(*peer) {
                gauge.note_room(most);
            }
            false
        });
    }

    /// Takes the endpoint's events, and puts them where the application finds them, as far as there is room; true if there was any. What
    /// applications are to know of a peer they know before they hear of the event.
    fn tell_events(&mut self) -> bool {
        let Self { driven, shared, intake, stuck, untold, .. } = self;
        while let Some(event) = driven.poll_event() {
            note(driven, shared, &event);
            if let Event::Connected { peer, .. } = event
                && D::REPLIES
            {
                untold.push(peer);
            }
            intake.events.push_back(intake.underway.translate(event));
        }
        let mut told = false;
        while !intake.events.is_empty() {
            stuck.events = shared.events.is_full();
            if stuck.events {
                break;
            }
            told |= intake.events.pop_front().is_some_and(|event| shared.events.push(event).is_ok());
        }
        told
    }

    /// Puts what came where the application finds it, as far as there is room.
    fn deliver(&mut self) -> bool {
        self.stuck = Stuck::default();
        // First: whoever takes a message may answer it at once, and finds the event that tells of its sender.
        let mut told = self.tell_events();
        let Self { driven, lane, shared, .. } = self;
        let endpoint = driven.endpoint();
        while endpoint.has_messages() {
            self.stuck.large = shared.large.is_full();
            if self.stuck.large || !lane.has_room(RECORD_MAX) {
                break;
            }
            endpoint.recv(|peer, message| put(lane, shared, peer, message));
            told = true;
        }
        // Behind the last message may stand its peer's close.
        told |= self.tell_events();
        let Self { driven, shared, intake, .. } = self;
        if intake.underway.is_busy() {
            told |= intake.underway.publish(driven.endpoint(), shared);
        }
        if told {
            shared.port_bell.ring();
        }
        told
    }
}

impl<D: Driven> Place for Core<D> {
    #[inline]
    fn turn(&mut self) -> Turn {
        if self.shared.is_stopping() {
            return self.wind_up();
        }
        let ordered = self.take_orders();
        if ordered {
            // Before anything is received: what is there already can wait until what was ordered is on its way.
            self.driven.endpoint().flush();
        }
        let received = self.driven.turn();
        if D::REPLIES && !self.untold.is_empty() {
            self.note_rooms();
        }
        if self.deliver() | ordered | received { Turn::Busy } else { Turn::Idle }
    }

    fn sleep(&mut self, company: &Company) -> io::Result<()> {
        let Self { driven, lane, shared, intake, stuck, .. } = self;
        // The last frames may have made room, which is no message.
        if intake.retry(driven, shared) {
            return Ok(());
        }
        let has_messages = driven.endpoint().has_messages();
        let ready = || {
            company.is_up()
                || lane.is_ready()
                || !shared.orders.is_empty()
                || shared.is_stopping()
                || has_messages && lane.may_have_room()
                || stuck.large && !shared.large.is_full()
                || stuck.events && !shared.events.is_full()
        };
        shared.bell.sleep_by(ready, || driven.sleep())
    }

    fn now(&mut self) -> Instant {
        self.driven.endpoint().nic().now()
    }

    fn bell(&self) -> Arc<dyn Ring> {
        Arc::clone(&self.shared) as _
    }

    fn end(self: Box<Self>, why: Option<String>) {
        let Self { mut driven, shared, intake, back, .. } = *self;
        let is_given_back = why.is_none();
        // Dropping what is the application's may panic, perhaps for the same reason: the first one is told.
        let _ = catch_unwind(AssertUnwindSafe(move || {
            if is_given_back {
                // What found no room at the port, or at its peer.
                intake.into_events().into_iter().rev().for_each(|event| driven.give_back(event));
                let _ = back.try_send(Box::new(driven));
            }
        }));
        shared.end(why);
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
        copy(&mut record[HEAD_LEN..], inline);
    });
    debug_assert!(put, "there was room for the longest record");
}

/// What applications are to know of a peer before they hear of the event.
fn note<D: Driven>(driven: &mut D, shared: &Shared<D>, event: &Event) {
    match event {
        Event::Connected { peer, .. } => shared.open(driven, *peer),
        Event::Gone { peer, .. } | Event::Closed { peer } => {
            if let Some(gauge) = shared.gauge(*peer) {
                gauge.close(*peer);
            }
        }
        _ => {}
    }
}

/// Orders of each kind that are taken in one turn.
const BURST: usize = 64;
/// Turns in which an endpoint that is to end takes what was ordered before: all that the ring and the queue can hold.
const LAST_TURNS: usize = 256;
/// How long it waits for peers to make room for it: what a peer that answers at all needs.
const LAST_WAIT: Duration = Duration::from_millis(200);
