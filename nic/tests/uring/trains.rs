//! Frames that go out together, and who reads them.

use std::process::Command;

use sidelane_nic::encap::{gso, train};
use sidelane_nic::time::{Duration, Instant};
use sidelane_nic::uring::Uring;
use sidelane_nic::{LinkAddr, Nic};

use crate::namespace::{bridged, veth};
use crate::patience::until;
use crate::raw_socket::RawSocket;
use crate::stage::{commit, open, send, turn_offloads_off, turn_offloads_on, veth_pair};

pub fn trains_and_lone_frames_come_in_the_order_of_sending() {
    veth("vA", "vB");
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    let (mut a, mut b, mut c) = (open("vA", 1), open("vB", 1), open("vB", 2));
    let wire = RawSocket::listening_on("vB");
    let to = [b.caps().addr, c.caps().addr].map(|addr| a.link(addr).unwrap());
    let mtu = a.caps().mtu;
    let (mut next, mut cut) = ([0u8; 2], 0);
    // Who gets frames of which length, and how many of them: trains with a short end, too short ones, too long ones.
    let runs = [(0, mtu, 100), (0, 8, 1), (1, 8, 90), (0, 0, 5), (0, 64, 3), (1, mtu, 30), (1, 100, 1), (0, 1, 7)];
    for _ in 0..20 {
        for (peer, len, count) in runs {
            for _ in 0..count {
                let mut frame = vec![next[peer]; len];
                if let Some(last) = frame.last_mut() {
                    *last ^= 0x80;
                }
                assert!(commit(&mut a, to[peer], &frame), "no slot");
                next[peer] = next[peer].wrapping_add(u8::from(len > 0));
            }
        }
        a.flush();
        // What its peers answer.
        a.rx_burst(64, |frame, _| panic!("{frame:?} from nobody"));
        for (peer, nic) in [&mut b, &mut c].into_iter().enumerate() {
            let sent = |of_length: fn(usize) -> bool| -> usize {
                runs.iter().filter(|run| run.0 == peer && of_length(run.1)).map(|run| run.2).sum()
            };
            let (full, empty) = (sent(|len| len > 0), sent(|len| len == 0));
            let mut expected = next[peer].wrapping_sub(full as u8);
            let mut seen = (0, 0);
            // A burst of nothing is not the end: it may keep behind what comes.
            until("all are shown", || {
                nic.rx_burst(64, |frame, _| match frame {
                    [] => seen.1 += 1,
                    [first, rest @ ..] => {
                        let first = if rest.is_empty() { first ^ 0x80 } else { *first };
                        let last = rest.last().map_or(first, |last| last ^ 0x80);
                        assert_eq!((first, last), (expected, expected), "peer {peer}");
                        expected = expected.wrapping_add(1);
                        seen.0 += 1;
                    }
                });
                seen == (full, empty)
            });
        }
        // Each time: its buffer is small.
        cut += pieces(&wire);
    }
    assert_eq!((a.counters().tx_failed, b.counters().rx_dropped, b.counters().rx_foreign), (0, 0, 0));
    assert!(cut > 0, "there were trains");
}

/// Sends `bursts` of 32 frames, each of which comes whole. Returns how many frames were cut from trains.
fn exchange_bursts(a: &mut Uring, b: &mut impl Nic, bursts: usize, wire: &RawSocket) -> usize {
    let mut cut = 0;
    let to_b = a.link(b.caps().addr).unwrap();
    for _ in 0..bursts {
        (0..32u8).for_each(|number| assert!(commit(a, to_b, &[number; 1_000]), "no slot"));
        a.flush();
        a.rx_burst(64, |frame, _| panic!("{frame:?} from nobody"));
        let mut next = 0;
        until("a burst comes", || {
            b.rx_burst(64, |frame, _| {
                assert_eq!(frame, [next; 1_000]);
                next += 1;
            });
            next == 32
        });
        cut += pieces(wire);
    }
    assert_eq!((a.counters().tx_failed, b.counters().rx_foreign), (0, 0));
    cut
}

