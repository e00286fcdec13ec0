//! Chains, such as of a scan: what each shows is for the next member only.

use super::places::HEADS;
use super::{Slots, reached};
use crate::host::{FEW, Peers, What};

impl Slots {
    /// As [`Self::show_now`], for the next member only. A chain of such calls is as long as they let it be.
    #[inline]
    pub(in crate::host) fn show_next_now<P: Peers>(&mut self, what: What, bytes: &[u8], peers: &mut P) -> bool {
        let now = bytes.len() <= FEW && self.is_free_for_next();
        if now {
            self.write_head(what, bytes.len() as u64);
            self.copy_in(self.place(self.ground.me, bytes.len()), bytes);
            self.come(peers);
        }
        now
    }

    /// Whether the slot of few bytes may be written for the next member only.
    #[inline]
    fn is_free_for_next(&mut self) -> bool {
        let again = self.call.wrapping_sub(HEADS.slots as u32 - 1);
        if self.was_for_next(again) {
            if !reached(self.next_finished, again) {
                self.next_finished = self.finished_of(self.ground.me + 1);
            }
            reached(self.next_finished, again)
        } else {
            let free = reached(self.finished, again);
            self.next_finished = if free { again } else { self.next_finished };
            free
        }
    }

    /// Whether [`Self::show_next_now`] shows few bytes. Where it would not, flags are looked at, as [`Self::show_next`] does.
    #[inline]
    pub(in crate::host) fn may_show_next(&mut self) -> bool {
        let again = self.call.wrapping_sub(HEADS.slots as u32 - 1);
        self.is_free_for_next() || !self.was_for_next(again) && self.have_all_finished(again)
    }

    /// As [`Self::show_next_now`], of as many, but waits.
    pub(in crate::host) async fn show_next<P: Peers>(
        &mut self,
        what: What,
        bytes: &[u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        let again = self.call.wrapping_sub(HEADS.slots as u32 - 1);
        if self.was_for_next(again) {
            self.await_flag(self.ground.me + 1, again, peers).await?;
        } else {
            self.await_finished(again, peers).await?;
        }
        self.next_finished = again;
        let shown = self.show_next_now(what, bytes, peers);
        debug_assert!(shown, "they are few, and it is free");
        Ok(())
    }

    /// Whether all that we have shown since the call before `again` was for the next member only.
    #[inline]
    pub(super) fn was_for_next(&self, again: u32) -> bool {
        reached(again.wrapping_sub(1), self.for_all)
    }
}
