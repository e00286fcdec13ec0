//! Half round trips by message size, each way that a message may go forced in turn: what the limits in `adi/config.rs`
//! come from. Two threads are the two processes.
//!
//! `cargo run --release -p sidelane-mpi --example curve -- shm:curve`, or with the two ends of a wire: `uring:a uring:b`

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use sidelane_mpi::adi::{
    Config, Device, Envelope, Incoming, Limits, Mode, Outgoing, Pattern, Port, Process, Source, host_identity,
};

const SIZES: [usize; 17] = [
    8,
    1 << 10,
    2 << 10,
    4 << 10,
    6 << 10,
    8 << 10,
    12 << 10,
    16 << 10,
    20 << 10,
    23 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
];
/// Time for each size in each round, and how often all is repeated, one way after the other.
const EACH: Duration = Duration::from_millis(4);
const ROUNDS: usize = 5;
const NEVER: usize = usize::MAX;

/// Names, and limits that force a way.
fn ways() -> Vec<(&'static str, Config)> {
    let with =
        |on_host: Limits| Config { on_host, off_host: on_host, paired: on_host, credit: 4 << 20, ..Config::default() };
    let asked = |prefix, put_min, pull_min| with(Limits { eager_max: 0, prefix, put_min, pull_min });
    vec![
        ("eager", with(Limits { eager_max: 1 << 20, prefix: 0, put_min: 0, pull_min: NEVER })),
        ("data", asked(0, NEVER, NEVER)),
        ("put", asked(0, 0, NEVER)),
        ("put 4K", asked(4 << 10, 0, NEVER)),
        ("put 16K", asked(16 << 10, 0, NEVER)),
        ("pull", asked(0, NEVER, 0)),
        ("pull 4K", asked(4 << 10, NEVER, 0)),
        ("pull 16K", asked(16 << 10, NEVER, 0)),
        ("default", Config::default()),
    ]
}

fn main() {
    let mut specs: Vec<String> = std::env::args().skip(1).collect();
    if specs.len() < 2 {
        specs = vec![specs.first().cloned().unwrap_or("shm:curve".to_owned()); 2];
    }
    let mut table = vec![vec![f64::INFINITY; SIZES.len()]; ways().len()];
    for _ in 0..ROUNDS {
        for (row, (_, config)) in table.iter_mut().zip(ways()) {
            for (cell, taken) in row.iter_mut().zip(measure(&specs, &config)) {
                *cell = cell.min(taken);
            }
        }
    }
    print!("{:<10}", "us");
    SIZES.iter().for_each(|size| print!("{size:>9}"));
    for ((name, _), row) in ways().iter().zip(table) {
        print!("\n{name:<10}");
        row.iter().for_each(|taken| print!("{taken:>9.2}"));
    }
    println!();
}

/// Medians of half round trips in microseconds, by size.
fn measure(specs: &[String], config: &Config) -> Vec<f64> {
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    thread::scope(|scope| {
        let first = scope.spawn(move || side(0, &specs[0], config, &to_b, &from_b));
        scope.spawn(move || side(1, &specs[1], config, &to_a, &from_a));
        first.join().expect("the first side")
    })
}

fn side(own: u32, spec: &str, config: &Config, tell: &Sender<String>, told: &Receiver<String>) -> Vec<f64> {
    let _ = sidelane_nic::affinity::pin_to(own as usize);
    let ports = vec![Port::open(&spec.parse().expect("a driver"), config).expect("the driver opens")];
    let here = Process::here(&host_identity(), &ports);
    tell.send(here.to_string()).expect("the other side");
    let there = told.recv().expect("the other side").parse().expect("a process");
    let processes = if own == 0 { vec![here, there] } else { vec![there, here] };
    let mut device = Device::open(own, processes, ports, config).expect("two that reach each other");
    let taken = SIZES.iter().map(|size| play(&mut device, *size)).collect();
    device.close(sidelane_nic::time::Duration::from_millis(100));
    taken
}

/// Back and forth until the first side says that it is enough, by its first byte.
fn play(device: &mut Device, size: usize) -> f64 {
    let (mut bytes, mut room) = (vec![0u8; size], vec![0u8; size]);
    let (own, other) = (device.own(), 1 - device.own());
    let envelope = Envelope::new(0, own, 0);
    let pattern = Pattern { context: 0, source: Some(Source { rank: other, process: other }), tag: Some(0) };
    let (begin, mut samples) = (Instant::now(), Vec::new());
    loop {
        let sent = Instant::now();
        if own == 0 {
            bytes[0] = u8::from(begin.elapsed() > EACH && samples.len() > 10);
            // SAFETY: both live until the requests are over, for which we wait.
            let (bytes, room) = unsafe { (Outgoing::lend(&raw const *bytes), Incoming::lend(&raw mut *room)) };
            let receive = device.recv(pattern, room);
            let send = device.send(other, envelope, bytes, Mode::Standard);
            device.wait(send);
            device.wait(receive);
        } else {
            // SAFETY: as above.
            let receive = device.recv(pattern, unsafe { Incoming::lend(&raw mut *room) });
            device.wait(receive);
            bytes[0] = room[0];
            // SAFETY: as above.
            let send = device.send(other, envelope, unsafe { Outgoing::lend(&raw const *bytes) }, Mode::Standard);
            device.wait(send);
        }
        samples.push(sent.elapsed().as_nanos() as f64 / 2_000.0);
        if bytes[0] == 1 {
            samples.sort_by(f64::total_cmp);
            return samples[samples.len() / 2];
        }
    }
}