/// Frames on the wire by now that were cut from trains; those of probes do not count.
fn pieces(wire: &RawSocket) -> usize {
    let seen = std::iter::from_fn(|| wire.receive());
    seen.filter(|frame| frame.len() > 1_000 && frame[12..14] == [8, 0]).count()
}

pub fn trains_cross_a_bridge() {
    bridged();
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    let (mut a, mut b) = (open("vA", 1), open("vB", 1));
    let wire = RawSocket::listening_on("vB");
    assert!(exchange_bursts(&mut a, &mut b, 100, &wire) > 0, "there were trains");
}

pub fn peers_that_read_no_trains_get_none() {
    veth("vA", "vB");
    if !turn_offloads_off(&["vA"]) {
        return println!("skipped: wants ethtool");
    }
    let (mut a, mut b) = (open("vA", 1), open("vB", 1));
    assert!(a.caps().mtu == a.caps().mtu_safe && b.caps().mtu > b.caps().mtu_safe, "one has trains, one super-packets");
    let wire = RawSocket::listening_on("vB");
    assert_eq!(exchange_bursts(&mut a, &mut b, 100, &wire), 0);
    assert_eq!(exchange_bursts(&mut b, &mut a, 100, &wire), 0);
}

pub fn who_comes_after_one_that_read_trains_is_asked_anew() {
    veth("vA", "vB");
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    let (mut a, mut b) = (open("vA", 1), open("vB", 1));
    let wire = RawSocket::listening_on("vB");
    assert!(exchange_bursts(&mut a, &mut b, 10, &wire) > 0, "it read them");
    let to_b = a.link(b.caps().addr).unwrap();
    drop(b);
    assert!(turn_offloads_on(&["vB"]));
    let mut b = open("vB", 1);
    until("no more trains come", || {
        (0..32).for_each(|_| assert!(commit(&mut a, to_b, &[1; 1_000]), "no slot"));
        a.flush();
        // The last answers of the one that is gone.
        a.rx_burst(64, |frame, _| panic!("{frame:?} from nobody"));
        b.rx_burst(64, |_, _| ()) > 0
    });
    while b.rx_burst(64, |_, _| ()) > 0 {}
    pieces(&wire);
    assert_eq!(exchange_bursts(&mut a, &mut b, 100, &wire), 0);
}

pub fn an_answer_that_lay_unread_while_its_peer_went_is_too_old() {
    veth("vA", "vB");
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    let (mut a, mut b) = (open("vA", 1), open("vB", 1));
    let wire = RawSocket::listening_on("vA");
    let to_b = a.link(b.caps().addr).unwrap();
    let burst = |a: &mut Uring| {
        (0..32).for_each(|_| assert!(commit(a, to_b, &[1; 1_000]), "no slot"));
        a.flush();
    };
    let answers = || std::iter::from_fn(|| wire.receive()).filter(|frame| is_answer(frame)).count();
    burst(&mut a);
    until("it has answered", || {
        b.rx_burst(64, |_, _| ());
        answers() > 0
    });
    drop(b);
    assert!(turn_offloads_on(&["vB"]));
    let mut b = open("vB", 1);
    // For longer than an answer lasts, A sends and does not read.
    let end = a.now() + Duration::from_millis(120);
    until("a while has passed", || {
        burst(&mut a);
        while b.rx_burst(64, |_, _| ()) > 0 {}
        a.now() >= end
    });
    let wire = RawSocket::listening_on("vB");
    assert_eq!(exchange_bursts(&mut a, &mut b, 100, &wire), 0);
}

/// Whether a frame on the wire is the telling piece of an answer to a probe.
fn is_answer(frame: &[u8]) -> bool {
    let parsed = train::Header::parse(frame);
    parsed.is_ok_and(|(header, payload)| header.kind == train::Kind::Answer && train::probe_number(payload).is_some())
}

