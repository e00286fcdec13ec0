//! A socket for each of the busiest peers, beside one for all others.

use std::net::UdpSocket;

use sidelane_nic::time::Duration;
use sidelane_nic::udp::Udp;
use sidelane_nic::{Link, LinkAddr, Nic};

use crate::stage::*;
use crate::{patience, polls};

#[test]
fn each_peer_is_heard_on_whichever_socket() {
    let mut hub = open();
    // More than there are connected sockets, linked one after the other, all of them talking all the time.
    let mut peers: Vec<Udp> = (0..8).map(|_| open()).collect();
    for round in 0..peers.len() {
        let linked = link(&mut hub, &peers[round]);
        send(&mut hub, linked, b"hello");
        assert_eq!(receive(&mut peers[round]).0, b"hello");
        for (number, peer) in (0u8..).zip(&mut peers) {
            let to_hub = link(peer, &hub);
            send(peer, to_hub, &[number]);
        }
        let mut heard: Vec<(Vec<u8>, LinkAddr)> = peers.iter().map(|_| receive(&mut hub)).collect();
        heard.sort();
        let expected: Vec<_> = peers.iter().enumerate().map(|(at, peer)| (vec![at as u8], peer.caps().addr)).collect();
        assert_eq!(heard, expected);
    }
    assert_eq!(hub.counters().rx_foreign, 0);
}

/// Whoever can write a sender's address can have a link made to it.
#[test]
fn only_who_is_confirmed_gets_a_socket() {
    let (mut hub, mut peer) = (open(), open());
    let strangers: Vec<Udp> = (0..8).map(|_| open()).collect();
    let links: Vec<Link> = strangers.iter().map(|stranger| hub.link(stranger.caps().addr).unwrap()).collect();
    assert_eq!(connected_peers(&hub), []);
    let to_peer = hub.link(peer.caps().addr).unwrap();
    let to_hub = link(&mut peer, &hub);
    // What is on its way by one socket stays before what comes by the other.
    send(&mut peer, to_hub, b"one");
    hub.confirm(to_peer);
    assert_eq!(connected_peers(&hub), [addr_of(&peer)]);
    send(&mut peer, to_hub, b"two");
    assert_eq!([receive(&mut hub).0, receive(&mut hub).0], [b"one", b"two"]);
    send(&mut hub, to_peer, b"three");
    assert_eq!(receive(&mut peer).0, b"three");
    // Once is enough, and there are four.
    hub.confirm(to_peer);
    assert_eq!(connected_peers(&hub), [addr_of(&peer)]);
    links.iter().for_each(|link| hub.confirm(*link));
    assert_eq!(connected_peers(&hub).len(), 4);
    hub.unlink(to_peer);
    assert_eq!(connected_peers(&hub).len(), 3);
}

/// A socket is deaf to others until it is connected, and never to its peer.
#[test]
fn who_gets_a_socket_while_it_sends_loses_nothing() {
    // Fewer than a socket's buffer holds, however small the system makes it.
    const FRAMES: u8 = 200;
    for _ in 0..40 {
        let (mut hub, mut peer) = (open(), open());
        let (to_peer, to_hub) = (hub.link(peer.caps().addr).unwrap(), link(&mut peer, &hub));
        let flood = std::thread::spawn(move || {
            (0..FRAMES).for_each(|number| send(&mut peer, to_hub, &[number]));
            peer
        });
        for number in 0..FRAMES {
            assert_eq!(receive(&mut hub).0, [number], "{:?}", hub.counters());
            hub.confirm(to_peer);
        }
        flood.join().unwrap();
    }
}

/// What waits on the socket that hears everybody comes before what waits on a new one, and on no other.
#[test]
fn a_flood_of_strangers_makes_nobody_deaf_while_peers_get_sockets() {
    let (mut hub, mut first, mut second, mut stranger) = (open(), open(), open(), open());
    let [from_first, from_second, flood] = [&mut first, &mut second, &mut stranger].map(|nic| link(nic, &hub));
    link(&mut hub, &first);
    pass_quietly(&mut hub);
    // Fewer than a socket's buffer holds, however small the system makes it.
    (0..200).for_each(|_| send(&mut stranger, flood, b"flood"));
    send(&mut second, from_second, b"second's old");
    send(&mut first, from_first, b"first's");
    link(&mut hub, &second);
    send(&mut second, from_second, b"second's new");
    let mut shown = Vec::new();
    for turn in 0..2_000 {
        hub.rx_burst(1, |frame, _| {
            if frame != b"flood" {
                shown.push((turn, String::from_utf8(frame.to_vec()).unwrap()));
            }
        });
        send(&mut stranger, flood, b"flood");
    }
    shown.sort_by_key(|(_, frame)| frame.clone());
    let [(first_at, first), (new_at, new), (old_at, old)] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!([first, new, old], ["first's", "second's new", "second's old"]);
    assert!(*first_at < 100 && old_at < new_at, "{shown:?}");
}

