//! How connections end, and that both sides hear of it.

use sidelane_nic::mem::Fabric;
use sidelane_nic::time::Duration;
use sidelane_nic::{Nic, TxSlot};
use sidelane_proto::{Config, Event, GoneReason, Reject, SendError};

use crate::{connected, side_with, turns};

/// Its messages wait for room that a peer which has closed never gives.
#[test]
fn a_close_whose_messages_the_peer_never_takes_ends_with_the_peers() {
    let [mut a, mut b] = connected(7, 1 << 12);
    let mut sent = 0u32;
    while a.endpoint.send(a.peer, &sent.to_le_bytes()).is_ok() {
        sent += 1;
        a.endpoint.poll();
        b.endpoint.poll();
    }
    b.endpoint.close(b.peer);
    a.endpoint.close(a.peer);
    let begun = a.endpoint.nic().now();
    let mut told = [Vec::new(), Vec::new()];
    while told[0].is_empty() {
        let [of_a, of_b] = turns(&mut a.endpoint, &mut b.endpoint);
        told[0].extend(of_a);
        told[1].extend(of_b);
        let fabric = &a.endpoint.nic().node.fabric();
        assert!(fabric.now().since(begun) < Duration::from_millis(2_000), "it waits for ever");
        fabric.advance_to(fabric.now() + Duration::from_millis(10));
    }
    let closed = vec![Event::Closed { peer: b.peer }];
    assert_eq!(told, [vec![Event::Gone { peer: a.peer, reason: GoneReason::ClosedByPeer }], closed]);
    let mut came = 0u32;
    while let Some(number) = b.endpoint.recv(|_, message| u32::from_le_bytes(message.try_into().unwrap())) {
        assert_eq!(number, came);
        came += 1;
    }
    assert!((1..sent).contains(&came), "{came} of {sent}");
}

/// Its user computed, and came to its own close only then.
#[test]
fn a_close_long_after_the_peers_is_as_agreed() {
    for waits in [0, 1] {
        let [mut a, mut b] = connected(7, 1 << 12);
        b.endpoint.close(b.peer);
        b.endpoint.poll();
        a.endpoint.poll();
        let keep_alive = Config::default().keep_alive;
        let fabric = a.endpoint.nic().node.fabric();
        fabric.advance_to(fabric.now() + keep_alive + keep_alive);
        // There is time for what is sent before it, too.
        (0..waits).for_each(|_| a.endpoint.send(a.peer, b"late").unwrap());
        a.endpoint.close(a.peer);
        let [of_a, of_b] = turns(&mut a.endpoint, &mut b.endpoint);
        let closed = |peer| vec![Event::Closed { peer }];
        assert_eq!([of_a, of_b], [closed(a.peer), closed(b.peer)], "{waits}");
    }
}

