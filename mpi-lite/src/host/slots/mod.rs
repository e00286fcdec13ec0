//! Room in shared memory for what each member shows the others, call after call.

mod awaited;
mod chain;
mod few;
mod near;
mod places;
mod shared_copy;

use std::cell::Cell;
use std::sync::atomic::Ordering;

use sidelane_nic::prefetch;
use sidelane_nic::share::Shared;

use super::gate::{self};
use super::wait::Ground;
use super::{FEW, Peers, What, whole};
pub(in crate::host) use places::SLOT;
use places::{HEAD, HEADS, LEN, Places, WHAT};

/// Rings of slots for each member and for results: heads, and small, large and long ones for what has no room there; and calls that each
/// has finished. A slot is written again when everybody has finished the call that used it last, so that a member whom nobody
/// keeps waiting may be some calls ahead of the others.
///
/// A call's head says that something is shown, what, and has its bytes if they are very few, so that one cache line is all that
/// is looked at. Else they are in the call's small, large or long slot, or in their owner's memory, and the head has their address.
#[derive(Debug)]
pub(in crate::host) struct Slots {
    pub(in crate::host) ground: Ground,
    places: Places,
    /// Number of the call under way; numbers wrap.
    call: u32,
    /// The number in the head that we have written last: of its line others may have taken what we would look at.
    shown: u32,
    /// All members have finished the calls before this one.
    finished: u32,
    /// The next member has finished the calls before this one, as we have seen last; looked at again within a ring's calls.
    next_finished: u32,
    /// What we have shown in calls before this one may be for all; later it was for the next member only.
    for_all: u32,
    /// Arrays shown by their address since one was copied to find out how near its readers are.
    not_copied: u32,
    /// Looks in a row for members that had come already.
    found: Cell<u32>,
    /// Room for what is combined.
    came: Vec<u8>,
}

impl Slots {
    /// Bytes of shared memory for `size` members.
    pub(in crate::host) const fn len(size: usize) -> usize {
        Places::of(size).end
    }

    pub(in crate::host) fn new(shared: Shared, me: usize, size: usize) -> Self {
        let ground = Ground::new(shared, me, size);
        Self {
            ground,
            places: Places::of(size),
            call: 0,
            shown: 0,
            finished: 0,
            next_finished: 0,
            for_all: 0,
            not_copied: 0,
            found: Cell::new(0),
            came: vec![0; FEW],
        }
    }

    /// Shows `bytes` to the others in this call, if they are few and nobody has to be waited for. Else nothing is done. They may be
    /// shown already: by a call that could not wait, and is made again.
    #[inline]
    pub(in crate::host) fn show_now<P: Peers>(&mut self, what: What, bytes: &[u8], peers: &mut P) -> bool {
        if self.have_we_shown() {
            return true;
        }
        let now = bytes.len() <= FEW && self.is_free();
        if now {
            self.for_all = self.call.wrapping_add(1);
            self.write_head(what, bytes.len() as u64);
            self.copy_in(self.place(self.ground.me, bytes.len()), bytes);
            self.come(peers);
        }
        now
    }

    /// Whether the slot of few bytes is known to be free.
    #[inline]
    fn is_free(&self) -> bool {
        reached(self.finished, self.call.wrapping_sub(HEADS.slots as u32 - 1))
    }

    /// Whether [`Self::show_now`] shows few bytes. Where it would not, flags are looked at, and it is as [`Self::await_slot`] says.
    #[inline]
    pub(in crate::host) fn may_show(&mut self) -> bool {
        self.is_free() || self.have_all_finished(self.call.wrapping_sub(HEADS.slots as u32 / 2))
    }

    /// Whether all have finished the calls before `call`, as their flags say. It is known from now on, then.
    #[cold]
    fn have_all_finished(&mut self, call: u32) -> bool {
        let all = (0..self.ground.size).map(|member| self.finished_of(member).wrapping_sub(call));
        let least = all.min_by_key(|ahead| *ahead as i32).unwrap_or_default();
        if (least as i32) < 0 {
            return false;
        }
        self.finished = call.wrapping_add(least);
        true
    }

