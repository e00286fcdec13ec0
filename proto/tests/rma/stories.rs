//! One behaviour a test, on a link without faults but for those that a test makes.

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{LinkModel, MemNic};
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, GoneReason, OpError, PutHow, Region, Reject, RemoteKey, Rights, RmaError};

use crate::pair::{Pair, VirtualTime, good_link};

/// A pair, a region of `len` zeros at B, and a key to it.
pub fn with_region(len: usize, rights: Rights) -> (Pair<MemNic>, Region, RemoteKey) {
    let mut pair = Pair::calm();
    let region = pair.b().endpoint.register(vec![0; len]);
    let key = pair.b().endpoint.publish(region, rights, None).unwrap();
    (pair, region, key)
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256) as u8 | 1).collect()
}

#[test]
fn a_put_is_in_place_when_it_is_done() {
    for len in [0, 1, 8, 1_000, 1_452, 1_453, 100_000] {
        let (mut pair, region, key) = with_region(len + 64, Rights::WRITE);
        let peer = pair.a().peer;
        let bytes = pattern(len);
        let op = pair.a().endpoint.put(peer, &key, 32, &bytes, PutHow::default()).unwrap();
        assert!(!pair.a().endpoint.is_done(op));
        pair.until(|pair| pair.a().endpoint.is_done(op));
        let memory = pair.b().endpoint.region(region).unwrap();
        assert!(memory[32..32 + len] == bytes, "{len} bytes");
        assert!(memory[..32].iter().chain(&memory[32 + len..]).all(|byte| *byte == 0), "nothing else is touched");
        assert!(pair.a().events.is_empty() && pair.b().events.is_empty());
    }
}

#[test]
fn a_put_goes_out_of_a_region_as_well() {
    let (mut pair, region, key) = with_region(300_000, Rights::WRITE);
    let peer = pair.a().peer;
    let source = pair.a().endpoint.register(pattern(300_000));
    let op = pair.a().endpoint.put_from(peer, &key, 10, source, 5..250_000, PutHow::default()).unwrap();
    assert!(!pair.a().endpoint.is_source_free(op));
    pair.until(|pair| pair.a().endpoint.is_done(op));
    assert!(pair.b().endpoint.region(region).unwrap()[10..250_005] == pattern(300_000)[5..250_000]);
    pair.until(|pair| pair.a().endpoint.is_source_free(op));
}

#[test]
fn a_get_lands_where_it_should() {
    for len in [0, 8, 52, 53, 200_000] {
        let (mut pair, region, key) = with_region(len + 16, Rights::READ);
        pair.b().endpoint.region_mut(region).unwrap().copy_from_slice(&pattern(len + 16));
        let landing = pair.a().endpoint.register(vec![0; len + 40]);
        let peer = pair.a().peer;
        let op = pair.a().endpoint.get(peer, &key, 8, landing, 20..20 + len).unwrap();
        pair.until(|pair| !pair.a().events.is_empty());
        assert_eq!(pair.a().take_events(), [Event::Got { op }]);
        assert!(pair.a().endpoint.is_done(op));
        let memory = pair.a().endpoint.region(landing).unwrap();
        assert!(memory[20..20 + len] == pattern(len + 16)[8..8 + len], "{len} bytes");
        assert!(memory[..20].iter().chain(&memory[20 + len..]).all(|byte| *byte == 0), "nothing else is touched");
    }
}

#[test]
fn atomics_tell_what_was_there() {
    let (mut pair, region, key) = with_region(32, Rights::ATOMIC);
    let peer = pair.a().peer;
    let endpoint = &mut pair.a().endpoint;
    let first = endpoint.fetch_add(peer, &key, 8, 5).unwrap();
    let second = endpoint.fetch_add(peer, &key, 8, u64::MAX).unwrap();
    let third = endpoint.compare_swap(peer, &key, 8, 4, 77).unwrap();
    let fourth = endpoint.compare_swap(peer, &key, 8, 4, 78).unwrap();
    pair.until(|pair| pair.a().events.len() == 4);
    let told: Vec<_> =
        [(first, 0), (second, 5), (third, 4), (fourth, 77)].map(|(op, value)| Event::Fetched { op, value }).into();
    assert_eq!(pair.a().take_events(), told);
    assert_eq!(pair.b().endpoint.region(region).unwrap()[8..16], 77u64.to_le_bytes());
    assert_eq!(pair.a().endpoint.fetch_add(peer, &key, 4, 1), Err(RmaError::Misaligned));
}

