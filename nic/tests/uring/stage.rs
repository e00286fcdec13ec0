//! Endpoints on interfaces of this namespace, and frames between them.

use std::process::Command;

use sidelane_nic::uring::{Config, Uring};
use sidelane_nic::{Link, Nic};

pub use crate::frames::{commit, receive_one, send};
use crate::namespace::veth;

pub fn open(interface: &str, endpoint: u16) -> Uring {
    Uring::open(&Config::new(interface, endpoint)).unwrap()
}

pub fn veth_pair() -> (Uring, Uring, Link) {
    veth("vA", "vB");
    let (mut a, b) = (open("vA", 1), open("vB", 1));
    let to_b = a.link(b.caps().addr).unwrap();
    (a, b, to_b)
}

/// False where there is no ethtool.
pub fn turn_offloads_off(interfaces: &[&str]) -> bool {
    turn_offloads("off", interfaces)
}

/// Undoes [`turn_offloads_off`].
pub fn turn_offloads_on(interfaces: &[&str]) -> bool {
    turn_offloads("on", interfaces)
}

fn turn_offloads(state: &str, interfaces: &[&str]) -> bool {
    interfaces.iter().all(|interface| {
        let status = Command::new("ethtool").args(["-K", interface, "tso", state, "tx", state]).status();
        status.is_ok_and(|status| status.success())
    })
}
