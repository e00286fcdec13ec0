//! Sleeping, and being woken.

use super::erased::{Driver, Stage};
use super::traffic::{check, commit, expect, link, open, receive, send, wait};
use super::{Stop, Verdict};
use crate::time::Duration;

pub(super) fn wait_ends_at_deadline(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, _b] = open(stage)?;
    for span in [Duration::ZERO, Duration::from_micros(100), Duration::from_millis(5)] {
        let deadline = a.now() + span;
        let mut wakes = 0;
        // It may wake for nothing, but must not spin.
        while a.now() < deadline && wakes < 1_000 {
            wait(&mut a, deadline)?;
            wakes += 1;
        }
        check(wakes < 1_000, || format!("woke {wakes} times for nothing within {span:?}"))?;
        let late = a.now().since(deadline);
        check(late < LATE_MAX, || format!("a wait of {span:?} ended {late:?} late"))?;
        wait(&mut a, deadline)?;
    }
    Ok(())
}

pub(super) fn wait_finds_what_is_there(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, mut b] = open(stage)?;
    let to_b = link(&mut a, b.caps().addr)?;
    send(&mut a, to_b, b"up")?;
    receive(&mut b, 1)?;
    // Committed and not flushed: the sender's own wait does that.
    commit(&mut a, to_b, b"there")?;
    let now = a.now();
    wait(&mut a, now)?;
    let started = b.now();
    wait(&mut b, started + LATE_MAX + LATE_MAX)?;
    expect(&receive(&mut b, 1)?[0], b"there", a.caps().addr)?;
    let slept = b.now().since(started);
    check(slept < LATE_MAX, || format!("slept {slept:?} beside a frame"))
}

pub(super) fn wake_up_ends_the_next_wait(stage: &mut dyn Stage<dyn Driver>) -> Verdict {
    let [mut a, b] = open(stage)?;
    let waker = a.waker().map_err(|error| Stop::Failed(format!("waker: {error}")))?;
    for wakers in [1, 2, 1] {
        let started = a.now();
        (0..wakers).for_each(|_| waker.wake_by_ref());
        wait(&mut a, started + LATE_MAX + LATE_MAX)?;
        let slept = a.now().since(started);
        check(slept < LATE_MAX, || format!("slept {slept:?} in spite of {wakers} wake-ups"))?;
        check_wakes_are_spent(&mut a)?;
    }
    drop((a, b));
    // Its driver is gone, and nobody is harmed.
    waker.wake();
    Ok(())
}

/// After a wake-up or two sleeps are sleeps again.
fn check_wakes_are_spent<D: Driver + ?Sized>(nic: &mut Box<D>) -> Verdict {
    let deadline = nic.now() + Duration::from_millis(5);
    let mut wakes = 0;
    while nic.now() < deadline && wakes < 1_000 {
        wait(nic, deadline)?;
        wakes += 1;
    }
    check(wakes < 1_000, || format!("woke {wakes} times for nothing after a wake-up"))
}

/// Above any stall of a loaded machine, and below what a forgotten wake-up costs.
const LATE_MAX: Duration = Duration::from_millis(2_500);
