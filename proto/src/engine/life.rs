//! Whether a peer may be sent to, and what it takes: what the engine tells all threads of the application.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Who has a place in the table of peers. The engine opens it, and either side closes it.
#[derive(Default)]
pub(super) struct Life {
    /// Generation + 1, and in the lower half the longest message. While it is closed the upper half is 0, and the lower one says
    /// who was here last.
    word: AtomicU64,
    /// Most room for a reply that it may be asked for, in its units, while it is open.
    room_max: AtomicU32,
}

impl Life {
    /// From now on the peer of this generation may be sent messages of at most `message_max` bytes, unless it was closed before; and may be
    /// asked for `room_max` for a reply.
    pub fn open(&self, generation: u32, message_max: u32, room_max: u32) {
        self.note_room(room_max);
        let number = u64::from(generation) + 1;
        let opened = |word| (word != number).then_some(number << 32 | u64::from(message_max));
        // It changes meanwhile only by an application that closes it. Pairs with the Acquire in `message_max`.
        let _ = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, opened);
    }

    /// From now on nothing may be sent to it; somebody else may be here already.
    pub fn close(&self, generation: u32) {
        let number = u64::from(generation) + 1;
        let closed = |word| (word >> 32 == number).then_some(number);
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, closed);
    }

    /// The longest message that it may be sent; `None` while it is not open.
    #[inline]
    pub fn message_max(&self, generation: u32) -> Option<u32> {
        let word = self.word.load(Ordering::Acquire);
        (word >> 32 == u64::from(generation) + 1).then_some(word as u32)
    }

    /// It has told how much room it keeps for a reply.
    pub fn note_room(&self, most: u32) {
        self.room_max.store(most, Ordering::Relaxed);
    }

    /// The most room for a reply, as far as is known.
    pub fn room_max(&self) -> u32 {
        self.room_max.load(Ordering::Relaxed)
    }
}
