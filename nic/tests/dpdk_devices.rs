//! The `dpdk` driver on DPDK's virtual devices that reach the kernel, a file, or themselves. Those on interfaces speak with
//! `uring` at the other end: it is one wire format.

mod libdpdk;
mod namespace;
mod patience;

use sidelane_nic::dpdk::{Config, Dpdk, OpenError};
use sidelane_nic::time::Duration;
use sidelane_nic::uring::{self, Uring};
use sidelane_nic::{Link, Nic, TxSlot};

use namespace::{ip, run_inside, veth};
use patience::until;

macro_rules! inside_a_namespace {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                if !libdpdk::is_missing() {
                    run_inside(concat!("inside::", stringify!($name)));
                }
            }
        )*

        mod inside {
            $(
                #[test]
                #[ignore = "needs a network namespace: the test of the same name outside runs it in one"]
                fn $name() {
                    super::cases::$name();
                }
            )*
        }
    };
}

inside_a_namespace! {
    af_packet_and_uring_understand_each_other
    af_xdp_and_uring_understand_each_other
    tap_hands_frames_to_the_kernel
}

mod cases {
    use super::*;

    pub fn af_packet_and_uring_understand_each_other() {
        veth("vA", "vB");
        let a = Dpdk::open(&Config::new("net_af_packet0,iface=vA")).unwrap();
        exchange(a, Uring::open(&uring::Config::new("vB", 0)).unwrap());
    }

    pub fn af_xdp_and_uring_understand_each_other() {
        veth("vA", "vB");
        match Dpdk::open(&Config::new("net_af_xdp0,iface=vA")) {
            Ok(a) => exchange(a, Uring::open(&uring::Config::new("vB", 0)).unwrap()),
            // In a user namespace no XDP program can be loaded.
            Err(error) => println!("skipped: {error}"),
        }
    }

    pub fn tap_hands_frames_to_the_kernel() {
        let mut nic = match Dpdk::open(&Config::new("net_tap0,iface=tapA")) {
            Ok(nic) => nic,
            // Where there is no /dev/net/tun.
            Err(error) => return println!("skipped: {error}"),
        };
        ip("link set tapA up");
        let own = nic.caps().addr;
        let link = nic.link(own).unwrap();
        for _ in 0..10 {
            send(&mut nic, link, b"to the kernel");
        }
        let file = "/sys/class/net/tapA/statistics/rx_packets";
        // In a namespace without a sysfs of its own the counter can't be seen; then it counts that nothing was refused.
        if let Ok(count) = std::fs::read_to_string(file) {
            assert!(count.trim().parse::<u32>().unwrap() >= 10, "{count}");
        }
        assert_eq!(nic.counters().tx_frames, 10);
    }
}

/// Frames of several sizes to and fro, slept for.
fn exchange(mut a: impl Nic, mut b: impl Nic) {
    let (to_b, to_a) = (a.link(b.caps().addr).unwrap(), b.link(a.caps().addr).unwrap());
    let mtu = a.caps().mtu_safe.min(b.caps().mtu_safe);
    for (number, size) in [1, 8, 60, 500, mtu].into_iter().cycle().take(100).enumerate() {
        let frame = vec![number as u8; size];
        send(&mut a, to_b, &frame);
        assert_eq!(receive(&mut b), frame);
        send(&mut b, to_a, &frame);
        assert_eq!(receive(&mut a), frame);
    }
}

fn send(nic: &mut impl Nic, link: Link, bytes: &[u8]) {
    let mut slot = nic.tx_slot(link, bytes.len()).expect("a slot, since the last frame is out");
    slot.copy_from_slice(bytes);
    slot.commit();
    nic.flush();
}

fn receive(nic: &mut impl Nic) -> Vec<u8> {
    let give_up = nic.now() + Duration::from_millis(5_000);
    let mut got = None;
    while nic.rx_burst(1, |frame, _| got = Some(frame.to_vec())) == 0 {
        assert!(nic.now() < give_up, "no frame came");
        nic.wait(Some(give_up.min(nic.now() + Duration::from_millis(1)))).unwrap();
    }
    got.unwrap()
}

