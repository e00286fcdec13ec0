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

/// Waits until all `size` have come; the last one does `last` before anybody goes on.
pub(super) fn pass<P: Peers>(shared: &Shared, size: usize, peers: &mut P, last: impl FnOnce()) -> Result<(), P::Error> {
    let (arrived, phase) = (shared.word(ARRIVED), shared.word(PHASE));
    // It cannot change before we have come.
    let before = phase.load(Ordering::Relaxed);
    // Releases what we wrote to the last one, and acquires for the last one what all wrote.
    if arrived.fetch_add(1, Ordering::AcqRel) + 1 < size as u32 {
        return wait::until(shared, size, peers, || phase.load(Ordering::Acquire) != before);
    }
    last();
    arrived.store(0, Ordering::Relaxed);
    // Pairs with the load above: whoever sees it sees what all wrote.
    phase.store(before.wrapping_add(1), Ordering::Release);
    wait::tell(shared);
    Ok(())
}

/// Bytes of shared memory, behind those for waiting; who comes and who waits have cache lines of their own.
pub(super) const LEN: usize = 256;
const ARRIVED: usize = wait::LEN;
const PHASE: usize = wait::LEN + 128;
