//! Endpoints that follow one another on one driver.

use sidelane_nic::mem::Fabric;
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{LinkAddr, Nic, TxSlot, clock};
use sidelane_proto::{Config, Endpoint, Event, GoneReason, PeerId, Reject, SendError};

use crate::reliable_nic::Reliable;
use crate::{connected, side, turns};

/// Another endpoint follows on the driver, which so never tells of an end. The peer has messages to take, or closes, too.
#[test]
fn whoever_gives_its_driver_back_tells_its_peers() {
    for closes in [false, true] {
        let [a, mut b] = connected(7, 1 << 12);
        let mut a_before = a.endpoint;
        a_before.send(a.peer, b"before").unwrap();
        if closes {
            b.endpoint.close(b.peer);
        }
        let mut after = Endpoint::new(a_before.into_nic(), Config::default());
        let [of_a, of_b] = turns(&mut after, &mut b.endpoint);
        assert_eq!(of_a, []);
        assert_eq!(b.endpoint.recv(|_, message| message == b"before"), Some(true));
        let end = match closes {
            true => Event::Closed { peer: b.peer },
            false => Event::Gone { peer: b.peer, reason: GoneReason::Restarted },
        };
        assert_eq!(of_b, [end]);
        assert_eq!(b.endpoint.send(b.peer, b"lost"), Err(SendError::NoPeer));
        reach(&mut b.endpoint, &mut after);
    }
}

/// What it was told got lost: as where the driver had no room for it.
#[test]
fn messages_to_an_endpoint_that_another_has_followed_end_the_connection() {
    let [a, mut b] = connected(7, 1 << 12);
    let mut after = Endpoint::new(a.endpoint.into_nic(), Config::default());
    let mut told = 0;
    b.endpoint.nic_mut().rx_burst(64, |_, _| told += 1);
    assert_eq!(told, 1);
    (0..10).for_each(|_| b.endpoint.send(b.peer, b"lost").unwrap());
    let [of_a, of_b] = turns(&mut after, &mut b.endpoint);
    assert_eq!(of_a, []);
    assert_eq!(of_b, [Event::Gone { peer: b.peer, reason: GoneReason::Restarted }]);
    // One answer to all of a burst, and one to the question.
    assert_eq!((after.counters().resets_sent, b.endpoint.counters().pings_sent), (2, 1));
    reach(&mut b.endpoint, &mut after);
}

/// Some of them, and a Hello still finds a place.
#[test]
fn answers_to_strangers_wait_for_room() {
    let frame = stray_frame();
    let fabric = Fabric::new(8);
    let (mut hub, addr) = side(&fabric, 1, 1 << 12);
    hub.nic().full.set(true);
    let strangers: Vec<_> = (0..40)
        .map(|_| {
            let mut nic = side(&fabric, 2, 1 << 12).0.into_nic();
            let to_hub = nic.link(addr).unwrap();
            let mut slot = nic.tx_slot(to_hub, frame.len()).expect("room");
            slot.copy_from_slice(&frame);
            slot.commit();
            nic.flush();
            nic
        })
        .collect();
    (0..100).for_each(|_| _ = hub.poll());
    assert_eq!((hub.counters().rejected(Reject::NoPeer), hub.counters().resets_sent), (40, 0));
    let (mut caller, _) = side(&fabric, 3, 1 << 12);
    caller.connect(addr).unwrap();
    (0..100).for_each(|_| _ = (caller.poll(), hub.poll()));
    assert_eq!(hub.peers(), 1);
    hub.nic().full.set(false);
    let [of_hub, of_caller] = turns(&mut hub, &mut caller);
    assert!(matches!((&of_hub[..], &of_caller[..]), ([Event::Connected { .. }], [Event::Connected { .. }])));
    assert_eq!(hub.counters().resets_sent, 32);
    drop(strangers);
}

/// A late frame to a connection of before asks about the one there is now, which lives.
#[test]
fn a_frame_to_an_earlier_connection_ends_no_later_one() {
    let [a, mut b] = connected(7, 1 << 12);
    b.endpoint.send(b.peer, b"late").unwrap();
    b.endpoint.flush();
    let mut late = Vec::new();
    let mut nic = a.endpoint.into_nic();
    nic.rx_burst(64, |frame, _| late.push(frame.to_vec()));
    let mut after = Endpoint::new(nic, Config::default());
    let _ = turns(&mut after, &mut b.endpoint);
    let to_b = reach(&mut b.endpoint, &mut after);
    let (at, nic) = (after.nic().caps().addr, b.endpoint.nic_mut());
    let link = nic.link(at).unwrap();
    let mut slot = nic.tx_slot(link, late[0].len()).expect("room");
    slot.copy_from_slice(&late[0]);
    slot.commit();
    nic.flush();
    let events = turns(&mut after, &mut b.endpoint);
    assert_eq!((events, b.endpoint.counters().pings_sent), ([vec![], vec![]], 1));
    assert_eq!(after.send(to_b, b"still"), Ok(()));
}

