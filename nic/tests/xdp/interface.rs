//! One endpoint and its interface: errors, queues, rings, what comes and goes.

use sidelane_nic::Nic;
use sidelane_nic::time::Duration;
use sidelane_nic::uring::{self, Uring};
use sidelane_nic::xdp::{Config, Mode, OpenError, Preference, Xdp};

use crate::interface_gone;
use crate::namespace::{ip, veth};
use crate::patience::until;
use crate::stage::{commit, exchange, open, receive_one, send, veth_pair};

pub fn open_errors_say_what_to_do() {
    let refusal = |config: Config| Xdp::open(&config).err().expect("a refusal");
    let at = |interface: &str| Config::new(interface, 1);
    ip("link add vA type veth peer name vB");

    let error = refusal(at("vX"));
    assert!(matches!(error, OpenError::NoSuchInterface { .. }));
    assert!(error.to_string().contains("vA") && error.to_string().contains("lo"), "{error}");

    let error = refusal(at("vA"));
    assert!(matches!(error, OpenError::InterfaceDown(_)));
    assert!(error.to_string().contains("ip link set vA up"), "{error}");

    ip("link set vA up");
    assert!(matches!(refusal(Config { queue: 9, ..at("vA") }), OpenError::NoSuchQueue { queue: 9, .. }));
    let error = refusal(Config { prefer: Preference::Native, ..at("lo") });
    assert!(error.to_string().contains("attaching the XDP program"), "{error}");

    let first = open("vA", 1);
    assert!(matches!(refusal(at("vA")), OpenError::EndpointTaken { endpoint: 1, .. }));
    assert!(Uring::open(&uring::Config::new("vA", 1)).is_err(), "an endpoint is one driver's only");
    let all: Vec<Xdp> = (2..17).map(|endpoint| open("vA", endpoint)).collect();
    assert!(matches!(refusal(Config::new("vA", 17)), OpenError::Full(_)));
    drop((first, all));
    drop(open("vA", 1));
}

pub fn queues_are_chosen() {
    ip("link add vA numtxqueues 2 numrxqueues 2 type veth peer name vB numtxqueues 2 numrxqueues 2");
    ip("link set vA up");
    ip("link set vB up");
    let native = Preference::Native;
    let at =
        |interface, endpoint, queue| Xdp::open(&Config { queue, prefer: native, ..Config::new(interface, endpoint) });
    // What is sent on a queue of a veth arrives on the same queue of its peer's driver. To the kernel behind it,
    // and so to a generic program, all of it comes from queue 0.
    let (mut a, mut b, mut c) = (at("vA", 1, 1).unwrap(), at("vB", 1, 1).unwrap(), at("vB", 2, 1).unwrap());
    exchange(&mut a, &mut b);
    exchange(&mut c, &mut a);
    let error = at("vA", 2, 0).err().expect("one queue an interface");
    assert!(matches!(error, OpenError::OtherQueue(_)), "{error}");
}

pub fn bursts_of_the_uring_driver_come_whole() {
    veth("vA", "vB");
    // The kernel takes the offloads away from the other end of a native program's interface, which then would send trains.
    let mut b = Xdp::open(&Config { prefer: Preference::Native, ..Config::new("vB", 1) }).unwrap();
    let mut a = Uring::open(&uring::Config::new("vA", 1)).unwrap();
    let to_b = a.link(b.caps().addr).unwrap();
    for _ in 0..100 {
        (0..32).for_each(|_| assert!(commit(&mut a, to_b, &[7; 1_000]), "no slot"));
        a.flush();
        let mut came = 0;
        until("a burst comes", || {
            came += b.rx_burst(64, |frame, _| assert_eq!(frame, [7; 1_000]));
            came == 32
        });
    }
    assert_eq!((a.counters().tx_failed, b.counters().rx_foreign), (0, 0));
}

pub fn full_rings_drop_and_count() {
    let (mut a, mut b, to_b) = veth_pair();
    let slots = b.caps().rx_frames;
    for round in 1..4 {
        for _ in 0..slots + 40 {
            send(&mut a, to_b, &[7; 60]);
        }
        let received: usize = std::iter::from_fn(|| Some(b.rx_burst(100, |_, _| {})).filter(|count| *count > 0)).sum();
        assert_eq!((received, b.counters().rx_dropped), (slots, 40 * round));
        assert_eq!(b.counters().rx_dropped, 40 * round, "reading the counters changes nothing");
    }
    assert_eq!(a.counters().tx_failed, 0);
}

