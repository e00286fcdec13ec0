//! Endpoints on interfaces of this namespace, and frames between them.

use sidelane_nic::xdp::{Config, OpenError, Xdp};
use sidelane_nic::{Link, Nic};

pub use crate::frames::{commit, receive_one, send};
use crate::namespace::{ip, veth};

/// Where it is forbidden, the test says why and passes.
pub fn may_open() -> bool {
    ip("link set lo up");
    match Xdp::open(&Config::new("lo", 1)) {
        Err(error @ (OpenError::NotPermitted | OpenError::NotInKernel)) => {
            println!("skipped: {error}");
            false
        }
        _ => true,
    }
}

pub fn open(interface: &str, endpoint: u16) -> Xdp {
    Xdp::open(&Config::new(interface, endpoint)).unwrap()
}

pub fn veth_pair() -> (Xdp, Xdp, Link) {
    veth("vA", "vB");
    let (mut a, b) = (open("vA", 1), open("vB", 1));
    let to_b = a.link(b.caps().addr).unwrap();
    (a, b, to_b)
}

/// Sends a few frames one way and checks that they come.
pub fn exchange(from: &mut impl Nic, to: &mut impl Nic) {
    let link = from.link(to.caps().addr).unwrap();
    for number in 0..100u8 {
        send(from, link, &[number; 90]);
        assert_eq!(receive_one(to), [number; 90]);
    }
}