#[test]
fn an_endpoint_on_the_memory_of_one_before_is_met_anew() {
    let domain = format!("anew-{}", std::process::id());
    let config = Config { display: false, ..Config::default() };
    let [mut a, mut b] = [0, 1].map(|number| Endpoint::new(ShmNic::open(&domain, Some(number)).unwrap(), config));
    let patience = clock::monotonic() + Duration::from_millis(20_000);
    let next = |a: &mut Endpoint<ShmNic>, b: &mut Endpoint<ShmNic>| loop {
        a.poll();
        b.poll();
        if let Some(event) = b.poll_event() {
            return event;
        }
        assert!(clock::monotonic() < patience, "nothing happened");
    };
    let to_a = b.connect(LinkAddr::Shm { endpoint: 0 }).unwrap();
    assert!(matches!(next(&mut a, &mut b), Event::Connected { .. }));
    let mut a = Endpoint::new(a.into_nic(), config);
    assert_eq!(next(&mut a, &mut b), Event::Gone { peer: to_a, reason: GoneReason::Restarted });
    let to_a = b.connect(LinkAddr::Shm { endpoint: 0 }).unwrap();
    assert!(matches!(next(&mut a, &mut b), Event::Connected { .. }));
    b.send(to_a, b"anew").unwrap();
    b.flush();
    // A turn shows one frame after an empty ring, and that may be the one before.
    let taken = loop {
        a.poll();
        if let Some(is_this) = a.recv(|_, message| message == b"anew") {
            break is_this;
        }
        assert!(clock::monotonic() < patience, "the message is lost");
    };
    assert!(taken);
}

/// Many processes each say something and die before it is read: a Hello, or a frame of a connection that is not here. The next one
/// that calls is answered, and of the dead nothing stays.
#[test]
fn whoever_died_before_it_was_heard_leaves_nothing() {
    let domain = format!("unheard-{}", std::process::id());
    let config = Config { display: false, ..Config::default() };
    let patience = clock::monotonic() + Duration::from_millis(20_000);
    let mut hub = Endpoint::new(ShmNic::open(&domain, Some(0)).unwrap(), config);
    let addr = LinkAddr::Shm { endpoint: 0 };
    let frame = stray_frame();
    for number in 1..=100 {
        let mut nic = ShmNic::open(&domain, Some(number)).unwrap();
        if number % 10 == 0 {
            let mut caller = Endpoint::new(nic, config);
            caller.connect(addr).unwrap();
            while caller.nic().counters().tx_frames == 0 {
                assert!(clock::monotonic() < patience, "no room for a Hello");
                caller.poll();
            }
            continue;
        }
        let to_hub = nic.link(addr).unwrap();
        loop {
            assert!(clock::monotonic() < patience, "no room for a frame");
            nic.rx_burst(0, |_, _| ());
            let Some(mut slot) = nic.tx_slot(to_hub, frame.len()) else { continue };
            slot.copy_from_slice(&frame);
            slot.commit();
            break;
        }
    }
    let mut last = Endpoint::new(ShmNic::open(&domain, Some(101)).unwrap(), config);
    // Those before it have gone when the hub hears of it.
    let to_last = hub.nic_mut().link(LinkAddr::Shm { endpoint: 101 }).unwrap();
    while hub.nic_mut().tx_slot(to_last, 1).is_none() {
        assert!(clock::monotonic() < patience, "no way to the last one");
        hub.nic_mut().rx_burst(0, |_, _| ());
    }
    last.connect(addr).unwrap();
    while !matches!(last.poll_event(), Some(Event::Connected { .. })) {
        assert!(clock::monotonic() < patience, "nobody answers: {:?}", hub.counters());
        hub.poll();
        last.poll();
    }
    // Of the ten; a turn has places for 64 strangers only.
    assert!(hub.counters().rejected(Reject::SenderGone) > 0, "{:?}", hub.counters());
    drop(last);
    while hub.peers() > 0 {
        assert!(clock::monotonic() < patience, "{} stay", hub.peers());
        hub.poll();
    }
    while hub.poll_event().is_some() {}
    // The first may end for what the driver had told.
    let deadlines = [(); 2].map(|()| {
        let deadline = clock::monotonic() + Duration::from_millis(20);
        hub.wait(Some(deadline)).unwrap();
        deadline
    });
    assert!(clock::monotonic() >= deadlines[1], "it does not sleep");
}