#[test]
fn a_signal_comes_after_the_bytes_of_every_put_before_it() {
    let link = LinkModel {
        faults: Faults { reorder: 0.5, reorder_span: Duration::from_micros(50), ..Faults::NONE },
        ..good_link()
    };
    let mut early = 0;
    for seed in 0..50 {
        let mut pair = Pair::new(seed, link, 1500, Config::default(), |nic| nic);
        let region = pair.b().endpoint.register(vec![0; 100_000]);
        let key = pair.b().endpoint.publish(region, Rights::WRITE, None).unwrap();
        let peer = pair.a().peer;
        let endpoint = &mut pair.a().endpoint;
        endpoint.put(peer, &key, 0, &pattern(99_990), PutHow { silent: true, ..PutHow::default() }).unwrap();
        endpoint.put(peer, &key, 99_990, &[7; 10], PutHow::SILENT_SIGNAL).unwrap();
        pair.until(|pair| pair.b().endpoint.signals(region) == Some(1));
        let memory = pair.b().endpoint.region(region).unwrap();
        assert!(memory[..99_990] == pattern(99_990) && memory[99_990..] == [7; 10], "seed {seed}");
        early += pair.b().endpoint.counters().placed_early;
    }
    assert!(early > 100, "frames that overtake others are placed at once: {early}");
}

#[test]
fn a_message_comes_after_the_bytes_of_every_put_before_it() {
    let link = LinkModel {
        faults: Faults { loss: 0.1, reorder: 0.3, reorder_span: Duration::from_micros(50), ..Faults::NONE },
        ..good_link()
    };
    for seed in 0..50 {
        let mut pair = Pair::new(seed, link, 1500, Config::default(), |nic| nic);
        let region = pair.b().endpoint.register(vec![0; 50_000]);
        let key = pair.b().endpoint.publish(region, Rights::WRITE, None).unwrap();
        let peer = pair.a().peer;
        pair.a().endpoint.put(peer, &key, 0, &pattern(50_000), PutHow::default()).unwrap();
        pair.a().endpoint.send(peer, b"look").unwrap();
        pair.until(|pair| pair.b().endpoint.recv(|_, message| assert_eq!(message, b"look")).is_some());
        assert!(*pair.b().endpoint.region(region).unwrap() == pattern(50_000), "seed {seed}");
    }
}

#[test]
fn puts_need_no_room_for_messages() {
    let (mut pair, region, key) = with_region(100_000, Rights::ALL);
    let peer = pair.a().peer;
    // B takes no messages, until its FIFO and A's are full.
    loop {
        pair.pass(Duration::from_micros(100));
        if pair.a().endpoint.send(peer, &[1; 1_000]).is_err() {
            break;
        }
    }
    let op = pair.a().endpoint.put(peer, &key, 0, &pattern(100_000), PutHow::default()).unwrap();
    pair.until(|pair| pair.a().endpoint.is_done(op));
    assert!(*pair.b().endpoint.region(region).unwrap() == pattern(100_000));
    let landing = pair.a().endpoint.register(vec![0; 100_000]);
    let op = pair.a().endpoint.get(peer, &key, 0, landing, 0..100_000).unwrap();
    pair.until(|pair| pair.a().endpoint.is_done(op));
}

