//! Frames that nobody who follows the rules would send.

use sidelane_nic::LinkAddr;
use sidelane_nic::mem::Config as NodeConfig;
use sidelane_nic::rng::Rng;
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Event, Reject};

use crate::world::{VirtualTime, World, addr, config, good_link, lossy_link, numbered};

/// Two connected nodes, and all frames that node 1 heard, the handshake among them.
pub fn recorded(config: Config) -> (World, sidelane_proto::PeerId, sidelane_proto::PeerId, Vec<Vec<u8>>) {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), config);
    world.add(NodeConfig::default(), config);
    for node in 0..2 {
        world.node(node).controls.borrow_mut().heard = Some(Vec::new());
    }
    let (peer, back) = world.join(0, 1);
    for number in 0..20 {
        world.send(0, peer, &numbered(number, number as usize * 150));
        world.pass(Duration::from_micros(300));
        world.send(1, back, b"reply");
        world.pass(Duration::from_micros(300));
    }
    world.node(0).got.clear();
    world.node(1).got.clear();
    // A Ping and its answer.
    world.pass(Duration::from_millis(300));
    let heard = (0..2).flat_map(|node| world.node(node).controls.borrow_mut().heard.take().unwrap()).collect();
    (world, peer, back, heard)
}

/// CRC-32C bit by bit (RFC 3720, 12.1), written anew so that it proves `PROTOCOL.md`.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// The version and the kind of a Hello.
const HELLO: u8 = 0x12;
const HELLO_ACK: u8 = 0x13;
const OPEN_KEY: u32 = u32::from_le_bytes(*b"SDL1");

fn seal(frame: &mut [u8], key: u32) {
    if frame.len() >= 24 {
        let check = crc32c(&frame[4..]) ^ key;
        frame[..4].copy_from_slice(&check.to_le_bytes());
    }
}

/// The key that a frame was sealed with: whoever reads a frame has it.
fn stolen_key(frame: &[u8]) -> u32 {
    crc32c(&frame[4..]) ^ u32::from_le_bytes(frame[..4].try_into().unwrap())
}

pub fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    match rng.below(4) {
        0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
        1 => bytes.extend([rng.next_u64() as u8; 9]),
        2 => {
            for _ in 0..=rng.below(8) {
                let bit = rng.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        _ => {
            // A field of the header or of the first record, set to an extreme.
            let at = 4 + rng.below(28) as usize;
            let value = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize];
            let end = (at + 1 + rng.below(4) as usize).min(bytes.len());
            if at < end {
                bytes[at..end].fill(value);
            }
        }
    }
}

pub fn from_whom(rng: &mut Rng) -> LinkAddr {
    addr([0, 7, 50_000][rng.below(3) as usize])
}

/// Each frame counts once: taken in, or refused under a reason.
pub fn assert_all_counted(world: &mut World, node: u32) {
    let shown = world.node(node).controls.borrow().shown;
    let counters = world.counters(node);
    assert_eq!(counters.frames_received + counters.rejected_total(), shown, "{counters:?}");
}

/// What a driver has little of is for those whom the user named, and for those who knew our token.
#[test]
fn who_only_writes_an_address_is_not_confirmed() {
    let (mut world, _, _, heard) = recorded(config());
    let hello = heard.iter().find(|frame| frame[4] == HELLO).expect("a Hello opened the connection");
    let hub = world.add(NodeConfig::default(), config());
    for stranger in 10..18 {
        world.node(hub).controls.borrow_mut().forged.push_back((addr(stranger), hello.clone()));
    }
    world.pass(Duration::from_millis(1));
    assert_eq!(world.node(hub).endpoint.peers(), 8, "each has its answer");
    assert_eq!(world.node(hub).controls.borrow().confirmed, []);
    world.join(0, hub);
    assert_eq!(world.node(hub).controls.borrow().confirmed, [addr(0)]);
    // The user's word is enough, before there is an answer.
    world.connect(hub, 50_000);
    assert_eq!(world.node(hub).controls.borrow().confirmed, [addr(0), addr(50_000)]);
}

/// The state of a generator such as [`Rng`] follows from a few of its numbers, and all the tokens that others are given from that.
#[test]
fn what_strangers_are_shown_is_no_generators_own_output() {
    let (mut world, _, _, heard) = recorded(config());
    let hello = heard.iter().find(|frame| frame[4] == HELLO).expect("a Hello opened the connection");
    let hub = world.nodes.len() as u32;
    let seed = config().seed.expect("it is to be repeated") ^ (world.now().as_nanos() << 8 | u64::from(hub));
    assert_eq!(world.add(NodeConfig::default(), config()), hub);
    let mut shown = Vec::new();
    for node in 0..2 {
        world.node(node).controls.borrow_mut().heard = Some(Vec::new());
        world.node(hub).controls.borrow_mut().forged.push_back((addr(node), hello.clone()));
        world.pass(Duration::from_millis(1));
        let answers = world.node(node).controls.borrow_mut().heard.take().unwrap();
        shown.extend(answers.iter().filter(|frame| frame[4] == HELLO_ACK).map(|frame| frame[24..32].to_vec()));
    }
    assert_eq!(shown.len(), 2);
    let mut rng = Rng::new(seed);
    let raw: Vec<_> = (0..100).map(|_| rng.next_u64().to_le_bytes().to_vec()).collect();
    assert!(shown.iter().all(|token| !raw.contains(token)));
}