/// A quiet socket is asked seldom, and one datagram is shown a call.
#[test]
fn what_waits_unshown_is_known() {
    let (mut a, mut b, mut c) = (open(), open(), open());
    let (to_b, to_c) = (link(&mut a, &b), link(&mut a, &c));
    let (from_b, from_c) = (link(&mut b, &a), link(&mut c, &a));
    // Each has a socket of its own at `a`, and that of `b` was busy last.
    for (nic, to, back) in [(&mut c, from_c, to_c), (&mut b, from_b, to_b)] {
        send(&mut a, back, b"hello");
        receive(nic);
        send(nic, to, b"hello");
        receive(&mut a);
    }
    assert!(!a.has_unread());
    for nic in [(&mut b, from_b), (&mut c, from_c)] {
        let (nic, to) = nic;
        send(nic, to, b"one");
        send(nic, to, b"two");
    }
    let mut shown = 0;
    let deadline = a.now() + Duration::from_millis(5_000);
    while shown < 4 {
        // On the loopback a datagram is there when its system call is over.
        assert!(a.has_unread(), "{shown} of 4");
        shown += a.rx_burst(64, |_, _| {});
        assert!(a.now() < deadline);
    }
    assert!(!a.has_unread());
}

/// As a kernel hands over what it has merged.
#[test]
fn frames_of_one_datagram_are_shown_bit_by_bit_and_the_rest_keeps_its_receiver_awake() {
    let (mut nic, sender) = (open(), UdpSocket::bind("127.0.0.1:0").unwrap());
    // Three whole frames, and one that is cut.
    let frames = [0, 1, 0, 1, 7, 0, 1, 0, 1, 8, 0, 1, 0, 1, 9, 0, 2, 0, 1, 10];
    sender.send_to(&frames, addr_of(&nic)).unwrap();
    let mut shown = Vec::new();
    assert_eq!(nic.rx_burst(2, |frame, _| shown.push(frame[0])), 2);
    assert!(nic.has_unread());
    patience::watch("a wait beside frames", patience::PATIENCE);
    nic.wait(None).unwrap();
    assert_eq!(nic.counters().waits, 0);
    assert_eq!(nic.rx_burst(2, |frame, _| shown.push(frame[0])), 1);
    assert_eq!((shown, nic.has_unread(), nic.counters().rx_foreign), (vec![7, 8, 9], false, 1));
    sender.send_to(b"", addr_of(&nic)).unwrap();
    assert_eq!((nic.rx_burst(2, |_, _| ()), nic.counters().rx_foreign), (0, 2));
}

/// One system call for all: a socket of its own for each of the first peers, and the one that hears the others.
#[test]
fn all_sockets_are_asked_at_once() {
    let mut hub = open();
    let mut peers: Vec<Udp> = (0..6).map(|_| open()).collect();
    let to_hub: Vec<Link> = peers.iter_mut().map(|peer| link(peer, &hub)).collect();
    // The last one is a stranger.
    for (peer, to_hub) in peers.iter_mut().zip(&to_hub).take(5) {
        let back = link(&mut hub, peer);
        send(&mut hub, back, b"hello");
        receive(peer);
        send(peer, *to_hub, b"hello");
        receive(&mut hub);
    }
    for (number, (peer, to_hub)) in peers.iter_mut().zip(to_hub).enumerate() {
        let calls = polls::calls();
        assert!(!hub.has_unread(), "before peer {number}");
        // On the loopback a datagram is there when its system call is over.
        send(peer, to_hub, b"one");
        assert!(hub.has_unread(), "peer {number}");
        assert_eq!(polls::calls() - calls, 2);
        let deadline = hub.now() + Duration::from_millis(5_000);
        hub.wait(Some(deadline)).unwrap();
        assert!(hub.now() < deadline, "slept beside the datagram of peer {number}");
        assert_eq!(polls::calls() - calls, 3);
        assert_eq!(receive(&mut hub).1, peer.caps().addr);
    }
}
