//! Room in shared memory for what each member shows the others, call after call.

use std::ops::Range;
use std::sync::atomic::Ordering;

use sidelane_nic::share::Shared;

use super::gate::{self, Turn};
use super::wait::Ground;
use super::{Peers, What};

/// Rings of slots for each member and for results, many small ones and a few large ones; and how far each has come: calls for
/// which it has shown something, and calls that it has finished. A slot is written again when everybody has finished the
/// call that used it last, so that a member whom nobody keeps waiting may be some calls ahead of the others.
///
/// A call's small slot says what is shown, and has its bytes if they are few; else they are in the call's large slot, or in
/// their owner's memory, and the small one has their address.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) ground: Ground,
    places: Places,
    /// Number of the call under way; numbers wrap.
    call: u32,
    /// All members have finished the calls before this one.
    finished: u32,
    /// What we have shown in calls before this one may be for all; later it was for the next member only.
    for_all: u32,
    /// Room for what is combined.
    came: Vec<u8>,
}

/// Where things are in the memory.
#[derive(Debug, Clone, Copy)]
struct Places {
    flags: usize,
    rings: usize,
    end: usize,
}

impl Places {
    const fn of(size: usize) -> Self {
        let flags = Ground::len(size).next_multiple_of(FLAGS_LEN) + gate::LEN;
        // On a page, so that of rings which nobody uses no page is taken.
        let rings = (flags + size * FLAGS_LEN).next_multiple_of(4096);
        Self { flags, rings, end: rings + (size + 1) * RINGS_LEN }
    }
}

impl Slots {
    /// Bytes of shared memory for `size` members.
    pub(super) const fn len(size: usize) -> usize {
        Places::of(size).end
    }

    pub(super) fn new(shared: Shared, me: usize, size: usize) -> Self {
        let ground = Ground::new(shared, me, size);
        Self { ground, places: Places::of(size), call: 0, finished: 0, for_all: 0, came: Vec::new() }
    }

    /// Shows `bytes` to the others in this call.
    #[inline]
    pub(super) fn show<P: Peers>(&mut self, what: What, bytes: &[u8], peers: &mut P) -> Result<(), P::Error> {
        self.say(what, bytes.len() as u64, peers)?;
        if bytes.len() <= FEW {
            self.ground.shared.write(self.small(self.ground.me) + HEAD, bytes);
        } else {
            self.await_finished(self.call.wrapping_sub(LARGE.slots as u32 - 1), peers)?;
            self.ground.shared.write(self.large(self.ground.me), bytes);
        }
        self.come(peers);
        Ok(())
    }

    /// As [`Self::show`], of what fits a small slot, for the next member only. A chain of such calls is as long as they let it be.
    #[inline]
    pub(super) fn show_next<P: Peers>(&mut self, what: What, bytes: &[u8], peers: &mut P) -> Result<(), P::Error> {
        let again = self.call.wrapping_sub(SMALL.slots as u32 - 1);
        if reached(again.wrapping_sub(1), self.for_all) {
            self.await_flag(self.ground.me + 1, FINISHED, again, peers)?;
        } else {
            self.await_finished(again, peers)?;
        }
        self.write_head(what, bytes.len() as u64);
        self.ground.shared.write(self.small(self.ground.me) + HEAD, bytes);
        self.come(peers);
        Ok(())
    }

    /// Shows where `bytes` are, for readers in our memory. They stay there until they are taken.
    pub(super) fn show_address<P: Peers>(
        &mut self,
        what: What,
        bytes: *const [u8],
        peers: &mut P,
    ) -> Result<(), P::Error> {
        self.say(what, bytes.len() as u64, peers)?;
        let address = bytes.cast::<u8>().expose_provenance() as u64;
        self.ground.shared.write(self.small(self.ground.me) + HEAD, &address.to_ne_bytes());
        self.come(peers);
        Ok(())
    }

    #[inline]
    fn say<P: Peers>(&mut self, what: What, len: u64, peers: &mut P) -> Result<(), P::Error> {
        self.await_finished(self.call.wrapping_sub(SMALL.slots as u32 - 1), peers)?;
        self.for_all = self.call.wrapping_add(1);
        self.write_head(what, len);
        Ok(())
    }

