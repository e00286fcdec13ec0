//! Operations and the close of either side.

use sidelane_nic::Nic;
use sidelane_nic::mem::MemNic;
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, GoneReason, OpError, PeerId, PutHow, Rights};

use crate::pair::{Pair, VirtualTime, good_link};
use crate::reliable_nic::Reliable;
use crate::stories::{pattern, with_region};

#[test]
fn a_close_waits_for_what_is_under_way() {
    let (mut pair, region, key) = with_region(200_000, Rights::ALL);
    let peer = pair.a().peer;
    let landing = pair.a().endpoint.register(vec![1; 200_000]);
    let put = pair.a().endpoint.put(peer, &key, 0, &pattern(200_000), PutHow::default()).unwrap();
    let get = pair.a().endpoint.get(peer, &key, 0, landing, 0..200_000).unwrap();
    pair.a().endpoint.close(peer);
    // B's user comes to the close when it looks for messages.
    pair.until(|pair| {
        pair.b().endpoint.recv(|_, _| ());
        pair.a().events.len() == 2 && !pair.b().events.is_empty()
    });
    assert!(pair.a().endpoint.is_done(put));
    assert_eq!(pair.a().take_events(), [Event::Got { op: get }, Event::Closed { peer }]);
    assert!(matches!(pair.b().take_events()[..], [Event::Closed { .. }]));
    assert!(*pair.b().endpoint.region(region).unwrap() == pattern(200_000));
    assert!(*pair.a().endpoint.region(landing).unwrap() == pattern(200_000));
}

/// What a close has waited for and a put of the peer's come in one frame.
fn a_put_that_came_before_a_close_is_told<N: Nic>(wrap: fn(MemNic) -> N) {
    let mut pair = Pair::new(1, good_link(), 1500, Config::default(), wrap);
    let (to_b, to_a) = (pair.a().peer, pair.b().peer);
    let [at_a, at_b] = [0, 1].map(|side: usize| {
        let endpoint = &mut pair.sides[side].endpoint;
        let region = endpoint.register(vec![0; 8]);
        endpoint.publish(region, Rights::ALL, None).unwrap()
    });
    pair.b().endpoint.put(to_a, &at_a, 0, &pattern(8), PutHow::default()).unwrap();
    pair.b().endpoint.close(to_a);
    pair.b().endpoint.flush();
    let arrival = pair.fabric.next_arrival().unwrap();
    pair.fabric.advance_to(arrival);
    pair.a().endpoint.poll();
    let put = pair.a().endpoint.put(to_b, &at_b, 0, &pattern(8), PutHow::default()).unwrap();
    pair.until(|pair| {
        pair.a().endpoint.recv(|_, _| ());
        !pair.a().events.is_empty() && !pair.b().events.is_empty()
    });
    assert!(pair.a().endpoint.is_done(put));
    assert_eq!(pair.a().take_events(), [Event::Closed { peer: to_b }]);
    assert_eq!(pair.b().take_events(), [Event::Closed { peer: to_a }]);
}

#[test]
fn a_put_that_came_before_a_close_is_told_as_done() {
    a_put_that_came_before_a_close_is_told(|nic| nic);
    a_put_that_came_before_a_close_is_told(Reliable::new);
}

/// Begun when the peer's Close had arrived, and nobody had come to it: they are never answered, and our own close waits for none.
fn what_is_begun_behind_a_close_ends<N: Nic>(linger: Duration, end: fn(PeerId) -> Event, wrap: fn(MemNic) -> N) {
    let mut pair = Pair::new(1, good_link(), 1500, Config::default(), wrap);
    let region = pair.b().endpoint.register(vec![0; 10_000]);
    let key = pair.b().endpoint.publish(region, Rights::ALL, None).unwrap();
    let (peer, back) = (pair.a().peer, pair.b().peer);
    pair.b().endpoint.close(back);
    pair.until(|pair| !pair.b().events.is_empty());
    assert_eq!(pair.b().take_events(), [Event::Closed { peer: back }]);
    pair.pass(linger);
    let endpoint = &mut pair.a().endpoint;
    let landing = endpoint.register(vec![0; 10_000]);
    let ops = [
        endpoint.put(peer, &key, 0, &pattern(8), PutHow::default()).unwrap(),
        endpoint.put(peer, &key, 0, &pattern(10_000), PutHow::default()).unwrap(),
        endpoint.get(peer, &key, 0, landing, 0..10_000).unwrap(),
        endpoint.fetch_add(peer, &key, 0, 1).unwrap(),
    ];
    endpoint.close(peer);
    pair.until(|pair| pair.a().events.len() == 5);
    let mut told: Vec<_> = ops.map(|op| Event::OpFailed { op, why: OpError::PeerGone }).into();
    told.push(end(peer));
    assert_eq!(pair.a().take_events(), told);
    // They come to each other's Close.
    pair.pass(Duration::from_millis(1));
    assert!(pair.sides.iter_mut().all(|side| side.endpoint.recv(|_, _| ()).is_none()));
    pair.pass(Duration::from_millis(300));
    assert!(pair.a().events.is_empty() && pair.b().events.is_empty());
    assert_eq!((pair.a().endpoint.peers(), pair.b().endpoint.peers()), (0, 0));
    pair.a().endpoint.unregister(landing).unwrap();
    pair.pass(Duration::from_millis(1));
    assert!(matches!(pair.a().take_events()[..], [Event::Unregistered { memory: Some(_), .. }]));
}

#[test]
fn what_is_begun_behind_a_close_that_arrived_ends_with_an_error_and_so_does_the_connection() {
    let closed = |peer| Event::Closed { peer };
    // It still acknowledges.
    what_is_begun_behind_a_close_ends(Duration::from_millis(10), closed, |nic| nic);
    let gone = |peer| Event::Gone { peer, reason: GoneReason::ClosedByPeer };
    what_is_begun_behind_a_close_ends(Duration::from_millis(300), gone, |nic| nic);
    for linger in [10, 200] {
        what_is_begun_behind_a_close_ends(Duration::from_millis(linger), closed, Reliable::new);
    }
}
