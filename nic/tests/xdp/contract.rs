//! The conformance suite, on every kind of interface.

use sidelane_nic::LinkAddr;
use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::xdp::{Config, Mode, Preference, Xdp};

use crate::namespace::{bridged, ip, veth};
use crate::raw_socket::RawSocket;

pub fn veth_keeps_the_contract() {
    veth("vA", "vB");
    keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], prefer: Preference::Fastest });
}

pub fn native_mode_keeps_the_contract() {
    veth("vA", "vB");
    let (a, b) = (Config { prefer: Preference::Native, ..Config::new("vA", 1) }, Config::new("vB", 1));
    assert_eq!(Xdp::open(&a).unwrap().mode(), Mode::Native);
    assert_eq!(Xdp::open(&b).unwrap().mode(), Mode::Generic);
    keeps_the_contract(On { interfaces: &["vA", "vB", "vB"], prefer: Preference::Native });
}

pub fn bridge_keeps_the_contract() {
    keeps_the_contract(On { interfaces: bridged(), prefer: Preference::Fastest });
}

pub fn loopback_keeps_the_contract() {
    ip("link set lo up");
    keeps_the_contract(On { interfaces: &["lo", "lo", "lo"], prefer: Preference::Fastest });
}

/// Endpoints on interfaces, in this order; all of one interface after the other have numbers of their own.
struct On {
    interfaces: &'static [&'static str],
    prefer: Preference,
}

impl Setup for On {
    type Nic = Xdp;

    fn open(&mut self, count: usize) -> Result<Vec<Xdp>, String> {
        let endpoints = self.interfaces.iter().zip(1..).take(count).map(|(interface, endpoint)| {
            let config = Config { prefer: self.prefer, ..Config::new(*interface, endpoint) };
            Xdp::open(&config).map_err(|error| error.to_string())
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
