//! Messages and requests: order, room, sleep, bounds.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sidelane_nic::mem::{Config as NodeConfig, Fabric, LineModel};
use sidelane_nic::rng::Rng;
use sidelane_nic::shm::ShmNic;
use sidelane_nic::time::Duration;
use sidelane_nic::{LinkAddr, Nic, TxSlot, clock, forward};
use sidelane_proto::{Config, Endpoint, Event, GoneReason, Reject, SendError};

use crate::reliable_nic::Reliable;
use crate::{Side, connected, side, side_with_room};

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

/// Takes `most` messages at most from the FIFO, and some of those that are offered before. How many were.
fn receive_some(side: &mut Side, expected: &mut VecDeque<Vec<u8>>, rng: &mut Rng, most: u64) -> u32 {
    let mut taken = 0;
    side.endpoint.poll_offering(&mut |_, message| {
        let takes = rng.chance(0.5);
        if takes {
            assert_eq!(Some(message), expected.pop_front().as_deref());
            taken += 1;
        }
        takes
    });
    for _ in 0..most {
        let due = expected.front();
        let got = side.endpoint.recv(|_, message| assert_eq!(Some(message), due.map(Vec::as_slice)));
        if got.is_none() {
            break;
        }
        expected.pop_front();
    }
    taken
}

#[test]
fn messages_keep_their_order_however_full_the_fifos_are() {
    let (mut stalls, mut offers) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let [mut a, mut b] = connected(seed, 1 << (6 + rng.below(8)));
        for _ in 0..60 {
            stalls += u32::from(send_some(&mut a, &mut rng));
            stalls += u32::from(send_some(&mut b, &mut rng));
            let (most_a, most_b) = (rng.below(30), rng.below(30));
            offers += receive_some(&mut a, &mut b.sent, &mut rng, most_a);
            offers += receive_some(&mut b, &mut a.sent, &mut rng, most_b);
        }
        for _ in 0..2_000 {
            receive_some(&mut a, &mut b.sent, &mut rng, u64::MAX);
            receive_some(&mut b, &mut a.sent, &mut rng, u64::MAX);
        }
        assert!(a.sent.is_empty() && b.sent.is_empty(), "seed {seed}: {} and {} missing", a.sent.len(), b.sent.len());
        assert_eq!(
            (a.endpoint.counters().rejected_total(), b.endpoint.counters().rejected_total()),
            (0, 0),
            "seed {seed}"
        );
    }
    assert!(stalls > 100, "the FIFOs were never full: {stalls}");
    assert!(offers > 100, "next to nothing was taken before the FIFOs: {offers}");
}

/// Lengths of the messages that are offered in a turn; they are taken where `takes` says so.
fn offered(endpoint: &mut Endpoint<Reliable>, takes: bool) -> Vec<usize> {
    let mut offered = Vec::new();
    endpoint.poll_offering(&mut |_, message| {
        offered.push(whole(message));
        takes
    });
    offered
}

fn received(endpoint: &mut Endpoint<Reliable>) -> Vec<usize> {
    std::iter::from_fn(|| endpoint.recv(|_, message| whole(message))).collect()
}

/// The length of a message, each byte of which says it too.
fn whole(message: &[u8]) -> usize {
    assert!(message.iter().all(|byte| *byte == message.len() as u8), "{message:?}");
    message.len()
}

#[test]
fn a_message_is_offered_before_the_fifo_unless_it_is_short_or_something_waits_before_it() {
    let fabric = Fabric::new(3);
    let (mut a, _) = side(&fabric, 1, 1 << 16);
    let (mut b, to) = side(&fabric, 2, 1 << 16);
    let at_a = a.connect(to).unwrap();
    let send = |a: &mut Endpoint<Reliable>, len: usize| {
        a.send(at_a, &vec![len as u8; len]).unwrap();
        a.poll();
    };
    const SHORT: usize = 60;
    const LONG: usize = 61;
    const LONGER: usize = 300;
    a.poll();
    b.poll();
    a.poll();
    send(&mut a, LONG);
    assert_eq!(offered(&mut b, true), [], "that the sender is there has not been told");
    assert!(matches!(b.poll_event(), Some(Event::Connected { .. })));
    assert_eq!(received(&mut b), [LONG]);

    let before = b.counters().messages_received;
    send(&mut a, LONG);
    assert_eq!(offered(&mut b, true), [LONG]);
    assert_eq!(received(&mut b), [], "it is taken");
    assert_eq!((b.counters().messages_received - before, b.counters().messages_in_place), (1, 1));

    send(&mut a, SHORT);
    assert_eq!(offered(&mut b, true), []);
    assert_eq!(received(&mut b), [SHORT]);

    send(&mut a, LONG);
    send(&mut a, LONGER);
    assert_eq!(offered(&mut b, false), [LONG], "the first was not taken, and stands before the other");
    send(&mut a, LONG);
    assert_eq!(offered(&mut b, true), []);
    assert_eq!(received(&mut b), [LONG, LONGER, LONG]);

    send(&mut a, SHORT);
    send(&mut a, LONGER);
    assert_eq!(offered(&mut b, true), [], "a short one stands before it");
    assert_eq!(received(&mut b), [SHORT, LONGER]);
}