    #[inline]
    fn write_head(&self, what: What, len: u64) {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&what.to_bytes());
        head[8..].copy_from_slice(&len.to_ne_bytes());
        self.ground.shared.write(self.small(self.ground.me), &head);
    }

    /// Lets the others know that we have come to this call.
    #[inline]
    pub(super) fn come<P: Peers>(&self, peers: &mut P) {
        // Pairs with the load in `await_member`.
        self.ground.shared.word(self.flag(self.ground.me, SHOWN)).store(self.call.wrapping_add(1), Ordering::Release);
        self.ground.tell(peers);
    }

    /// What `member` has shown: what it is, and how long.
    #[inline]
    pub(super) fn head(&self, member: usize) -> ([u8; 8], u64) {
        let mut head = [0; HEAD];
        self.ground.shared.read(self.small(member), &mut head);
        let (what, len) = head.split_at(8);
        let eight = |bytes: &[u8]| std::array::from_fn(|at| bytes[at]);
        (eight(what), u64::from_ne_bytes(eight(len)))
    }

    /// Whether `member`, which has come, was called as we were, and has shown as many bytes as we expect.
    #[inline]
    pub(super) fn check<P: Peers>(&self, member: usize, what: What, len: usize) -> Result<(), P::Error> {
        if self.head(member) == (what.to_bytes(), len as u64) { Ok(()) } else { Err(P::error(super::DIFFER)) }
    }

    /// Where what `member` has shown the address of is.
    pub(super) fn address(&self, member: usize) -> u64 {
        let mut address = [0; 8];
        self.ground.shared.read(self.small(member) + HEAD, &mut address);
        u64::from_ne_bytes(address)
    }

    /// Waits until a member has shown what it shows in this call.
    #[inline]
    pub(super) fn await_member<P: Peers>(&self, member: usize, peers: &mut P) -> Result<(), P::Error> {
        self.await_flag(member, SHOWN, self.call.wrapping_add(1), peers)
    }

    /// Waits until these members have.
    #[inline]
    pub(super) fn await_members<P: Peers>(&self, mut members: Range<usize>, peers: &mut P) -> Result<(), P::Error> {
        members.try_for_each(|member| self.await_member(member, peers))
    }

    /// Waits until all have shown what they show in this call.
    #[inline]
    pub(super) fn await_all<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        if self.ground.crowded {
            return self.await_last(peers, |_, _| Ok(()));
        }
        self.await_members(0..self.ground.size, peers)?;
        self.finished = self.call;
        Ok(())
    }

    /// Waits until all have come; the last one does `last`, with [`Self::show_result`].
    pub(super) fn await_last<P: Peers>(
        &mut self,
        peers: &mut P,
        last: impl FnOnce(&mut Self, &mut P) -> Result<(), P::Error>,
    ) -> Result<(), P::Error> {
        let gate = self.places.flags - gate::LEN;
        match gate::come(&self.ground, gate) {
            Turn::Wait(closed) => {
                let come = self.call.wrapping_add(1);
                // Whoever has shown something may still have to come to the gate, or to do `last`.
                closed.wait(&self.ground, peers, |member| {
                    let finished = self.ground.shared.word(self.flag(member, FINISHED));
                    !reached(finished.load(Ordering::Acquire), come)
                })?;
            }
            Turn::Open(closed) => {
                last(self, peers)?;
                closed.open(&self.ground, peers);
            }
        }
        self.finished = self.call;
        Ok(())
    }

    /// We have what we take of this call; what comes is the next one.
    #[inline]
    pub(super) fn finish<P: Peers>(&mut self, peers: &mut P) {
        self.call = self.call.wrapping_add(1);
        // Pairs with the load in `await_finished`: what we have read may be overwritten.
        self.ground.shared.word(self.flag(self.ground.me, FINISHED)).store(self.call, Ordering::Release);
        self.ground.tell(peers);
    }

    /// Waits until `member` has finished the call before the one under way.
    pub(super) fn await_taken_by<P: Peers>(&self, member: usize, peers: &mut P) -> Result<(), P::Error> {
        self.await_flag(member, FINISHED, self.call, peers)
    }

    /// Waits until all have finished the call before the one under way.
    pub(super) fn await_taken<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        self.await_finished(self.call, peers)
    }

    /// Copies out what `member` shows in this call, `shown` bytes, from `at` on.
    #[inline]
    pub(super) fn read(&self, member: usize, shown: usize, at: usize, into: &mut [u8]) {
        assert!(at + into.len() <= shown && shown <= SLOT, "no more than was shown");
        let from = if shown <= FEW { self.small(member) + HEAD } else { self.large(member) };
        self.ground.shared.read(from + at, into);
    }

    /// What all members show in this call, `shown` bytes each, from `at` on, combined in `into`.
    pub(super) fn combine<P: Peers>(
        &mut self,
        what: What,
        shown: usize,
        at: usize,
        into: &mut [u8],
        mut combine: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<(), P::Error> {
        let mut came = std::mem::take(&mut self.came);
        came.resize(came.len().max(into.len()), 0);
        let last = self.ground.size - 1;
        self.check::<P>(last, what, shown)?;
        self.read(last, shown, at, into);
        for member in (0..last).rev() {
            let came = &mut came[..into.len()];
            self.check::<P>(member, what, shown)?;
            self.read(member, shown, at, came);
            combine(into, came);
        }
        self.came = came;
        Ok(())
    }

    /// Shows the result of this call.
    pub(super) fn show_result(&self, bytes: &[u8]) {
        let to = self.ground.size;
        let at = if bytes.len() <= FEW { self.small(to) + HEAD } else { self.large(to) };
        self.ground.shared.write(at, bytes);
    }

    /// Copies the result out.
    pub(super) fn read_result(&self, into: &mut [u8]) {
        self.read(self.ground.size, into.len(), 0, into);
    }

    /// Waits until all have finished the calls before `call`.
    #[inline]
    fn await_finished<P: Peers>(&mut self, call: u32, peers: &mut P) -> Result<(), P::Error> {
        if !reached(self.finished, call) {
            for member in 0..self.ground.size {
                self.await_flag(member, FINISHED, call, peers)?;
            }
            self.finished = call;
        }
        Ok(())
    }

    #[inline]
    fn await_flag<P: Peers>(&self, member: usize, which: usize, call: u32, peers: &mut P) -> Result<(), P::Error> {
        let flag = self.ground.shared.word(self.flag(member, which));
        let ready = || reached(flag.load(Ordering::Acquire), call);
        self.ground.until(peers, ready, |other| other == member && !ready())
    }

    /// Where the word is by which a member says how far it has come.
    #[inline]
    fn flag(&self, member: usize, which: usize) -> usize {
        self.places.flags + member * FLAGS_LEN + which
    }

    #[inline]
    fn small(&self, member: usize) -> usize {
        self.places.rings + member * RINGS_LEN + SMALL.place(self.call)
    }

    #[inline]
    fn large(&self, member: usize) -> usize {
        self.places.rings + member * RINGS_LEN + LARGE.place(self.call)
    }
}

