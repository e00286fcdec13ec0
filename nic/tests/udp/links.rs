//! What a link leaves behind when it is forgotten, and who comes after it.

use sidelane_nic::{LinkAddr, Nic};

use crate::patience;
use crate::stage::*;

#[test]
fn frames_of_a_forgotten_link_go_nowhere() {
    let (mut a, mut b) = (open(), open());
    let to_b = link(&mut a, &b);
    assert!(commit(&mut a, to_b, b"too late"));
    a.unlink(to_b);
    a.flush();
    assert_eq!(a.counters().tx_failed, 1);
    assert!(a.tx_slot(to_b, 1).is_none());
    let again = link(&mut a, &b);
    send(&mut a, again, b"again");
    assert_eq!(receive(&mut b).0, b"again");
}

#[test]
fn frames_of_a_forgotten_link_do_not_go_to_who_has_its_number_next() {
    let (mut a, mut first, mut second) = (open(), open(), open());
    let to_first = link(&mut a, &first);
    (0..3).for_each(|byte| assert!(commit(&mut a, to_first, &[byte])));
    a.unlink(to_first);
    let to_second = link(&mut a, &second);
    assert_eq!(to_second, to_first);
    send(&mut a, to_second, b"yours");
    assert_eq!(receive(&mut second), (b"yours".to_vec(), a.caps().addr));
    assert_eq!((a.counters().tx_frames, a.counters().tx_failed), (1, 3));
    pass_quietly(&mut first);
}

#[test]
fn frames_that_are_unread_when_their_link_is_forgotten_are_counted() {
    for refusal in [false, true] {
        let (mut a, mut b) = (open(), open());
        let (to_b, to_a) = (link(&mut a, &b), link(&mut b, &a));
        // One by one; and merged, where the kernel does that for bulk.
        for (flushes, frames) in [(5, 1), (40, 1), (2, 20)] {
            for _ in 0..flushes {
                (0..frames).for_each(|_| assert!(commit(&mut b, to_a, b"unread")));
                b.flush();
            }
            if flushes == 40 {
                patience::until("they are shown", || {
                    a.rx_burst(64, |_, _| {});
                    a.counters().rx_frames == 45
                });
            }
        }
        if refusal {
            let at = addr_of(&b);
            drop(b);
            until_left(at);
            send(&mut a, to_b, b"nobody listens");
        }
        a.unlink(to_b);
        assert_eq!((a.counters().rx_frames, a.counters().rx_dropped), (45, 40), "refusal: {refusal}");
    }
}

/// Who comes back at the same address is heard by the socket that its predecessor had.
#[test]
fn a_peer_that_restarts_at_its_address_is_heard() {
    let (mut a, at) = (open(), unused());
    let to_b = link_at(&mut a, at);
    for round in 0..10u8 {
        let mut b = open_again(at);
        let to_a = link(&mut b, &a);
        pass_quietly(&mut a);
        for number in [round, round + 100] {
            send(&mut b, to_a, &[number]);
            assert_eq!(receive(&mut a), (vec![number], LinkAddr::Udp(at)));
            send(&mut a, to_b, &[number]);
            assert_eq!(receive(&mut b).0, [number]);
        }
    }
    assert_eq!(connected_peers(&a), [at]);
}
