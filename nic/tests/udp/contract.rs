//! What every driver promises, and what this one says where it cannot be opened.

use std::net::{SocketAddr, UdpSocket};

use sidelane_nic::conformance::{self, Setup};
use sidelane_nic::time::Duration;
use sidelane_nic::udp::{Config, OpenError, Udp};
use sidelane_nic::{LinkAddr, Nic};

use crate::stage::*;

/// Endpoints at these hosts' addresses, on ports that the system chooses.
pub struct At(pub &'static [&'static str]);

impl Setup for At {
    type Nic = Udp;

    fn open(&mut self, count: usize) -> Result<Vec<Udp>, String> {
        let endpoints = self.0.iter().cycle().take(count).map(|host| {
            Udp::open(&Config::new(format!("{host}:0").parse().unwrap())).map_err(|error| error.to_string())
        });
        endpoints.collect()
    }

    fn absent(&mut self) -> Option<LinkAddr> {
        // Discard: nobody listens, and the host says so by ICMP.
        Some(LinkAddr::Udp(format!("{}:9", self.0[0]).parse().unwrap()))
    }

    fn throw(&mut self, victim: LinkAddr, bytes: &[u8]) -> bool {
        let LinkAddr::Udp(victim) = victim else { unreachable!() };
        let host: SocketAddr = format!("{}:0", self.0[0]).parse().unwrap();
        UdpSocket::bind(host).unwrap().send_to(bytes, victim).unwrap();
        true
    }
}

#[test]
fn loopback_keeps_the_contract() {
    let mut setup = At(&["127.0.0.1"]);
    let nics = setup.open(3).unwrap();
    // What a lost tail costs, as it does in the protocol's tests of that (`proto/tests/stories/loss.rs`).
    assert!(nics.iter().all(|nic| nic.caps().rto_floor == Duration::from_millis(1)));
    drop(nics);
    conformance::run(&mut setup).assert_all_passed();
    conformance::run_threads(&mut setup).assert_all_passed();
}

#[test]
fn ipv6_keeps_the_contract() {
    // Where there is no IPv6 every case is skipped, with the reason.
    conformance::run(&mut At(&["[::1]"])).assert_passed();
}

#[test]
fn open_errors_say_what_to_do() {
    let refusal = |text: &str| Udp::open(&Config::new(text.parse().unwrap())).err().expect("a refusal");
    assert!(matches!(refusal("0.0.0.0:0"), OpenError::Unspecified(_)));
    // TEST-NET-1, RFC 5737.
    assert!(matches!(refusal("192.0.2.1:0"), OpenError::NotOurs(_)));
    let mut first = open();
    let taken = addr_of(&first).to_string();
    assert!(matches!(refusal(&taken), OpenError::Taken(_)));
    let somebody = open();
    link(&mut first, &somebody);
    assert!(matches!(refusal(&taken), OpenError::Taken(_)), "connected sockets keep strangers out too");
}

#[test]
fn bursts_of_all_shapes_arrive_whole_and_in_order() {
    let (mut a, mut b, mut c) = (open(), open(), open());
    let (to_b, to_c) = (link(&mut a, &b), link(&mut a, &c));
    // Equal, growing, shrinking, empty; runs that end with a shorter frame; two peers mixed.
    let lengths = [100, 100, 100, 40, 40, 0, 0, 0, 7, 8, 9, 8, 7, 1_200, 1_200, 1_200, 1_199, 1_200];
    for round in 0..20usize {
        for (at, len) in lengths.iter().enumerate() {
            let to = if at % (round + 1) == round { to_c } else { to_b };
            assert!(commit(&mut a, to, &vec![at as u8; *len]));
        }
        a.flush();
        for (at, len) in lengths.iter().enumerate() {
            let receiver = if at % (round + 1) == round { &mut c } else { &mut b };
            assert_eq!(receive(receiver).0, vec![at as u8; *len], "round {round}, frame {at}");
        }
    }
    assert_eq!(a.counters().tx_frames, 20 * lengths.len() as u64);
}

#[test]
fn address_of_another_family_is_refused() {
    let mut a = open();
    assert!(a.link(LinkAddr::Udp("[::1]:9".parse().unwrap())).is_err());
}