#[test]
fn a_ring_brings_its_frames_back() {
    if libdpdk::is_missing() {
        return;
    }
    let mut nic = Dpdk::open(&Config::new("net_ring0")).unwrap();
    let own = nic.caps().addr;
    let link = nic.link(own).unwrap();
    for number in 0..1_000u32 {
        send(&mut nic, link, &number.to_le_bytes());
        assert_eq!(receive(&mut nic), number.to_le_bytes());
    }
}

#[test]
fn a_device_that_is_open_is_not_ended_by_who_writes_it_otherwise() {
    if libdpdk::is_missing() {
        return;
    }
    let open = |device: &str, shared| Dpdk::open(&Config { shared, ..Config::new(device) });
    let mut first = open("net_ring_twice", true).unwrap();
    for shared in [false, true] {
        let second = open("net_ring_twice,nodeaction=x:0:CREATE", shared);
        assert!(matches!(second, Err(OpenError::InUse(_))));
    }
    let own = first.caps().addr;
    let link = first.link(own).unwrap();
    send(&mut first, link, b"still here");
    assert_eq!(receive(&mut first), b"still here");
}

#[test]
fn large_frames_go_before_a_flush_and_small_ones_wait_for_it() {
    if libdpdk::is_missing() {
        return;
    }
    let name = format!("memif:sidelane-early-{}", std::process::id());
    let open = |device: String| Dpdk::open(&Config { mtu: Some(9_000), ..Config::new(device) }).unwrap();
    let (mut a, b) = (open(format!("{name},server")), open(name));
    until("the two meet", || a.link_is_up() && b.link_is_up());
    let link = a.link(b.caps().addr).unwrap();
    // The fifth frame of 8 KiB is lent when the four before it, more than 32 KiB with their headers, are gone.
    for (len, frames, early) in [(8 << 10, 5, 4), (64, 31, 0)] {
        let before = a.counters().tx_frames;
        for _ in 0..frames {
            a.tx_slot(link, len).expect("a slot").commit();
        }
        assert_eq!(a.counters().tx_frames - before, early, "{len} bytes");
        a.flush();
        assert_eq!(a.counters().tx_frames - before, frames, "{len} bytes");
    }
}

#[test]
fn what_comes_from_nowhere_is_foreign_and_what_goes_there_is_sent() {
    if libdpdk::is_missing() {
        return;
    }
    let mut nic = Dpdk::open(&Config::new("net_null0")).unwrap();
    let own = nic.caps().addr;
    let link = nic.link(own).unwrap();
    for _ in 0..100 {
        send(&mut nic, link, b"into the void");
    }
    // This device makes frames of zeroes without end.
    assert_eq!(nic.rx_burst(100, |_, _| {}), 0);
    assert_eq!((nic.counters().tx_frames, nic.counters().rx_foreign), (100, 100));
}

#[test]
fn frames_for_others_end_no_sleep() {
    if libdpdk::is_missing() {
        return;
    }
    let mut nic = Dpdk::open(&Config::new("net_null1")).unwrap();
    let until = nic.now() + Duration::from_millis(5);
    nic.wait(Some(until)).unwrap();
    assert!(nic.now() >= until);
    assert!(nic.counters().rx_foreign > 0);
}

#[test]
fn a_capture_file_gets_what_is_sent() {
    if libdpdk::is_missing() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut nic = Dpdk::open(&Config::new(format!("net_pcap0,tx_pcap={}", file.path().display()))).unwrap();
    let own = nic.caps().addr;
    let link = nic.link(own).unwrap();
    for _ in 0..3 {
        send(&mut nic, link, b"for the record");
    }
    drop(nic);
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes.windows(14).filter(|bytes| bytes == b"for the record").count(), 3);
}
