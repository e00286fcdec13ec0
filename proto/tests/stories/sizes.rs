//! Messages of every size, and paths of every width.

use sidelane_nic::mem::{Config as NodeConfig, LinkModel};
use sidelane_nic::time::Duration;
use sidelane_proto::{Config, SendError};

use crate::world::{VirtualTime, World, config, good_link, lossy_link, numbered};

#[test]
fn messages_from_nothing_to_four_mebibytes_arrive_whole() {
    let around = |len: usize| [len.saturating_sub(1), len, len + 1];
    // Around one record of a frame of 1500, several frames, 64 KiB, the FIFOs, and 4 MiB.
    let lens = [1, 60, 1_472, 2_944, 65_536, 256 << 10, 1 << 20, 4 << 20].into_iter().flat_map(around);
    for link in [good_link(), lossy_link(0.01)] {
        let mut world = World::new(5, link);
        world.add(NodeConfig::default(), config());
        world.add(NodeConfig::default(), config());
        let (peer, _) = world.join(0, 1);
        for (number, len) in lens.clone().enumerate() {
            let message = numbered(number as u32, len);
            world.send(0, peer, &message);
            assert!(world.run(Duration::from_millis(5_000), |world| !world.node(1).got.is_empty()), "{len} bytes");
            assert!(world.node(1).got.pop().unwrap().1 == message, "{len} bytes");
            // A second copied message waits for the first one's ack when they exceed the FIFO.
            assert!(world.run(Duration::from_millis(5_000), |world| world.node(0).endpoint.is_settled(peer)));
        }
    }
}

#[test]
fn a_message_beyond_the_limit_of_either_side_is_refused() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), Config { message_max: 5_000, ..config() });
    world.add(NodeConfig::default(), Config { message_max: 3_000, ..config() });
    let (peer, back) = world.join(0, 1);
    assert_eq!(world.node(0).endpoint.send(peer, &[0; 3_001]), Err(SendError::TooLong), "the peer's limit");
    assert_eq!(world.node(1).endpoint.send(back, &[0; 3_001]), Err(SendError::TooLong), "its own limit");
    let refused = world.node(0).endpoint.send_owned(peer, vec![0; 3_001]).unwrap_err();
    assert_eq!((refused.reason, refused.buffer.len()), (SendError::TooLong, 3_001));
    world.send(0, peer, &[1; 3_000]);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.node(1).got[0].1, [1; 3_000]);
}

/// Also where it would fit a frame; but for what is so short that it may leave before the peer has said what it takes.
#[test]
fn the_limit_holds_within_one_frame_too() {
    let mut world = World::new(1, good_link());
    world.add(NodeConfig::default(), Config { message_max: 500, ..config() });
    world.add(NodeConfig::default(), Config { message_max: 10, ..config() });
    let (peer, back) = world.join(0, 1);
    for (node, peer) in [(0, peer), (1, back)] {
        assert_eq!(world.node(node).endpoint.send(peer, &[0; 61]), Err(SendError::TooLong));
        assert_eq!(world.node(node).endpoint.send_two(peer, &[0; 8], &[0; 53]), Err(SendError::TooLong));
        let refused = world.node(node).endpoint.send_owned(peer, vec![0; 61]).unwrap_err();
        assert_eq!(refused.reason, SendError::TooLong);
        world.send(node, peer, &[1; 60]);
        world.node(node).endpoint.send_owned(peer, vec![2; 60]).unwrap();
    }
    world.pass(Duration::from_millis(1));
    assert_eq!([world.node(0).got.len(), world.node(1).got.len()], [2, 2]);
}

/// Needs 4 GiB of memory and a minute: `cargo test --release -p sidelane-proto --test stories -- --ignored`.
#[test]
#[ignore = "two buffers of 2 GiB"]
fn the_largest_message_arrives_whole() {
    let mut world = World::new(1, good_link());
    let nic = NodeConfig { mtu: 61_000, mtu_safe: 1500, ..NodeConfig::default() };
    world.add(nic, config());
    world.add(nic, config());
    let (peer, _) = world.join(0, 1);
    let len = i32::MAX as usize;
    let refused = world.node(0).endpoint.send_owned(peer, vec![7; len + 1]).unwrap_err();
    let mut buffer = refused.buffer;
    buffer.truncate(len);
    world.node(0).endpoint.send_owned(peer, buffer).unwrap();
    world.node(1).reads = false;
    let mut whole = false;
    assert!(world.run(Duration::from_millis(60_000), |world| {
        let seen = world.node(1).endpoint.recv(|_, message| message.len() == len && message.iter().all(|&b| b == 7));
        whole = seen == Some(true);
        seen.is_some()
    }));
    assert!(whole);
}

/// The largest frames first, then what always passes: a narrow path costs the first Hellos, not the connection.
#[test]
fn a_path_narrower_than_the_drivers_is_found_out() {
    for narrow in [1_200, 1_500, 9_000] {
        let mut world = World::new(1, LinkModel { mtu: Some(narrow), ..good_link() });
        let nic = NodeConfig { mtu: 61_000, mtu_safe: narrow, ..NodeConfig::default() };
        world.add(nic, config());
        world.add(nic, config());
        let (peer, _) = world.join(0, 1);
        world.flood(0, 1, peer, 100, 20_000);
        assert_eq!(world.counters(0).retransmitted, 0, "frames of at most {narrow} bytes");
    }
}

#[test]
fn peers_with_different_drivers_agree_on_the_smaller_frame() {
    let mtus = [128, 1_500, 9_000, 61_000];
    for (left, right) in mtus.iter().flat_map(|&left| mtus.map(|right| (left, right))) {
        let mut world = World::new(1, good_link());
        let nic = |mtu: usize| NodeConfig { mtu, mtu_safe: mtu.min(1_200), ..NodeConfig::default() };
        world.add(nic(left), config());
        world.add(nic(right), config());
        let (a, b) = world.join(0, 1);
        world.flood(0, 1, a, 20, 5_000);
        world.flood(1, 0, b, 20, 5_000);
        assert_eq!(world.counters(0).retransmitted + world.counters(1).retransmitted, 0, "{left} and {right}");
    }
}
