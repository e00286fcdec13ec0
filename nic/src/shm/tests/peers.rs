//! Peers that come and go, and what stays of them.

use super::*;

/// The table is full of those whose number it is anyway.
#[test]
fn who_has_a_place_is_linked_anew_when_all_places_are_taken() {
    let domain = domain("anew");
    let mut hub = ShmNic::open_for(&domain, Some(0), 1).unwrap();
    let mut peer = ShmNic::open(&domain, Some(1)).unwrap();
    let old = hub.link(address(1)).unwrap();
    send(&mut hub, old, 1);
    assert_eq!(receive(&mut peer).0, 1);
    drop(peer);
    until_gone(&mut hub, old);
    let mut peer = ShmNic::open(&domain, Some(1)).unwrap();
    let new = hub.link(address(1)).unwrap();
    hub.unlink(old);
    send(&mut hub, new, 2);
    assert_eq!(receive(&mut peer).0, 2);
}

fn address(endpoint: u16) -> LinkAddr {
    LinkAddr::Shm { endpoint }
}
