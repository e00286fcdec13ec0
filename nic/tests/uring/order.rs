//! Frames of two rings, and short ones that are seen before the kernel hands them over: whole, and in the order of sending.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sidelane_nic::rng::Rng;
use sidelane_nic::uring::Uring;
use sidelane_nic::{Link, Nic};

use crate::patience::until;
use crate::stage::{commit, receive_one, send, veth_pair};

pub fn frames_of_both_rings_come_in_the_order_of_sending() {
    let (mut a, mut b, to_b) = veth_pair();
    assert!(a.caps().mtu > a.caps().mtu_safe, "a veth has the offload: {:?}", a.caps());
    let (small, large) = (a.caps().mtu_safe, a.caps().mtu);
    let mut next = 0u8;
    for round in 0..50 {
        let sent = next;
        for at in 0..16 {
            // Runs of one to three of a kind.
            let len = if (at + round) / 2 % 2 == 0 { small } else { large };
            assert!(commit(&mut a, to_b, &vec![next; len]));
            next = next.wrapping_add(1);
        }
        a.flush();
        for number in 0..16u8 {
            assert_eq!(receive_one(&mut b)[0], sent.wrapping_add(number));
        }
    }
}

pub fn short_frames_that_come_alone_and_many_at_once_are_whole() {
    let (mut a, mut b, to_b) = veth_pair();
    let (mut frames, begun) = (0, Instant::now());
    until("a frame is seen early", || {
        // Mostly alone, so that it is seen before the kernel hands it over.
        let under_way = |number| if number % 1_000 < 900 { 1 } else { 64 };
        receive_numbered(&mut a, &mut b, to_b, frames..frames + PART, under_way, |_| 16);
        frames += PART;
        (b.seen_early() > 0 || shares_the_only_core()) && is_enough(frames, 200_000, begun)
    });
    assert_eq!((b.counters().rx_frames, b.counters().rx_dropped), (frames, 0));
    println!("{} of {frames} frames were seen early", b.seen_early());
}

/// What is seen early waits for what came before it in the ring of super-packets.
pub fn short_frames_that_follow_large_ones_come_after_them() {
    let (mut a, mut b, to_b) = veth_pair();
    let large = a.caps().mtu_safe as u64 + 1;
    assert!(large < a.caps().mtu as u64, "a veth has the offload: {:?}", a.caps());
    // Pairs of a large frame and a short one, sent with nothing between them.
    let len = |number| if number % 2 == 0 { large } else { 16 };
    let (mut frames, begun) = (0, Instant::now());
    until("a frame is seen early", || {
        receive_numbered(&mut a, &mut b, to_b, frames..frames + PART, |number| 1 + number % 2, len);
        frames += PART;
        (b.seen_early() > 0 || shares_the_only_core()) && is_enough(frames, 100_000, begun)
    });
    assert_eq!((b.counters().rx_frames, b.counters().rx_dropped), (frames, 0));
    println!("{} of {frames} frames were seen early", b.seen_early());
}

/// Frames that come one after the other, each after a turn on a core that other programs may want as well.
const PART: u64 = 2_000;

/// As many as wanted, or as many as come in a few seconds.
fn is_enough(frames: u64, wanted: u64, begun: Instant) -> bool {
    frames >= wanted || begun.elapsed().as_secs() >= 10
}

/// Who shares a core with the sender sees no frame early.
fn shares_the_only_core() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1)
}

/// Frames of these numbers, each of at least `len` bytes and sent when fewer than `under_way` are, come whole and in order.
fn receive_numbered(
    a: &mut Uring,
    b: &mut Uring,
    to_b: Link,
    numbers: Range<u64>,
    under_way: impl Fn(u64) -> u64 + Sync,
    len: impl Fn(u64) -> u64 + Sync,
) {
    let (sender, mut next, end) = (a.caps().addr, numbers.start, numbers.end);
    let (received, mut rng) = (AtomicU64::new(next), Rng::new(1 + next));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in numbers {
                let room = || number - received.load(Ordering::Acquire) < under_way(number);
                until("what was sent is received", room);
                let mut frame = vec![0; (len(number) + rng.below(160)) as usize];
                rng.fill(&mut frame[16..]);
                frame[8..16].copy_from_slice(&number.to_le_bytes());
                let check = check_of(&frame);
                frame[..8].copy_from_slice(&check.to_le_bytes());
                send(a, to_b, &frame);
            }
        });
        until("all frames come", || {
            b.rx_burst(64, |frame, from| {
                assert_eq!(from, sender);
                assert!(frame[..8] == check_of(frame).to_le_bytes(), "frame {next} is not as it was sent");
                assert_eq!(frame[8..16], u64::to_le_bytes(next));
                next += 1;
                received.store(next, Ordering::Release);
            });
            received.load(Ordering::Relaxed) == end
        });
    });
}

/// Of all but the first eight bytes (FNV-1a, 64 bits).
fn check_of(frame: &[u8]) -> u64 {
    let step = |check: u64, byte: &u8| (check ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    frame.iter().skip(8).fold(0xcbf2_9ce4_8422_2325, step)
}
