//! Sleeping until a frame comes, on DPDK's drivers that can wake a sleeper. Where there is no libdpdk, each test says so and
//! passes.
#![allow(unsafe_code)] // getrusage(2).

mod libdpdk;
mod patience;

use sidelane_nic::dpdk::{Config, Dpdk};
use sidelane_nic::time::Duration;
use sidelane_nic::{Link, Nic, TxSlot};

/// An answer takes both sides out of their sleep: the server by its interrupt, which would else look every 10 ms, the client
/// by looking.
#[test]
fn a_frame_wakes_whoever_sleeps() {
    let Some([a, b]) = pair() else { return };
    wake_each_other(a, b);
}

/// The cards that the next test is run with.
const CARDS: &str = "SIDELANE_TEST_CARDS";

#[test]
#[ignore = "needs two cards on one wire, bound to VFIO: SIDELANE_TEST_CARDS='0000:00:04.0 0000:00:05.0'"]
fn a_frame_wakes_whoever_sleeps_at_a_card() {
    let cards = std::env::var(CARDS).expect("the names of two cards");
    let open = |name| Dpdk::open(&Config::new(name)).unwrap();
    let nics: Vec<Dpdk> = cards.split(' ').map(open).collect();
    let [a, b] = <[Dpdk; 2]>::try_from(nics).ok().expect("two of them");
    println!("{}", a.about());
    assert!(a.about().contains("interrupt") && b.about().contains("interrupt"));
    wake_each_other(a, b);
}

fn wake_each_other(mut a: Dpdk, mut b: Dpdk) {
    let (to_b, to_a) = (a.link(b.caps().addr).unwrap(), b.link(a.caps().addr).unwrap());
    let answers = std::thread::spawn(move || {
        for _ in 0..ROUND_TRIPS {
            wait_for_one(&mut b);
            send(&mut b, to_a);
        }
        b
    });
    let mut round_trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let sent = a.now();
        send(&mut a, to_b);
        wait_for_one(&mut a);
        round_trips.push(a.now().since(sent));
    }
    drop(answers.join().unwrap());
    round_trips.sort_unstable();
    let median = round_trips[ROUND_TRIPS / 2];
    println!("{median:?} there and back");
    assert!(median < Duration::from_millis(5), "{median:?}");
}

#[test]
fn a_sleep_without_frames_is_one() {
    let Some([mut server, _client]) = pair() else { return };
    let before = naps();
    let until = server.now() + Duration::from_millis(300);
    server.wait(Some(until)).unwrap();
    assert!(server.now() >= until);
    // Looking every 250 µs makes a thousand.
    let naps = naps() - before;
    assert!(naps < 100, "{naps}");
}

/// Both ends of a vhost pair, connected; `None`, and the reason printed, where there is no libdpdk.
fn pair() -> Option<[Dpdk; 2]> {
    if libdpdk::is_missing() {
        return None;
    }
    // Once they have met, nobody looks for it.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vhost").display().to_string();
    let ends = [format!("vhost:{path},server"), format!("vhost:{path}")].map(|device| {
        // Both in one process, so at the same endpoint: their addresses differ.
        Dpdk::open(&Config::new(device)).unwrap()
    });
    let give_up = ends[0].now() + PATIENCE;
    while !ends.iter().all(Dpdk::link_is_up) {
        assert!(ends[0].now() < give_up, "the two do not meet");
        std::thread::yield_now();
    }
    Some(ends)
}

fn send(nic: &mut Dpdk, link: Link) {
    let mut slot = nic.tx_slot(link, 5).expect("a slot, since the last frame is out");
    slot.copy_from_slice(b"awake");
    slot.commit();
    nic.flush();
}

fn wait_for_one(nic: &mut Dpdk) {
    let give_up = nic.now() + PATIENCE;
    while nic.rx_burst(1, |frame, _| assert_eq!(frame, b"awake")) == 0 {
        assert!(nic.now() < give_up, "nothing came");
        nic.wait(Some(give_up)).unwrap();
    }
}

/// Times that this thread gave up its core.
fn naps() -> i64 {
    // SAFETY: all zeroes is a valid value of this struct of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a place for the answer.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_nvcsw
}

const ROUND_TRIPS: usize = 101;
const PATIENCE: Duration = Duration::from_millis(5_000);
