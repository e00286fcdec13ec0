//! What a driver of an interface owes who waits when that is removed. `a` is on vA, which has a veth peer.

use std::time::Instant;

use sidelane_nic::time::Duration;
use sidelane_nic::{Link, Nic, TxSlot};

use crate::namespace::ip;
use crate::patience::once_asleep;

/// Who sleeps meanwhile is told.
pub fn is_missed_by_who_sleeps(mut a: impl Nic, to_b: Link) {
    let removal = once_asleep(|| ip("link del vA"));
    let far = a.now() + Duration::from_millis(10_000);
    while !a.is_gone(to_b) && a.now() < far {
        a.wait(Some(far)).unwrap();
    }
    let noticed = Instant::now();
    let late = noticed.saturating_duration_since(removal.join().unwrap());
    assert!(a.is_gone(to_b) && late.as_millis() < 2_000, "{late:?}");
}

/// And then sleeps as before.
pub fn is_told_once(mut a: impl Nic, to_b: Link) {
    ip("link del vA");
    let far = a.now() + Duration::from_millis(10_000);
    a.wait(Some(far)).unwrap();
    assert!(a.is_gone(to_b) && a.now() < far, "told once");
    // Sending tells nobody anew.
    if let Some(slot) = a.tx_slot(to_b, 9) {
        slot.commit();
    }
    a.flush();
    let (waits, end) = (a.counters().waits, a.now() + Duration::from_millis(50));
    a.wait(Some(end)).unwrap();
    assert!(a.now() >= end);
    assert_eq!(a.counters().waits, waits + 1);
    let waker = a.waker().unwrap();
    let wake = once_asleep(move || waker.wake());
    a.wait(Some(far)).unwrap();
    assert!(a.now() < far, "it can be woken");
    wake.join().unwrap();
}
