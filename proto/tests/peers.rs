//! Many peers: thousands of connections on one endpoint, everybody with everybody, and nobody served before others.

use sidelane_nic::mem::{Config as NodeConfig, Fabric, MemNic};
use sidelane_nic::time::Duration;
use sidelane_nic::{LinkAddr, Nic, TxSlot};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

fn small() -> Config {
    Config { send_fifo: 4 << 10, recv_fifo: 4 << 10, peers_max: 10_000, seed: Some(1), ..Config::default() }
}

fn endpoint(fabric: &Fabric, node: u32, config: Config, mtu: usize) -> Endpoint<MemNic> {
    let nic = fabric.nic_at(node, NodeConfig { mtu, mtu_safe: mtu, ..NodeConfig::default() });
    Endpoint::new(nic, Config { seed: Some(u64::from(node)), ..config })
}

/// Turns until `done`, which is shown who took part, each 10 µs after the last; the first endpoint takes part in all, the
/// others in every `rest`th.
fn run(
    fabric: &Fabric,
    endpoints: &mut [Endpoint<MemNic>],
    rest: usize,
    mut done: impl FnMut(&mut [Endpoint<MemNic>]) -> bool,
) {
    for turn in 0..200_000usize {
        let busy = if turn % rest == 0 { endpoints.len() } else { 1 };
        let endpoints = &mut endpoints[..busy];
        endpoints.iter_mut().for_each(|endpoint| {
            endpoint.poll();
        });
        if done(endpoints) {
            return;
        }
        fabric.advance_to(fabric.now() + Duration::from_micros(10));
    }
    panic!("not done at {:?}", fabric.now());
}

/// Everybody sends `count` numbered messages to everybody; each arrives once and in order.
fn exchange(nodes: u32, count: u32) {
    let fabric = Fabric::new(1);
    // A million connections have to fit into memory: FIFOs of two frames each.
    let tiny = Config { send_fifo: 0, recv_fifo: 0, ..small() };
    let mut endpoints: Vec<_> = (0..nodes).map(|node| endpoint(&fabric, node, tiny, 256)).collect();
    let mut outlets: Vec<(usize, PeerId)> = Vec::new();
    for node in 0..nodes {
        for to in (0..nodes).filter(|to| *to != node) {
            let peer = endpoints[node as usize].connect(LinkAddr::Mem { node: to }).unwrap();
            outlets.push((node as usize, peer));
        }
    }
    for (from, peer) in &outlets {
        for number in 0..count {
            let message = [(*from as u32).to_le_bytes(), number.to_le_bytes()].concat();
            endpoints[*from].send(*peer, &message).unwrap();
        }
    }
    let mut due = vec![0u32; (nodes * nodes) as usize];
    let mut left = outlets.len() * count as usize;
    run(&fabric, &mut endpoints, 10, |endpoints| {
        for (node, endpoint) in endpoints.iter_mut().enumerate() {
            while let Some(message) = endpoint.recv(|_, message| message.to_vec()) {
                let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
                let due = &mut due[node * nodes as usize + word(0) as usize];
                assert_eq!(word(4), *due);
                *due += 1;
                left -= 1;
            }
            while let Some(event) = endpoint.poll_event() {
                assert!(matches!(event, Event::Connected { .. }), "{event:?}");
            }
        }
        left == 0
    });
    let of_first = outlets.iter().filter(|(from, _)| *from == 0);
    let memory: Vec<_> = of_first.map(|(_, peer)| endpoints[0].peer_memory(*peer).unwrap()).collect();
    show_memory("that have exchanged messages with everybody", &memory);
}

/// What a test is to show behind `./test` begins so.
fn show_memory(who: &str, memory: &[(usize, usize)]) {
    let (state, _) = memory[0];
    let fifos = memory.iter().map(|(_, fifos)| *fifos).max().unwrap();
    println!(
        "measured: {} peers {who}: {state} bytes of state each, and at most {fifos} of FIFOs and tables",
        memory.len()
    );
    assert!(memory.iter().all(|(state, _)| *state <= 1024));
}

#[test]
fn a_hundred_exchange_messages_with_everybody() {
    exchange(100, 4);
}

/// 999,000 connections: half a minute and 3 GB.
#[test]
fn a_thousand_exchange_messages_with_everybody() {
    exchange(1_000, 1);
}

