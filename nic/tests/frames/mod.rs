//! Frames between endpoints of any driver.

use sidelane_nic::time::Duration;
use sidelane_nic::{Link, Nic, TxSlot};

pub fn commit(nic: &mut impl Nic, link: Link, bytes: &[u8]) -> bool {
    let Some(mut slot) = nic.tx_slot(link, bytes.len()) else { return false };
    slot.copy_from_slice(bytes);
    slot.commit();
    true
}

pub fn send(nic: &mut impl Nic, link: Link, bytes: &[u8]) {
    assert!(commit(nic, link, bytes), "no slot");
    nic.flush();
}

pub fn receive_one(nic: &mut impl Nic) -> Vec<u8> {
    let deadline = nic.now() + Duration::from_millis(5_000);
    let mut got = None;
    while nic.rx_burst(1, |frame, _| got = Some(frame.to_vec())) == 0 {
        assert!(nic.now() < deadline, "no frame came");
        nic.wait(Some(deadline)).unwrap();
    }
    got.unwrap()
}