#[test]
fn a_fence_keeps_the_later_of_two_puts_to_one_place_last() {
    let link = LinkModel {
        faults: Faults { loss: 0.2, reorder: 0.5, reorder_span: Duration::from_micros(80), ..Faults::NONE },
        ..good_link()
    };
    let mut wrong = [0; 2];
    for (fenced, wrong) in wrong.iter_mut().enumerate() {
        for seed in 0..100 {
            // The whole of both puts at once.
            let config = Config { congestion_control: false, ..Config::default() };
            let mut pair = Pair::new(seed, link, 1500, config, |nic| nic);
            let region = pair.b().endpoint.register(vec![0; 20_000]);
            let key = pair.b().endpoint.publish(region, Rights::WRITE, None).unwrap();
            let peer = pair.a().peer;
            let endpoint = &mut pair.a().endpoint;
            endpoint.put(peer, &key, 0, &[1; 20_000], PutHow::default()).unwrap();
            if fenced == 1 {
                endpoint.fence(peer);
            }
            let op = endpoint.put(peer, &key, 0, &[2; 20_000], PutHow::default()).unwrap();
            pair.until(|pair| pair.a().endpoint.is_done(op));
            *wrong += u32::from(pair.b().endpoint.region(region).unwrap().contains(&1));
        }
    }
    assert!(wrong[0] > 10, "without a fence the link mixes them up: {wrong:?}");
    assert_eq!(wrong[1], 0);
}