/// One endpoint with `count` peers: all connect, rest, and then send and are answered.
fn serve(count: u32) {
    let fabric = Fabric::new(1);
    let mut endpoints: Vec<_> = (0..=count).map(|node| endpoint(&fabric, node, small(), 512)).collect();
    let mut peers = Vec::new();
    for endpoint in &mut endpoints[1..] {
        peers.push(endpoint.connect(LinkAddr::Mem { node: 0 }).unwrap());
    }
    let mut ids = Vec::new();
    run(&fabric, &mut endpoints, 10, |endpoints| {
        while let Some(Event::Connected { peer, .. }) = endpoints[0].poll_event() {
            ids.push(peer);
        }
        ids.len() == count as usize
    });
    let memory: Vec<_> = ids.iter().map(|id| endpoints[0].peer_memory(*id).unwrap()).collect();
    show_memory("of one endpoint, idle", &memory);
    assert!(memory.iter().all(|(_, fifos)| *fifos == 0));
    // Half a second of nothing but keep-alives.
    for _ in 0..50 {
        fabric.advance_to(fabric.now() + Duration::from_millis(10));
        endpoints.iter_mut().for_each(|endpoint| {
            endpoint.poll();
        });
        // Keep-alives of all at once are more than one burst.
        for _ in 0..200 {
            endpoints[0].poll();
        }
    }
    assert_eq!(endpoints[0].counters().peers_gone, 0);
    for (endpoint, peer) in endpoints[1..].iter_mut().zip(&peers) {
        endpoint.send(*peer, b"are you there?").unwrap();
    }
    let mut answered = 0;
    run(&fabric, &mut endpoints, 10, |endpoints| {
        while let Some(from) = endpoints[0].recv(|from, _| from) {
            endpoints[0].send(from, b"yes").unwrap();
        }
        endpoints[0].flush();
        answered += endpoints[1..].iter_mut().filter_map(|endpoint| endpoint.recv(|_, _| ())).count();
        answered == count as usize
    });
}

#[test]
fn one_endpoint_serves_ten_thousand() {
    serve(9_999);
}

/// What comes is no frame of ours, which counts all the same.
#[test]
fn of_large_frames_a_turn_takes_half_as_many() {
    for (mtu, most) in [(1_500, 64), (9_000, 32)] {
        let fabric = Fabric::new(1);
        let mut stranger = fabric.nic_at(0, NodeConfig::default());
        let mut endpoint = endpoint(&fabric, 1, small(), mtu);
        let link = stranger.link(LinkAddr::Mem { node: 1 }).unwrap();
        for _ in 0..100 {
            stranger.tx_slot(link, 8).unwrap().commit();
            stranger.flush();
        }
        fabric.advance_to(fabric.now() + Duration::from_millis(1));
        assert_eq!(endpoint.poll(), most);
    }
}

/// Everybody floods one endpoint that takes few messages a turn, and is flooded by it: nobody gets much less than others.
#[test]
fn peers_of_one_endpoint_are_served_alike() {
    for at_once in [false, true] {
        serve_all_alike(at_once);
    }
}

/// What it takes is taken `at_once`, or one by one.
fn serve_all_alike(at_once: bool) {
    const PEERS: u32 = 32;
    let fabric = Fabric::new(1);
    let config = Config { send_fifo: 16 << 10, recv_fifo: 16 << 10, ..small() };
    let mut endpoints: Vec<_> = (0..=PEERS).map(|node| endpoint(&fabric, node, config, 512)).collect();
    let peers: Vec<_> =
        endpoints[1..].iter_mut().map(|endpoint| endpoint.connect(LinkAddr::Mem { node: 0 }).unwrap()).collect();
    let mut ids = Vec::new();
    let (mut taken, mut got) = (std::collections::HashMap::<PeerId, u32>::new(), vec![0u32; PEERS as usize]);
    let mut turns = 0;
    run(&fabric, &mut endpoints, 1, |endpoints| {
        while let Some(Event::Connected { peer, .. }) = endpoints[0].poll_event() {
            ids.push(peer);
        }
        for (endpoint, peer) in endpoints[1..].iter_mut().zip(&peers) {
            while endpoint.send(*peer, &[1; 100]).is_ok() {}
        }
        for id in &ids {
            while endpoints[0].send(*id, &[2; 100]).is_ok() {}
        }
        let mut few = 100;
        let mut take = |from, _: &[u8]| {
            *taken.entry(from).or_default() += 1;
            few -= 1;
            few > 0
        };
        if at_once {
            _ = endpoints[0].recv_each(take)
        } else {
            while endpoints[0].recv(&mut take) == Some(true) {}
        }
        for (endpoint, got) in endpoints[1..].iter_mut().zip(&mut got) {
            *got += endpoint.recv_each(|_, _| true) as u32;
        }
        turns += 1;
        turns == 2_000
    });
    let spread = |counts: Vec<u32>| (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    let (taken, got) = (spread(taken.into_values().collect()), spread(got));
    println!("of each: {taken:?} messages taken; to each: {got:?}");
    // A turn is 64 messages long; and a sender that its peer holds up gives its turn away.
    assert!(taken.0 * 10 >= taken.1 * 8 && got.0 * 2 >= got.1, "{taken:?} {got:?}");
}
