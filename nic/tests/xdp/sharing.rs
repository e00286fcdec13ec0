//! Several endpoints of one interface, in one process and in several.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::fchown;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};

use sidelane_nic::time::Duration;
use sidelane_nic::uring::{self, Uring};
use sidelane_nic::xdp::{Config, Xdp};
use sidelane_nic::{LinkAddr, Nic};

use crate::namespace::veth;
use crate::stage::{commit, exchange, open, receive_one, send};

pub fn uring_and_xdp_share_an_interface() {
    veth("vA", "vB");
    let (mut a, mut b) = (open("vA", 1), open("vB", 1));
    let real = |interface, endpoint| uring::Config { real_frames: true, ..uring::Config::new(interface, endpoint) };
    let (mut c, mut d) = (Uring::open(&real("vA", 2)).unwrap(), Uring::open(&real("vB", 2)).unwrap());
    exchange(&mut a, &mut b);
    exchange(&mut c, &mut d);
    exchange(&mut a, &mut d);
    exchange(&mut c, &mut b);
}

pub fn the_first_endpoint_may_leave_first() {
    veth("vA", "vB");
    let (first, mut second, mut peer) = (open("vA", 1), open("vA", 2), open("vB", 1));
    drop(first);
    exchange(&mut second, &mut peer);
    exchange(&mut peer, &mut second);
    let mut third = open("vA", 1);
    exchange(&mut third, &mut peer);
    drop(second);
    exchange(&mut peer, &mut third);
}

pub fn killed_endpoints_leave_nothing_behind() {
    veth("vA", "vB");
    let mut first = other_process("vB", 1);
    let mut second = other_process("vB", 2);
    let mut nic = open("vA", 1);
    ask(&mut nic, "vB", 1);
    ask(&mut nic, "vB", 2);
    // The first of the queue, which made everything, is killed.
    first.kill().unwrap();
    first.wait().unwrap();
    ask(&mut nic, "vB", 2);
    // Its number is free again; the new one joins the one that is left.
    let mut third = other_process("vB", 1);
    ask(&mut nic, "vB", 1);
    ask(&mut nic, "vB", 2);
    for child in [&mut second, &mut third] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    drop(nic);
    let mut tries = 0;
    while has_program("vA") || has_program("vB") {
        tries += 1;
        assert!(tries < 200, "the program stays behind");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(open("vB", 1));
}

/// More often than there are places and chunks.
pub fn endpoints_come_and_go_without_end() {
    veth("vA", "vB");
    let (mut stays, mut peer) = (open("vB", 1), open("vA", 1));
    for round in 0..60 {
        let mut comes = open("vB", 2 + round % 3);
        let link = peer.link(comes.caps().addr).unwrap();
        // Some of them leave with a full ring.
        for _ in 0..(round % 2) * 300 {
            send(&mut peer, link, b"unread");
        }
        if round % 2 == 0 {
            exchange(&mut comes, &mut peer);
        }
        drop(comes);
        exchange(&mut peer, &mut stays);
    }
    assert_eq!(stays.counters().rx_dropped, 0);
}

pub fn names_that_another_user_takes_keep_nobody_out() {
    veth("vA", "vB");
    let output = Command::new("ip").args(["-o", "link", "show", "vA"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let index = text.split(':').next().unwrap();
    let take = |name: String| {
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        fchown(&socket, Some(65_534), None).unwrap();
        socket
    };
    // As if process 1 had an endpoint.
    let _member = take(format!("sidelane/xdp/{index}/0/3/1.0.0.0.0"));
    exchange(&mut open("vA", 1), &mut open("vB", 1));
    let _endpoint = take(format!("sidelane/ether/{index}/2"));
    let (by_xdp, by_uring) = (Xdp::open(&Config::new("vA", 2)), Uring::open(&uring::Config::new("vA", 2)));
    for error in [by_xdp.err().unwrap().to_string(), by_uring.err().unwrap().to_string()] {
        assert!(error.contains("taken by a process of user 65534"), "{error}");
    }
}

/// Another process with an endpoint on `interface`.
fn other_process(interface: &str, endpoint: u16) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::endpoint_until_killed", "--ignored", "--nocapture"])
        .env(ENDPOINT, format!("{interface} {endpoint}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // It is open once it answers.
    let (mut probe, deadline) = (open(if interface == "vA" { "vB" } else { "vA" }, 99), 10_000);
    let to = LinkAddr::Ether { mac: mac_of(interface), endpoint };
    let link = probe.link(to).unwrap();
    let until = probe.now() + Duration::from_millis(deadline);
    loop {
        send(&mut probe, link, b"there?");
        probe.wait(Some(probe.now() + Duration::from_millis(10))).unwrap();
        if probe.rx_burst(100, |_, _| {}) > 0 {
            return child;
        }
        assert_eq!(child.try_wait().unwrap(), None, "it did not open");
        assert!(probe.now() < until, "no answer");
    }
}

fn mac_of(interface: &str) -> [u8; 6] {
    let LinkAddr::Ether { mac, .. } = open(interface, 98).caps().addr else { unreachable!() };
    mac
}

/// Sends back whatever comes.
#[test]
#[ignore = "a process that is killed by the tests of that"]
fn endpoint_until_killed() {
    let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
    let (interface, number) = endpoint.split_once(' ').unwrap();
    let mut nic = open(interface, number.parse().unwrap());
    // It ends with who started it, too.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    // Killed or not, a minute is enough for every test.
    let end = nic.now() + Duration::from_millis(60_000);
    while nic.now() < end {
        let mut got = Vec::new();
        nic.rx_burst(8, |frame, from| got.push((frame.to_vec(), from)));
        for (bytes, from) in got {
            let back = nic.link(from).unwrap();
            commit(&mut nic, back, &bytes);
        }
        nic.wait(Some(end)).unwrap();
    }
}

fn ask(nic: &mut Xdp, interface: &str, endpoint: u16) {
    let link = nic.link(LinkAddr::Ether { mac: mac_of(interface), endpoint }).unwrap();
    for number in 0..100u8 {
        send(nic, link, &[number; 30]);
        assert_eq!(receive_one(nic), [number; 30]);
    }
}

fn has_program(interface: &str) -> bool {
    let output = Command::new("ip").args(["link", "show", interface]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(interface), "{text}");
    text.contains("xdp")
}

const ENDPOINT: &str = "SIDELANE_TEST_ENDPOINT";
