//! In a network namespace: what routers say, sockets that are full, narrow paths.

use std::process::Command;

use sidelane_nic::Nic;
use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::time::Duration;
use sidelane_nic::udp::{Config, Udp};

use crate::contract::At;
use crate::refusals::refuse;
use crate::stage::*;
use crate::{namespace, patience};

pub fn what_routers_say_of_an_earlier_frame_is_counted_and_costs_no_other() {
    namespace::ip("link set lo up");
    // One frame, one run of equal frames, and several.
    for lengths in [vec![500; 1], vec![500; 12], (500..512).collect()] {
        // What was asked for is not there, a link is too narrow, a host or a filter forbids it.
        for code in [2, 4, 10, 13] {
            let (mut a, mut b) = (open(), open());
            let to_b = link(&mut a, &b);
            let (from, to) = (addr_of(&a), addr_of(&b));
            let mut burst = |a: &mut Udp| {
                lengths.iter().for_each(|len| assert!(commit(a, to_b, &vec![*len as u8; *len])));
                a.flush();
                let (mut came, mut most) = (Vec::new(), 0);
                patience::until("all come", || {
                    let shown = b.rx_burst(64, |frame, _| came.push(frame.len()));
                    most = shown.max(most);
                    came.len() == lengths.len()
                });
                // What leaves again leaves last.
                came.sort_unstable();
                assert_eq!(came, lengths, "code {code}");
                most
            };
            let together = burst(&mut a);
            // On the loopback it has come when the call returns.
            refuse(from, to, code);
            assert_eq!(burst(&mut a), together, "code {code}: they go on leaving together");
            assert_eq!(a.counters().tx_failed, 1, "code {code}");
            refuse(from, to, code);
            pass_quietly(&mut a);
            assert_eq!(a.counters().tx_failed, 2, "code {code}, told by receiving");
            refuse(from, to, code);
            let far = a.now() + Duration::from_millis(10_000);
            a.wait(Some(far)).unwrap();
            assert!(a.now() < far);
            assert_eq!(a.counters().tx_failed, 3, "code {code}, told while it sleeps");
        }
    }
}

pub fn a_socket_that_drains_slowly_is_slept_over_and_loses_nothing() {
    namespace::veth("vA", "vB");
    for words in [
        "link set vA mtu 65535",
        "link set vB mtu 65535",
        "addr add 10.0.0.1/24 dev vA",
        // Nobody answers, by ICMP neither: the kernel's own few buffers for that are of all namespaces.
        "neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev vA",
    ] {
        namespace::ip(words);
    }
    let shape = "qdisc add dev vA root tbf rate 200mbit burst 80kb limit 100mb";
    if !Command::new("tc").args(shape.split(' ')).status().is_ok_and(|status| status.success()) {
        return println!("skipped: wants tc, and a kernel with tbf");
    }
    let mut a = Udp::open(&Config::new("10.0.0.1:7001".parse().unwrap())).unwrap();
    let to_b = link_at(&mut a, "10.0.0.9:7001".parse().unwrap());
    // The socket is full, and then all slots are taken.
    let (frame, mut committed) = (vec![7; 60_000], 0u64);
    let is_full = |a: &mut Udp| a.tx_slot(to_b, 1).is_none();
    patience::until("the socket takes no more", || {
        while !is_full(&mut a) {
            assert!(commit(&mut a, to_b, &frame));
            committed += 1;
        }
        a.flush();
        is_full(&mut a)
    });
    let waits = a.counters().waits;
    let have_gone = |a: &Udp| a.counters().tx_frames == committed;
    patience::until("all have gone", || {
        a.flush();
        if !have_gone(&a) {
            let far = a.now() + Duration::from_millis(5_000);
            a.wait(Some(far)).unwrap();
            assert!(a.now() < far || have_gone(&a), "room to send ends a sleep");
        }
        have_gone(&a)
    });
    // A loop of sleeps that do not sleep has thousands.
    assert!(a.counters().waits - waits <= 20, "{} waits", a.counters().waits - waits);
    assert_eq!(a.counters().tx_failed, 0);
}

pub fn a_narrow_path_keeps_no_other_peers_frames_from_leaving_together() {
    namespace::veth("vA", "vB");
    namespace::ip("link set lo up");
    namespace::ip("addr add 10.0.0.1/24 dev vA");
    namespace::ip("route add 10.0.0.9 dev vA mtu 700");
    let at = |port| Udp::open(&Config::new(format!("10.0.0.1:{port}").parse().unwrap())).unwrap();
    let (mut a, mut b) = (at(7_001), at(7_002));
    let (to_b, narrow) = (link(&mut a, &b), link_at(&mut a, "10.0.0.9:7003".parse().unwrap()));
    let most_at_once = |a: &mut Udp, b: &mut Udp| {
        (0..16).for_each(|_| assert!(commit(a, to_b, &[7; 1_000]), "no slot"));
        a.flush();
        let (mut came, mut most) = (0, 0);
        patience::until("all come", || {
            let shown = b.rx_burst(64, |frame, _| assert_eq!(frame, [7; 1_000]));
            (came, most) = (came + shown, most.max(shown));
            came == 16
        });
        most
    };
    if most_at_once(&mut a, &mut b) == 1 {
        return println!("skipped: this kernel sends no datagrams together");
    }
    (0..16).for_each(|_| assert!(commit(&mut a, narrow, &[7; 1_000]), "no slot"));
    let tx_frames = a.counters().tx_frames;
    patience::until("they go one by one, and are cut by IP", || {
        a.flush();
        a.counters().tx_frames == tx_frames + 16
    });
    assert!(most_at_once(&mut a, &mut b) > 1);
}

pub fn veth_keeps_the_contract() {
    namespace::veth("vA", "vB");
    namespace::ip("link set lo up");
    namespace::ip("addr add 10.0.0.1/24 dev vA");
    namespace::ip("addr add 10.0.0.2/24 dev vB");
    // Both ends in one namespace: the kernel takes the loopback between its own addresses, but the MTU is veth's.
    let mut setup = At(&["10.0.0.1", "10.0.0.2", "10.0.0.2"]);
    let mtu = setup.open(1).unwrap()[0].caps().mtu;
    assert_eq!(mtu, 1_500 - 20 - 8 - 4);
    conformance::run(&mut setup).assert_all_passed();
    conformance::run_threads(&mut setup).assert_all_passed();
}
