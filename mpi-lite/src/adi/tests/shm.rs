//! Two processes' worth of devices over shared memory, a thread each.
#![allow(unsafe_code)] // Threads lend memory that they own for as long as they wait.

use std::sync::Barrier;

use sidelane_nic::time::Duration;

use super::job::bytes;
use crate::adi::threads::in_changed_threads;
use crate::adi::{Config, Device, Envelope, Error, Incoming, Limits, Mode, Outgoing, Pattern, Process, Source};

/// Runs `each` as every process of a job on one host.
fn job(size: u32, config: &Config, change: fn(&mut Process), each: impl Fn(&mut Device) + Sync) {
    in_changed_threads(size, config, change, |mut device| {
        each(&mut device);
        device.close(Duration::from_millis(2_000));
    });
}

fn send(device: &mut Device, to: u32, tag: i32, bytes: &[u8]) {
    let envelope = Envelope::new(1, device.own(), tag);
    // SAFETY: we wait until it is complete.
    let request = device.send(to, envelope, unsafe { Outgoing::lend(bytes) }, Mode::Standard);
    assert_eq!(device.wait(request).error, None);
}

fn recv(device: &mut Device, from: u32, tag: i32, len: usize) -> Vec<u8> {
    let mut room = vec![0; len];
    let source = Some(Source { rank: from, process: from });
    // SAFETY: we wait until it is complete.
    let lent = unsafe { Incoming::lend(&raw mut room[..]) };
    let request = device.recv(Pattern { context: 1, source, tag: Some(tag) }, lent);
    let status = device.wait(request);
    assert_eq!(status.error, None);
    room.truncate(status.bytes);
    room
}

#[test]
fn what_has_found_no_room_goes_out_before_the_connections_end() {
    const MANY: i32 = 600;
    let message = bytes(3, 1_000);
    let meet = Barrier::new(2);
    job(
        2,
        &Config::default(),
        |_| (),
        |device| {
            if device.own() == 1 {
                meet.wait();
                (0..MANY).for_each(|tag| assert_eq!(recv(device, 0, tag, message.len()), message));
                return;
            }
            for tag in 0..MANY {
                let envelope = Envelope::new(1, 0, tag);
                // SAFETY: the message outlives the job, and nobody writes it.
                let request =
                    device.send(1, envelope, unsafe { Outgoing::lend(&raw const message[..]) }, Mode::Standard);
                device.free(request);
            }
            assert!(device.engine.has_unsaid());
            meet.wait();
        },
    );
}

/// The longest messages are pulled.
fn pulling() -> Config {
    Config { on_host: Limits { pull_min: 1 << 20, ..Limits::SHARED_MEMORY }, ..Config::default() }
}

/// Back and forth around every limit.
fn ping_pong(device: &mut Device) {
    for len in [0, 8, 4_000, 8 << 10, (8 << 10) + 1, 20_000, 100_000, 3 << 20] {
        ping_pong_of(device, len);
    }
}

fn ping_pong_of(device: &mut Device, len: usize) {
    let other = 1 - device.own();
    for round in 0..20 {
        let message = bytes(round + device.own(), len);
        if device.own() == 0 {
            send(device, other, len as i32, &message);
            assert_eq!(recv(device, other, len as i32, len), bytes(round + other, len));
        } else {
            assert_eq!(recv(device, other, len as i32, len), bytes(round + other, len));
            send(device, other, len as i32, &message);
        }
    }
}

/// Else it would be put together, and could not be taken from where it came.
#[test]
fn messages_that_are_sent_unasked_are_frames_of_32_kib() {
    for (len, parts) in [(32 << 10, 1), (Limits::SHARED_MEMORY.eager_max, 2)] {
        job(
            2,
            &Config::default(),
            |_| {},
            |device| {
                ping_pong_of(device, len);
                let counters = device.ports[0].counters();
                // Not all need be: the first one may come with word of the connection, another behind credit.
                assert!(counters.messages_in_place > 0, "{counters:?}");
                // The first one leaves before it is known what fits a frame.
                assert!(counters.messages_received > 19 * parts, "{len} bytes: {counters:?}");
            },
        );
    }
}

