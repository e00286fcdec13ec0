//! A gate that opens when all have come.
//!
//! Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988, find a counter slow where every processor
//! has a core of its own. With more ranks than cores it is the best there is: each rank runs once a call, in whatever
//! order, and whoever is last lets all go on.
//!
//! Cost, with p ranks on c cores: p/c switches between processes.

use std::sync::atomic::Ordering;

use super::Peers;
use super::wait::Ground;

/// What is to be done by who has come.
pub(super) enum Turn {
    /// Wait until it is open.
    Wait(Closed),
    /// We are the last: open it.
    Open(Closed),
}

/// A gate that we have come to, whose words are at this place.
pub(super) struct Closed {
    at: usize,
    phase: u32,
}

/// Comes to the gate of all members, whose words are at `at`.
pub(super) fn come(ground: &Ground, at: usize) -> Turn {
    // It cannot change before we have come.
    let closed = Closed { at, phase: ground.shared.word(at + PHASE).load(Ordering::Relaxed) };
    // Releases what we wrote to the last one, and acquires for the last one what all wrote.
    if ground.shared.word(at + ARRIVED).fetch_add(1, Ordering::AcqRel) + 1 == ground.size as u32 {
        Turn::Open(closed)
    } else {
        Turn::Wait(closed)
    }
}

/// Whether all others have come, and wait for us.
pub(super) fn are_we_last(ground: &Ground, at: usize) -> bool {
    // What they have written is acquired by `come`.
    ground.shared.word(at + ARRIVED).load(Ordering::Relaxed) + 1 == ground.size as u32
}

impl Closed {
    /// Waits until the last one has opened it.
    pub(super) async fn wait<P: Peers>(
        self,
        ground: &Ground,
        peers: &mut P,
        awaits: impl Fn(usize) -> bool,
    ) -> Result<(), P::Error> {
        let phase = ground.shared.word(self.at + PHASE);
        ground.until(peers, || phase.load(Ordering::Acquire) != self.phase, awaits).await
    }

    /// As [`Self::wait`], of a rank that waits.
    pub(super) fn stay<P: Peers>(
        self,
        ground: &Ground,
        peers: &mut P,
        awaits: impl Fn(usize) -> bool,
    ) -> Result<(), P::Error> {
        let phase = ground.shared.word(self.at + PHASE);
        ground.wait(peers, || phase.load(Ordering::Acquire) != self.phase, awaits)
    }

    /// Lets all go on.
    pub(super) fn open<P: Peers>(self, ground: &Ground, peers: &mut P) {
        ground.shared.word(self.at + ARRIVED).store(0, Ordering::Relaxed);
        // Pairs with the load in `wait`: whoever sees it sees what all wrote.
        ground.shared.word(self.at + PHASE).store(self.phase.wrapping_add(1), Ordering::Release);
        ground.tell(peers);
    }
}

/// Bytes of its words; who comes and who waits have cache lines of their own.
pub(super) const LEN: usize = 256;
const ARRIVED: usize = 0;
const PHASE: usize = 128;
