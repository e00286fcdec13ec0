//! Room in shared memory for what each member shows the others, call after call.

use std::ops::Range;
use std::sync::atomic::Ordering;

use sidelane_nic::share::Shared;

use super::gate::{self, Turn};
use super::{Peers, wait};

/// Rings of slots for each member and for results, many small ones and a few large ones; and how far each has come: calls for
/// which it has shown something, and calls that it has finished. A slot is written again when everybody has finished the
/// call that used it last, so that a member whom nobody keeps waiting may be some calls ahead of the others.
#[derive(Debug)]
pub(super) struct Slots {
    shared: Shared,
    me: usize,
    size: usize,
    /// There are more members than cores.
    pub(super) crowded: bool,
    /// Number of the call under way; numbers wrap.
    call: u32,
    /// All members have finished the calls before this one.
    finished: u32,
    /// Room for what is combined.
    came: Vec<u8>,
}

impl Slots {
    /// Bytes of shared memory for `size` members.
    pub(super) fn len(size: usize) -> usize {
        // Waiting and the gate; how far each has come; slots for each member and for results.
        FLAGS + size * FLAGS_LEN + (size + 1) * RINGS_LEN
    }

    pub(super) fn new(shared: Shared, me: usize, size: usize) -> Self {
        let crowded = wait::crowded(&shared);
        Self { shared, me, size, crowded, call: 0, finished: 0, came: Vec::new() }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Shows `bytes` to the others in this call.
    pub(super) fn show<P: Peers>(&mut self, bytes: &[u8], peers: &mut P) -> Result<(), P::Error> {
        assert!(bytes.len() <= SLOT, "what is shown fits its slot");
        let ring = Ring::of(bytes.len());
        self.await_finished(self.call.wrapping_sub(ring.slots as u32 - 1), peers)?;
        self.shared.write(self.place(self.me, ring), bytes);
        self.come();
        Ok(())
    }

    /// Lets the others know that we have come to this call.
    pub(super) fn come(&self) {
        // Pairs with the load in `await_member`.
        self.shared.word(flag(self.me, SHOWN)).store(self.call.wrapping_add(1), Ordering::Release);
        wait::tell(&self.shared);
    }

    /// Waits until a member has shown what it shows in this call.
    pub(super) fn await_member<P: Peers>(&self, member: usize, peers: &mut P) -> Result<(), P::Error> {
        self.await_flag(member, SHOWN, self.call.wrapping_add(1), peers)
    }

    /// Waits until these members have.
    pub(super) fn await_members<P: Peers>(&self, mut members: Range<usize>, peers: &mut P) -> Result<(), P::Error> {
        members.try_for_each(|member| self.await_member(member, peers))
    }

    /// Waits until all have shown what they show in this call.
    pub(super) fn await_all<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        if self.crowded {
            return self.await_last(peers, |_| ());
        }
        self.await_members(0..self.size, peers)?;
        self.finished = self.call;
        Ok(())
    }

    /// Waits until all have come; the last one does `last`, with [`Self::show_result`].
    pub(super) fn await_last<P: Peers>(&mut self, peers: &mut P, last: impl FnOnce(&mut Self)) -> Result<(), P::Error> {
        match gate::come(&self.shared, self.size) {
            Turn::Wait(gate) => {
                let (shared, come) = (&self.shared, self.call.wrapping_add(1));
                // Whoever has shown something may still have to come to the gate, or to do `last`.
                gate.wait(shared, self.crowded, peers, |member| {
                    !reached(shared.word(flag(member, FINISHED)).load(Ordering::Acquire), come)
                })?;
            }
            Turn::Open(gate) => {
                last(self);
                gate.open(&self.shared);
            }
        }
        self.finished = self.call;
        Ok(())
    }

    /// We have what we take of this call; what comes is the next one.
    pub(super) fn finish(&mut self) {
        self.call = self.call.wrapping_add(1);
        // Pairs with the load in `await_finished`: what we have read may be overwritten.
        self.shared.word(flag(self.me, FINISHED)).store(self.call, Ordering::Release);
        wait::tell(&self.shared);
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
    pub(super) fn read(&self, member: usize, shown: usize, at: usize, into: &mut [u8]) {
        debug_assert!(at + into.len() <= shown, "no more than was shown");
        self.shared.read(self.place(member, Ring::of(shown)) + at, into);
    }

    /// What these members show in this call, `shown` bytes each, from `at` on, combined in `into`, which stays as it is where
    /// they are none.
    pub(super) fn combine(
        &mut self,
        members: Range<usize>,
        shown: usize,
        at: usize,
        into: &mut [u8],
        mut combine: impl FnMut(&mut [u8], &[u8]),
    ) {
        let mut came = std::mem::take(&mut self.came);
        came.resize(came.len().max(into.len()), 0);
        let mut members = members.rev();
        if let Some(last) = members.next() {
            self.read(last, shown, at, into);
        }
        for member in members {
            let came = &mut came[..into.len()];
            self.read(member, shown, at, came);
            combine(into, came);
        }
        self.came = came;
    }

    /// Shows the result of this call.
    pub(super) fn show_result(&self, bytes: &[u8]) {
        self.shared.write(self.place(self.size, Ring::of(bytes.len())), bytes);
    }

    /// Copies the result out.
    pub(super) fn read_result(&self, into: &mut [u8]) {
        self.read(self.size, into.len(), 0, into);
    }

    /// Waits until all have finished the calls before `call`.
    fn await_finished<P: Peers>(&mut self, call: u32, peers: &mut P) -> Result<(), P::Error> {
        if !reached(self.finished, call) {
            for member in 0..self.size {
                self.await_flag(member, FINISHED, call, peers)?;
            }
            self.finished = call;
        }
        Ok(())
    }

    fn await_flag<P: Peers>(&self, member: usize, which: usize, call: u32, peers: &mut P) -> Result<(), P::Error> {
        let flag = self.shared.word(flag(member, which));
        let ready = || reached(flag.load(Ordering::Acquire), call);
        wait::until(&self.shared, self.crowded, peers, ready, |other| other == member && !ready())
    }

    fn place(&self, member: usize, ring: Ring) -> usize {
        let rings = FLAGS + self.size * FLAGS_LEN + member * RINGS_LEN;
        rings + ring.start + self.call as usize % ring.slots * ring.slot
    }
}

/// Where the word is by which a member says how far it has come.
fn flag(member: usize, which: usize) -> usize {
    FLAGS + member * FLAGS_LEN + which
}

/// Whether a count that wraps has come as far as `call`.
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
    fn of(shown: usize) -> Self {
        if shown <= SMALL.slot { SMALL } else { LARGE }
    }

    const fn end(self) -> usize {
        assert!(self.slots.is_power_of_two(), "slots go on in their order where numbers wrap");
        self.start + self.slots * self.slot
    }
}

const SMALL: Ring = Ring { start: 0, slots: 64, slot: 1024 };
const LARGE: Ring = Ring { start: SMALL.end(), slots: 8, slot: SLOT };
const RINGS_LEN: usize = LARGE.end();

/// The most that is shown by a copy.
pub(super) const SLOT: usize = 16 * 1024;

const FLAGS: usize = wait::LEN + gate::LEN;
/// Two cache lines for each member: processors fetch lines in pairs.
const FLAGS_LEN: usize = 128;
const SHOWN: usize = 0;
const FINISHED: usize = 4;
