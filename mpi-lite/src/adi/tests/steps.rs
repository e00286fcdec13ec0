//! What a message costs around the sizes from which it goes another way, where only the network takes time: none costs much more than one
//! that is a byte shorter.

use sidelane_nic::mem::{Config as NodeConfig, Fabric, LineModel, LinkModel};
use sidelane_nic::time::{Duration, Instant};

use super::job::{Job, bytes};
use crate::adi::{Config, Limits, Port, Process};
use crate::patience::{SUITE_PATIENCE, watch};

/// A pair of processes on two hosts, at rest and connected.
fn pair(limits: Limits) -> Job {
    watch("half round trips", SUITE_PATIENCE);
    let fabric = Fabric::new(1);
    // About what a veth carries, for which the limits are made.
    let line = LineModel { rate_bits_per_s: Some(32_000_000_000), ..LineModel::default() };
    fabric.set_default_link(LinkModel { line, delay: Duration::from_micros(1), ..LinkModel::default() });
    let config = Config { off_host: limits, ..Config::default() };
    let node = NodeConfig { mtu: FRAME, mtu_safe: FRAME, ..NodeConfig::default() };
    let port = |seed| {
        let endpoint = sidelane_proto::Config { seed: Some(seed), ..config.endpoint };
        Port::new(fabric.nic(node), &Config { endpoint, ..config }).expect("a driver that devices know")
    };
    let ports: Vec<Port> = (0..2).map(port).collect();
    let here = |(host, port): (usize, &Port)| Process::here(&format!("host{host}"), std::slice::from_ref(port));
    let processes = ports.iter().enumerate().map(here).collect();
    let mut job = Job::of(fabric, ports, processes, &config);
    half_round_trip(&mut job, 0);
    job
}

/// How long a message of `len` bytes takes, there and back, by half.
fn half_round_trip(job: &mut Job, len: usize) -> Duration {
    let data = bytes(len as u32, len);
    let receives = [1, 0].map(|at| job.recv(at, None, None, len));
    settle(job);
    let begun = job.fabric.now();
    let mut sends = Vec::new();
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = job.send(from, to, 1, &data);
        let receive = receives[from as usize];
        until(job, |job| job.devices[to as usize].is_complete(receive.request));
        let (status, got) = job.finish_recv(to, receive);
        assert_eq!((status.error, got), (None, &data[..]));
        sends.push((from, sent));
    }
    let took = job.fabric.now().since(begun);
    for (from, sent) in sends {
        job.finish(from, sent);
    }
    Duration::from_nanos(took.as_nanos() / 2)
}

/// Turns take no time; what they have to wait for does.
fn until(job: &mut Job, is_over: impl Fn(&mut Job) -> bool) {
    let end = job.fabric.now() + Duration::from_millis(100);
    while !is_over(job) {
        if !turn(job) {
            let next = job.fabric.next_arrival().unwrap_or(job.fabric.now() + Duration::from_nanos(100));
            assert!(next < end, "a message has no end");
            job.fabric.advance_to(next);
        }
    }
}

/// Nothing is on its way that the next message would wait behind.
fn settle(job: &mut Job) {
    let rest: Instant = job.fabric.now() + Duration::from_micros(200);
    while job.fabric.now() < rest {
        if !turn(job) {
            let next = job.fabric.next_arrival().filter(|next| *next < rest).unwrap_or(rest);
            job.fabric.advance_to(next);
        }
    }
}

fn turn(job: &mut Job) -> bool {
    job.devices.iter_mut().fold(false, |moved, device| {
        let one = device.progress();
        device.flush();
        moved | one
    })
}

/// Of those around which a message may go another way.
fn sizes(limits: Limits) -> Vec<usize> {
    let around = [
        limits.prefix,
        limits.put_min,
        limits.eager_max,
        limits.eager_max + limits.prefix,
        limits.put_min + limits.prefix,
    ];
    let mut sizes: Vec<usize> = around.into_iter().flat_map(|size| size.saturating_sub(2)..size + 3).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[test]
fn no_message_takes_a_seventh_longer_than_one_that_is_a_byte_shorter() {
    let network = Limits::NETWORK;
    for limits in [network, Limits { prefix: 0, ..network }, Limits { put_min: 128 << 10, ..network }] {
        let mut job = pair(limits);
        let round_trip = 2 * half_round_trip(&mut job, 0).as_nanos();
        let mut asked = Vec::new();
        for len in sizes(limits) {
            let [before, after] = [len, len + 1].map(|len| half_round_trip(&mut job, len).as_nanos());
            assert!(7 * after <= 8 * before, "{limits:?}: {len} B take {before} ns, one more {after}");
            if after > before + round_trip / 2 {
                asked.push(len);
                // It is asked for, and waits for nothing else.
                assert!(after < before + round_trip + 100, "{limits:?}: {len} B take {before} ns, one more {after}");
            }
        }
        assert_eq!(asked, [limits.eager_max]);
    }
}

/// Bytes, as of a veth.
const FRAME: usize = 61 << 10;
