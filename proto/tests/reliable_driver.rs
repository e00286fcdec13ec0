//! The short ways that a reliable driver allows, played on a fabric that loses nothing: order, credit, back-pressure.

#[path = "rma/reliable_nic.rs"]
mod reliable_nic;

use std::collections::VecDeque;

use reliable_nic::Reliable;
use sidelane_nic::clock;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LineModel};
use sidelane_nic::rng::Rng;
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{LinkAddr, Nic, TxSlot};
use sidelane_proto::{Config, Endpoint, Event, GoneReason, PeerId, Reject, SendError};

struct Side {
    endpoint: Endpoint<Reliable>,
    peer: PeerId,
    /// What the other side still has to receive, in order.
    sent: VecDeque<Vec<u8>>,
}

fn side(fabric: &Fabric, seed: u64, fifo: usize) -> (Endpoint<Reliable>, LinkAddr) {
    side_with_room(fabric, seed, fifo, 8)
}

fn side_with_room(fabric: &Fabric, seed: u64, fifo: usize, tx_frames: usize) -> (Endpoint<Reliable>, LinkAddr) {
    side_with(fabric, tx_frames, Config { seed, send_fifo: fifo, recv_fifo: fifo, ..Config::default() })
}

fn side_with(fabric: &Fabric, tx_frames: usize, config: Config) -> (Endpoint<Reliable>, LinkAddr) {
    let nic = fabric.nic(NodeConfig { mtu: 512, mtu_safe: 512, rx_frames: 1 << 20, tx_frames, ..Default::default() });
    let addr = nic.caps().addr;
    (Endpoint::new(Reliable(nic), config), addr)
}

fn connected(seed: u64, fifo: usize) -> [Side; 2] {
    let fabric = Fabric::new(seed);
    let (mut a, _) = side(&fabric, seed ^ 1, fifo);
    let (mut b, to) = side(&fabric, seed ^ 2, fifo);
    let at_a = a.connect(to).unwrap();
    for _ in 0..4 {
        a.poll();
        b.poll();
    }
    let Some(Event::Connected { peer: at_b, .. }) = b.poll_event() else { panic!("not connected") };
    assert!(matches!(a.poll_event(), Some(Event::Connected { .. })));
    [a, b]
        .into_iter()
        .zip([at_a, at_b])
        .map(|(endpoint, peer)| Side { endpoint, peer, sent: VecDeque::new() })
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_else(|_| unreachable!("two sides"))
}

fn send_some(side: &mut Side, rng: &mut Rng) -> bool {
    let mut stalled = false;
    for _ in 0..rng.below(20) {
        let len = if rng.chance(0.7) { rng.below(24) } else { rng.below(3000) };
        let mut message = vec![0; len as usize];
        rng.fill(&mut message);
        match side.endpoint.send(side.peer, &message) {
            Ok(()) => side.sent.push_back(message),
            Err(SendError::Full) => stalled = true,
            Err(error) => panic!("{error}"),
        }
        if rng.chance(0.2) {
            side.endpoint.flush();
        }
    }
    stalled
}

fn receive_some(side: &mut Side, expected: &mut VecDeque<Vec<u8>>, most: u64) {
    side.endpoint.poll();
    for _ in 0..most {
        let due = expected.front();
        let got = side.endpoint.recv(|_, message| assert_eq!(Some(message), due.map(Vec::as_slice)));
        if got.is_none() {
            break;
        }
        expected.pop_front();
    }
}

#[test]
fn messages_keep_their_order_however_full_the_fifos_are() {
    let mut stalls = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let [mut a, mut b] = connected(seed, 1 << (6 + rng.below(8)));
        for _ in 0..60 {
            stalls += u32::from(send_some(&mut a, &mut rng));
            stalls += u32::from(send_some(&mut b, &mut rng));
            let (most_a, most_b) = (rng.below(30), rng.below(30));
            receive_some(&mut a, &mut b.sent, most_a);
            receive_some(&mut b, &mut a.sent, most_b);
        }
        for _ in 0..2_000 {
            receive_some(&mut a, &mut b.sent, u64::MAX);
            receive_some(&mut b, &mut a.sent, u64::MAX);
        }
        assert!(a.sent.is_empty() && b.sent.is_empty(), "seed {seed}: {} and {} missing", a.sent.len(), b.sent.len());
        assert_eq!(
            (a.endpoint.counters().rejected_total(), b.endpoint.counters().rejected_total()),
            (0, 0),
            "seed {seed}"
        );
    }
    assert!(stalls > 100, "the FIFOs were never full: {stalls}");
}

#[test]
fn a_lone_message_needs_no_second_frame() {
    let [mut a, mut b] = connected(7, 1 << 16);
    let before = a.endpoint.counters().frames_sent;
    for number in 0..100u64 {
        a.endpoint.send(a.peer, &number.to_le_bytes()).unwrap();
        a.endpoint.flush();
        b.endpoint.poll();
        assert_eq!(b.endpoint.recv(|_, message| message == number.to_le_bytes()), Some(true));
    }
    assert_eq!(a.endpoint.counters().frames_sent - before, 100);
    assert_eq!(b.endpoint.counters().acks_sent, 0);
}

