//! The conformance suite on each kind of interface.

use sidelane_nic::Nic;
use sidelane_nic::uring::{Config, Uring};

use crate::namespace::{bridged, ip, veth};
use crate::on_interfaces;
use crate::stage::{open, turn_offloads_off};

fn keeps_the_contract(interfaces: &'static [&'static str], real_frames: bool) {
    on_interfaces::keeps_the_contract(interfaces, |interface, endpoint| {
        Uring::open(&Config { real_frames, ..Config::new(interface, endpoint) })
    });
}

pub fn veth_keeps_the_contract() {
    veth("vA", "vB");
    keeps_the_contract(&["vA", "vB", "vB"], false);
}

pub fn real_frames_on_veth_keep_the_contract() {
    veth("vA", "vB");
    keeps_the_contract(&["vA", "vB", "vB"], true);
}

pub fn trains_on_veth_keep_the_contract() {
    veth("vA", "vB");
    if !turn_offloads_off(&["vA", "vB"]) {
        return println!("skipped: wants ethtool");
    }
    assert_eq!(open("vA", 1).caps().mtu, 1_500 - 32);
    keeps_the_contract(&["vA", "vB", "vB"], false);
}

pub fn bridge_keeps_the_contract() {
    keeps_the_contract(bridged(), false);
}

pub fn loopback_keeps_the_contract() {
    ip("link set lo up");
    keeps_the_contract(&["lo", "lo", "lo"], false);
}