#[test]
fn the_longest_messages_are_read_from_their_senders_memory_and_long_ones_put() {
    job(
        2,
        &pulling(),
        |_| {},
        |device| {
            ping_pong(device);
            assert_eq!((device.counters().pulled, device.counters().put), (20, 20));
        },
    );
}

#[test]
fn what_is_missing_is_read_from_behind_the_bytes_that_came_with_the_announcement() {
    let limits = Limits { eager_max: 300, prefix: 100, put_min: Limits::NEVER, pull_min: 0 };
    job(
        2,
        &Config { on_host: limits, ..Config::default() },
        |_| {},
        |device| {
            ping_pong_of(device, 5_000);
            assert_eq!(device.counters().pulled, 20);
        },
    );
}

#[test]
fn long_messages_are_put_where_memory_cannot_be_read() {
    // A mark that is not there: as if the process were another.
    job(
        2,
        &pulling(),
        |process| process.mark ^= 1,
        |device| {
            ping_pong(device);
            assert!(device.counters().pulled == 0 && device.counters().put > 0);
        },
    );
}

#[test]
fn long_messages_are_put_where_nobody_wants_memory_to_be_read() {
    job(
        2,
        &Config { single_copy: false, ..pulling() },
        |_| {},
        |device| {
            ping_pong(device);
            assert!(device.counters().pulled == 0 && device.counters().put > 0);
        },
    );
}

#[test]
fn more_processes_than_cores_exchange_messages_with_all() {
    job(
        8,
        &Config::default(),
        |_| {},
        |device| {
            for round in 0..50 {
                let own = device.own();
                for distance in 1..8 {
                    send(device, (own + distance) % 8, round, &bytes(own, 100));
                }
                for distance in 1..8 {
                    let from = (own + distance) % 8;
                    assert_eq!(recv(device, from, round, 100), bytes(from, 100));
                }
            }
        },
    );
}

/// Room in a ring is no message: whoever waits for the send looks at it all the same, and does not sleep.
#[test]
fn a_turn_in_which_sends_go_on_has_moved() {
    let (blocked, taken) = (Barrier::new(2), Barrier::new(2));
    job(
        2,
        &Config::default(),
        |_| {},
        |device| {
            ping_pong_of(device, 8);
            if device.own() == 1 {
                for _ in 0..ROUNDS {
                    blocked.wait();
                    device.progress();
                    taken.wait();
                }
                (0..SENDS).for_each(|_| assert_eq!(recv(device, 0, 3, 8), MESSAGE));
                return;
            }
            let envelope = Envelope::new(1, 0, 3);
            // SAFETY: they are for ever.
            let bytes = || unsafe { Outgoing::lend(&raw const MESSAGE[..]) };
            let sends: Vec<_> = (0..SENDS).map(|_| device.send(1, envelope, bytes(), Mode::Standard)).collect();
            device.flush();
            while device.progress() {}
            let over = |device: &mut Device| sends.iter().filter(|send| device.is_complete(**send)).count();
            let mut before = over(device);
            assert!(before < sends.len(), "the ring is full");
            for _ in 0..ROUNDS {
                blocked.wait();
                taken.wait();
                for _ in 0..4 {
                    let moved = device.progress();
                    let now = over(device);
                    assert!(moved || now == before, "{} sends went on", now - before);
                    before = now;
                }
            }
            sends.into_iter().for_each(|send| assert_eq!(device.wait(send).error, None));
        },
    );
}

/// As of ranks that do not see each other's numbers, each in a container of its own.
#[test]
fn who_has_ended_before_anybody_spoke_to_it_and_is_not_seen_is_told_of() {
    const BOUND: std::time::Duration = std::time::Duration::from_secs(10);
    in_changed_threads(
        2,
        &Config::default(),
        |process| process.born = None,
        |mut device| {
            if device.own() == 1 {
                return;
            }
            let begun = std::time::Instant::now();
            let pattern = Pattern { context: 1, source: Some(Source { rank: 1, process: 1 }), tag: Some(1) };
            let request = device.recv(pattern, Incoming::EMPTY);
            assert_eq!(device.wait(request).error, Some(Error::ProcFailed));
            assert!(begun.elapsed() < BOUND && device.gone() == [1]);
        },
    );
}

/// More than a ring and a FIFO hold.
const SENDS: usize = 20_000;
const ROUNDS: usize = 20;
static MESSAGE: [u8; 8] = [7; 8];
