//! Room in shared memory for what each member shows the others.

use sidelane_nic::share::Shared;

use super::gate;

/// A slot for each member and one for a result, twice: what was shown before one gate is read until the next, while the
/// next is being written already. Who has passed a gate knows that nobody reads any more what was shown before the last one.
#[derive(Debug)]
pub(super) struct Slots {
    shared: Shared,
    size: usize,
    turn: usize,
}

impl Slots {
    /// Bytes of shared memory for `size` members.
    pub(super) fn len(size: usize) -> usize {
        // A gate; two slots for each member and two for results.
        gate::LEN + 2 * (size + 1) * SLOT
    }

    pub(super) fn new(shared: Shared, size: usize) -> Self {
        Self { shared, size, turn: 0 }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// From now on, what was shown is read, and the other slots are written.
    pub(super) fn turn(&mut self) {
        self.turn ^= 1;
    }

    /// Shows `bytes` after the next turn.
    pub(super) fn show(&self, member: usize, bytes: &[u8]) {
        assert!(bytes.len() <= SLOT, "what is shown fits its slot");
        self.shared.write(self.place(self.turn, member), bytes);
    }

    /// Copies out what `member` has shown before the last turn, from `at` on.
    pub(super) fn read(&self, member: usize, at: usize, into: &mut [u8]) {
        debug_assert!(at + into.len() <= SLOT, "a slot holds no more");
        self.shared.read(self.place(self.turn ^ 1, member) + at, into);
    }

    /// Shows the result of what was shown before the last turn.
    pub(super) fn show_result(&self, bytes: &[u8]) {
        self.shared.write(self.place(self.turn ^ 1, self.size), bytes);
    }

    /// Copies the result out.
    pub(super) fn read_result(&self, into: &mut [u8]) {
        self.read(self.size, 0, into);
    }

    fn place(&self, turn: usize, member: usize) -> usize {
        gate::LEN + (turn * (self.size + 1) + member) * SLOT
    }
}

/// Bytes of a slot.
pub(super) const SLOT: usize = 16 * 1024;