pub fn a_flood_of_probes_is_answered_at_a_rate_and_honest_peers_beside_it() {
    veth("vA", "vB");
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    let (mut a, mut b) = (open("vA", 1), open("vB", 1));
    let LinkAddr::Ether { mac: dst_mac, endpoint: dst } = b.caps().addr else { unreachable!("it is on an interface") };
    let stranger = RawSocket::on("vA");
    // The second piece of a probe, which looks like a frame of 8 bytes.
    let throw = |src: u16| {
        let header = train::Header { dst_mac, src_mac: [6, 0, 0, 0, 0, 1], dst, src, kind: train::Kind::Probe };
        stranger.send(&[&header.emit(8, 8)[gso::VNET_LEN..], &train::probe(1)[train::PROBE_SEGMENT..]].concat());
    };
    let at_most = |begun: Instant, now: Instant| 8 + now.since(begun).as_nanos() / 100_000;
    let (came, begun) = (RawSocket::listening_on("vA"), b.now());
    let mut answers = 0;
    for turn in 0..200u16 {
        (0..32).for_each(|more| throw(turn * 32 + more));
        while b.has_unread() {
            b.rx_burst(32, |frame, _| panic!("{frame:?} from nobody"));
        }
        answers += std::iter::from_fn(|| came.receive()).filter(|frame| is_answer(frame)).count() as u64;
    }
    assert!(answers > 0 && answers <= at_most(begun, b.now()), "{answers} answers in {:?}", b.now().since(begun));
    // One that asks all the time has its turn, no more.
    let wire = RawSocket::listening_on("vB");
    let cut: usize = (0..100)
        .map(|_| {
            (0..32).for_each(|_| throw(9));
            exchange_bursts(&mut a, &mut b, 1, &wire)
        })
        .sum();
    assert!(cut > 0, "there were trains");
}

pub fn trains_are_not_merged_again_where_that_is_on() {
    veth("vA", "vB");
    // With checksums as an offload: those of pieces are wrong, and what has a wrong one is not merged.
    let cut = ["tso", "off", "tx-udp-segmentation", "off"];
    let merge = ["gro", "on", "rx-udp-gro-forwarding", "on"];
    for (interface, features) in [("vA", cut), ("vB", cut), ("vB", merge)] {
        let status = Command::new("ethtool").args(["-K", interface]).args(features).status();
        if !status.is_ok_and(|status| status.success()) {
            return println!("skipped: wants ethtool, and a kernel that can merge datagrams");
        }
    }
    let (mut a, mut b) = (open("vA", 1), open("vB", 1));
    let wire = RawSocket::listening_on("vB");
    assert!(exchange_bursts(&mut a, &mut b, 100, &wire) > 0, "there were trains");
}

pub fn readers_rest_behind_trains_alone_and_miss_nothing() {
    let (a, b, _) = veth_pair();
    let super_packets = a.caps().mtu;
    let exchange = |a: &mut Uring, b: &mut Uring, len: usize, count: usize| {
        let to_b = a.link(b.caps().addr).unwrap();
        (0..count).for_each(|_| assert!(commit(a, to_b, &vec![1; len]), "no slot"));
        a.flush();
        a.rx_burst(64, |frame, _| panic!("{frame:?} from nobody"));
        let mut seen = 0;
        until("all are shown", || {
            seen += b.rx_burst(64, |_, _| ());
            seen == count
        });
        // In a moment in which it may rest.
        assert_eq!(b.rx_burst(64, |_, _| panic!("one too many")), 0);
        // Which a small frame ends.
        send(a, to_b, &[1]);
        assert_eq!(b.rx_burst(64, |_, _| ()), 1);
    };
    let play = |(mut a, mut b): (Uring, Uring), len, count| {
        (0..50).for_each(|_| exchange(&mut a, &mut b, len, count));
        // Whoever would sleep is told of a frame that came while it rests.
        let to_b = a.link(b.caps().addr).unwrap();
        send(&mut a, to_b, &[1]);
        b.wait(None).unwrap();
        until("it is shown", || b.rx_burst(64, |_, _| ()) > 0);
        b.rested()
    };
    assert_eq!(play((a, b), super_packets, 4), 0);
    assert_eq!(play((open("vA", 1), open("vB", 1)), 1_000, 1), 0);
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    let (a, b) = (open("vA", 1), open("vB", 1));
    let mtu = a.caps().mtu;
    assert!(play((a, b), mtu, 60) > 0);
}
