//! What a peer costs that says nothing. A program of its own, since it looks at the memory of its process.

#[path = "../../nic/tests/patience/mod.rs"]
mod patience;

use patience::{SUITE_PATIENCE, watch};
use sidelane_nic::Nic;
use sidelane_nic::mem::{Config as NodeConfig, Fabric, MemNic};
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, Endpoint, Event, PeerId};

const PEERS: usize = 1000;

#[test]
fn an_idle_peer_costs_at_most_a_kibibyte_beside_its_fifos() {
    // What has to happen in virtual time may never.
    watch("it", SUITE_PATIENCE);
    let fabric = Fabric::new(1);
    let endpoint =
        |seed| Endpoint::new(fabric.nic(NodeConfig::default()), Config { seed: Some(seed), ..Config::default() });
    let mut hub = endpoint(0);
    let at = hub.nic().caps().addr;
    let before = resident_bytes();
    let mut spokes: Vec<Endpoint<MemNic>> = (1..=PEERS as u64).map(endpoint).collect();
    let with_endpoints = resident_bytes();

    let mut peers: Vec<PeerId> = Vec::new();
    for spoke in &mut spokes {
        let to_hub = spoke.connect(at).unwrap();
        spoke.send(to_hub, b"once, and then never again").unwrap();
        while hub.recv(|_, _| ()).is_none() {
            spoke.poll();
            hub.poll();
            fabric.advance_to(fabric.now() + Duration::from_micros(10));
        }
    }
    pass(&fabric, &mut hub, &mut spokes, Duration::from_millis(100));
    while let Some(event) = hub.poll_event() {
        let Event::Connected { peer, .. } = event else { panic!("{event:?}") };
        peers.push(peer);
    }
    assert_eq!(peers.len(), PEERS);
    let fresh = peers.iter().map(|&peer| hub.peer_memory(peer).unwrap()).max().unwrap();

    // Long enough that the endpoints take them for idle and give memory back.
    pass(&fabric, &mut hub, &mut spokes, Duration::from_millis(10_000));
    assert_eq!(hub.poll_event(), None, "idle peers stay");
    let after = resident_bytes();
    let idle = peers.iter().map(|&peer| hub.peer_memory(peer).unwrap()).max().unwrap();
    println!("an idle peer: {} bytes of state and {} of FIFOs ({} right after a message)", idle.0, idle.1, fresh.1);
    println!(
        "resident memory: {} bytes an endpoint with its NIC, then {} a connection, both sides together",
        with_endpoints.saturating_sub(before) / PEERS,
        after.saturating_sub(with_endpoints) / PEERS
    );
    assert!(idle.0 <= 1024, "{} bytes", idle.0);
    assert!(idle.1 <= fresh.1);
}

/// Lets virtual time pass, in steps that no keep-alive overtakes.
fn pass(fabric: &Fabric, hub: &mut Endpoint<MemNic>, spokes: &mut [Endpoint<MemNic>], span: Duration) {
    let end = fabric.now() + span;
    while fabric.now() < end {
        fabric.advance_to(fabric.now() + Duration::from_millis(20));
        // Once for what came and once for the answers.
        for _ in 0..2 {
            spokes.iter_mut().for_each(|spoke| while spoke.poll() > 0 {});
            while hub.poll() > 0 {}
        }
    }
}

/// proc(5), `statm`: in pages, of 4 KiB on the machines that we know.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
