//! Super-packets that are copied out of the kernel to their place: whole, in the order of sending, and only while both sides send.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use sidelane_nic::encap::gso::{self, Service};
use sidelane_nic::uring::Uring;
use sidelane_nic::{Arrival, Link, LinkAddr, Nic, TxSlot};

use crate::namespace::{bridged, ip};
use crate::patience::until;
use crate::raw_socket::RawSocket;
use crate::stage::{commit, open, receive_one, send, veth_pair};

/// Two ends of a veth pair, if super-packets may wait there.
fn fetching_pair() -> Option<(Uring, Uring, Link)> {
    let pair = veth_pair();
    if !pair.1.can_fetch() {
        println!("skipped: net.core.rmem_max is below 836 kB, and only root may exceed it");
        return None;
    }
    Some(pair)
}

/// Sends a frame of `len` bytes that ends in bytes which the driver may send from where they are.
fn send_before(nic: &mut Uring, link: Link, number: u8, len: usize) {
    let tail = vec![number; len - FRONT];
    let mut slot = nic.tx_slot_before(link, FRONT, &tail).expect("nothing waits");
    slot.fill(number);
    slot.commit();
}

/// What is written before the tail.
const FRONT: usize = 48;

/// How a frame came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    Whole,
    Fetched,
    /// By its beginning, and nobody asked for the rest.
    Dropped,
}

/// The next frame: its first byte, and how it came. Every third of those that begin is fetched from the end of its head on, every third
/// taken whole, and every third dropped.
fn receive(nic: &mut Uring, begun: &mut usize) -> (u8, Came) {
    let mut came = None;
    until("a frame comes", || {
        nic.rx_arrivals(1, |arrival, _| {
            came = Some(match arrival {
                Arrival::Whole(frame) => {
                    assert!(frame.iter().all(|byte| *byte == frame[0]));
                    (frame[0], Came::Whole)
                }
                Arrival::Begun(frame) => {
                    let (head, len, number) = (frame.head(), frame.len(), frame.head()[0]);
                    assert!(head.iter().all(|byte| *byte == number) && head.len() >= FRONT);
                    *begun += 1;
                    match *begun % 3 {
                        0 => (number, Came::Dropped),
                        1 => {
                            let mut place = vec![!number; len - FRONT + 2];
                            let end = place.len() - 1;
                            assert!(frame.fetch(&mut place[1..end]));
                            assert!(place[1..end].iter().all(|byte| *byte == number), "its own bytes");
                            assert!([place[0], place[end]].iter().all(|byte| *byte == !number), "and no more");
                            (number, Came::Fetched)
                        }
                        _ => {
                            let whole = frame.whole().expect("it waits");
                            assert!(whole.len() == len && whole.iter().all(|byte| *byte == number));
                            (number, Came::Fetched)
                        }
                    }
                }
            });
        });
        came.is_some()
    });
    came.expect("just seen")
}

pub fn every_other_full_frame_is_fetched_and_all_come_in_the_order_of_sending() {
    let Some((mut a, mut b, to_b)) = fetching_pair() else { return };
    let (small, full) = (a.caps().mtu_safe, a.caps().mtu);
    let (mut begun, mut next) = (0, 0u8);
    for round in 0..60 {
        let sent = next;
        let mut expected = Vec::new();
        for at in 0..12 {
            // Of four kinds, in runs of one and two.
            let placed = match (at + round) / 2 % 4 {
                0 => commit(&mut a, to_b, &vec![next; small]).then_some(false),
                1 => commit(&mut a, to_b, &vec![next; full]).then_some(false),
                2 => {
                    send_before(&mut a, to_b, next, full - 1);
                    Some(false)
                }
                _ => {
                    send_before(&mut a, to_b, next, full);
                    Some(true)
                }
            };
            expected.push(placed.expect("there is room"));
            next = next.wrapping_add(1);
        }
        a.flush();
        let mut by_begun = Vec::new();
        for (number, may_be_placed) in (0..).zip(expected) {
            let (first, came) = receive(&mut b, &mut begun);
            assert_eq!(first, sent.wrapping_add(number));
            assert!(may_be_placed || came == Came::Whole);
            by_begun.extend(may_be_placed.then_some(came != Came::Whole));
        }
        assert!(by_begun.windows(2).all(|pair| pair[0] != pair[1]), "every other one: {by_begun:?}");
    }
    assert!(begun > 60 && b.fetched() == begun as u64);
    assert_eq!((b.counters().rx_frames, b.counters().rx_dropped, b.counters().rx_foreign), (60 * 12, 0, 0));
}

