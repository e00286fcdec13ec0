//! Frames that go out together, and who reads them.

use sidelane_nic::Nic;
use sidelane_nic::uring::Uring;

use crate::namespace::veth;
use crate::patience::until;
use crate::stage::{commit, open, send, turn_offloads_off, veth_pair};

pub fn trains_and_lone_frames_come_in_the_order_of_sending() {
    veth("vA", "vB");
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    let (mut a, mut b, mut c) = (open("vA", 1), open("vB", 1), open("vB", 2));
    let to = [b.caps().addr, c.caps().addr].map(|addr| a.link(addr).unwrap());
    let mtu = a.caps().mtu;
    let mut next = [0u8; 2];
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
    }
    assert_eq!((a.counters().tx_failed, b.counters().rx_dropped, b.counters().rx_foreign), (0, 0, 0));
}

pub fn readers_rest_behind_trains_alone_and_miss_nothing() {
    let (a, b, _) = veth_pair();
    let super_packets = a.caps().mtu;
    let exchange = |a: &mut Uring, b: &mut Uring, len: usize, count: usize| {
        let to_b = a.link(b.caps().addr).unwrap();
        (0..count).for_each(|_| assert!(commit(a, to_b, &vec![1; len]), "no slot"));
        a.flush();
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