#[test]
fn a_key_opens_what_it_says_and_nothing_else() {
    let (mut pair, region, key) = with_region(64, Rights::READ);
    let peer = pair.a().peer;
    let landing = pair.a().endpoint.register(vec![0; 64]);
    let altered = |byte: usize, to: u8| {
        let mut bytes = key.to_bytes();
        bytes[byte] ^= to;
        RemoteKey::from_bytes(bytes)
    };
    let longer = altered(17, 0xff);
    let endpoint = &mut pair.a().endpoint;
    let refused = [
        (endpoint.put(peer, &key, 0, &[1; 8], PutHow::default()).unwrap(), OpError::Rights),
        (endpoint.put(peer, &altered(0, 1), 0, &[1; 8], PutHow::default()).unwrap(), OpError::NoRegion),
        (endpoint.put(peer, &altered(3, 0x80), 0, &[1; 8], PutHow::SILENT_SIGNAL).unwrap(), OpError::NoRegion),
        (endpoint.put(peer, &altered(11, 1), 0, &[1; 5_000][..64], PutHow::default()).unwrap(), OpError::NoRegion),
        (endpoint.fetch_add(peer, &key, 0, 1).unwrap(), OpError::Rights),
        (endpoint.get(peer, &longer, 60, landing, 0..5).unwrap(), OpError::Bounds),
        (endpoint.get(peer, &longer, 1 << 39, landing, 0..5).unwrap(), OpError::Bounds),
    ];
    assert_eq!(endpoint.get(peer, &key, 60, landing, 0..5), Err(RmaError::Bounds), "an honest key knows its length");
    pair.until(|pair| pair.a().events.len() == refused.len());
    let told: Vec<_> = refused.into_iter().map(|(op, why)| Event::OpFailed { op, why }).collect();
    assert_eq!(pair.a().take_events(), told);
    assert!(pair.b().endpoint.region(region).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(pair.b().endpoint.signals(region), Some(0));
    let counters = *pair.b().endpoint.counters();
    assert!([Reject::NoRegion, Reject::Rights, Reject::Bounds].iter().any(|reason| counters.rejected(*reason) > 0));
    // And the connection goes on.
    let op = pair.a().endpoint.get(peer, &key, 0, landing, 0..64).unwrap();
    pair.until(|pair| pair.a().events == [Event::Got { op }]);
}

#[test]
fn a_key_for_one_peer_is_none_for_another() {
    let (mut pair, region, _) = with_region(64, Rights::ALL);
    let own = pair.b().peer;
    let key = pair.b().endpoint.publish(region, Rights::ALL, Some(own)).unwrap();
    let peer = pair.a().peer;
    let op = pair.a().endpoint.put(peer, &key, 0, &[1; 8], PutHow::default()).unwrap();
    pair.until(|pair| pair.a().endpoint.is_done(op));
    assert!(pair.a().events.is_empty());
    // A connects anew, and is another peer.
    pair.a().endpoint.close(peer);
    pair.until(|pair| pair.b().endpoint.recv(|_, _| ()).is_none() && !pair.b().events.is_empty());
    pair.pass(Duration::from_millis(200));
    let again = pair.a().endpoint.connect(sidelane_nic::LinkAddr::Mem { node: 1 }).unwrap();
    pair.pass(Duration::from_millis(5));
    pair.a().take_events();
    let op = pair.a().endpoint.put(again, &key, 0, &[2; 8], PutHow::default()).unwrap();
    pair.until(|pair| pair.a().events == [Event::OpFailed { op, why: OpError::NoRegion }]);
    assert_eq!(pair.b().endpoint.region(region).unwrap()[..8], [1; 8]);
}

#[test]
fn what_is_unregistered_is_not_touched_any_more() {
    let (mut pair, region, key) = with_region(1_000_000, Rights::WRITE);
    let peer = pair.a().peer;
    let op = pair.a().endpoint.put(peer, &key, 0, &vec![1; 1_000_000], PutHow::default()).unwrap();
    pair.pass(Duration::from_micros(300));
    pair.b().endpoint.unregister(region).unwrap();
    let at_the_end = pair.b().endpoint.poll_event();
    let Some(Event::Unregistered { region: gone, memory: Some(memory) }) = at_the_end else {
        panic!("{at_the_end:?}");
    };
    assert_eq!(gone, region);
    assert!(memory.contains(&1) && memory.contains(&0), "half-way");
    // Its place in the table goes to another, which the rest of the put must not reach.
    let other = pair.b().endpoint.register(vec![0; 1_000_000]);
    pair.b().endpoint.publish(other, Rights::WRITE, None).unwrap();
    pair.until(|pair| !pair.a().events.is_empty());
    assert_eq!(pair.a().take_events(), [Event::OpFailed { op, why: OpError::NoRegion }]);
    assert!(pair.a().endpoint.is_done(op));
    assert!(!pair.b().endpoint.region(other).unwrap().contains(&1));
    assert!(pair.b().endpoint.region(region).is_none());
}

#[test]
fn memory_comes_back_when_the_last_operation_that_needs_it_is_over() {
    let (mut pair, region, key) = with_region(500_000, Rights::ALL);
    let peer = pair.a().peer;
    let local = pair.a().endpoint.register(pattern(500_000));
    let put = pair.a().endpoint.put_from(peer, &key, 0, local, 0..500_000, PutHow::default()).unwrap();
    pair.a().endpoint.unregister(local).unwrap();
    assert!(pair.a().endpoint.region(local).is_none());
    pair.until(|pair| pair.a().endpoint.is_done(put));
    pair.until(|pair| !pair.a().events.is_empty());
    assert_eq!(pair.a().take_events(), [Event::Unregistered { region: local, memory: Some(pattern(500_000)) }]);

    // A get that B serves out of a region that it gives up meanwhile.
    let local = pair.a().endpoint.register(vec![0; 500_000]);
    let get = pair.a().endpoint.get(peer, &key, 0, local, 0..500_000).unwrap();
    pair.a().endpoint.flush();
    pair.fabric.advance_to(pair.now() + Duration::from_micros(8));
    pair.b().endpoint.poll();
    pair.b().endpoint.unregister(region).unwrap();
    assert_eq!(pair.b().endpoint.poll_event(), None, "B still needs it");
    pair.until(|pair| !pair.b().events.is_empty());
    assert_eq!(pair.a().take_events(), [Event::Got { op: get }]);
    assert_eq!(pair.b().take_events(), [Event::Unregistered { region, memory: Some(pattern(500_000)) }]);
    assert!(*pair.a().endpoint.region(local).unwrap() == pattern(500_000));
}

#[test]
fn few_bytes_are_copied_from_their_region_at_once() {
    let (mut pair, region, key) = with_region(1_000, Rights::ALL);
    let peer = pair.a().peer;
    let endpoint = &mut pair.a().endpoint;
    let source = endpoint.register(vec![7; 64]);
    let put = endpoint.put_from(peer, &key, 8, source, 0..16, PutHow::default()).unwrap();
    assert!(endpoint.is_source_free(put));
    endpoint.region_mut(source).unwrap().fill(9);
    pair.until(|pair| pair.a().endpoint.is_done(put));
    assert_eq!(pair.b().endpoint.region(region).unwrap()[8..24], [7; 16]);
}

#[test]
fn when_the_peer_is_gone_everything_ends_with_an_error() {
    let (mut pair, _, key) = with_region(500_000, Rights::ALL);
    let peer = pair.a().peer;
    let (source, landing) = (pair.a().endpoint.register(vec![1; 1_000]), pair.a().endpoint.register(vec![1; 1_000]));
    pair.fabric.crash(1);
    let endpoint = &mut pair.a().endpoint;
    let ops = [
        endpoint.put(peer, &key, 0, &[1; 300_000], PutHow::default()).unwrap(),
        endpoint.put_from(peer, &key, 0, source, 0..1_000, PutHow::default()).unwrap(),
        endpoint.get(peer, &key, 0, landing, 0..1_000).unwrap(),
        endpoint.fetch_add(peer, &key, 0, 1).unwrap(),
    ];
    endpoint.unregister(source).unwrap();
    endpoint.unregister(landing).unwrap();
    assert!(pair.run(Duration::from_millis(2_000), |pair| pair.a().events.len() == 7));
    let events = pair.a().take_events();
    let failed: Vec<_> = ops.iter().map(|&op| Event::OpFailed { op, why: OpError::PeerGone }).collect();
    assert!(failed.iter().all(|event| events.contains(event)), "{events:?}");
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Unregistered { .. })).count(), 2);
    assert_eq!(events[6], Event::Gone { peer, reason: GoneReason::Silent });
    assert!(ops.iter().all(|&op| pair.a().endpoint.is_done(op)));
    assert_eq!(pair.a().endpoint.put(peer, &key, 0, &[1], PutHow::default()), Err(RmaError::NoPeer));
}

