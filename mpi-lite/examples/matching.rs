//! What a message costs while 1, 100 and 10,000 receives, or messages, wait that have nothing to do with it: a process with
//! itself, so that nothing but matching and one copy of 8 bytes is counted.
//!
//! `cargo run --release -p sidelane-mpi --example matching`

use std::time::Instant;

use sidelane_mpi::adi::{Config, Device, Envelope, Incoming, Mode, Outgoing, Pattern, Process, Request, Source};

const MESSAGES: u32 = 1_000_000;
const ROUNDS: usize = 7;

/// What waits while a message is sent and received.
#[derive(Clone, Copy)]
enum Waiting {
    Receives,
    /// Of which every second one takes any source.
    OpenReceives,
    Messages,
    /// And the receive takes any source.
    MessagesForAnybody,
}

fn main() {
    println!("{:<34}{:>10}{:>10}{:>10}", "ns a message, while there wait:", 1, 100, 10_000);
    for (name, waiting) in [
        ("receives", Waiting::Receives),
        ("receives, half of them open", Waiting::OpenReceives),
        ("messages", Waiting::Messages),
        ("messages; any source is taken", Waiting::MessagesForAnybody),
    ] {
        let cells = [1, 100, 10_000].map(|count| {
            let mut rounds: Vec<_> = (0..ROUNDS).map(|_| round(waiting, count)).collect();
            rounds.sort_by(f64::total_cmp);
            rounds[ROUNDS / 2]
        });
        println!("{name:<34}{:>10.1}{:>10.1}{:>10.1}", cells[0], cells[1], cells[2]);
    }
}

fn round(waiting: Waiting, count: i32) -> f64 {
    let mut device = Device::open(0, vec![Process::here("host", &[])], vec![], &config()).expect("one process");
    let mut room = [0; 8];
    for tag in 1..=count {
        match waiting {
            Waiting::Receives => recv(&mut device, Some(0), tag, &mut room),
            Waiting::OpenReceives => recv(&mut device, (tag % 2 == 0).then_some(0), tag, &mut room),
            Waiting::Messages | Waiting::MessagesForAnybody => send(&mut device, tag),
        };
    }
    let source = if matches!(waiting, Waiting::MessagesForAnybody) { None } else { Some(0) };
    let begin = Instant::now();
    for _ in 0..MESSAGES {
        let request = if matches!(waiting, Waiting::Receives | Waiting::OpenReceives) {
            let request = recv(&mut device, source, 0, &mut room);
            send(&mut device, 0);
            request
        } else {
            send(&mut device, 0);
            recv(&mut device, source, 0, &mut room)
        };
        assert_eq!(device.poll(request).map(|status| status.bytes), Some(8));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(MESSAGES)
}

fn recv(device: &mut Device, source: Option<u32>, tag: i32, room: &mut [u8]) -> Request {
    let source = source.map(|rank| Source { rank, process: 0 });
    // SAFETY: `room` lives as long as the device. Receives that wait are never matched, and so never write it.
    let room = unsafe { Incoming::lend(room) };
    device.recv(Pattern { context: 1, source, tag: Some(tag) }, room)
}

fn send(device: &mut Device, tag: i32) -> Request {
    // SAFETY: a constant.
    let bytes = unsafe { Outgoing::lend(b"8 bytes.") };
    device.send(0, Envelope { context: 1, source: 0, tag }, bytes, Mode::Standard)
}

/// No bound on what waits: this is about what is there.
fn config() -> Config {
    Config { credit: 4 << 20, ..Config::default() }
}
