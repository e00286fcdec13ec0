//! The `dpdk` driver on DPDK's virtual devices: both ends in this process. Where there is no libdpdk, each test says so
//! and passes.

mod libdpdk;

use std::time::{Duration, Instant};

use sidelane_nic::LinkAddr;
use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::dpdk::{Config, Dpdk, OpenError};

/// A name that no other process uses.
fn unique(name: &str) -> String {
    format!("sidelane-{name}-{}", std::process::id())
}

/// One endpoint on the first end of a pair, the others on the second.
struct Pair {
    ends: [String; 2],
    mtu: Option<u16>,
}

impl Setup for Pair {
    type Nic = Dpdk;

    fn open(&mut self, count: usize) -> Result<Vec<Dpdk>, String> {
        let [first, second] = &self.ends;
        let devices = std::iter::once(first).chain(std::iter::repeat(second));
        let open = |(device, endpoint)| {
            Dpdk::open(&Config { endpoint, mtu: self.mtu, shared: count > 2, ..Config::new(device) })
        };
        let opened: Result<Vec<Dpdk>, OpenError> = devices.zip(1..).take(count).map(open).collect();
        let opened = opened.map_err(|error| error.to_string())?;
        let give_up = Instant::now() + Duration::from_secs(5);
        while !opened.iter().all(Dpdk::link_is_up) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(opened)
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some("02:00:00:00:00:99/9".parse().unwrap())
    }
}

fn keeps_the_contract(mut setup: Pair) {
    if libdpdk::is_missing() {
        return;
    }
    // A skipped suite would be a suite that proves nothing: here it has to open.
    drop(setup.open(3).unwrap());
    conformance::run(&mut setup).assert_passed();
    conformance::run_threads(&mut setup).assert_passed();
}

fn memif(name: &str) -> [String; 2] {
    let name = unique(name);
    [format!("memif:{name},server"), format!("memif:{name}")]
}

#[test]
fn memif_keeps_the_contract() {
    keeps_the_contract(Pair { ends: memif("plain"), mtu: None });
}

#[test]
fn memif_with_jumbo_frames_keeps_the_contract() {
    keeps_the_contract(Pair { ends: memif("jumbo"), mtu: Some(9000) });
}

#[test]
fn vhost_keeps_the_contract() {
    let path = std::env::temp_dir().join(unique("vhost")).display().to_string();
    keeps_the_contract(Pair { ends: [format!("vhost:{path},server"), format!("vhost:{path}")], mtu: None });
    assert!(!std::fs::exists(&path).unwrap(), "its socket is still there");
}
