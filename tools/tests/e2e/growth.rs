//! Traffic does not make a process grow.

use crate::party::Party;
use crate::stage::{Stage, turn};

/// Endless traffic for `seconds`; the resident memory of the second quarter beside that of the last.
fn soak(stage: &Stage, seconds: usize) {
    let limit = (seconds + 60).to_string();
    let settings = |at: usize| {
        let mut command = stage.side(at, 0);
        // A machine that stalls for a second is not what is tested here.
        command.args(["--limit-s", &limit, "--keep-alive-ms", "2000"]);
        command
    };
    let (mut a, address) = Party::open("A", &mut settings(0));
    let (mut b, _) = Party::open("B", settings(1).args(["--connect", &address]));
    // A side tells about once a second.
    let samples: Vec<[(u64, u64); 2]> = (0..seconds).map(|_| [a.progress(), b.progress()]).collect();
    a.stop();
    b.stop();
    assert!(a.ended().complete && b.ended().complete);
    for side in [0, 1] {
        let largest = |from: usize, to: usize| samples[from..to].iter().map(|sample| sample[side].1).max().unwrap_or(0);
        let (early, late) = (largest(seconds / 4, seconds / 2), largest(seconds * 3 / 4, seconds));
        println!("{}: {} messages, {early} KiB, then {late} KiB", stage.name(), samples[seconds - 1][side].0);
        assert!(late <= early + GROWTH_MAX_KIB, "{}: {early} KiB grew to {late} KiB", stage.name());
    }
}

#[test]
fn ten_seconds_of_traffic_do_not_grow_a_process() {
    let _turn = turn();
    soak(&Stage::Shm(format!("e2e-growth-{}", std::process::id())), 10);
}

fn ten_minutes(driver: &str) {
    let _turn = turn();
    let stages = Stage::all("growth-long");
    let stage = stages.iter().find(|stage| stage.name() == driver).expect("this driver can run here");
    soak(stage, 600);
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes_of_uring_do_not_grow_a_process() {
    ten_minutes("uring");
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes_of_xdp_do_not_grow_a_process() {
    ten_minutes("xdp");
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes_of_udp_do_not_grow_a_process() {
    ten_minutes("udp");
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes_of_shm_do_not_grow_a_process() {
    ten_minutes("shm");
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes_of_memif_do_not_grow_a_process() {
    ten_minutes("dpdk memif");
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes_of_vhost_do_not_grow_a_process() {
    ten_minutes("dpdk vhost");
}

/// The allocator settles within some hundred KiB; a leak of one byte a message passes this within seconds.
const GROWTH_MAX_KIB: u64 = 1024;