/// The token, the message limit, and the last byte of the padding, on which nothing else depends.
#[test]
fn a_hello_that_was_damaged_on_the_way_has_no_answer() {
    let (mut world, _, _, heard) = recorded(config());
    let hello = heard.iter().find(|frame| frame[4] == HELLO).expect("a Hello opened the connection");
    let hub = world.add(NodeConfig::default(), config());
    for at in [24, 60, hello.len() - 1] {
        let mut damaged = hello.clone();
        damaged[at] ^= 1;
        world.node(hub).controls.borrow_mut().forged.push_back((addr(10), damaged));
    }
    world.pass(Duration::from_millis(1));
    assert_eq!((world.node(hub).endpoint.peers(), world.counters(hub).rejected(Reject::Check)), (0, 3));
}

#[test]
fn who_is_expected_finds_a_place_and_nobody_else_does() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), Config { peers_max: 0, ..config() });
    for _ in 1..4 {
        world.add(NodeConfig::default(), config());
    }
    world.node(0).endpoint.expect_only([addr(2), addr(3)]);
    world.connect(1, 0);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.node(0).endpoint.peers(), 0);
    assert!(world.counters(0).rejected(Reject::NotExpected) > 3);
    let (_, back) = world.join(2, 0);
    let (peer, _) = world.join(0, 3);
    world.send(0, back, b"to who was expected");
    world.send(0, peer, b"to who was expected");
    world.pass(Duration::from_millis(1));
    assert_eq!([world.node(2).got.len(), world.node(3).got.len()], [1, 1]);
    assert!(world.node(0).endpoint.connect(addr(1)).is_err());
}

#[test]
fn what_strangers_forge_is_counted_and_changes_nothing() {
    let (mut world, peer, back, heard) = recorded(config());
    let mut rng = Rng::new(99);
    for round in 0..2_000u32 {
        for _ in 0..20 {
            let mut bytes = heard[rng.below(heard.len() as u64) as usize].clone();
            match rng.below(4) {
                // As it was: a replay.
                0 => {}
                1 => {
                    bytes = vec![0; rng.below(200) as usize];
                    rng.fill(&mut bytes);
                }
                2 => mutate(&mut bytes, &mut rng),
                _ => {
                    mutate(&mut bytes, &mut rng);
                    seal(&mut bytes, OPEN_KEY);
                }
            }
            let from = from_whom(&mut rng);
            world.node(round % 2).controls.borrow_mut().forged.push_back((from, bytes));
        }
        world.send(0, peer, &numbered(round, 40));
        world.send(1, back, &numbered(round, 40));
        assert!(world.run(Duration::from_millis(50), |world| {
            !world.node(0).got.is_empty() && !world.node(1).got.is_empty()
        }));
        assert_eq!(world.node(0).got, [(peer, numbered(round, 40))]);
        assert_eq!(world.node(1).got, [(back, numbered(round, 40))]);
        world.node(0).got.clear();
        world.node(1).got.clear();
    }
    for node in 0..2 {
        let touched = world.node(node).events.iter().any(|event| {
            let (Event::Connected { peer: named, .. } | Event::Gone { peer: named, .. }) = event else { return true };
            *named == [peer, back][node as usize]
        });
        assert!(!touched, "{:?}", world.node(node).events);
        assert_all_counted(&mut world, node);
        let counters = world.counters(node);
        println!("rejected {:?}", counters.rejected);
        for reason in [Reject::Truncated, Reject::Version, Reject::Check, Reject::Epoch, Reject::NoPeer, Reject::Tag] {
            assert!(counters.rejected(reason) > 0, "{reason:?}");
        }
    }
}

/// Without authentication tags it can end the connection or lie in it; it cannot make an endpoint panic or hoard.
#[test]
fn who_reads_the_traffic_can_forge_but_not_crash() {
    let (mut world, peer, _, heard) = recorded(config());
    let keys: Vec<u32> = heard.iter().map(|frame| stolen_key(frame)).collect();
    let mut rng = Rng::new(3);
    for round in 0..5_000u32 {
        for _ in 0..10 {
            let place = rng.below(heard.len() as u64) as usize;
            let mut bytes = heard[place].clone();
            mutate(&mut bytes, &mut rng);
            seal(&mut bytes, keys[place]);
            world.node(round % 2).controls.borrow_mut().forged.push_back((addr(1 - round % 2), bytes));
        }
        let _ = world.node(0).endpoint.send(peer, &numbered(round, 100));
        world.pass(Duration::from_micros(100));
        for node in 0..2 {
            world.node(node).got.clear();
            world.node(node).events.clear();
            assert_all_counted(&mut world, node);
        }
    }
    assert!(world.node(0).endpoint.peers() <= 3 && world.node(1).endpoint.peers() <= 3);
}

