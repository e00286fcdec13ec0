//! Where members meet: waiting for what another one writes to shared memory, telling those who sleep, and failing together.
//!
//! With more ranks than cores whoever waits gives way at once: then each rank runs once a call, in whatever order, and
//! nobody is put to sleep and woken, which costs several times as much as a switch. Who sleeps does so where messages wake it
//! too, so that others are served meanwhile; so members wake each other by messages.

use std::future::poll_fn;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use std::task::Poll;

use sidelane_nic::clock;
use sidelane_nic::share::Shared;

use super::{Peers, sleepers};
use crate::giving_way::{GivingWay, LOOKS_AT_CLOCK};
use crate::membarrier;

/// The memory, and our place among its members.
#[derive(Debug)]
pub(super) struct Ground {
    pub shared: Shared,
    pub me: usize,
    pub size: usize,
    /// So many more members than cores there are.
    pub spare: usize,
    /// Who sleeps makes the others' writes visible: all have said that they can, and that they let it.
    pub light: bool,
}

impl Ground {
    pub(super) fn new(shared: Shared, me: usize, size: usize) -> Self {
        let spare = shared.word(SPARE).load(Ordering::Relaxed) as usize;
        Self { shared, me, size, spare, light: false }
    }

    /// True where there are more members than cores.
    #[inline]
    pub(super) const fn is_crowded(&self) -> bool {
        self.spare > 0
    }

    /// Waits until `ready` finds what it looks for, which the members that `awaits` is true of have not done yet.
    #[inline]
    pub(super) async fn until<P: Peers>(
        &self,
        peers: &mut P,
        ready: impl Fn() -> bool,
        awaits: impl Fn(usize) -> bool,
    ) -> Result<(), P::Error> {
        if P::WAITS {
            return self.wait(peers, ready, awaits);
        }
        if ready() { Ok(()) } else { self.until_polled(peers, ready, awaits).await }
    }

    /// As [`Self::until`], of a rank that waits.
    #[inline]
    pub(super) fn wait<P: Peers>(
        &self,
        peers: &mut P,
        ready: impl Fn() -> bool,
        awaits: impl Fn(usize) -> bool,
    ) -> Result<(), P::Error> {
        if ready() {
            return Ok(());
        }
        if !self.is_crowded() {
            for _ in 0..P::LOOKS.unwrap_or(SPINS) {
                std::hint::spin_loop();
                if ready() {
                    return Ok(());
                }
            }
        }
        if P::LOOKS.is_some() {
            return Err(peers.not_yet());
        }
        self.wait_long(peers, ready, awaits)
    }

    /// Leaves the call pending until then.
    async fn until_polled<P: Peers>(
        &self,
        peers: &mut P,
        ready: impl Fn() -> bool,
        awaits: impl Fn(usize) -> bool,
    ) -> Result<(), P::Error> {
        let mut lies = false;
        loop {
            let lies_down = !lies && peers.may_sleep();
            if lies_down {
                peers.doze();
                lies = true;
            }
            if !(lies_down && self.lie_down(&ready)) {
                leave_pending().await;
            }
            let over = if ready() {
                Some(Ok(()))
            } else if let Err(error) = peers.turn(&awaits) {
                Some(Err(error))
            } else {
                self.failure().map(|code| Err(P::error(code)))
            };
            if lies && (over.is_some() || self.is_woken()) {
                let woken = self.rise();
                peers.slept(woken);
                lies = false;
            }
            if let Some(over) = over {
                return over;
            }
        }
    }

    fn wait_long<P: Peers>(
        &self,
        peers: &mut P,
        ready: impl Fn() -> bool,
        awaits: impl Fn(usize) -> bool,
    ) -> Result<(), P::Error> {
        let (mut yields, mut giving_way) = (0, GivingWay::NOT_YET);
        loop {
            if yields < YIELDS {
                yields += 1;
                std::thread::yield_now();
                // Each may take as long as others want the core.
                if yields % LOOKS_AT_CLOCK == 0 && giving_way.is_enough(clock::monotonic()) {
                    yields = YIELDS;
                }
            } else if self.sleep(peers, &ready) {
                return Ok(());
            }
            if ready() {
                return Ok(());
            }
            // Who came for something may come again soon.
            if peers.turn(&awaits)? {
                (yields, giving_way) = (0, GivingWay::NOT_YET);
            }
            if let Some(code) = self.failure() {
                return Err(P::error(code));
            }
        }
    }