#[test]
fn whoever_panics_on_the_last_message_gives_the_credit_for_all_back() {
    let full = || {
        let [mut a, mut b] = connected(5, 4 << 10);
        for _ in 0..100 {
            while a.endpoint.send(a.peer, &[7; 400]).is_ok() {}
            a.endpoint.poll();
            b.endpoint.poll();
        }
        [a, b]
    };
    let [_a, mut b] = full();
    let held = b.endpoint.recv_each(|_, _| true);
    let [mut a, mut b] = full();
    let mut shown = 0;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        b.endpoint.recv_each(|_, _| {
            shown += 1;
            shown < held || resume_unwind(Box::new(()))
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(b.endpoint.recv_each(|_, _| true), 0);
    for _ in 0..4 {
        b.endpoint.poll();
        a.endpoint.poll();
    }
    b.endpoint.poll();
    assert!(b.endpoint.recv_each(|_, _| true) > 0, "what a still held comes");
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

/// They stay in the cache then.
#[test]
fn long_messages_of_a_stream_are_put_together_in_one_place() {
    const LEN: usize = 150_000;
    let [mut a, mut b] = connected(7, 1 << 20);
    for number in 0..5 {
        a.endpoint.send_owned(a.peer, vec![number; LEN]).unwrap();
    }
    // All of them wait, so that the turns of `b` are as long as they may be.
    (0..300).for_each(|_| _ = a.endpoint.poll());
    let mut places = Vec::new();
    let mut turns = 0;
    while places.len() < 5 {
        b.endpoint.poll();
        turns += 1;
        let number = places.len() as u8;
        places.extend(b.endpoint.recv(|_, message| {
            assert!(message.len() == LEN && message.iter().all(|byte| *byte == number));
            message.as_ptr().addr()
        }));
        assert!(turns < 100);
    }
    assert!(places.iter().all(|place| *place == places[0]), "{places:x?}");
    assert!(turns <= 30, "a turn more than six for a message of some 330 frames: {turns}");
}

/// A driver that asks one peer after the other, as shared memory does: where a burst ends, the next begins with another peer.
struct ByTurns {
    nic: Reliable,
    waiting: Vec<(LinkAddr, VecDeque<Vec<u8>>)>,
    next: usize,
}

impl Nic for ByTurns {
    const RELIABLE: bool = true;

    forward!(nic: caps, link, unlink, tx_slot, flush, wait, waker, is_gone, counters, now);

    fn rx_burst(&mut self, budget: usize, mut each: impl FnMut(&[u8], LinkAddr)) -> usize {
        let waiting = &mut self.waiting;
        self.nic.rx_burst(1 << 10, |frame, from| {
            let place = waiting.iter().position(|(addr, _)| *addr == from).unwrap_or_else(|| {
                waiting.push((from, VecDeque::new()));
                waiting.len() - 1
            });
            waiting[place].1.push_back(frame.to_vec());
        });
        let mut left = budget;
        for _ in 0..waiting.len() {
            let (from, frames) = &mut waiting[self.next];
            while left > 0
                && let Some(frame) = frames.pop_front()
            {
                each(&frame, *from);
                left -= 1;
            }
            self.next = (self.next + 1) % waiting.len();
            if left == 0 {
                break;
            }
        }
        budget - left
    }
}

/// Long turns must not be all one's, and those that are to end with its message another's.
#[test]
fn whoever_sends_small_messages_beside_a_stream_of_long_ones_has_its_turns() {
    const LEN: usize = 128 << 10;
    for before in 0..2 {
        let fabric = Fabric::new(before);
        let limits =
            NodeConfig { mtu: 9_000, mtu_safe: 9_000, rx_frames: 1 << 20, tx_frames: 1 << 10, ..Default::default() };
        let nic = || Reliable::new(fabric.nic(limits));
        let config = |seed| Config { seed: Some(seed), send_fifo: 1 << 24, recv_fifo: 1 << 24, ..Config::default() };
        let nic_of_hub = nic();
        let to = nic_of_hub.caps().addr;
        let mut hub = Endpoint::new(ByTurns { nic: nic_of_hub, waiting: Vec::new(), next: 0 }, config(1));
        let [mut a, mut b] = [2, 3].map(|seed| Endpoint::new(nic(), config(seed)));
        let [a_to_hub, b_to_hub] = [&mut a, &mut b].map(|end| end.connect(to).unwrap());
        (0..8).for_each(|_| _ = (hub.poll(), a.poll(), b.poll()));
        let greeted = [hub.poll_event(), hub.poll_event(), a.poll_event(), b.poll_event()];
        assert!(greeted.iter().all(|event| matches!(event, Some(Event::Connected { .. }))), "{greeted:?}");
        // 15 frames a message: turns end amid one.
        (0..before).for_each(|_| a.send(a_to_hub, b"one frame").unwrap());
        a.flush();
        let (mut long, mut short, mut sent) = (0, 0, [0, 0]);
        for _ in 0..200 {
            // More of each than a turn takes in.
            while sent[0] < long + 10 {
                a.send_owned(a_to_hub, vec![7; LEN]).unwrap();
                sent[0] += 1;
            }
            while sent[1] < short + 100 {
                b.send(b_to_hub, b"short").unwrap();
                b.flush();
                sent[1] += 1;
            }
            (0..4).for_each(|_| _ = (a.poll(), b.poll()));
            hub.poll();
            hub.recv_each(|_, message| {
                long += usize::from(message.len() == LEN);
                short += usize::from(message.len() == 5);
                true
            });
        }
        assert!(long > 150 && short > 10 * long, "{short} frames, beside {long} messages of 15");
    }
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

/// One that takes nothing asks without end, in two ways that are refused, so that no refusal says what the one before it does.
#[test]
fn answers_that_nobody_fetches_are_bounded() {
    let [mut a, mut b] = connected(7, 1 << 12);
    a.endpoint.send(a.peer, b"like this").unwrap();
    a.endpoint.flush();
    let mut header = [0; 8];
    b.endpoint.nic_mut().rx_burst(1, |frame, _| header.copy_from_slice(&frame[..8]));
    // Nothing leaves `b` any more.
    let (fabric, to_b) = (a.endpoint.nic().node.fabric(), b.endpoint.nic().caps().addr);
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
