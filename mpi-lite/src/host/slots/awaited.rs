//! What a call waits for: what others show in it, a slot that is free again, and that what it has shown was taken.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::places::Ring;
use super::{Slots, reached};
use crate::host::Peers;
use crate::host::gate::{self, Closed, Turn};

impl Slots {
    /// Waits until a member has shown what it shows in this call.
    #[inline]
    pub(in crate::host) async fn await_member<P: Peers>(&self, member: usize, peers: &mut P) -> Result<(), P::Error> {
        let ready = self.comes(member);
        self.ground.until(peers, &ready, |other| other == member && !ready()).await
    }

    /// Whether `member` has come to this call, to be asked again and again.
    #[inline]
    pub(super) fn comes(&self, member: usize) -> impl Fn() -> bool {
        let (shown, finished) =
            (self.ground.shared.word(self.head_at(member)), self.ground.shared.word(self.places.flag(member)));
        let (call, looks) = (self.call.wrapping_add(1), Cell::new(0u32));
        move || {
            let look = looks.replace(looks.get().wrapping_add(1));
            // Who has finished the call without showing anything was called with something else, as `check` finds then. This
            // seldom, since it is in another cache line, which changes.
            shown.load(Ordering::Acquire) == call || look % 64 == 63 && reached(finished.load(Ordering::Acquire), call)
        }
    }

    /// Waits until these members have.
    #[inline]
    pub(in crate::host) async fn await_members<P: Peers>(
        &self,
        members: Range<usize>,
        peers: &mut P,
    ) -> Result<(), P::Error> {
        for member in members {
            if !self.has_shown(member) {
                self.await_member(member, peers).await?;
            }
        }
        Ok(())
    }

    /// Waits until all have shown what they show in this call.
    #[inline]
    pub(in crate::host) async fn await_all<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        if self.ground.is_crowded() {
            return self.await_last(peers, |_, _| Ok(())).await.map(drop);
        }
        self.await_members(0..self.ground.size, peers).await?;
        self.finished = self.call;
        Ok(())
    }

    /// Waits until all have come; the last one does `last`, with [`Self::show_result`]. Whether that is us.
    pub(in crate::host) async fn await_last<P: Peers>(
        &mut self,
        peers: &mut P,
        last: impl FnOnce(&mut Self, &mut P) -> Result<(), P::Error>,
    ) -> Result<bool, P::Error> {
        let closed = self.come_last(peers, last)?;
        let are_last = closed.is_none();
        if let Some(closed) = closed {
            // Whoever has shown something may still have to come to the gate, or to do `last`.
            let come = self.call.wrapping_add(1);
            closed.wait(&self.ground, peers, |member| !self.has_finished(member, come)).await?;
        }
        self.finished = self.call;
        Ok(are_last)
    }

    /// Comes to the gate, and opens it as the last one, after `last`. Else it is closed yet.
    pub(super) fn come_last<P: Peers>(
        &mut self,
        peers: &mut P,
        last: impl FnOnce(&mut Self, &mut P) -> Result<(), P::Error>,
    ) -> Result<Option<Closed>, P::Error> {
        match gate::come(&self.ground, self.places.gate()) {
            Turn::Wait(closed) => Ok(Some(closed)),
            Turn::Open(closed) => {
                last(self, peers)?;
                closed.open(&self.ground, peers);
                Ok(None)
            }
        }
    }

    /// Waits until `member` has finished the call before the one under way.
    pub(in crate::host) async fn await_taken_by<P: Peers>(&self, member: usize, peers: &mut P) -> Result<(), P::Error> {
        self.await_flag(member, self.call, peers).await
    }

    /// Waits until all have finished the call before the one under way.
    pub(in crate::host) async fn await_taken<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        self.await_finished(self.call, peers).await
    }

    /// Waits until a slot may be written in this call, and if it has to, until half of them may: flags that are written all the time
    /// are looked at less often.
    pub(super) async fn await_slot<P: Peers>(&mut self, ring: Ring, peers: &mut P) -> Result<(), P::Error> {
        let slots = ring.slots as u32;
        if reached(self.finished, self.call.wrapping_sub(slots - 1)) {
            return Ok(());
        }
        self.await_finished(self.call.wrapping_sub(slots / 2), peers).await
    }

    /// Waits until all have finished the calls before `call`.
    #[inline]
    pub(super) async fn await_finished<P: Peers>(&mut self, call: u32, peers: &mut P) -> Result<(), P::Error> {
        if !reached(self.finished, call) {
            let mut least = u32::MAX;
            for member in 0..self.ground.size {
                self.await_flag(member, call, peers).await?;
                least = least.min(self.finished_of(member).wrapping_sub(call));
            }
            // They may be further: then nobody's flag has to be looked at in the next calls.
            self.finished = call.wrapping_add(least);
        }
        Ok(())
    }

    #[inline]
    pub(super) async fn await_flag<P: Peers>(&self, member: usize, call: u32, peers: &mut P) -> Result<(), P::Error> {
        let ready = || self.has_finished(member, call);
        self.ground.until(peers, ready, |other| other == member && !ready()).await
    }
}
