//! What the ranks of one host do among themselves: by messages of the call's schedule, or in calls of their own, which may go by memory
//! that they share.

use super::Levels;
use crate::coll::{
    Blocks, Call, Collective, HostCall, Memory, Reduction, Schedule, Span, broadcast, gather, reduce, scatter,
};

/// How.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithinHosts {
    /// Messages of the schedule, by the table's algorithms.
    Messages,
    /// Calls of the ranks of a host.
    Calls,
}

impl Levels<'_> {
    /// The leader hears that all of our host have come.
    pub(super) fn meet(&self, schedule: &mut Schedule) {
        let ours = self.ours();
        if self.within == WithinHosts::Calls {
            // Nothing would be no message where they share no memory.
            let (note, notes) = (schedule.scratch(1), schedule.scratch(ours.size));
            return self.gather(schedule, note, self.leads().then_some(notes));
        }
        if self.leads() {
            (1..ours.size).for_each(|steps| schedule.await_signal(ours.rank(ours.after(steps))));
        } else {
            schedule.signal(ours.rank(self.place_of_leader()));
        }
        schedule.next_round();
    }

    /// All of our host hear of the leader that they may go.
    pub(super) fn part(&self, schedule: &mut Schedule) {
        let ours = self.ours();
        if self.within == WithinHosts::Calls {
            let note = schedule.scratch(1);
            return self.broadcast(schedule, note);
        }
        if self.leads() {
            (1..ours.size).for_each(|steps| schedule.signal(ours.rank(ours.after(steps))));
        } else {
            schedule.await_signal(ours.rank(self.place_of_leader()));
        }
        schedule.next_round();
    }

    /// The leader's `data` to all of our host.
    pub(super) fn broadcast(&self, schedule: &mut Schedule, data: Span) {
        let (ours, root) = (self.ours(), self.place_of_leader());
        if self.within == WithinHosts::Calls {
            return schedule.on_host(HostCall { call: Call::Broadcast { root }, send: None, receive: data });
        }
        let algorithm = self.choose(Collective::Broadcast, ours, data.len());
        broadcast::build(algorithm, schedule, ours, root, data);
    }

    /// To the leader, who has the `output`; in place, `input` is the same.
    pub(super) fn reduce(&self, schedule: &mut Schedule, (input, output): (Span, Option<Span>), reduction: Reduction) {
        let (ours, root) = (self.ours(), self.place_of_leader());
        if self.within == WithinHosts::Calls {
            let send = (output != Some(input)).then_some(input);
            let call = Call::Reduce { root, reduction };
            return schedule.on_host(HostCall { call, send, receive: output.unwrap_or(NOTHING) });
        }
        let algorithm = self.choose(Collective::Reduce, ours, input.len());
        reduce::build(algorithm, schedule, ours, root, (input, output), reduction);
    }

    /// To the leader, who has the `output` for the blocks in our order. In place, the leader's is there already.
    pub(super) fn gather(&self, schedule: &mut Schedule, block: Span, output: Option<Span>) {
        let (ours, root, len) = (self.ours(), self.place_of_leader(), block.len());
        if self.within == WithinHosts::Calls {
            let is_in_place = output.is_some_and(|output| Blocks::Equal(len).of(output, ours.me) == block);
            let call = Call::Gather { root, len };
            let send = (!is_in_place).then_some(block);
            return schedule.on_host(HostCall { call, send, receive: output.unwrap_or(NOTHING) });
        }
        let algorithm = self.choose(Collective::Gather, ours, len);
        gather::build(algorithm, schedule, ours, root, block, output);
    }

    /// From the leader, who has the `input`: our `block`, of `len` bytes as everybody's, and nowhere if it stays in place.
    pub(super) fn scatter(&self, schedule: &mut Schedule, len: usize, (input, block): (Option<Span>, Option<Span>)) {
        let (ours, root) = (self.ours(), self.place_of_leader());
        if self.within == WithinHosts::Calls {
            let receive = block.unwrap_or(NOTHING);
            return schedule.on_host(HostCall { call: Call::Scatter { root, len }, send: input, receive });
        }
        let algorithm = self.choose(Collective::Scatter, ours, len);
        scatter::build(algorithm, schedule, ours, root, len, (input, block));
    }
}

const NOTHING: Span = Span::new(Memory::Scratch, 0, 0);
