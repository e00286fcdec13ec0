//! Where DPDK's memory is in hugepages, it comes and goes with devices, and has holes. `./test hugepages` has some for these tests, which say so where
//! there are none.

use sidelane_nic::Nic;
use sidelane_nic::dpdk::{Config, Dpdk, Pair, free_hugepages};

use crate::other::Other;
use crate::stage::{HERE, Kind, THERE, alone, receive, send};
use crate::{DEVICE, FRAMES, PEER, libdpdk};

/// What the devices here and the server take, and not much more.
const NEEDED: u64 = 600 << 20;
/// Of frames so large that a device's packet buffers do not fit into what DPDK has from its start (`eal.rs`, `HUGE_MIB`).
const MTU: u16 = 60_000;

/// memif's driver would have its server look for them where nothing is (shim/lending.c).
#[test]
fn a_server_finds_the_packet_buffers_that_it_was_lent_behind_a_hole() {
    let _turn = alone();
    if libdpdk::is_missing() {
        return;
    }
    if free_hugepages() < NEEDED {
        return println!("skipped: there are no {} MiB in hugepages", NEEDED >> 20);
    }
    let name = Kind::Memif.device("hole");
    let variables =
        [(DEVICE, format!("{name},server")), (FRAMES, "3".into()), (PEER, HERE.into()), (crate::MTU, MTU.to_string())];
    let mut server = Other::start("other_side", &variables.each_ref().map(|(name, value)| (*name, &**value)));
    let mut devices: Vec<_> = (0..8)
        .map(|at| Some(Dpdk::open(&Config { mtu: Some(MTU), ..Config::new(format!("net_null{at}")) }).unwrap()))
        .collect();
    // Too small each for a pair's packet buffers, which come to lie behind them all.
    devices.iter_mut().step_by(2).for_each(|device| drop(device.take()));
    server.heard("open");
    let client = Config { mtu: Some(MTU), ..Config::new(format!("{name},mac={}", &HERE[..17])) };
    let mut client = Pair::open(&client).unwrap();
    let link = client.link(THERE.parse().unwrap()).unwrap();
    send(&mut client, link, 9);
    client.flush();
    server.say("listen");
    server.heard("heard 9");
    for number in 0..3 {
        assert_eq!(receive(&mut client), number);
    }
    server.ended();
}