pub fn a_stream_one_way_is_fetched_no_more_until_as_much_comes_back() {
    let Some((mut a, mut b, to_b)) = fetching_pair() else { return };
    let to_a = b.link(a.caps().addr).unwrap();
    let full = a.caps().mtu;
    let pass = |from: &mut Uring, to: &mut Uring, link, frames: u64| {
        let before = to.fetched();
        for _ in 0..frames {
            send_before(from, link, 1, full);
            receive_one(to);
        }
        to.fetched() - before
    };
    // 8 MiB of them, in twice as many frames.
    let most = (8 << 20) / full as u64;
    assert_eq!(pass(&mut a, &mut b, to_b, 3 * most), most);
    assert_eq!(pass(&mut a, &mut b, to_b, 10), 0);
    assert_eq!(pass(&mut b, &mut a, to_a, 20), 10);
    assert_eq!(pass(&mut a, &mut b, to_b, 30), 10, "as many as have come");
}

/// A kernel tells a reader of packets how much of one lies in its linear part.
pub fn after_1_mib_one_way_a_packet_lies_in_one_piece() {
    let Some((mut a, mut b, to_b)) = fetching_pair() else { return };
    let to_a = b.link(a.caps().addr).unwrap();
    let full = a.caps().mtu;
    let [tap_a, tap_b] = ["vA", "vB"].map(RawSocket::tapping);
    let lies_in_one = |from: &mut Uring, link, to: &mut Uring, tap: &RawSocket| {
        send_before(from, link, 1, full);
        assert_eq!(receive_one(to), vec![1; full]);
        // The kernel's own packets are short.
        let dressed = std::iter::from_fn(|| tap.receive()).find(|dressed| dressed.len() > 1_000);
        let dressed = dressed.expect("the tap sees it first");
        let linear = usize::from(u16::from_ne_bytes([dressed[2], dressed[3]]));
        let len = gso::HEADER_LEN - gso::VNET_LEN + full;
        assert!(linear == len || linear < len / 2, "{linear} of {len} B");
        linear == len
    };
    let in_pieces = (1 << 20) / full;
    for turn in 0..2 {
        for number in 0..3 * in_pieces {
            assert_eq!(lies_in_one(&mut a, to_b, &mut b, &tap_b), number >= in_pieces, "{number} of turn {turn}");
        }
        // The first one is to be placed.
        assert!(!lies_in_one(&mut b, to_a, &mut a, &tap_a));
        assert!(!lies_in_one(&mut b, to_a, &mut a, &tap_a));
    }
}

/// A socket tells once that its interface was down: that is not about the packet that is fetched next.
pub fn a_frame_is_fetched_after_the_interface_was_down() {
    let Some((mut a, mut b, to_b)) = fetching_pair() else { return };
    let full = a.caps().mtu;
    for round in 1..4 {
        ip("link set vB down");
        ip("link set vB up");
        until("the interface carries frames", || {
            commit(&mut a, to_b, b"small");
            a.flush();
            b.rx_burst(64, |frame, _| assert_eq!(frame, b"small")) > 0
        });
        while b.rx_burst(64, |_, _| {}) > 0 {}
        for number in 0..2 {
            send_before(&mut a, to_b, number, full);
        }
        for number in 0..2 {
            let frame = receive_one(&mut b);
            assert!(frame.len() == full && frame.iter().all(|byte| *byte == number));
        }
        assert_eq!((b.fetched(), b.counters().rx_dropped), (round, 0));
    }
}

/// Whoever sleeps is woken by them, and what nobody takes is dropped and counted.
pub fn packets_that_are_to_be_fetched_wake_and_fill_a_ring_of_their_own() {
    let Some((mut a, mut b, to_b)) = fetching_pair() else { return };
    let full = a.caps().mtu;
    send_before(&mut a, to_b, 1, full);
    b.wait(None).unwrap();
    assert_eq!(receive_one(&mut b)[0], 1);
    assert_eq!(b.fetched(), 1);
    for _ in 0..100 {
        send_before(&mut a, to_b, 2, full);
    }
    let mut came = 0;
    until("all are told", || {
        came += b.rx_burst(64, |frame, _| assert_eq!(frame.len(), full)) as u64;
        came + b.counters().rx_dropped == 100
    });
    assert!(came >= b.caps().rx_frames as u64 && b.counters().rx_dropped > 0, "{:?}", b.counters());
    assert_eq!(b.counters().rx_frames, 1 + came);
}

