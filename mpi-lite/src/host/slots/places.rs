//! Where things are in the memory that members share: flags, a gate, and each one's rings of slots.

use crate::host::wait::Ground;
use crate::host::{FEW, common_max, gate};

/// The memory of a number of members.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    flags: usize,
    rings: usize,
    /// Of each member's rings.
    rings_len: usize,
    /// The slots of what is longest.
    long: Ring,
    /// Bytes in all.
    pub(super) end: usize,
}

impl Places {
    pub(super) const fn of(size: usize) -> Self {
        let flags = Ground::len(size).next_multiple_of(FLAGS_LEN) + gate::LEN;
        // On a page, so that of rings which nobody uses no page is taken.
        let rings = (flags + size * FLAGS_LEN).next_multiple_of(4096);
        let long = Ring { start: LARGE.end(), slots: 2, slot: common_max(size) };
        let rings_len = long.end().next_multiple_of(4096);
        Self { flags, rings, rings_len, long, end: rings + (size + 1) * rings_len }
    }

    /// Where the gate is.
    pub(super) const fn gate(self) -> usize {
        self.flags - gate::LEN
    }

    /// Where the word is by which a member says how many calls it has finished.
    #[inline]
    pub(super) const fn flag(self, member: usize) -> usize {
        self.flags + member * FLAGS_LEN
    }

    /// And in the same line the one by which it says how quickly it has copied.
    #[inline]
    pub(super) const fn pace(self, member: usize) -> usize {
        self.flag(member) + 4
    }

    /// Where the two words are of the pieces of what a member reads (`crate::both_ends`): in the next line, since both ends write them.
    #[inline]
    pub(super) const fn read_pieces(self, member: usize) -> [usize; 2] {
        [self.flag(member) + 64, self.flag(member) + 68]
    }

    /// And of what the root reads of its own.
    #[inline]
    pub(super) const fn own_pieces(self, member: usize) -> [usize; 2] {
        [self.flag(member) + 72, self.flag(member) + 76]
    }

    /// Where the root has room for that.
    #[inline]
    pub(super) const fn room(self, member: usize) -> usize {
        self.flag(member) + 80
    }

    /// Where the head of a member's slot for a call is.
    #[inline]
    pub(super) const fn head(self, member: usize, call: u32) -> usize {
        self.rings + member * self.rings_len + HEADS.place(call)
    }

    /// Where so many bytes of a call are.
    #[inline]
    pub(super) const fn bytes(self, member: usize, call: u32, len: usize) -> usize {
        let rings = self.rings + member * self.rings_len;
        rings
            + if len <= VERY_FEW {
                HEADS.place(call) + HEAD
            } else if len <= FEW {
                SMALL.place(call)
            } else {
                self.ring(len).place(call)
            }
    }

    /// The slots of so many bytes, where those are more than few.
    #[inline]
    pub(super) const fn ring(self, len: usize) -> Ring {
        if len <= SLOT { LARGE } else { self.long }
    }

    /// The most that is shown by a copy.
    #[inline]
    pub(super) const fn longest(self) -> usize {
        if self.long.slot > SLOT { self.long.slot } else { SLOT }
    }
}

/// A member's slots of one length, behind those of another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    start: usize,
    /// Calls that a member may be ahead of the others, less one: as many cost one turn on a core.
    pub(super) slots: usize,
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

pub(super) const HEADS: Ring = Ring { start: 0, slots: 64, slot: 64 };
const SMALL: Ring = Ring { start: HEADS.end(), slots: HEADS.slots, slot: FEW };
const LARGE: Ring = Ring { start: SMALL.end(), slots: 8, slot: SLOT };

/// A head begins with the number of its call. Then what is shown, how long it is, and the bytes.
pub(super) const WHAT: usize = 8;
pub(super) const LEN: usize = 16;
pub(super) const HEAD: usize = 24;
/// The most of them.
const VERY_FEW: usize = HEADS.slot - HEAD;

const _: () = assert!(FEW.is_multiple_of(64), "a slot begins with a cache line");

/// What goes by a copy in any call, and a table of where it is.
pub(in crate::host) const SLOT: usize = 20 * 1024;

/// Two cache lines for each member: processors fetch lines in pairs.
const FLAGS_LEN: usize = 128;