pub fn removed_interface_is_gone() {
    let (mut a, mut b, to_b) = veth_pair();
    send(&mut a, to_b, b"up");
    receive_one(&mut b);
    assert!(!a.is_gone(to_b));
    ip("link del vA");
    let deadline = a.now() + Duration::from_millis(2_000);
    a.wait(Some(deadline)).unwrap();
    assert!(a.is_gone(to_b), "noticed by waiting");

    let to_a = b.link(a.caps().addr).unwrap();
    for round in 1..=300 {
        send(&mut b, to_a, b"to nobody");
        assert!(b.is_gone(to_a), "noticed by sending");
        assert_eq!(b.counters().tx_failed, round, "and no slot is stuck");
        assert_eq!((b.counters().tx_frames, b.counters().tx_bytes), (0, 0), "what was not sent is not counted as sent");
    }
}

pub fn an_interface_that_goes_while_somebody_sleeps_is_missed() {
    let (a, _b, to_b) = veth_pair();
    interface_gone::is_missed_by_who_sleeps(a, to_b);
}

pub fn who_was_told_that_its_interface_is_gone_sleeps_again() {
    let (a, _b, to_b) = veth_pair();
    interface_gone::is_told_once(a, to_b);
}

pub fn interface_that_was_down_carries_frames_again() {
    let (mut a, mut b, to_b) = veth_pair();
    ip("link set vA down");
    // They stay in the ring, and go out when the interface does.
    for _ in 0..3 {
        send(&mut a, to_b, b"late");
    }
    assert!(!a.is_gone(to_b));
    let (before, span) = (a.now(), Duration::from_millis(20));
    while a.now() < before + span {
        a.wait(Some(before + span)).unwrap();
    }
    ip("link set vA up");
    until("a frame crosses the interface", || {
        send(&mut a, to_b, b"found");
        b.rx_burst(1, |_, _| {}) > 0
    });
    assert!(!a.is_gone(to_b));
}

pub fn mtu_follows_the_interface_as_far_as_chunks_go() {
    for (mtu, payload) in [(1_500, 1_492), (2_500, 2_492), (9_000, 3_776)] {
        ip(&format!("link add vA mtu {mtu} type veth peer name vB mtu {mtu}"));
        ip("link set vA up");
        ip("link set vB up");
        let (mut a, mut b) = (open("vA", 1), open("vB", 1));
        assert_eq!((a.caps().mtu, a.caps().mtu_safe), (payload, payload));
        let to_b = a.link(b.caps().addr).unwrap();
        for _ in 0..500 {
            send(&mut a, to_b, &vec![5; payload]);
            assert_eq!(receive_one(&mut b), vec![5; payload]);
        }
        // What others on a larger MTU may send is dropped and counted.
        if mtu == 9_000 {
            let mut large = Uring::open(&uring::Config { real_frames: true, ..uring::Config::new("vA", 2) }).unwrap();
            let link = large.link(b.caps().addr).unwrap();
            send(&mut large, link, &[1; 8_000]);
            send(&mut large, link, b"small");
            assert_eq!(receive_one(&mut b), b"small");
            assert_eq!(b.counters().rx_dropped, 1);
        }
        drop((a, b));
        ip("link del vA");
    }
}

pub fn the_mtu_is_the_same_wherever_the_program_runs() {
    // The kernel attaches none in the driver whose other end is wider than a page.
    ip("link add vA mtu 9000 type veth peer name vB mtu 3500");
    ip("link set vA up");
    ip("link set vB up");
    for (prefer, mode) in [(Preference::Native, Mode::Native), (Preference::Generic, Mode::Generic)] {
        let nic = Xdp::open(&Config { prefer, ..Config::new("vA", 1) }).unwrap();
        assert_eq!((nic.mode(), nic.caps().mtu, nic.caps().mtu_safe), (mode, 3_776, 3_776));
    }
}

pub fn an_interface_that_is_too_narrow_is_refused_with_the_least_mtu() {
    veth("vA", "vB");
    for interface in ["vA", "vB"] {
        ip(&format!("link set {interface} mtu 135"));
        let error = Xdp::open(&Config::new(interface, 1)).err().expect("a refusal").to_string();
        assert!(error.contains("136") && error.contains(&format!("ip link set {interface} mtu")), "{error}");
        ip(&format!("link set {interface} mtu 136"));
    }
    exchange(&mut open("vA", 1), &mut open("vB", 1));
}