/// Who says that there is more than there is gets nowhere, and the next one is not mistaken for the rest.
pub fn a_packet_that_is_shorter_than_it_says_is_dropped() {
    let Some((mut a, mut b, to_b)) = fetching_pair() else { return };
    let LinkAddr::Ether { mac: dst_mac, endpoint: dst } = b.caps().addr else { unreachable!("it is on an interface") };
    let neighbour = RawSocket::dressing_on("vA");
    let full = a.caps().mtu;
    let forge = |says: u16, service, has: usize| {
        let mut header = gso::Header { dst_mac, src_mac: [2; 6], dst, src: 9, len: 0 }.emit(1448);
        gso::set(&mut header, says, service);
        neighbour.send(&[&header[..], &vec![0xee; has]].concat());
    };
    // As long as the longest, as ours are, and as what fits a slot; one of them honest.
    for (says, has) in [(65_495, 3_000), (full as u16, full - 1), (1_800, 1_700), (3_000, 3_000)] {
        forge(says, Service::Placed, has);
        let mut shown = Vec::new();
        for way in 0..2 {
            send_before(&mut a, to_b, way, full);
        }
        until("what follows comes", || {
            b.rx_arrivals(64, |arrival, _| {
                shown.extend(arrival.whole().map(|frame| (frame[0], frame.len())));
            });
            shown.len() > 1 + usize::from(says as usize == has)
        });
        let honest = (says as usize == has).then_some((0xee, has));
        assert!(honest.into_iter().chain([(0, full), (1, full)]).eq(shown), "{says} B of {has}");
    }
    let counters = b.counters();
    assert_eq!((counters.rx_frames, counters.rx_dropped, counters.rx_foreign), (9, 3, 0));
}

/// Where segments are merged again they would come by chance only; so none comes, and who asks for the way's length is told the shorter one.
pub fn packets_that_were_cut_on_the_way_are_not_put_together_again() {
    bridged();
    for features in [["pB", "tso", "off"], ["vB", "gro", "on"]] {
        let status = Command::new("ethtool").arg("-K").args(features).status();
        if !status.is_ok_and(|status| status.success()) {
            return println!("skipped: wants ethtool");
        }
    }
    let (mut a, mut b) = (open("vA", 1), open("vB", 1));
    let to_b = a.link(b.caps().addr).unwrap();
    let (full, small) = (a.caps().mtu, a.caps().mtu_safe);
    let wire = RawSocket::listening_on("vB");
    let longest = || std::iter::from_fn(|| wire.receive()).map(|frame| frame.len()).max().unwrap_or(0);
    // Without URG they are.
    let LinkAddr::Ether { mac: dst_mac, endpoint: dst } = b.caps().addr else { unreachable!("it is on an interface") };
    let mut header = gso::Header { dst_mac, src_mac: [2; 6], dst, src: 9, len: full as u16 }.emit(1448);
    header[gso::VNET_LEN + TCP_FLAGS] &= !URG;
    RawSocket::dressing_on("vA").send(&[&header[..], &vec![1; full]].concat());
    let mut merged = 0;
    until("the pieces come", || {
        merged = merged.max(longest());
        merged > 0
    });
    assert!(merged > 1_514, "this kernel merges pieces");
    // Of both kinds: in pieces, and after 1 MiB one way in one.
    for number in 0..60 {
        if number % 2 == 0 {
            send_before(&mut a, to_b, number, full);
        } else {
            send(&mut a, to_b, &vec![number; full]);
        }
        send(&mut a, to_b, &vec![number; small]);
        assert_eq!(receive_one(&mut b), vec![number; small], "and nothing before it");
    }
    let pieces = longest();
    assert!(pieces > 1_000 && pieces <= 1_514, "{pieces} B");
}

const TCP_FLAGS: usize = 47;
const URG: u8 = 0x20;

/// Who panics with a packet in hand has it shown again: its bytes were taken, and those of the next one are not its.
pub fn no_packet_takes_the_place_of_one_that_was_in_hand_at_a_panic() {
    let Some((mut a, mut b, to_b)) = fetching_pair() else { return };
    let full = a.caps().mtu;
    for number in 1..=6 {
        send_before(&mut a, to_b, number, full);
    }
    let mut place = vec![0; full - FRONT];
    let in_hand = catch_unwind(AssertUnwindSafe(|| {
        b.rx_arrivals(1, |arrival, _| {
            let Arrival::Begun(begun) = arrival else { unreachable!("the first one is to be fetched") };
            assert!(begun.fetch(&mut place) && place.iter().all(|byte| *byte == 1));
            panic!("in the middle of a frame");
        })
    }));
    assert!(in_hand.is_err());
    let mut shown = Vec::new();
    until("the last one comes", || {
        b.rx_arrivals(64, |arrival, _| match arrival {
            Arrival::Whole(frame) => shown.push((frame[0], frame.iter().all(|byte| *byte == frame[0]))),
            Arrival::Begun(begun) => {
                let number = begun.head()[0];
                if begun.fetch(&mut place) {
                    shown.push((number, place.iter().all(|byte| *byte == number)));
                }
            }
        });
        shown.last().is_some_and(|(number, _)| *number == 6)
    });
    assert!(shown.iter().all(|(_, is_whole)| *is_whole), "{shown:?}");
    assert_eq!(b.counters().rx_dropped, 3, "what was to be fetched is lost: {shown:?}");
    // The queue is in step again.
    send_before(&mut a, to_b, 7, full);
    assert_eq!(receive_one(&mut b), vec![7; full]);
    assert_eq!(b.counters().rx_dropped, 3);
}
