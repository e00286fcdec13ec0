//! The short ways that a reliable driver allows, played on a fabric that loses nothing: order, credit, back-pressure.

mod endings;
#[path = "../../../nic/tests/patience/mod.rs"]
mod patience;
#[path = "../rma/reliable_nic.rs"]
mod reliable_nic;
mod successors;
mod traffic;

use std::collections::VecDeque;

use patience::{SUITE_PATIENCE, watch};
use reliable_nic::Reliable;
use sidelane_nic::mem::{Config as NodeConfig, Fabric};
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::{Config, Endpoint, Event, PeerId};

struct Side {
    endpoint: Endpoint<Reliable>,
    peer: PeerId,
    /// What the other side still has to receive, in order.
    sent: VecDeque<Vec<u8>>,
}

fn side(fabric: &Fabric, seed: u64, fifo: usize) -> (Endpoint<Reliable>, LinkAddr) {
    side_with_room(fabric, seed, fifo, 8)
}

fn side_with_room(fabric: &Fabric, seed: u64, fifo: usize, tx_frames: usize) -> (Endpoint<Reliable>, LinkAddr) {
    side_with(fabric, tx_frames, Config { seed: Some(seed), send_fifo: fifo, recv_fifo: fifo, ..Config::default() })
}

fn side_with(fabric: &Fabric, tx_frames: usize, config: Config) -> (Endpoint<Reliable>, LinkAddr) {
    let nic = fabric.nic(NodeConfig { mtu: 512, mtu_safe: 512, rx_frames: 1 << 20, tx_frames, ..Default::default() });
    let addr = nic.caps().addr;
    (Endpoint::new(Reliable::new(nic), config), addr)
}

fn connected(seed: u64, fifo: usize) -> [Side; 2] {
    watch("it", SUITE_PATIENCE);
    let fabric = Fabric::new(seed);
    let (mut a, _) = side(&fabric, seed ^ 1, fifo);
    let (mut b, to) = side(&fabric, seed ^ 2, fifo);
    let at_a = a.connect(to).unwrap();
    for _ in 0..4 {
        a.poll();
        b.poll();
    }
    let Some(Event::Connected { peer: at_b, .. }) = b.poll_event() else { panic!("not connected") };
    assert!(matches!(a.poll_event(), Some(Event::Connected { .. })));
    [a, b]
        .into_iter()
        .zip([at_a, at_b])
        .map(|(endpoint, peer)| Side { endpoint, peer, sent: VecDeque::new() })
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_else(|_| unreachable!("two sides"))
}

/// Turns of both, in which the clock is read now and then, and what they tell.
fn turns(a: &mut Endpoint<Reliable>, b: &mut Endpoint<Reliable>) -> [Vec<Event>; 2] {
    (0..200).for_each(|_| _ = (a.poll(), b.poll()));
    [a, b].map(|endpoint| std::iter::from_fn(|| endpoint.poll_event()).collect())
}
