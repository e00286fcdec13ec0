//! Puts of 1 MiB on `shm` beside one `memcpy`, in each round of one run: `cargo run --release -p sidelane-bench --example put_beside_memcpy`
//!
//! Two threads on the first two cores. In each round the first copies 1 MiB from one buffer of its own to another, with places for two
//! messages there as the rung `put` has them, and then puts as much and as long into memory that it shares with the second, which counts.

use std::hint::black_box;
use std::thread;

use sidelane_bench::clock::now_ns;
use sidelane_bench::pattern::{Kind, Outcome, Pattern, Role, play};
use sidelane_bench::side::Sealing;
use sidelane_bench::stats::median;
use sidelane_bench::transport::{Broken, Proto, Put};
use sidelane_nic::shm::ShmNic;
use sidelane_nic::{Nic, affinity};

fn main() {
    let cores = affinity::cores();
    affinity::pin_to(cores[0]).expect("a core for this thread");
    let (mut copies, mut puts, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (copied, put) = (copy(), put(round, cores[1 % cores.len()]));
        // The first only warms.
        if round > 0 {
            println!("round {round}: memcpy {copied:.1} GB/s, put {put:.1} GB/s");
            copies.push(copied);
            puts.push(put);
            ratios.push(put / copied);
        }
    }
    let middle = |values: &mut [f64]| median(values).unwrap_or(f64::NAN);
    println!(
        "medians: memcpy {:.1} GB/s, put {:.1} GB/s, put / memcpy within rounds {:.2}",
        middle(&mut copies),
        middle(&mut puts),
        middle(&mut ratios)
    );
}

fn copy() -> f64 {
    let (source, mut places) = (vec![0x5a_u8; SIZE], vec![0x5a_u8; 2 * SIZE]);
    let (mut count, mut since) = (0u64, 0);
    let warm_until = now_ns() + WARM_NS;
    loop {
        let now = now_ns();
        if since == 0 && now >= warm_until {
            (count, since) = (0, now);
        }
        if since > 0 && now >= since + MEASURE_NS {
            return count as f64 * SIZE as f64 / (now - since) as f64;
        }
        let at = SIZE * (count as usize % 2);
        places[at..at + SIZE].copy_from_slice(black_box(&source));
        black_box(&places);
        count += 1;
    }
}

fn put(round: usize, core: usize) -> f64 {
    let domain = format!("put-{}-{round}", std::process::id());
    let open = || ShmNic::open(&domain, None).expect("a domain");
    let (a, b) = (open(), open());
    let at_b = b.caps().addr;
    let pattern = Pattern {
        kind: Kind::Bandwidth,
        size: SIZE,
        depth: None,
        warm_ns: WARM_NS,
        measure_ns: MEASURE_NS,
        limit_ns: LIMIT_NS,
    };
    let receive = || -> Result<Outcome, Broken> {
        affinity::pin_to(core).expect("a core for this thread");
        let proto = Proto::accept(b, Sealing::None, SIZE, now_ns() + LIMIT_NS)?;
        play(&pattern, Role::Responder, &mut Put::new(proto, SIZE, pattern.flow(Role::Responder))?)
    };
    let send = || -> Result<Outcome, Broken> {
        let proto = Proto::connect(a, Sealing::None, at_b, SIZE, now_ns() + LIMIT_NS)?;
        play(&pattern, Role::Initiator, &mut Put::new(proto, SIZE, pattern.flow(Role::Initiator))?)
    };
    thread::scope(|scope| {
        let receiver = scope.spawn(receive);
        send().expect("the sender's part");
        let outcome = receiver.join().expect("no panic").expect("the receiver's part");
        outcome.msgs_per_s.unwrap_or(f64::NAN) * SIZE as f64 / 1e9
    })
}

const ROUNDS: usize = 9;
const SIZE: usize = 1 << 20;
const WARM_NS: u64 = 20_000_000;
const MEASURE_NS: u64 = 80_000_000;
const LIMIT_NS: u64 = 5_000_000_000;