/// A frame that continues a large message, as damage and strangers could make it: none of them holds the check.
fn unlike(frame: &[u8]) -> Vec<Vec<u8>> {
    const DATA: u8 = 0x10;
    const MORE: u8 = 3;
    if frame.len() < 600 || frame[4] != DATA || frame[24] != MORE {
        return Vec::new();
    }
    let with = |at: usize, change: u8| {
        let mut other = frame.to_vec();
        other[at] ^= change;
        other
    };
    // A bit of its first byte and of its last, the length and the kind of its record, and its turn.
    let mut all = vec![with(28, 1), with(frame.len() - 1, 0x80), with(26, 1), with(27, 0xff), with(24, 1), with(8, 1)];
    // Other bytes, more and fewer, in a record as long as they are, by one who does not have the key.
    for len in [frame.len(), frame.len() - 1, 512, frame.len() + 900, 60_000] {
        let mut other = frame.to_vec();
        other.resize(len, 0);
        other[28..].fill(0xee);
        other[26..28].copy_from_slice(&(len as u16 - 28).to_le_bytes());
        seal(&mut other, OPEN_KEY);
        all.push(other);
    }
    all
}

/// The bytes of a large message may be written to their place before the check of their frame is known to hold.
#[test]
fn what_fails_the_check_leaves_no_trace_in_a_large_message() {
    // The counters, and the frames shown, of the side that receives.
    let run = |before| {
        let mut world = World::new(5, lossy_link(0.05));
        world.add(NodeConfig::default(), config());
        world.add(NodeConfig::default(), config());
        let (peer, back) = world.join(0, 1);
        world.node(1).controls.borrow_mut().before = before;
        // The first one makes the buffer that the others are put together in.
        for (number, len) in (0..).zip([40_000, 40_000, 39_000, 25_000, 40_000]) {
            let mut message = vec![0; len];
            Rng::new(number).fill(&mut message);
            world.node(0).endpoint.send_owned(peer, message.clone()).unwrap();
            assert!(world.run(Duration::from_millis(5_000), |world| !world.node(1).got.is_empty()), "message {number}");
            assert!(world.node(1).got.pop() == Some((back, message)), "message {number}");
        }
        assert_all_counted(&mut world, 1);
        let shown = world.node(1).controls.borrow().shown;
        (world.counters(1), shown)
    };
    let ((alone, true_frames), (mut beset, shown)) = (run(None), run(Some(unlike)));
    let forged = shown - true_frames;
    assert!(forged > 1_000 && alone.reordered > 0, "{forged} forged, {alone:?}");
    assert_eq!(beset.rejected(Reject::Check), forged);
    beset.rejected[Reject::Check as usize] = 0;
    assert_eq!(beset, alone);
}

#[test]
fn a_flood_of_hellos_is_bounded_and_passes() {
    let (_, _, _, heard) = recorded(config());
    let hello = heard.iter().find(|frame| frame[4] == 0x12).expect("it began with a Hello")[..64].to_vec();
    let mut world = World::new(2, good_link());
    world.add(NodeConfig::default(), Config { peers_max: 100, ..config() });
    world.add(NodeConfig::default(), config());
    let (peer, back) = world.join(0, 1);
    for stranger in 0..3_000u32 {
        let mut bytes = hello.clone();
        bytes[24..28].copy_from_slice(&(stranger + 1).to_le_bytes());
        seal(&mut bytes, OPEN_KEY);
        world.node(0).controls.borrow_mut().forged.push_back((addr(100 + stranger), bytes));
        if stranger % 50 == 0 {
            world.pass(Duration::from_micros(50));
        }
    }
    world.pass(Duration::from_millis(1));
    assert_eq!(world.node(0).endpoint.peers(), 100);
    assert_eq!(world.counters(0).rejected(Reject::TableFull), 3_000 - 99);
    assert_all_counted(&mut world, 0);
    world.send(1, back, b"meanwhile");
    world.pass(Duration::from_millis(1));
    assert_eq!(world.node(0).got, [(peer, b"meanwhile".to_vec())]);
    world.pass(Duration::from_millis(1_100));
    assert_eq!(world.node(0).endpoint.peers(), 1);
    assert!(world.node(0).events.is_empty(), "its user hears nothing of them: {:?}", world.node(0).events);
}
