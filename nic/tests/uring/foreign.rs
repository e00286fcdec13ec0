//! Frames that are not ours.

use sidelane_nic::{LinkAddr, Nic};

use crate::raw_socket::RawSocket;
use crate::stage::{open, receive_one, send, veth_pair};

pub fn foreign_protocols_are_not_seen() {
    let (mut a, mut b, to_b) = veth_pair();
    let LinkAddr::Ether { mac, endpoint } = b.caps().addr else { unreachable!() };
    let neighbour = RawSocket::on("vA");
    let [high, low] = endpoint.to_be_bytes();
    // IPv4 without a segmentation mark, ARP, the other experimental EtherType.
    for ethertype in [[0x08, 0x00], [0x08, 0x06], [0x88, 0xb6]] {
        let frame = [&mac[..], &[2; 6], &ethertype, &[high, low, 0, 0, 0, 4, 0, 1], b"evil", &[0; 40]].concat();
        neighbour.send(&frame);
    }
    // Ours, but shorter than it says.
    neighbour.send(&[&mac[..], &[2; 6], &[0x88, 0xb5, high, low, 0, 0, 0xff, 0xff, 0, 1], b"evil"].concat());
    send(&mut a, to_b, b"ours");
    assert_eq!(receive_one(&mut b), b"ours");
    assert_eq!((b.counters().rx_frames, b.counters().rx_foreign), (1, 1));
}

pub fn others_frames_are_not_seen_and_put_the_filter_back() {
    let (mut a, mut b, to_b) = veth_pair();
    let mut beside = open("vB", 2);
    let to_beside = a.link(beside.caps().addr).unwrap();
    let elsewhere = a.link("02:00:00:00:00:99/1".parse().unwrap()).unwrap();
    for (ours, others) in [(1_000, 6), (2_000, 12)] {
        // So many that it goes without a filter.
        for _ in 0..ours {
            send(&mut a, to_b, b"ours");
            assert_eq!(receive_one(&mut b), b"ours");
        }
        for _ in 0..2 {
            for to in [to_beside, elsewhere, to_beside] {
                send(&mut a, to, b"others");
            }
        }
        assert_eq!(b.rx_burst(10, |frame, _| panic!("{frame:?} is not ours")), 0);
        assert_eq!(b.counters().rx_foreign, others, "all were there before it looked");
        for to in [to_beside, elsewhere] {
            send(&mut a, to, b"others");
        }
        assert_eq!(b.rx_burst(10, |frame, _| panic!("{frame:?} is not ours")), 0);
        assert_eq!(b.counters().rx_foreign, others, "a filter keeps them away");
        (0..5).for_each(|_| assert_eq!(receive_one(&mut beside), b"others"));
    }
    assert_eq!((b.counters().rx_frames, beside.counters().rx_foreign), (3_000, 0));
    // What nobody can read, to anybody.
    for _ in 0..4_000 {
        send(&mut a, to_b, b"ours");
        receive_one(&mut b);
    }
    let neighbour = RawSocket::on("vA");
    let unknown = [&[2; 12][..], &[0x88, 0xb5, 0, 9, 0, 9, 0, 0, 0, 2], &[0; 40]].concat();
    for counted in [13, 13] {
        neighbour.send(&unknown);
        assert_eq!(b.rx_burst(10, |frame, _| panic!("{frame:?} is not ours")), 0);
        assert_eq!(b.counters().rx_foreign, counted);
    }
}