/// Both computed, one after the other, for longer than a peer without a driver that knows of deaths may be silent.
#[test]
fn whoever_said_hello_may_be_away_before_it_confirms_and_whoever_answers_before_that() {
    for away in [[0, 1], [1, 0], [1, 1]] {
        let fabric = Fabric::new(5);
        let [(mut a, _), (mut b, to)] = [1, 2].map(|seed| side(&fabric, seed, 1 << 16));
        let silence = Config::default().keep_alive.saturating_mul(5);
        // Turns of who spins, which reads the clock now and then.
        let spin = |endpoint: &mut Endpoint<Reliable>| (0..100).for_each(|_| _ = endpoint.poll());
        let at_a = a.connect(to).unwrap();
        a.send(at_a, b"late").unwrap();
        a.poll();
        fabric.advance_to(fabric.now() + silence.saturating_mul(away[0]));
        spin(&mut b);
        fabric.advance_to(fabric.now() + silence.saturating_mul(away[1]));
        spin(&mut b);
        spin(&mut a);
        spin(&mut b);
        assert!(matches!(a.poll_event(), Some(Event::Connected { .. })), "{away:?}");
        assert!(matches!(b.poll_event(), Some(Event::Connected { .. })), "{away:?}");
        assert_eq!(b.recv(|_, message| message == b"late"), Some(true), "{away:?}");
        spin(&mut a);
        assert_eq!((a.poll_event(), b.poll_event()), (None, None), "{away:?}");
    }
}

/// On real shared memory: to one that is not there yet, and then to one that takes nothing.
#[test]
fn whoever_waits_for_room_sleeps_and_goes_on_when_there_is_some() {
    let domain = format!("room-{}", std::process::id());
    let open = |number| ShmNic::open(&domain, Some(number)).unwrap();
    let config = Config { send_fifo: 1 << 20, recv_fifo: 4 << 10, display: false, ..Config::default() };
    let mut a = Endpoint::new(open(0), config);
    let to_b = a.connect(LinkAddr::Shm { endpoint: 1 }).unwrap();
    // Many more than a ring holds and its reader takes in.
    let sent =
        (0u64..).take_while(|number| a.send(to_b, &[&number.to_le_bytes()[..], &[7; 1000]].concat()).is_ok()).count();
    // Who does not sleep goes round a hundred thousand times.
    let sleeps = |a: &mut Endpoint<ShmNic>| {
        let until = clock::monotonic() + Duration::from_millis(50);
        let mut rounds = 0;
        while clock::monotonic() < until {
            a.wait(Some(until)).unwrap();
            a.poll();
            rounds += 1;
        }
        assert!(rounds < 500, "woke {rounds} times in 50 ms");
    };
    sleeps(&mut a);
    let mut b = Endpoint::new(open(1), config);
    let patience = clock::monotonic() + Duration::from_millis(20_000);
    while b.poll_event().is_none() {
        assert!(clock::monotonic() < patience, "no connection");
        a.wait(Some(patience)).unwrap();
        a.poll();
        b.poll();
    }
    assert!(matches!(a.poll_event(), Some(Event::Connected { .. })));
    // It takes frames in, as far as its FIFO goes, and no message.
    (0..1000).for_each(|_| _ = (a.poll(), b.poll()));
    sleeps(&mut a);
    let mut came = 0u64;
    while came < sent as u64 {
        assert!(clock::monotonic() < patience, "{came} of {sent} came");
        a.wait(Some(clock::monotonic() + Duration::from_millis(5))).unwrap();
        a.poll();
        b.poll();
        while let Some(number) = b.recv(|_, message| u64::from_le_bytes(message[..8].try_into().unwrap())) {
            assert_eq!(number, came);
            came += 1;
        }
    }
}

/// Sleep is for who waits for the driver's room, not for who has more to send than a turn takes.
#[test]
fn whoever_has_more_to_send_than_a_turn_takes_does_not_sleep_before_it() {
    let fabric = Fabric::new(9);
    let [(mut a, _), (mut b, to)] = [1, 2].map(|seed| side_with_room(&fabric, seed, 1 << 20, 1 << 12));
    let at_a = a.connect(to).unwrap();
    (0..4).for_each(|_| _ = (a.poll(), b.poll()));
    assert!(matches!(a.poll_event(), Some(Event::Connected { .. })));
    // A frame each.
    (0..300u32).for_each(|_| a.send(at_a, &[7; 400]).unwrap());
    let (begun, sent) = (fabric.now(), a.counters().frames_sent);
    for _ in 0..3 {
        a.wait(Some(begun + Duration::from_millis(100))).unwrap();
        assert_eq!(fabric.now(), begun);
    }
    assert!((64..300).contains(&(a.counters().frames_sent - sent)), "several turns, and not all");
}

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
        let fabric = &a.endpoint.nic().0.fabric();
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
        let fabric = a.endpoint.nic().0.fabric();
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

