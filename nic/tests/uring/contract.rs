//! The conformance suite on each kind of interface.

use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::uring::{Config, Uring};
use sidelane_nic::{LinkAddr, Nic};

use crate::namespace::{bridged, ip, veth};
use crate::raw_socket::RawSocket;
use crate::stage::{open, turn_offloads_off};

/// Endpoints on interfaces, in this order; all of one interface after the other have numbers of their own.
struct On {
    interfaces: &'static [&'static str],
    real_frames: bool,
}

impl Setup for On {
    type Nic = Uring;

    fn open(&mut self, count: usize) -> Result<Vec<Uring>, String> {
        let endpoints = self.interfaces.iter().zip(1..).take(count).map(|(interface, endpoint)| {
            let config = Config { real_frames: self.real_frames, ..Config::new(*interface, endpoint) };
            Uring::open(&config).map_err(|error| error.to_string())
        });
        endpoints.collect()
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        Some("02:00:00:00:00:99/9".parse().unwrap())
    }

    fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool {
        RawSocket::on(self.interfaces[0]).throw(victim, bytes);
        true
    }
}

fn keeps_the_contract(mut setup: On) {
    // A skipped suite would be a suite that proves nothing: here it has to open.
    setup.open(3).unwrap();
    conformance::run(&mut setup).assert_passed();
    conformance::run_threads(&mut setup).assert_passed();
}

pub fn veth_keeps_the_contract() {
    veth("vA", "vB");
    keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], real_frames: false });
}

pub fn real_frames_on_veth_keep_the_contract() {
    veth("vA", "vB");
    keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], real_frames: true });
}

pub fn trains_on_veth_keep_the_contract() {
    veth("vA", "vB");
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    assert_eq!(open("vA", 1).caps().mtu, 1_500 - 32);
    keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], real_frames: false });
}

pub fn bridge_keeps_the_contract() {
    keeps_the_contract(On { interfaces: bridged(), real_frames: false });
}

pub fn loopback_keeps_the_contract() {
    ip("link set lo up");
    keeps_the_contract(On { interfaces: &["lo", "lo", "lo"], real_frames: false });
}
