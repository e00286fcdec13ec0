//! Waiting for what another member writes to shared memory, and telling those who sleep.
//!
//! With more ranks than cores whoever waits gives way at once: then each rank runs once a call, in whatever order, and
//! nobody is put to sleep and woken, which costs several times as much as a switch.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use sidelane_nic::affinity;
use sidelane_nic::share::Shared;

use super::{Peers, futex};

/// Waits until `ready` finds what it looks for, which the members that `awaits` is true of have not done yet.
#[inline]
pub(super) fn until<P: Peers>(
    shared: &Shared,
    crowded: bool,
    peers: &mut P,
    ready: impl Fn() -> bool,
    awaits: impl Fn(usize) -> bool,
) -> Result<(), P::Error> {
    if ready() {
        return Ok(());
    }
    if !crowded {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if ready() {
                return Ok(());
            }
        }
    }
    for _ in 0..YIELDS {
        std::thread::yield_now();
        if ready() {
            return Ok(());
        }
        peers.turn(&awaits)?;
    }
    let (asleep, event) = (shared.word(ASLEEP), shared.word(EVENT));
    loop {
        asleep.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `tell`: either we see what was written, or its writer sees that we sleep.
        fence(Ordering::SeqCst);
        let before = event.load(Ordering::Relaxed);
        let there = ready();
        if !there {
            futex::wait(event, before, NAP);
        }
        asleep.fetch_sub(1, Ordering::Relaxed);
        if there || ready() {
            return Ok(());
        }
        peers.turn(&awaits)?;
    }
}

/// After something was written that others may wait for: wakes those who sleep.
#[inline]
pub(super) fn tell(shared: &Shared) {
    fence(Ordering::SeqCst);
    if shared.word(ASLEEP).load(Ordering::Relaxed) > 0 {
        shared.word(EVENT).fetch_add(1, Ordering::Relaxed);
        futex::wake_all(shared.word(EVENT));
    }
}

/// Says for all members, who must agree on it, whether they are more than the cores, so that it is better to meet at one word than
/// to look at everybody's. By who made the memory, before the others have it.
pub(super) fn decide(shared: &Shared, size: usize) {
    shared.word(CROWDED).store(u32::from(size > affinity::online()), Ordering::Relaxed);
}

/// What [`decide`] said.
pub(super) fn crowded(shared: &Shared) -> bool {
    shared.word(CROWDED).load(Ordering::Relaxed) != 0
}

/// Bytes of shared memory from its beginning on. Words that one member writes and others read have cache lines to themselves,
/// or two where lines are fetched in pairs.
pub(super) const LEN: usize = 256;
const ASLEEP: usize = 0;
/// Never written once others have the memory.
const CROWDED: usize = 64;
const EVENT: usize = 128;

/// A few times what two ranks with cores of their own need, 0.2 us.
const SPINS: usize = 300;

/// Of 16 ranks on two cores each gives way once or twice a call. Where nobody else wants the core, a yield is 0.3 us: then
/// this is 60 us, about what it costs to be put to sleep and woken.
const YIELDS: usize = 200;

/// How long somebody asleep lets a peer wait who needs an answer from us before it can come.
const NAP: Duration = Duration::from_millis(1);
