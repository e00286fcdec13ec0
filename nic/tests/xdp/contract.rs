//! The conformance suite, on every kind of interface.

use sidelane_nic::xdp::{Config, Mode, Preference, Xdp};

use crate::namespace::{bridged, ip, veth};
use crate::on_interfaces;

fn keeps_the_contract(interfaces: &'static [&'static str], prefer: Preference) {
    on_interfaces::keeps_the_contract(interfaces, |interface, endpoint| {
        Xdp::open(&Config { prefer, ..Config::new(interface, endpoint) })
    });
}

pub fn veth_keeps_the_contract() {
    veth("vA", "vB");
    keeps_the_contract(&["vA", "vB", "vB"], Preference::Fastest);
}

pub fn native_mode_keeps_the_contract() {
    veth("vA", "vB");
    let (a, b) = (Config { prefer: Preference::Native, ..Config::new("vA", 1) }, Config::new("vB", 1));
    assert_eq!(Xdp::open(&a).unwrap().mode(), Mode::Native);
    assert_eq!(Xdp::open(&b).unwrap().mode(), Mode::Generic);
    keeps_the_contract(&["vA", "vB", "vB"], Preference::Native);
}

pub fn bridge_keeps_the_contract() {
    keeps_the_contract(bridged(), Preference::Fastest);
}

pub fn loopback_keeps_the_contract() {
    ip("link set lo up");
    keeps_the_contract(&["lo", "lo", "lo"], Preference::Fastest);
}