    /// Sleeps until somebody who has written something wakes us, or a message does. True if what we wait for is there.
    #[cold]
    fn sleep<P: Peers>(&self, peers: &mut P, ready: impl Fn() -> bool) -> bool {
        let there = self.lie_down(ready);
        if !there {
            peers.sleep();
        }
        let woken = self.rise();
        peers.slept(woken);
        there && self.failure().is_none()
    }

    /// From now on whoever writes something wakes us. True if what we wait for is there already, or a failure.
    fn lie_down(&self, ready: impl Fn() -> bool) -> bool {
        sleepers::lie_down(self.shared.word(SLEEPERS), self.asleep(self.me));
        // Pairs with the fence in `tell`: either we see what was written, or its writer sees that we sleep. Where there is only
        // a compiler's, every member has one here.
        if !self.light || !membarrier::run() {
            fence(Ordering::SeqCst);
        }
        ready() || self.failure().is_some()
    }

    /// Whether somebody wakes us since [`Self::lie_down`], or has.
    fn is_woken(&self) -> bool {
        sleepers::is_woken(self.asleep(self.me))
    }

    /// Ends [`Self::lie_down`]. True if somebody wakes us, or has already.
    fn rise(&self) -> bool {
        sleepers::rise(self.shared.word(SLEEPERS), self.asleep(self.me))
    }

    /// After something was written that others may wait for: wakes those who sleep.
    #[inline]
    pub(super) fn tell<P: Peers>(&self, peers: &mut P) {
        if self.light {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        if sleepers::does_anybody_sleep(self.shared.word(SLEEPERS)) {
            self.wake(peers);
        }
    }

    #[cold]
    fn wake<P: Peers>(&self, peers: &mut P) {
        for member in (0..self.size).filter(|member| *member != self.me) {
            if sleepers::take(self.asleep(member)) {
                peers.wake(member);
            }
        }
    }

    /// Ends this and all later calls of all members with an error. The first one that says why is right.
    #[cold]
    pub(super) fn fail(&self, code: NonZeroU32) {
        let _ = self.shared.word(FAILED).compare_exchange(0, code.get(), Ordering::Release, Ordering::Relaxed);
    }

    /// Why all calls fail.
    #[inline]
    pub(super) fn failure(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.shared.word(FAILED).load(Ordering::Acquire))
    }

    fn asleep(&self, member: usize) -> &AtomicU32 {
        self.shared.word(LEN + member * 64)
    }

    /// Bytes of shared memory, from its beginning on, for `size` members.
    pub(super) const fn len(size: usize) -> usize {
        LEN + size * 64
    }
}

/// Pending once.
async fn leave_pending() {
    let mut was_asked = false;
    poll_fn(|_| if std::mem::replace(&mut was_asked, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Says for all members, who must agree on it, by how many they are more than the cores: then it is better to meet at one word than
/// to look at everybody's. By who made the memory, before the others have it.
pub(super) fn decide(shared: &Shared, size: usize, cores: usize) {
    shared.word(SPARE).store(size.saturating_sub(cores) as u32, Ordering::Relaxed);
}

// Words that one member writes and others read have cache lines to themselves.
const SLEEPERS: usize = 0;
/// Never written once others have the memory.
const SPARE: usize = 64;
const FAILED: usize = 128;
/// Then a word for each member, that it sleeps.
const LEN: usize = 192;

/// A few times what two ranks with cores of their own need, 0.2 us.
const SPINS: u32 = 300;

/// Of 16 ranks on two cores each gives way once or twice a call, if nobody copies much. Where nobody else wants the core, a yield is
/// 0.3 us: then this is 1.2 ms, in which a root copies some MiB. With 200 it slept meanwhile, and the memory barriers and
/// messages of who sleeps and is woken came on top of that: a `gatherv` of 1 MiB to one of 16 took 5.8 ms, with 1,000 4.2. Calls that
/// do not wait are known to wait long after half as many turns.
pub const YIELDS: u32 = 4_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::host::tests::Bereft;

    #[test]
    fn a_failure_that_comes_as_a_member_lies_down_is_not_slept_through_nor_taken_for_what_it_waits_for() {
        const WHY: NonZeroU32 = NonZeroU32::new(7).unwrap();
        let ground = Host::create(2, 2).unwrap().slots.ground;
        let ready = || {
            if !ground.is_woken() {
                ground.fail(WHY);
            }
            false
        };
        assert_eq!(ground.wait(&mut Bereft { act: &mut || {}, gone: &[] }, ready, |_| true), Err(WHY));
    }
}