/// A process that dies tells nobody, and its peer looks for that once a keep-alive.
#[test]
fn the_successor_of_one_that_died_is_met_at_once() {
    let domain = format!("died-{}", std::process::id());
    let config = Config { display: false, ..Config::default() };
    let patient = Config { keep_alive: Duration::from_millis(3_600_000), ..config };
    let mut b = Endpoint::new(ShmNic::open(&domain, Some(1)).unwrap(), patient);
    let patience = clock::monotonic() + Duration::from_millis(20_000);
    for life in 0..3 {
        let mut a = Endpoint::new(ShmNic::open(&domain, Some(0)).unwrap(), config);
        let to_b = a.connect(LinkAddr::Shm { endpoint: 1 }).unwrap();
        let event = loop {
            a.poll();
            b.poll();
            if let Some(event) = a.poll_event() {
                break event;
            }
            assert!(clock::monotonic() < patience, "life {life}: no answer");
        };
        assert!(matches!(event, Event::Connected { peer, .. } if peer == to_b), "life {life}: {event:?}");
        if life > 0 {
            let told = [b.poll_event(), b.poll_event()];
            assert!(
                matches!(told, [Some(Event::Connected { .. }), Some(Event::Gone { reason: GoneReason::LinkGone, .. })]),
                "life {life}: {told:?}"
            );
        }
        drop(a);
    }
}

/// As above, of whoever calls the successor itself.
#[test]
fn whoever_connects_to_the_successor_of_one_that_died_gets_a_connection_to_it() {
    let domain = format!("redialled-{}", std::process::id());
    let config = Config { display: false, ..Config::default() };
    let patient = Config { keep_alive: Duration::from_millis(3_600_000), ..config };
    let mut b = Endpoint::new(ShmNic::open(&domain, Some(1)).unwrap(), patient);
    let patience = clock::monotonic() + Duration::from_millis(20_000);
    let mut before = None;
    for life in 0..3u64 {
        let mut a = Endpoint::new(ShmNic::open(&domain, Some(0)).unwrap(), config);
        // As soon as the driver knows.
        let to_a = loop {
            b.poll();
            let peer = b.connect(LinkAddr::Shm { endpoint: 0 }).unwrap();
            if before != Some(peer) {
                break peer;
            }
            assert!(clock::monotonic() < patience, "life {life}: the connection to the one before it");
        };
        if let Some(peer) = before.replace(to_a) {
            assert_eq!(b.poll_event(), Some(Event::Gone { peer, reason: GoneReason::LinkGone }));
        }
        b.send(to_a, &life.to_le_bytes()).unwrap();
        let came = loop {
            b.poll();
            a.poll();
            if let Some(is_this) = a.recv(|_, message| message == life.to_le_bytes()) {
                break is_this;
            }
            assert!(clock::monotonic() < patience, "life {life}: the message is lost");
        };
        assert!(came);
        assert!(matches!(b.poll_event(), Some(Event::Connected { peer, .. }) if peer == to_a), "life {life}");
    }
}

/// Of a connection that nobody else has.
fn stray_frame() -> Vec<u8> {
    let [mut from, mut to] = connected(7, 1 << 12);
    from.endpoint.send(from.peer, b"stray").unwrap();
    from.endpoint.flush();
    let mut frame = Vec::new();
    to.endpoint.nic_mut().rx_burst(1, |bytes, _| frame.extend_from_slice(bytes));
    frame
}

/// A new connection, and a message on it; who the sender is to the receiver.
fn reach(from: &mut Endpoint<Reliable>, to: &mut Endpoint<Reliable>) -> PeerId {
    let peer = from.connect(to.nic().caps().addr).unwrap();
    from.send(peer, b"anew").unwrap();
    let events = turns(from, to);
    assert!(events.iter().all(|events| matches!(events[..], [Event::Connected { .. }])), "{events:?}");
    to.recv(|peer, message| (message == b"anew").then_some(peer)).flatten().expect("the message")
}