    /// Whether all others have come to the gate.
    pub(in crate::host) fn are_we_last(&self) -> bool {
        gate::are_we_last(&self.ground, self.places.gate())
    }

    /// Whether a member has shown what it shows in this call.
    #[inline]
    pub(in crate::host) fn has_shown(&self, member: usize) -> bool {
        self.ground.shared.word(self.head_at(member)).load(Ordering::Acquire) == self.call.wrapping_add(1)
    }

    #[inline]
    fn have_we_shown(&self) -> bool {
        self.shown == self.call.wrapping_add(1)
    }

    /// Shows `bytes` to the others in this call.
    pub(in crate::host) async fn show<P: Peers>(
        &mut self,
        what: What,
        bytes: &[u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        if self.have_we_shown() {
            return Ok(());
        }
        self.say(what, bytes.len() as u64, peers).await?;
        if bytes.len() > FEW {
            self.await_slot(self.places.ring(bytes.len()), peers).await?;
        }
        self.ground.shared.write(self.place(self.ground.me, bytes.len()), bytes);
        self.come(peers);
        Ok(())
    }

    /// Shows where `bytes` are, for readers in our memory. They stay there until they are taken.
    pub(in crate::host) async fn show_address<P: Peers>(
        &mut self,
        what: What,
        bytes: *const [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        self.say(what, bytes.len() as u64, peers).await?;
        let address = bytes.cast::<u8>().expose_provenance() as u64;
        self.ground.shared.write(self.head_at(self.ground.me) + HEAD, &address.to_ne_bytes());
        self.come(peers);
        Ok(())
    }

    #[inline]
    async fn say<P: Peers>(&mut self, what: What, len: u64, peers: &mut P) -> Result<(), P::Error> {
        self.await_slot(HEADS, peers).await?;
        self.for_all = self.call.wrapping_add(1);
        self.write_head(what, len);
        Ok(())
    }

    #[inline]
    fn write_head(&self, what: What, len: u64) {
        let at = self.head_at(self.ground.me);
        let line = |ahead| {
            let later = self.places.head(self.ground.me, self.call.wrapping_add(ahead));
            self.ground.shared.start().as_ptr().wrapping_add(later)
        };
        // Where nobody runs ahead, a line that is asked for to be written is away from who reads its neighbour
        // (`bench/NOTES.md`, Collectives).
        if what.is_mutual() {
            prefetch::to_read(line(AHEAD));
        } else {
            prefetch::to_write(line(FAR_AHEAD));
        }
        self.ground.shared.write(at + WHAT, &what.to_bytes());
        self.ground.shared.write(at + LEN, &len.to_ne_bytes());
    }

    /// Lets the others know that we have come to this call, with what is written.
    #[inline]
    fn come<P: Peers>(&mut self, peers: &mut P) {
        self.shown = self.call.wrapping_add(1);
        // Pairs with the load in `await_member`. A slot's calls are as many apart as there are slots, and numbers begin with 1.
        self.ground.shared.word(self.head_at(self.ground.me)).store(self.shown, Ordering::Release);
        self.ground.tell(peers);
    }

    /// What `member`, which has come, has shown: what it is, and how long; if anything.
    #[inline]
    pub(in crate::host) fn head(&self, member: usize) -> Option<([u8; 8], u64)> {
        let at = self.head_at(member);
        let (mut what, mut len) = ([0; 8], [0; 8]);
        self.ground.shared.read(at + WHAT, &mut what);
        self.ground.shared.read(at + LEN, &mut len);
        let shown = self.ground.shared.word(at).load(Ordering::Relaxed) == self.call.wrapping_add(1);
        shown.then_some((what, u64::from_ne_bytes(len)))
    }

    /// Whether `member`, which has come, was called as we were, and has shown as many bytes as we expect.
    #[inline]
    pub(in crate::host) fn check<P: Peers>(&self, member: usize, what: What, len: usize) -> Result<(), P::Error> {
        if self.head(member) == Some((what.to_bytes(), len as u64)) { Ok(()) } else { Err(P::error(super::DIFFER)) }
    }

    /// Where what `member` has shown the address of is.
    pub(in crate::host) fn address(&self, member: usize) -> u64 {
        let mut address = [0; 8];
        self.ground.shared.read(self.head_at(member) + HEAD, &mut address);
        u64::from_ne_bytes(address)
    }

    /// We have what we take of this call; what comes is the next one.
    #[inline]
    pub(in crate::host) fn finish<P: Peers>(&mut self, peers: &mut P) {
        self.call = self.call.wrapping_add(1);
        if self.call.is_multiple_of(SELDOM) {
            self.keep_up();
        }
        // Pairs with the load in `await_finished`: what we have read may be overwritten.
        self.ground.shared.word(self.places.flag(self.ground.me)).store(self.call, Ordering::Release);
        self.ground.tell(peers);
    }

    /// What is known of long ago is no more told from what is to come, once numbers are half their range apart: who only takes never asks
    /// how far the others are. Nobody is further behind than a ring for each member of a chain.
    #[cold]
    fn keep_up(&mut self) {
        let surely = self.call.wrapping_sub(SELDOM);
        for known in [&mut self.shown, &mut self.finished, &mut self.next_finished, &mut self.for_all] {
            if !reached(*known, surely) {
                *known = surely;
            }
        }
    }

    /// Copies out what `member` shows in this call, `shown` bytes, from `at` on.
    #[inline]
    pub(in crate::host) fn read(&self, member: usize, shown: usize, at: usize, into: &mut [u8]) {
        assert!(at + into.len() <= shown && shown <= self.places.longest(), "no more than was shown");
        self.copy_out(self.place(member, shown) + at, into);
    }

    /// Two lengths that calls often have are copied without one of their own, which would be twenty instructions.
    #[inline]
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        if let Ok(bytes) = <&[u8; 8]>::try_from(bytes) {
            self.ground.shared.write(at, bytes);
        } else if let Ok(bytes) = <&[u8; 4]>::try_from(bytes) {
            self.ground.shared.write(at, bytes);
        } else if !bytes.is_empty() {
            self.ground.shared.write(at, bytes);
        }
    }

    /// As [`Self::copy_in`].
    #[inline]
    fn copy_out(&self, at: usize, into: &mut [u8]) {
        if let Ok(into) = <&mut [u8; 8]>::try_from(&mut *into) {
            self.ground.shared.read(at, into);
        } else if let Ok(into) = <&mut [u8; 4]>::try_from(&mut *into) {
            self.ground.shared.read(at, into);
        } else if !into.is_empty() {
            self.ground.shared.read(at, into);
        }
    }

    /// What all members show in this call, `shown` bytes each, from `at` on, combined in `into`. Ours is `own`, or shown too.
    pub(in crate::host) fn combine<P: Peers>(
        &mut self,
        (what, shown): (What, usize),
        at: usize,
        (own, into): (Option<&[u8]>, &mut [u8]),
        element: usize,
        mut combine: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<(), P::Error> {
        let (size, me) = (self.ground.size, self.ground.me);
        for member in (0..size).filter(|member| own.is_none() || *member != me) {
            self.check::<P>(member, what, shown)?;
        }
        let piece = whole(element, HOT);
        let mut room = std::mem::take(&mut self.came);
        room.resize(room.len().max(piece.min(into.len())), 0);
        for (index, into) in into.chunks_mut(piece).enumerate() {
            let done = index * piece;
            let came = &mut room[..into.len()];
            let own = own.map(|own| &own[done..][..into.len()]);
            match own.filter(|_| me + 1 == size) {
                Some(own) => into.copy_from_slice(own),
                None => self.read(size - 1, shown, at + done, into),
            }
            for member in (0..size - 1).rev() {
                if let Some(own) = own.filter(|_| member == me) {
                    combine(into, own);
                } else {
                    self.read(member, shown, at + done, came);
                    combine(into, came);
                }
            }
        }
        self.came = room;
        Ok(())
    }

    /// Shows the result of this call.
    pub(in crate::host) fn show_result(&self, bytes: &[u8]) {
        self.ground.shared.write(self.place(self.ground.size, bytes.len()), bytes);
    }

    /// Copies the result out.
    pub(in crate::host) fn read_result(&self, into: &mut [u8]) {
        self.read(self.ground.size, into.len(), 0, into);
    }

    /// Whether a member has finished the calls before `call`.
    #[inline]
    fn has_finished(&self, member: usize, call: u32) -> bool {
        reached(self.finished_of(member), call)
    }

    /// Whether a member has finished this call.
    pub(in crate::host) fn has_left(&self, member: usize) -> bool {
        self.has_finished(member, self.call.wrapping_add(1))
    }

    /// How many calls a member has finished.
    #[inline]
    fn finished_of(&self, member: usize) -> u32 {
        self.ground.shared.word(self.places.flag(member)).load(Ordering::Acquire)
    }

    #[inline]
    fn head_at(&self, member: usize) -> usize {
        self.places.head(member, self.call)
    }

    /// Where so many bytes of this call are.
    #[inline]
    fn place(&self, member: usize, len: usize) -> usize {
        self.places.bytes(member, self.call, len)
    }
}

/// Whether a count that wraps has come as far as `call`.
#[inline]
fn reached(count: u32, call: u32) -> bool {
    count.wrapping_sub(call) as i32 >= 0
}

/// Calls after which what is known of the others is looked through: many times as many as any ring has slots.
const SELDOM: u32 = 1 << 20;

/// What is combined at a time: twice as much is in every processor's first cache.
const HOT: usize = 4 * 1024;

/// Calls before a head is written in which its line is asked for: an allreduce of 8 B of two ranks takes 5 to 20 % less.
const AHEAD: u32 = 12;
/// The same of calls in which some only give: a broadcast, a scatter or a scan of 8 B of two ranks takes a third less. In half a ring's calls
/// whoever reads has read it.
const FAR_AHEAD: u32 = HEADS.slots as u32 / 2 + 4;

#[cfg(test)]
mod tests {
    use crate::host::Host;
    use crate::host::tests::Thread;

    use super::*;

    #[test]
    fn what_is_known_of_long_ago_never_seems_to_be_of_later() {
        let mut slots = Host::create(2, sidelane_nic::affinity::online()).unwrap().slots;
        // All numbers, and some again.
        for _ in 0..5_000 {
            slots.call = slots.call.wrapping_add(SELDOM);
            slots.keep_up();
            for known in [slots.shown, slots.finished, slots.next_finished, slots.for_all] {
                assert!(!reached(known, slots.call) && reached(slots.call, known));
            }
        }
    }

    /// Others may be reading it.
    #[test]
    fn what_is_shown_once_stays_until_the_next_call() {
        let mut slots = Host::create(2, sidelane_nic::affinity::online()).unwrap().slots;
        let shown = |slots: &Slots| {
            let mut bytes = [0; 8];
            slots.read(0, 8, 0, &mut bytes);
            bytes
        };
        let what = What::new(What::ALLREDUCE, 8);
        assert!(slots.show_now(what, &[1; 8], &mut Thread) && slots.show_now(what, &[2; 8], &mut Thread));
        assert_eq!(shown(&slots), [1; 8]);
        slots.finish(&mut Thread);
        assert!(slots.show_now(what, &[3; 8], &mut Thread));
        assert_eq!(shown(&slots), [3; 8]);
    }

    #[test]
    fn calls_that_only_take_keep_up_too() {
        let mut slots = Host::create(2, sidelane_nic::affinity::online()).unwrap().slots;
        slots.call = SELDOM.wrapping_mul(2_000) - 1;
        slots.finish(&mut Thread);
        for known in [slots.shown, slots.finished, slots.next_finished, slots.for_all] {
            assert_eq!(known, SELDOM.wrapping_mul(1_999));
        }
    }
}