/// Turns of both, in which the clock is read now and then, and what they tell.
fn turns(a: &mut Endpoint<Reliable>, b: &mut Endpoint<Reliable>) -> [Vec<Event>; 2] {
    (0..200).for_each(|_| _ = (a.poll(), b.poll()));
    [a, b].map(|endpoint| std::iter::from_fn(|| endpoint.poll_event()).collect())
}

/// A message that waits for the answer of a peer that does not take such long ones. The driver tells the peer of no end while we live.
#[test]
fn whoever_ends_a_connection_that_the_peer_holds_for_open_tells_it() {
    for a_opens_first in [false, true] {
        let fabric = Fabric::new(3);
        let [(mut a, at_a), (mut b, at_b)] = [1 << 20, 1000].map(|message_max| {
            side_with(&fabric, 8, Config { seed: message_max as u64, message_max, ..Config::default() })
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
    let fabric = Fabric::new(3);
    let [(mut a, _), (mut b, at_b)] = [1, 2].map(|seed| side(&fabric, seed, 1 << 12));
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
        side_with(&fabric, 8, Config { seed: message_max as u64, message_max, ..Config::default() })
    });
    let to_b = a.connect(at_b).unwrap();
    a.send_owned(to_b, vec![1; 3000]).unwrap();
    let [of_a, of_b] = turns(&mut a, &mut b);
    assert_eq!(of_a.last(), Some(&Event::Gone { peer: to_b, reason: GoneReason::MessageTooLong }));
    assert_eq!((of_b, a.peers(), b.peers()), (vec![], 0, 0));
}

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
        let mut after = Endpoint::new(a_before.into_nic(), Config { seed: 9, ..Config::default() });
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
    let mut after = Endpoint::new(a.endpoint.into_nic(), Config { seed: 9, ..Config::default() });
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

/// A late frame to a connection of before asks about the one there is now, which lives.
#[test]
fn a_frame_to_an_earlier_connection_ends_no_later_one() {
    let [a, mut b] = connected(7, 1 << 12);
    b.endpoint.send(b.peer, b"late").unwrap();
    b.endpoint.flush();
    let mut late = Vec::new();
    let mut nic = a.endpoint.into_nic();
    nic.rx_burst(64, |frame, _| late.push(frame.to_vec()));
    let mut after = Endpoint::new(nic, Config { seed: 9, ..Config::default() });
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
    a.poll();
    assert_eq!(a.recv(|_, message| message == b"anew"), Some(true));
}

/// A new connection, and a message on it; who the sender is to the receiver.
fn reach(from: &mut Endpoint<Reliable>, to: &mut Endpoint<Reliable>) -> PeerId {
    let peer = from.connect(to.nic().caps().addr).unwrap();
    from.send(peer, b"anew").unwrap();
    let events = turns(from, to);
    assert!(events.iter().all(|events| matches!(events[..], [Event::Connected { .. }])), "{events:?}");
    to.recv(|peer, message| (message == b"anew").then_some(peer)).flatten().expect("the message")
}

/// One that takes nothing asks without end, in two ways that are refused, so that no refusal says what the one before it does.
#[test]
fn answers_that_nobody_fetches_are_bounded() {
    let [mut a, mut b] = connected(7, 1 << 12);
    a.endpoint.send(a.peer, b"like this").unwrap();
    a.endpoint.flush();
    let mut header = [0; 8];
    b.endpoint.nic_mut().rx_burst(1, |frame, _| header.copy_from_slice(&frame[..8]));
    // Nothing leaves `b` any more.
    let (fabric, to_b) = (a.endpoint.nic().0.fabric(), b.endpoint.nic().caps().addr);
    let LinkAddr::Mem { node } = to_b else { unreachable!() };
    fabric.set_uplink(node, LineModel { rate_bits_per_s: Some(1), queue_limit_bytes: Some(0) });
    // A Get of a region that is not there, and an Atomic that is misaligned.
    let (mut get, mut atomic) = ([0; 28], [0; 40]);
    get[0] = 17;
    (atomic[0], atomic[16]) = (18, 1);
    let frame = [&header[..], &[&get[..], &atomic[..]].concat().repeat(7)].concat();
    let mut frames = 0;
    let gone = loop {
        let nic = a.endpoint.nic_mut();
        let link = nic.link(to_b).unwrap();
        let mut slot = nic.tx_slot(link, frame.len()).expect("room");
        slot.copy_from_slice(&frame);
        slot.commit();
        nic.flush();
        b.endpoint.poll();
        if let Some(event) = b.endpoint.poll_event() {
            break event;
        }
        frames += 1;
        assert!(frames < 10_000, "it keeps {} bytes", b.endpoint.peer_memory(b.peer).unwrap().1);
    };
    assert_eq!(gone, Event::Gone { peer: b.peer, reason: GoneReason::Untaken });
    assert!(14 * frames >= 8_192, "{frames} frames of 14 requests: peers that keep to the rules may have as many");
    assert_eq!(b.endpoint.counters().rejected(Reject::Overrun), 1);
}