/// As where there is no memory for a message: its first frame is refused, and the rest means nothing.
#[test]
fn a_frame_that_is_not_taken_in_ends_the_connection_for_both() {
    let [mut a, mut b] = connected(7, 1 << 14);
    a.endpoint.send(a.peer, b"before").unwrap();
    a.endpoint.send(a.peer, &[1; 1_500]).unwrap();
    a.endpoint.flush();
    let mut frames = Vec::new();
    b.endpoint.nic_mut().rx_burst(64, |frame, _| frames.push(frame.to_vec()));
    assert_eq!(frames.len(), 1 + 4);
    // The length of the message, behind the header and the record's first four bytes.
    frames[1][12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let to_b = b.endpoint.nic().caps().addr;
    let nic = a.endpoint.nic_mut();
    let link = nic.link(to_b).unwrap();
    for frame in frames {
        let mut slot = nic.tx_slot(link, frame.len()).expect("as many as before");
        slot.copy_from_slice(&frame);
        slot.commit();
    }
    nic.flush();
    let [of_a, of_b] = turns(&mut a.endpoint, &mut b.endpoint);
    assert_eq!(of_b, [Event::Gone { peer: b.peer, reason: GoneReason::Untaken }]);
    assert_eq!(of_a, [Event::Gone { peer: a.peer, reason: GoneReason::Restarted }]);
    let counters = b.endpoint.counters();
    assert_eq!((counters.rejected(Reject::TooLong), counters.rejected(Reject::NoPeer)), (1, 3));
    assert_eq!(b.endpoint.recv(|_, message| message == b"before"), Some(true));
    assert_eq!(a.endpoint.send(a.peer, b"lost"), Err(SendError::NoPeer));
}

/// A message that waits for the answer of a peer that does not take such long ones. The driver tells the peer of no end while we live.
#[test]
fn whoever_ends_a_connection_that_the_peer_holds_for_open_tells_it() {
    for a_opens_first in [false, true] {
        let fabric = Fabric::new(3);
        let [(mut a, at_a), (mut b, at_b)] = [1 << 20, 1000].map(|message_max| {
            side_with(&fabric, 8, Config { seed: Some(message_max as u64), message_max, ..Config::default() })
        });
        let (to_b, to_a) = (a.connect(at_b).unwrap(), b.connect(at_a).unwrap());
        a.send_owned(to_b, vec![1; 3000]).unwrap();
        b.send(to_a, b"before").unwrap();
        a.flush();
        b.flush();
        if a_opens_first {
            // It sees Hello and answer at once, and has not answered itself.
            b.poll();
        }
        let [of_a, of_b] = turns(&mut a, &mut b);
        let gone = Event::Gone { peer: to_b, reason: GoneReason::MessageTooLong };
        let begun = Event::Connected { peer: to_b, addr: at_b };
        assert_eq!(of_a[..3], [begun, Event::Unsent { peer: to_b, buffer: vec![1; 3000] }, gone], "{a_opens_first}");
        if a_opens_first {
            // Its own wish for a connection stands: it gets through, to a new one.
            assert_eq!(of_b, [Event::Connected { peer: to_a, addr: at_a }]);
            assert!(matches!(of_a[3..], [Event::Connected { .. }]), "{of_a:?}");
            assert_eq!(a.recv(|_, message| message == b"before"), Some(true));
            continue;
        }
        assert_eq!(of_b[1..], [Event::Gone { peer: to_a, reason: GoneReason::Restarted }]);
        assert_eq!(b.send(to_a, b"lost"), Err(SendError::NoPeer));
        assert_eq!((a.peers(), b.peers()), (0, 0));
    }
}

/// The answer comes before the connection that it is for is forgotten.
#[test]
fn whoever_answers_a_dial_that_was_given_up_is_told() {
    // A job's key, which this driver needs for nothing, changes nothing.
    let protections = ["checked", "authenticated:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"];
    protections.into_iter().for_each(is_told_that_its_dial_was_given_up);
}

fn is_told_that_its_dial_was_given_up(protection: &str) {
    let fabric = Fabric::new(3);
    let protection = protection.parse().unwrap();
    let [(mut a, _), (mut b, at_b)] =
        [1, 2].map(|seed| side_with(&fabric, 8, Config { seed: Some(seed), protection, ..Config::default() }));
    let to_b = a.connect(at_b).unwrap();
    a.poll();
    b.poll();
    a.close(to_b);
    let [of_a, of_b] = turns(&mut a, &mut b);
    assert_eq!((of_a, of_b), (vec![Event::Closed { peer: to_b }], vec![]));
    assert_eq!((a.peers(), b.peers()), (0, 0));
}

#[test]
fn whoever_only_answered_forgets_a_connection_that_ended_before_it_was_confirmed() {
    let fabric = Fabric::new(3);
    let [(mut a, _), (mut b, at_b)] = [1 << 20, 1000].map(|message_max| {
        side_with(&fabric, 8, Config { seed: Some(message_max as u64), message_max, ..Config::default() })
    });
    let to_b = a.connect(at_b).unwrap();
    a.send_owned(to_b, vec![1; 3000]).unwrap();
    let [of_a, of_b] = turns(&mut a, &mut b);
    assert_eq!(of_a.last(), Some(&Event::Gone { peer: to_b, reason: GoneReason::MessageTooLong }));
    assert_eq!((of_b, a.peers(), b.peers()), (vec![], 0, 0));
}
