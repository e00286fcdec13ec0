//! The port's one-sided operations that the endpoint has begun, and which of them are done.
//!
//! The endpoint numbers the operations to a peer in the order in which it begins them, others' among them: of closures, of Active Messages.
//! The port cannot know those numbers when it orders, and counts on its own. Events go out with its numbers.

use std::collections::{HashMap, VecDeque};

use sidelane_nic::Nic;

use super::shared::Shared;
use crate::{Endpoint, Event, Op, OpError, PeerId};

/// Of all peers, from their beginning until the port knows that they are done.
#[derive(Default)]
pub(super) struct Underway {
    /// By the peer's index.
    slots: HashMap<u16, Slot>,
    /// Those of `slots` of which the port does not know yet that all are done.
    busy: Vec<u16>,
}

#[derive(Default)]
struct Slot {
    /// In order, and none is empty.
    runs: VecDeque<Run>,
    /// Every operation before this number was begun, or has failed.
    begun: u64,
    /// The port knows that every operation before this number is done.
    done: u64,
}

/// Operations that follow one another in both counts.
struct Run {
    /// The endpoint's first.
    op: Op,
    /// The port's.
    number: u64,
    len: u64,
}

impl Underway {
    /// Operation `number` of the port's was begun as `op`.
    pub fn on_begun(&mut self, op: Op, number: u64) {
        let slot = self.next(op.peer, number);
        match slot.runs.back_mut() {
            Some(run) if run.op.peer == op.peer && run.ends() == (op.number, number) => run.len += 1,
            _ => slot.runs.push_back(Run { op, number, len: 1 }),
        }
    }

    /// It could not be begun, and never will be.
    pub fn on_failed(&mut self, peer: PeerId, number: u64, why: OpError) -> Event {
        self.next(peer, number);
        Event::OpFailed { op: of_port(peer, number), why }
    }

    /// The slot of a peer, where it is the turn of `number`.
    fn next(&mut self, peer: PeerId, number: u64) -> &mut Slot {
        let slot = self.slots.entry(peer.index).or_default();
        if slot.done == slot.begun {
            self.busy.push(peer.index);
        }
        debug_assert_eq!(slot.begun, number, "a peer's operations are begun in the order of the port's");
        slot.begun = number + 1;
        slot
    }

    /// Puts the port's number into an event of the endpoint's that tells of one of these.
    pub fn translate(&self, mut event: Event) -> Event {
        if let Event::Got { op } | Event::Fetched { op, .. } | Event::OpFailed { op, .. } = &mut event
            && let Some(slot) = self.slots.get(&op.peer.index)
            && let Some(run) = slot.runs.iter().find(|run| run.holds(*op))
        {
            *op = of_port(op.peer, run.number + (op.number - run.op.number));
        }
        event
    }

    /// True while the port is to learn of something.
    #[inline]
    pub fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Lets the port know what is done by now, and forgets that: there must be no event that [`Self::translate`] has not seen. True if
    /// there was anything new.
    pub fn publish<D, N: Nic>(&mut self, endpoint: &mut Endpoint<N>, shared: &Shared<D>) -> bool {
        let Self { slots, busy } = self;
        let mut any = false;
        busy.retain(|index| {
            let Some(slot) = slots.get_mut(index) else { return false };
            let done = slot.forget_done(|op| endpoint.is_done(op));
            if done != slot.done {
                slot.done = done;
                shared.publish_done(*index, done);
                any = true;
            }
            slot.done != slot.begun
        });
        any
    }
}

impl Slot {
    /// Up to which number all are done.
    fn forget_done(&mut self, mut is_done: impl FnMut(Op) -> bool) -> u64 {
        while let Some(run) = self.runs.front_mut() {
            while run.len > 0 && is_done(run.op) {
                (run.op.number, run.number, run.len) = (run.op.number + 1, run.number + 1, run.len - 1);
            }
            if run.len > 0 {
                return run.number;
            }
            self.runs.pop_front();
        }
        self.begun
    }
}

impl Run {
    fn ends(&self) -> (u64, u64) {
        (self.op.number + self.len, self.number + self.len)
    }

    fn holds(&self, op: Op) -> bool {
        self.op.peer == op.peer && (self.op.number..self.op.number + self.len).contains(&op.number)
    }
}

/// Operation `number` of the port's to the slot of `peer`, as it calls it.
#[inline]
pub(super) const fn of_port(peer: PeerId, number: u64) -> Op {
    Op { peer, number: number | OF_PORT }
}

/// The port's number of an operation; `None` of the endpoint's own.
#[inline]
pub(super) const fn port_number(op: Op) -> Option<u64> {
    if op.number & OF_PORT == 0 { None } else { Some(op.number & !OF_PORT) }
}

/// Tells the port's numbers from the endpoint's, which never come so far.
const OF_PORT: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId { index: 3, generation: 7 };

    fn ours(number: u64) -> Op {
        Op { peer: PEER, number }
    }

    fn told(underway: &Underway, number: u64) -> Op {
        match underway.translate(Event::Got { op: ours(number) }) {
            Event::Got { op } => op,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_carry_the_ports_numbers_and_others_their_own() {
        let mut underway = Underway::default();
        underway.on_begun(ours(10), 0);
        underway.on_begun(ours(11), 1);
        // 12 is a closure's.
        underway.on_begun(ours(13), 2);
        let failed = underway.on_failed(PEER, 3, OpError::Bounds);
        underway.on_begun(ours(14), 4);
        assert_eq!(failed, Event::OpFailed { op: of_port(PEER, 3), why: OpError::Bounds });
        assert_eq!([10, 11, 13, 14].map(|number| told(&underway, number)), [0, 1, 2, 4].map(|n| of_port(PEER, n)));
        assert_eq!([9, 12, 15].map(|number| told(&underway, number)), [9, 12, 15].map(ours));
        let other = Op { peer: PeerId { generation: 8, ..PEER }, number: 10 };
        assert_eq!(underway.translate(Event::Got { op: other }), Event::Got { op: other });
    }

    #[test]
    fn what_is_done_is_forgotten_in_order_and_failures_count() {
        let mut slot = Slot { begun: 6, ..Slot::default() };
        // 3 has failed, and so has 5.
        slot.runs.push_back(Run { op: ours(10), number: 0, len: 3 });
        slot.runs.push_back(Run { op: ours(20), number: 4, len: 1 });
        assert_eq!(slot.forget_done(|op| op.number == 11), 0);
        assert_eq!(slot.forget_done(|op| op.number < 12), 2);
        assert_eq!(slot.forget_done(|op| op.number < 20), 4);
        assert_eq!(slot.forget_done(|_| true), 6);
        assert!(slot.runs.is_empty());
    }
}
