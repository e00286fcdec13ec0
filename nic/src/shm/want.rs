//! Asking to be told of room, without a lock and without missing it.
//!
//! Who finds no room says so and then looks once more; who makes room makes it and then looks whether somebody asked. With a full
//! fence between the two steps on both sides at least one of them sees the other's: nobody waits for room that is there.

use super::sync::{AtomicU32, Ordering, fence};

/// One side's wish for room that another makes.
#[derive(Default)]
pub struct Want(AtomicU32);

impl Want {
    /// Asks to be told; whoever asks looks for room once more afterwards. True if an earlier wish was still open: if not, and it was
    /// not taken back, room was made since.
    #[cold]
    pub fn ask(&self) -> bool {
        // A swap: room that is made just now is seen here or by the next `is_asked`.
        let was_open = self.0.swap(1, Ordering::AcqRel) != 0;
        // Pairs with the fence in `made_room`.
        fence(Ordering::SeqCst);
        was_open
    }

    /// Takes the wish back: whoever asks [`Self::is_asked`] hears that there may be room.
    pub fn withdraw(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// True until room was made since the last [`Self::ask`].
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Room was made: true if somebody asked for it, who is to be told by his doorbell.
    #[inline]
    pub fn made_room(&self) -> bool {
        // Pairs with the fence in `ask`.
        fence(Ordering::SeqCst);
        self.is_asked() && self.0.swap(0, Ordering::AcqRel) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_told_of_once_and_stands_until_then() {
        let want = Want::default();
        assert!(!want.is_asked() && !want.made_room());
        assert!(!want.ask() && want.is_asked());
        assert!(want.ask(), "no room was made since");
        assert!(want.made_room() && !want.is_asked() && !want.made_room());
        assert!(!want.ask(), "room was made since");
        want.withdraw();
        assert!(!want.is_asked() && !want.made_room());
    }
}