/// Whether a count that wraps has come as far as `call`.
#[inline]
fn reached(count: u32, call: u32) -> bool {
    count.wrapping_sub(call) as i32 >= 0
}

/// A member's slots of one length, behind those of another.
#[derive(Clone, Copy)]
struct Ring {
    start: usize,
    /// Calls that a member may be ahead of the others, less one: as many cost one turn on a core.
    slots: usize,
    /// Bytes of a slot.
    slot: usize,
}

impl Ring {
    const fn place(self, call: u32) -> usize {
        self.start + call as usize % self.slots * self.slot
    }

    const fn end(self) -> usize {
        assert!(self.slots.is_power_of_two(), "slots go on in their order where numbers wrap");
        self.start + self.slots * self.slot
    }
}

const SMALL: Ring = Ring { start: 0, slots: 64, slot: HEAD + FEW };
const LARGE: Ring = Ring { start: SMALL.end(), slots: 8, slot: SLOT };
const RINGS_LEN: usize = LARGE.end();

/// What a small slot begins with: what is shown, and its length.
const HEAD: usize = 16;
/// The most that stands behind it.
pub(super) const FEW: usize = 1024 + 48;
const _: () = assert!((HEAD + FEW).is_multiple_of(64), "a slot begins with a cache line");

/// The most that is shown by a copy: what goes by a copy at most, and a table of where it is.
pub(super) const SLOT: usize = 20 * 1024;

/// Two cache lines for each member: processors fetch lines in pairs.
const FLAGS_LEN: usize = 128;
const SHOWN: usize = 0;
const FINISHED: usize = 4;
