//! Few bytes, of ranks that wait: no future is made.

use sidelane_nic::prefetch;

use super::Slots;
use super::places::HEADS;
use crate::host::{FEW, Peers, What};
use crate::op::Function;

impl Slots {
    /// As [`Self::show`], of no more than [`FEW`].
    #[inline]
    pub(in crate::host) fn show_few<P: Peers>(
        &mut self,
        what: What,
        bytes: &[u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        if self.show_now(what, bytes, peers) {
            return Ok(());
        }
        self.wait_finished(self.call.wrapping_sub(HEADS.slots as u32 / 2), peers)?;
        let shown = self.show_now(what, bytes, peers);
        debug_assert!(shown, "they are few, and a slot is free");
        Ok(())
    }

    /// As [`Self::show_next`].
    #[inline]
    pub(in crate::host) fn show_next_few<P: Peers>(
        &mut self,
        what: What,
        bytes: &[u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        if self.show_next_now(what, bytes, peers) {
            return Ok(());
        }
        let again = self.call.wrapping_sub(HEADS.slots as u32 - 1);
        if self.was_for_next(again) {
            self.wait_flag(self.ground.me + 1, again, peers)?;
        } else {
            self.wait_finished(again, peers)?;
        }
        let shown = self.show_next_now(what, bytes, peers);
        debug_assert!(shown, "they are few, and a slot is free");
        Ok(())
    }

    /// As [`Self::await_member`].
    #[inline]
    pub(in crate::host) fn wait_member<P: Peers>(&self, member: usize, peers: &mut P) -> Result<(), P::Error> {
        if self.has_shown(member) {
            self.on_found(member);
            return Ok(());
        }
        self.found.set(0);
        let ready = self.comes(member);
        self.ground.wait(peers, &ready, |other| other == member && !ready())
    }

    /// `member` had come before we looked. One that goes on running ahead has come to the call after the next, too: its head is on its
    /// way while we are in the next one. But one that has not come there, and has its line taken away, falls behind.
    #[inline]
    fn on_found(&self, member: usize) {
        self.found.set(self.found.get().saturating_add(1));
        if self.found.get() >= HEADS.slots as u32 {
            let next = self.places.head(member, self.call.wrapping_add(2));
            prefetch::to_read(self.ground.shared.start().as_ptr().wrapping_add(next));
        }
    }

    /// As [`Self::await_all`].
    #[inline]
    pub(in crate::host) fn wait_all<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        if self.ground.is_crowded() {
            return self.wait_last(peers, |_, _| Ok(())).map(drop);
        }
        for member in 0..self.ground.size {
            self.wait_member(member, peers)?;
        }
        self.finished = self.call;
        Ok(())
    }

    /// As [`Self::await_last`].
    pub(in crate::host) fn wait_last<P: Peers>(
        &mut self,
        peers: &mut P,
        last: impl FnOnce(&mut Self, &mut P) -> Result<(), P::Error>,
    ) -> Result<bool, P::Error> {
        let closed = self.come_last(peers, last)?;
        let are_last = closed.is_none();
        if let Some(closed) = closed {
            let come = self.call.wrapping_add(1);
            closed.stay(&self.ground, peers, |member| !self.has_finished(member, come))?;
        }
        self.finished = self.call;
        Ok(are_last)
    }

    /// As [`Self::combine`], of no more than [`FEW`].
    #[inline]
    pub(in crate::host) fn combine_few<P: Peers>(
        &mut self,
        (what, shown): (What, usize),
        at: usize,
        (own, into): (Option<&[u8]>, &mut [u8]),
        combine: Function,
    ) -> Result<(), P::Error> {
        let mut room = std::mem::take(&mut self.came);
        let came = &mut room[..into.len()];
        let first = self.ground.size - 1;
        for member in (0..=first).rev() {
            let own = own.filter(|_| member == self.ground.me);
            if own.is_none() {
                self.check::<P>(member, what, shown)?;
            }
            match own {
                Some(own) if member == first => into.copy_from_slice(own),
                Some(own) => combine(into, own),
                None if member == first => self.read(member, shown, at, into),
                None => {
                    self.read(member, shown, at, came);
                    combine(into, came);
                }
            }
        }
        self.came = room;
        Ok(())
    }

    /// What `member` shows in this call combined with what is in `into`, of members behind it.
    #[inline]
    pub(in crate::host) fn combine_one<P: Peers>(
        &mut self,
        what: What,
        member: usize,
        into: &mut [u8],
        combine: Function,
    ) -> Result<(), P::Error> {
        self.check::<P>(member, what, into.len())?;
        let mut room = std::mem::take(&mut self.came);
        let came = &mut room[..into.len()];
        self.read(member, into.len(), 0, came);
        combine(into, came);
        self.came = room;
        Ok(())
    }

    /// As [`Self::await_finished`].
    #[cold]
    fn wait_finished<P: Peers>(&mut self, call: u32, peers: &mut P) -> Result<(), P::Error> {
        let mut least = u32::MAX;
        for member in 0..self.ground.size {
            self.wait_flag(member, call, peers)?;
            least = least.min(self.finished_of(member).wrapping_sub(call));
        }
        self.finished = call.wrapping_add(least);
        Ok(())
    }

    fn wait_flag<P: Peers>(&self, member: usize, call: u32, peers: &mut P) -> Result<(), P::Error> {
        let ready = || self.has_finished(member, call);
        self.ground.wait(peers, ready, |other| other == member && !ready())
    }
}

const _: () = assert!(FEW <= super::SLOT, "what is few fits everywhere");