#[test]
fn requests_are_bounded_and_go_on_when_some_are_answered() {
    let (mut pair, region, key) = with_region(8, Rights::ATOMIC);
    let peer = pair.a().peer;
    let mut begun = 0;
    while pair.a().endpoint.fetch_add(peer, &key, 0, 1).is_ok() {
        begun += 1;
    }
    assert_eq!(begun, 64);
    pair.until(|pair| pair.a().events.len() == 64);
    pair.a().endpoint.fetch_add(peer, &key, 0, 1).unwrap();
    pair.until(|pair| pair.a().events.len() == 65);
    assert_eq!(pair.b().endpoint.region(region).unwrap(), 65u64.to_le_bytes());
}

/// Refusals wait for room in an outbox that is full of puts, and these until the other side has room for what it would refuse.
#[test]
fn puts_of_both_sides_that_are_refused_come_to_an_end() {
    let config = Config { send_fifo: 1 << 20, ..Config::default() };
    let mut pair = Pair::new(1, good_link(), 9_000, config, |nic| nic);
    // Refused for one reason and for another by turns, so that each refusal is a record: the first key is not valid any more.
    let mut keys = pair.sides.each_mut().map(|side| {
        let region = side.endpoint.register(vec![0; 8]);
        [Rights::WRITE, Rights::READ].map(|rights| side.endpoint.publish(region, rights, None).unwrap())
    });
    keys.swap(0, 1);
    let mut puts = [0; 2];
    for _ in 0..100 {
        for ((side, keys), puts) in pair.sides.iter_mut().zip(&keys).zip(&mut puts) {
            while side.endpoint.put(side.peer, &keys[*puts % 2], 0, &[1], PutHow::default()).is_ok() {
                *puts += 1;
            }
        }
        pair.pass(Duration::from_micros(50));
    }
    assert!(puts.iter().all(|puts| *puts > 10_000), "{puts:?}");
    pair.run(Duration::from_millis(3_000), |_| false);
    for (side, puts) in pair.sides.iter().zip(puts) {
        let failed = side.events.iter().filter(|event| matches!(event, Event::OpFailed { .. })).count();
        assert_eq!((side.events.len(), failed), (puts, puts), "{:?}", side.endpoint.counters());
    }
}
