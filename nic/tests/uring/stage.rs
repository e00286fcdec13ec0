//! Endpoints on interfaces of this namespace, and frames between them.

use std::process::Command;

use sidelane_nic::time::Duration;
use sidelane_nic::uring::{Config, Uring};
use sidelane_nic::{Link, Nic, TxSlot};

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

pub fn commit(nic: &mut Uring, link: Link, bytes: &[u8]) -> bool {
    let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
    slot.copy_from_slice(bytes);
    slot.commit();
    true
}

pub fn send(nic: &mut Uring, link: Link, bytes: &[u8]) {
    assert!(commit(nic, link, bytes), "no slot");
    nic.flush();
}

pub fn receive_one(nic: &mut Uring) -> Vec<u8> {
    let deadline = nic.now() + Duration::from_millis(5_000);
    let mut got = None;
    while nic.rx_burst(1, |frame, _| got = Some(frame.to_vec())) == 0 {
        assert!(nic.now() < deadline, "no frame came");
        nic.wait(Some(deadline)).unwrap();
    }
    got.unwrap()
}

/// False where there is no ethtool.
pub fn turn_offloads_off(interfaces: &[&str]) -> bool {
    interfaces.iter().all(|interface| {
        let status = Command::new("ethtool").args(["-K", interface, "tso", "off", "tx", "off"]).status();
        status.is_ok_and(|status| status.success())
    })
}
