//! A gate that opens when all have come.
//!
//! Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988, find a counter slow where every processor
//! has a core of its own. With more ranks than cores it is the best there is: each rank runs once a call, in whatever
//! order, and whoever is last lets all go on.
//!
//! Cost, with p ranks on c cores: p/c switches between processes.

use std::sync::atomic::Ordering;

use sidelane_nic::share::Shared;

use super::{Peers, wait};

/// What is to be done by who has come.
pub(super) enum Turn {
    /// Wait until it is open.
    Wait(Closed),
    /// We are the last: open it.
    Open(Closed),
}

/// A gate that we have come to.
pub(super) struct Closed {
    phase: u32,
}

/// Comes to the gate of `size` members.
pub(super) fn come(shared: &Shared, size: usize) -> Turn {
    // It cannot change before we have come.
    let closed = Closed { phase: shared.word(PHASE).load(Ordering::Relaxed) };
    // Releases what we wrote to the last one, and acquires for the last one what all wrote.
    if shared.word(ARRIVED).fetch_add(1, Ordering::AcqRel) + 1 == size as u32 {
        Turn::Open(closed)
    } else {
        Turn::Wait(closed)
    }
}

impl Closed {
    /// Waits until the last one has opened it.
    pub(super) fn wait<P: Peers>(
        self,
        shared: &Shared,
        crowded: bool,
        peers: &mut P,
        awaits: impl Fn(usize) -> bool,
    ) -> Result<(), P::Error> {
        let phase = shared.word(PHASE);
        wait::until(shared, crowded, peers, || phase.load(Ordering::Acquire) != self.phase, awaits)
    }

    /// Lets all go on.
    pub(super) fn open(self, shared: &Shared) {
        shared.word(ARRIVED).store(0, Ordering::Relaxed);
        // Pairs with the load in `wait`: whoever sees it sees what all wrote.
        shared.word(PHASE).store(self.phase.wrapping_add(1), Ordering::Release);
        wait::tell(shared);
    }
}

/// Bytes of shared memory, behind those for waiting; who comes and who waits have cache lines of their own.
pub(super) const LEN: usize = 256;
const ARRIVED: usize = wait::LEN;
const PHASE: usize = wait::LEN + 128;
