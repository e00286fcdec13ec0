//! A reliable driver whose ring is full for a while, since the other side is slow.

use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, PutHow, Rights};

use crate::pair::{Pair, VirtualTime, good_link};
use crate::reliable_nic::Reliable;

/// With outboxes of two frames.
fn pair() -> Pair<Reliable> {
    let config = Config { send_fifo: 0, ..Config::default() };
    Pair::new(1, good_link(), 512, config, Reliable::new)
}

#[test]
fn answers_that_wait_for_room_go_before_a_close() {
    let mut pair = pair();
    let region = pair.b().endpoint.register(vec![7; 64]);
    let key = pair.b().endpoint.publish(region, Rights::READ, None).unwrap();
    let (to_b, to_a) = (pair.a().peer, pair.b().peer);
    let landing = pair.a().endpoint.register(vec![0; 64]);
    pair.b().endpoint.nic().full.set(true);
    for _ in 0..GETS {
        pair.a().endpoint.get(to_b, &key, 0, landing, 0..52).unwrap();
        pair.a().endpoint.flush();
    }
    pair.until(|pair| pair.b().endpoint.counters().operations_taken == GETS);
    pair.b().endpoint.close(to_a);
    pair.b().endpoint.flush();
    pair.b().endpoint.nic().full.set(false);
    // Until A's user has come to the Close.
    pair.until(|pair| {
        while pair.a().endpoint.recv(|_, _| ()).is_some() {}
        matches!(pair.a().events.last(), Some(Event::Closed { .. } | Event::Gone { .. }))
    });
    let events = pair.a().take_events();
    let got = events.iter().filter(|event| matches!(event, Event::Got { .. })).count() as u64;
    assert_eq!((got, events.last()), (GETS, Some(&Event::Closed { peer: to_b })), "{events:?}");
    pair.until(|pair| pair.b().events.contains(&Event::Closed { peer: to_a }));
}

#[test]
fn a_done_that_found_no_room_is_told_before_the_sleep() {
    let mut pair = pair();
    let (to_b, to_a) = (pair.a().peer, pair.b().peer);
    let [at_a, at_b] = [0, 1].map(|side: usize| {
        let endpoint = &mut pair.sides[side].endpoint;
        let region = endpoint.register(vec![0; 64]);
        endpoint.publish(region, Rights::ALL, None).unwrap()
    });
    let op = pair.a().endpoint.put(to_b, &at_b, 0, &[7; 8], PutHow::default()).unwrap();
    pair.a().endpoint.flush();
    let arrival = pair.fabric.next_arrival().unwrap();
    pair.fabric.advance_to(arrival);
    pair.b().endpoint.poll();
    // Its own puts take all of the outbox, until the ring has room again.
    pair.b().endpoint.nic().full.set(true);
    let silent = PutHow { silent: true, ..PutHow::default() };
    while pair.b().endpoint.put(to_a, &at_a, 0, &[8; 8], silent).is_ok() {}
    pair.b().endpoint.flush();
    pair.b().endpoint.nic().full.set(false);
    let began = pair.now();
    loop {
        pair.b().endpoint.wait(Some(began + Duration::from_millis(1_000))).unwrap();
        if pair.now() > began {
            break;
        }
        pair.b().endpoint.poll();
    }
    pair.a().endpoint.poll();
    assert!(pair.a().endpoint.is_done(op), "B slept for {:?} and had not told", pair.now().since(began));
}

/// As many as may be unanswered.
const GETS: u64 = 64;
