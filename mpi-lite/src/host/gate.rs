//! A gate that opens when all have come.
//!
//! Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988, find a counter slow where every processor
//! has a core of its own. With more ranks than cores it is the best there is: each rank runs once a call, in whatever
//! order, and whoever is last lets all go on.
//!
//! Cost, with p ranks on c cores: p/c switches between processes; nobody is woken who only gave way.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sidelane_nic::share::Shared;

use super::{Peers, futex};

/// Waits until all `size` have come; the last one does `last` before anybody goes on.
pub(super) fn pass<P: Peers>(
    shared: &Shared,
    size: usize,
    peers: &mut P,
    last: impl FnOnce() -> Result<(), P::Error>,
) -> Result<(), P::Error> {
    let (arrived, phase, asleep) = (shared.word(ARRIVED), shared.word(PHASE), shared.word(ASLEEP));
    // It cannot change before we have come.
    let before = phase.load(Ordering::Relaxed);
    // Releases what we wrote to the last one, and acquires for the last one what all wrote.
    if arrived.fetch_add(1, Ordering::AcqRel) + 1 == size as u32 {
        last()?;
        arrived.store(0, Ordering::Relaxed);
        // Pairs with the loads below. With the next load, which asks whether anybody sleeps, in one order with the
        // sleeper's two steps: one of the two sees the other.
        phase.store(before.wrapping_add(1), Ordering::SeqCst);
        if asleep.load(Ordering::SeqCst) > 0 {
            futex::wake_all(phase);
        }
        return Ok(());
    }
    let closed = || phase.load(Ordering::Acquire) == before;
    if size <= *CORES {
        for _ in 0..SPINS {
            if !closed() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }
    for _ in 0..YIELDS {
        if !closed() {
            return Ok(());
        }
        std::thread::yield_now();
        if !closed() {
            return Ok(());
        }
        peers.turn()?;
    }
    while closed() {
        asleep.fetch_add(1, Ordering::SeqCst);
        futex::wait(phase, before, NAP);
        asleep.fetch_sub(1, Ordering::SeqCst);
        peers.turn()?;
    }
    Ok(())
}

/// Bytes that a gate takes of shared memory. Who comes, who waits and who sleeps have a cache line each, or two where
/// lines are fetched in pairs.
pub(super) const LEN: usize = 384;
const ARRIVED: usize = 0;
const PHASE: usize = 128;
const ASLEEP: usize = 256;

/// A few times what two ranks with cores of their own need, 0.2 us.
const SPINS: usize = 100;

/// Of 16 ranks on two cores each gives way once or twice a call. Where nobody else wants the core, a yield is 0.3 us: then
/// this is 60 us, about what it costs to be put to sleep and woken.
const YIELDS: usize = 200;

/// How long somebody asleep lets a peer wait who needs an answer from us before it can come.
const NAP: Duration = Duration::from_millis(1);

static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
