//! Who sleeps, what keeps him from it, and what wakes him.

use super::*;
use crate::patience::{PATIENCE, watch};
use crate::shm::mapping::Bell;
use crate::shm::sync::AtomicU32;

#[test]
fn a_sleep_is_one_unless_there_is_news_and_is_counted() {
    let domain = domain("sleeps");
    let (mut a, mut b) = (join(&domain, 0), join(&domain, 1));
    let to_b = a.link(b.caps().addr).unwrap();
    polled("a connection", &mut a, 0, |a| commit(a, to_b, 1));
    let start = a.now();
    a.wait(Some(start + Duration::from_millis(10_000))).unwrap();
    assert!(a.now().since(start) < Duration::from_millis(9_000), "slept through a peer that has come");
    assert_eq!(a.counters().waits, 0);
    receive(&mut b);
    b.link(address(9)).unwrap();
    b.wait(Some(b.now())).unwrap();
    let (waits, until) = (b.counters().waits, b.now() + Duration::from_millis(3));
    while b.now() < until {
        b.wait(Some(until)).unwrap();
    }
    let slept = b.counters().waits;
    // One may end for nothing: by a wake-up of before.
    assert!(slept - waits <= 3, "it does not sleep while it calls somebody");
    b.waker().unwrap().wake();
    watch("the sleep of one who was woken", PATIENCE);
    b.wait(None).unwrap();
    assert_eq!(b.counters().waits, slept + 1);
    // Nobody is woken who has got up.
    let woken = a.counters().wakes;
    send(&mut a, to_b, 2);
    assert_eq!(a.counters().wakes, woken);
}

/// A sleep ends by itself after a second at most, which would hide what wakes nobody: so who is taken to sleep does not.
#[test]
fn what_somebody_may_sleep_for_wakes_him() {
    let domain = domain("wakes");
    let (mut a, mut b) = (join(&domain, 0), join(&domain, 1));
    let to_b = a.link(b.caps().addr).unwrap();
    send(&mut a, to_b, 1);
    receive(&mut b);
    let [bell_of_a, bell_of_b] = [a.bell.clone(), b.bell.clone()];
    let lie_down = |bell: &Bell| {
        bell.word().swap(doorbell::ASLEEP, Ordering::AcqRel);
    };
    let is_up = |bell: &Bell| bell.word().load(Ordering::Relaxed) == doorbell::AWAKE;
    lie_down(&bell_of_b);
    assert!(commit(&mut a, to_b, 2));
    a.flush();
    assert!(is_up(&bell_of_b) && a.published.is_empty(), "a frame");
    lie_down(&bell_of_b);
    assert!(commit(&mut a, to_b, 3));
    a.wait(Some(a.now())).unwrap();
    assert!(is_up(&bell_of_b), "one before the sender sleeps");
    while commit(&mut a, to_b, 4) {}
    a.flush();
    lie_down(&bell_of_a);
    while b.rx_burst(64, |_, _| ()) > 0 {}
    assert!(is_up(&bell_of_a), "room");
    lie_down(&bell_of_a);
    drop(b);
    until("the end of a peer wakes", || is_up(&bell_of_a));
}

#[test]
fn what_somebody_may_sleep_for_keeps_him_from_it() {
    let domain = domain("ready");
    let (mut a, mut b, mut c) = (join(&domain, 0), join(&domain, 1), join(&domain, 2));
    let to_b = a.link(b.caps().addr).unwrap();
    send(&mut a, to_b, 1);
    receive(&mut b);
    assert!(!b.is_ready() && commit(&mut a, to_b, 2) && b.is_ready(), "a frame");
    while commit(&mut a, to_b, 3) {}
    assert!(!a.is_ready());
    while b.rx_burst(64, |_, _| ()) > 0 {}
    assert!(a.is_ready(), "room");
    assert!(commit(&mut a, to_b, 4) && !a.is_ready());
    c.link(a.caps().addr).unwrap();
    until("there is news", || a.is_ready());
    a.rx_burst(0, |_, _| ());
    assert!(!a.is_ready());
    a.waker().unwrap().wake();
    assert!(a.is_ready(), "a knock");
}

#[test]
fn a_knock_is_heard_once_and_wakes_who_sleeps() {
    let (bell, knock) = (AtomicU32::new(doorbell::AWAKE), doorbell::Knock::new());
    knock.knock(&bell, || panic!("nobody sleeps"));
    assert!(knock.is_knocked() && knock.hear() && !knock.is_knocked() && !knock.hear());
    bell.store(doorbell::ASLEEP, Ordering::Relaxed);
    let mut woken = 0;
    (0..2).for_each(|_| knock.knock(&bell, || woken += 1));
    assert!(woken == 1 && knock.hear());
}

/// What changes a word between its owner's two steps to sleep ends the sleep, whoever else has been woken meanwhile.
#[test]
fn who_is_told_when_about_to_sleep_does_not() {
    let bell = AtomicU32::new(doorbell::AWAKE);
    let about_to = |bell: &AtomicU32| {
        doorbell::ring_all_the_same(bell, || ());
        assert_eq!(bell.load(Ordering::Relaxed), doorbell::AWAKE);
        Ok::<_, ()>(())
    };
    doorbell::sleep(&bell, || false, about_to).unwrap();
}

/// For who is to wake it may be stopped right before he does.
#[test]
fn nobody_sleeps_for_ever_even_if_nobody_wakes_him() {
    watch("a sleep", PATIENCE);
    let domain = domain("alone");
    let nics = [0, 1].map(|endpoint| join(&domain, endpoint));
    std::thread::scope(|scope| {
        for (mut nic, deadline) in nics.into_iter().zip([None, Some(crate::time::Instant::FAR_FUTURE)]) {
            scope.spawn(move || nic.wait(deadline).unwrap());
        }
    });
}

/// What a peer leaves that is killed between two steps of waking somebody.
#[test]
fn a_sleeper_whose_waker_ended_before_the_system_call_is_woken_by_that_end() {
    let domain = domain("half-woken");
    let mut a = join(&domain, 1);
    let mut b = join(&domain, 2);
    let link = b.link(a.caps().addr).unwrap();
    send(&mut b, link, 0);
    receive(&mut a);
    // What has made it a peer is no news any more.
    a.wait(Some(a.now())).unwrap();
    let (bell, (say, hear)) = (a.bell.clone(), std::sync::mpsc::channel());
    let back = a.link(b.caps().addr).unwrap();
    let sleeper = std::thread::spawn(move || {
        say.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
        let far = a.now() + Duration::from_millis(10_000);
        // On a busy machine the longest sleep may be over before it was seen.
        while !a.is_gone(back) && a.now() < far {
            a.wait(Some(far)).unwrap();
        }
        a.is_gone(back)
    });
    let stat = std::path::Path::new("/proc").join(hear.recv().unwrap()).join("stat");
    let sleeps = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
    until("the receiver sleeps", || bell.word().load(Ordering::Relaxed) == doorbell::ASLEEP && sleeps());
    // The step before the system call; from here on nobody else makes it.
    bell.word().swap(doorbell::AWAKE, Ordering::AcqRel);
    drop(b);
    assert!(sleeper.join().unwrap(), "nobody woke the receiver");
}
