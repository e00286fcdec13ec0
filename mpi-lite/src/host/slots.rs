//! Room in shared memory for what each member shows the others, call after call.

use std::ops::Range;
use std::sync::atomic::Ordering;

use sidelane_nic::share::Shared;

use super::{Peers, gate, wait};

/// A ring of slots for each member and one for results; and how far each has come: calls for which it has shown something,
/// and calls that it has finished. A slot is written again when everybody has finished the call that used it last, so
/// that a member whom nobody keeps waiting may be some calls ahead of the others.
#[derive(Debug)]
pub(super) struct Slots {
    shared: Shared,
    me: usize,
    size: usize,
    /// Number of the call under way; numbers wrap.
    call: u32,
    /// All members have finished the calls before this one.
    finished: u32,
}

impl Slots {
    /// Bytes of shared memory for `size` members.
    pub(super) fn len(size: usize) -> usize {
        // Waiting and the gate; how far each has come; slots for each member and for results.
        FLAGS + size * FLAGS_LEN + RING * (size + 1) * SLOT
    }

    pub(super) fn new(shared: Shared, me: usize, size: usize) -> Self {
        Self { shared, me, size, call: 0, finished: 0 }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Shows `bytes` to the others in this call.
    pub(super) fn show<P: Peers>(&mut self, bytes: &[u8], peers: &mut P) -> Result<(), P::Error> {
        assert!(bytes.len() <= SLOT, "what is shown fits its slot");
        self.await_finished(self.call.wrapping_sub(RING as u32 - 1), peers)?;
        self.shared.write(self.place(self.me), bytes);
        self.come();
        Ok(())
    }

    /// Lets the others know that we have come to this call.
    pub(super) fn come(&self) {
        // Pairs with the load in `await_member`.
        self.shared.word(self.flag(self.me, SHOWN)).store(self.call.wrapping_add(1), Ordering::Release);
        wait::tell(&self.shared);
    }

    /// Waits until a member has shown what it shows in this call.
    pub(super) fn await_member<P: Peers>(&self, member: usize, peers: &mut P) -> Result<(), P::Error> {
        self.await_flag(self.flag(member, SHOWN), self.call.wrapping_add(1), peers)
    }

    /// Waits until these members have.
    pub(super) fn await_members<P: Peers>(&self, mut members: Range<usize>, peers: &mut P) -> Result<(), P::Error> {
        members.try_for_each(|member| self.await_member(member, peers))
    }

    /// Waits until all have shown what they show in this call.
    pub(super) fn await_all<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        if wait::crowded(self.size) {
            gate::pass(&self.shared, self.size, peers, || ())?;
        } else {
            self.await_members(0..self.size, peers)?;
        }
        self.finished = self.call;
        Ok(())
    }

    /// Waits until all have come; the last one does `last`, with [`Self::show_result`].
    pub(super) fn await_last<P: Peers>(&mut self, peers: &mut P, last: impl FnOnce(&Self)) -> Result<(), P::Error> {
        gate::pass(&self.shared, self.size, peers, || last(self))?;
        self.finished = self.call;
        Ok(())
    }

    /// We have what we take of this call; what comes is the next one.
    pub(super) fn finish(&mut self) {
        self.call = self.call.wrapping_add(1);
        // Pairs with the load in `await_finished`: what we have read may be overwritten.
        self.shared.word(self.flag(self.me, FINISHED)).store(self.call, Ordering::Release);
        wait::tell(&self.shared);
    }

    /// Waits until `member` has finished the call before the one under way.
    pub(super) fn await_taken_by<P: Peers>(&self, member: usize, peers: &mut P) -> Result<(), P::Error> {
        self.await_flag(self.flag(member, FINISHED), self.call, peers)
    }

    /// Waits until all have finished the call before the one under way.
    pub(super) fn await_taken<P: Peers>(&mut self, peers: &mut P) -> Result<(), P::Error> {
        self.await_finished(self.call, peers)
    }

    /// Copies out what `member` shows in this call, from `at` on.
    pub(super) fn read(&self, member: usize, at: usize, into: &mut [u8]) {
        debug_assert!(at + into.len() <= SLOT, "a slot holds no more");
        self.shared.read(self.place(member) + at, into);
    }

    /// What these members show in this call, from `at` on, combined in `into`, which stays as it is where they are none.
    pub(super) fn combine(
        &self,
        members: Range<usize>,
        at: usize,
        into: &mut [u8],
        mut combine: impl FnMut(&mut [u8], &[u8]),
    ) {
        let mut came = [0; SLOT];
        let came = &mut came[..into.len()];
        let mut members = members.rev();
        if let Some(last) = members.next() {
            self.read(last, at, into);
        }
        for member in members {
            self.read(member, at, came);
            combine(into, came);
        }
    }

    /// Shows the result of this call.
    pub(super) fn show_result(&self, bytes: &[u8]) {
        self.shared.write(self.place(self.size), bytes);
    }

    /// Copies the result out.
    pub(super) fn read_result(&self, into: &mut [u8]) {
        self.read(self.size, 0, into);
    }

    /// Waits until all have finished the calls before `call`.
    fn await_finished<P: Peers>(&mut self, call: u32, peers: &mut P) -> Result<(), P::Error> {
        if !reached(self.finished, call) {
            for member in 0..self.size {
                self.await_flag(self.flag(member, FINISHED), call, peers)?;
            }
            self.finished = call;
        }
        Ok(())
    }

    fn await_flag<P: Peers>(&self, flag: usize, call: u32, peers: &mut P) -> Result<(), P::Error> {
        let flag = self.shared.word(flag);
        wait::until(&self.shared, self.size, peers, || reached(flag.load(Ordering::Acquire), call))
    }

    fn flag(&self, member: usize, which: usize) -> usize {
        FLAGS + member * FLAGS_LEN + which
    }

    fn place(&self, member: usize) -> usize {
        let slots = FLAGS + self.size * FLAGS_LEN;
        slots + (self.call as usize % RING * (self.size + 1) + member) * SLOT
    }
}

/// Whether a count that wraps has come as far as `call`.
fn reached(count: u32, call: u32) -> bool {
    count.wrapping_sub(call) as i32 >= 0
}

/// Bytes of a slot.
pub(super) const SLOT: usize = 16 * 1024;

/// Calls that a member may be ahead of the others: as many, less one, cost one turn on a core.
const RING: usize = 8;
const _: () = assert!((1 << 32) % RING as u64 == 0, "slots go on in their order where numbers wrap");

const FLAGS: usize = wait::LEN + gate::LEN;
/// Two cache lines for each member: processors fetch lines in pairs.
const FLAGS_LEN: usize = 128;
const SHOWN: usize = 0;
const FINISHED: usize = 4;
