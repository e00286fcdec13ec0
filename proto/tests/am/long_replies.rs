//! Replies whose bytes go into a region of the requester's.

use sidelane_nic::Nic;
use sidelane_nic::mem::{Config as NodeConfig, Fabric};
use sidelane_nic::time::Duration;
use sidelane_proto::am::{ActiveMessages, Args, Handlers, LongError, Replier, ReplyRoom};
use sidelane_proto::sim::Scenario;
use sidelane_proto::{Config, Endpoint, Event, OpError, Region, RemoteKey, Rights, RmaError, SendError};

use crate::patience::until;
use crate::reliable_nic::Reliable;
use crate::world::{Node, VirtualTime, World, fifos, good_link, mtu};

const FETCH: u8 = 0;
const ADD: u8 = 1;
const FETCHED: u8 = 0;
const SUM: u8 = 1;

#[derive(Default)]
struct State {
    /// Numbers of fetches and what was added, in the order in which their replies came.
    came: Vec<u64>,
    refused: Vec<LongError>,
}

fn content(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as u8).wrapping_mul(31) ^ (at * 7) as u8).collect()
}

fn handlers() -> Handlers<State> {
    Handlers::new()
        .request(FETCH, |state: &mut State, replier: Replier<'_>, args: Args<'_>, key: &[u8]| {
            let [number, offset, len] = args.array().expect("three words");
            let key = RemoteKey::from_bytes(key.try_into().expect("a key"));
            let bytes = content(number, len as usize);
            state.refused.extend(replier.reply_long(&key, offset, &bytes, FETCHED, &[number]).err());
        })
        .request(ADD, |_: &mut State, replier: Replier<'_>, args: Args<'_>, _| {
            replier.reply_m(SUM, args.array::<1>().expect("a word")).expect("a reply finds room");
        })
        .reply(FETCHED, |state: &mut State, _, args: Args<'_>, _| state.came.extend(args.iter()))
        .reply(SUM, |state: &mut State, _, args: Args<'_>, _| state.came.extend(args.iter()))
}

/// The first node's region of `len` bytes, which the other one may write to.
fn with_region(world: &mut World<State>, len: usize) -> (Region, RemoteKey) {
    let endpoint = world.nodes[0].am.endpoint_mut();
    let region = endpoint.register(vec![0; len]);
    (region, endpoint.publish(region, Rights::WRITE, None).unwrap())
}

fn fetch(node: &mut Node<State>, key: &RemoteKey, number: u64, offset: usize, len: usize) -> Result<(), SendError> {
    let args = [number, offset as u64, len as u64];
    node.am.request(node.peer, FETCH, &args, &key.to_bytes(), ReplyRoom::medium(1, 0))
}

const SOON: Duration = Duration::from_millis(1);

#[test]
fn a_long_reply_is_in_place_when_its_handler_runs() {
    let mut world = World::pair(good_link(), 1, mtu(1500), fifos(1 << 14), handlers);
    let (region, key) = with_region(&mut world, 1 << 20);
    for (number, len) in [0, 1, 1_000, 40_000, 1 << 19].into_iter().enumerate() {
        fetch(&mut world.nodes[0], &key, number as u64, 1_000 * number, len).unwrap();
        let came = world.run(Duration::from_millis(10), |world| world.nodes[0].state.came.len() > number);
        assert!(came, "{len} bytes");
        let bytes = world.nodes[0].am.endpoint().region(region).unwrap();
        assert_eq!(bytes[1_000 * number..][..len], content(number as u64, len), "{len} bytes");
    }
    assert_eq!(world.nodes[0].state.came, [0, 1, 2, 3, 4]);
    assert_eq!(world.nodes[1].am.counters().replies_sent, 5);
}

/// Their handlers do not wait, and short replies may overtake them.
#[test]
fn long_replies_wait_for_room_and_all_come() {
    const LEN: usize = 30_000;
    let mut world = World::pair(good_link(), 1, mtu(1500), fifos(1 << 14), handlers);
    let (region, key) = with_region(&mut world, 20 * LEN);
    for number in 0..20 {
        fetch(&mut world.nodes[0], &key, number, number as usize * LEN, LEN).unwrap();
    }
    world.nodes[0].am.request_m(world.nodes[0].peer, ADD, [20]).unwrap();
    assert!(world.run(Duration::from_millis(100), |world| world.nodes[0].state.came.len() == 21));
    assert!(world.nodes[1].am.counters().long_reply_stalls > 10, "{:?}", world.nodes[1].am.counters());
    let bytes = world.nodes[0].am.endpoint().region(region).unwrap();
    for number in 0..20 {
        assert_eq!(bytes[number * LEN..][..LEN], content(number as u64, LEN), "fetch {number}");
    }
    let came = &mut world.nodes[0].state.came;
    assert_ne!(came.last(), Some(&20), "the short reply waited for long ones");
    came.retain(|number| *number != 20);
    assert!(came.iter().copied().eq(0..20), "in order: {came:?}");
    let (am, endpoint) = (world.nodes[1].am.counters(), world.nodes[1].am.endpoint().counters());
    assert_eq!((am.replies_sent, endpoint.messages_sent - am.credits_sent), (21, 21));
    let Node { am, peer, .. } = &mut world.nodes[0];
    assert_eq!((am.handled(*peer), am.sent(*peer)), (21, 21));
}

/// Where nothing is acknowledged, and a message on its own goes straight to the driver.
#[test]
fn over_a_reliable_driver_long_replies_are_in_place_as_well() {
    const LEN: usize = 30_000;
    let fabric = Fabric::new(1);
    let config = NodeConfig { rx_frames: 1 << 20, tx_frames: 8, ..mtu(1500) };
    let nodes = [1, 2].map(|seed| {
        let endpoint = Endpoint::new(Reliable::new(fabric.nic(config)), Config { seed: Some(seed), ..fifos(1 << 14) });
        ActiveMessages::new(endpoint, handlers())
    });
    let ([mut a, mut b], [mut of_a, mut of_b]) = (nodes, [State::default(), State::default()]);
    let peer = a.connect(b.endpoint().nic().caps().addr).unwrap();
    until("it tells of room for replies", || {
        a.poll(&mut of_a);
        b.poll(&mut of_b);
        a.room_max(peer) != ReplyRoom::NONE
    });
    let region = a.endpoint_mut().register(vec![0; 20 * LEN]);
    let key = a.endpoint_mut().publish(region, Rights::WRITE, None).unwrap();
    for number in 0..20 {
        let args = [number, number * LEN as u64, LEN as u64];
        a.request(peer, FETCH, &args, &key.to_bytes(), ReplyRoom::medium(1, 0)).unwrap();
    }
    let mut seen = 0;
    for _ in 0..10_000 {
        a.poll(&mut of_a);
        b.poll(&mut of_b);
        for number in of_a.came[seen..].iter().map(|number| *number as usize) {
            let bytes = &a.endpoint().region(region).unwrap()[number * LEN..][..LEN];
            assert!(bytes == content(number as u64, LEN), "fetch {number}");
        }
        seen = of_a.came.len();
    }
    assert!(of_a.came.iter().copied().eq(0..20), "{:?}", of_a.came);
    assert!(b.counters().long_reply_stalls > 0);
}

#[test]
fn in_storms_every_long_reply_comes_once_and_its_room_comes_back() {
    let mut stalls = 0;
    for seed in 0..200 {
        const COUNT: u64 = 60;
        let stormy = Scenario::stormy(seed);
        let mut world =
            World::pair(stormy.link, seed, mtu(stormy.mtu[0].min(3_000)), fifos(1 << (seed % 12)), handlers);
        let (region, key) = with_region(&mut world, COUNT as usize * 5_000);
        let len = |number: u64| (number * 7_919 % 5_000) as usize;
        let mut next = 0;
        let all_came = world.run(Duration::from_millis(600_000), |world| {
            while next < COUNT && fetch(&mut world.nodes[0], &key, next, next as usize * 5_000, len(next)).is_ok() {
                next += 1;
            }
            world.nodes[0].am.flush();
            world.nodes[0].state.came.len() as u64 == COUNT
        });
        let Node { am, state, peer, .. } = &mut world.nodes[0];
        assert!(all_came, "seed {seed}: {} of {next} asked for came", state.came.len());
        state.came.sort_unstable();
        assert!(state.came.iter().copied().eq(0..COUNT), "seed {seed}: {:?}", state.came);
        for number in 0..COUNT {
            let bytes = &am.endpoint().region(region).unwrap()[number as usize * 5_000..][..len(number)];
            assert!(bytes == content(number, len(number)), "seed {seed}: fetch {number}");
        }
        let room = am.room_max(*peer);
        assert!(am.prepare(*peer, 0, 0, room).is_ok(), "seed {seed}: the room is not back");
        stalls += world.nodes[1].am.counters().long_reply_stalls;
    }
    assert!(stalls > 100, "{stalls} had to wait");
}

#[test]
fn a_put_that_the_requester_refuses_is_told_to_who_replied() {
    let mut world = World::pair(good_link(), 1, mtu(1500), fifos(1 << 14), handlers);
    let (region, key) = with_region(&mut world, 100);
    world.nodes[0].am.endpoint_mut().unpublish(region).unwrap();
    fetch(&mut world.nodes[0], &key, 7, 0, 100).unwrap();
    world.pass(SOON);
    assert_eq!(world.nodes[0].state.came, [7], "the handler runs all the same");
    let told = std::iter::from_fn(|| world.nodes[1].am.poll_event())
        .any(|event| matches!(event, Event::OpFailed { why: OpError::NoRegion, .. }));
    assert!(told);
}

#[test]
fn what_cannot_be_sent_is_refused_at_once_and_its_room_comes_back() {
    let mut world = World::pair(good_link(), 1, mtu(1500), fifos(1 << 14), handlers);
    let (_, key) = with_region(&mut world, 100);
    fetch(&mut world.nodes[0], &key, 0, 1, 100).unwrap();
    let Node { am, peer, .. } = &mut world.nodes[0];
    am.request(*peer, FETCH, &[1, 0, 100], &key.to_bytes(), ReplyRoom::NONE).unwrap();
    am.ask(*peer).unwrap();
    world.pass(SOON);
    let refused = [LongError::Put(RmaError::Bounds), LongError::Request(SendError::TooLong)];
    assert_eq!(world.nodes[1].state.refused, refused);
    let Node { am, peer, .. } = &mut world.nodes[0];
    assert_eq!(am.handled(*peer), 2);
    // A request that arrives behind our own close cannot be replied to.
    fetch(&mut world.nodes[0], &key, 2, 0, 100).unwrap();
    let Node { am, peer, .. } = &mut world.nodes[1];
    am.close(*peer);
    world.pass(SOON);
    assert_eq!(world.nodes[1].state.refused[2..], [LongError::Request(SendError::NoPeer)]);
}

#[test]
fn a_close_waits_for_long_replies_that_wait() {
    let mut world = World::pair(good_link(), 1, mtu(1500), fifos(1 << 14), handlers);
    let (_, key) = with_region(&mut world, 100_000);
    for number in 0..5 {
        fetch(&mut world.nodes[0], &key, number, 0, 100_000).unwrap();
    }
    world.nodes[0].am.flush();
    assert!(world.run(SOON, |world| world.nodes[1].am.counters().long_reply_stalls > 0));
    let Node { am, peer, .. } = &mut world.nodes[1];
    am.close(*peer);
    assert_eq!(am.request_m(*peer, ADD, [1]), Err(SendError::NoPeer), "nothing follows a close");
    let closed = world
        .run(Duration::from_millis(100), |world| matches!(world.nodes[0].am.poll_event(), Some(Event::Closed { .. })));
    assert_eq!((closed, &world.nodes[0].state.came[..]), (true, &[0, 1, 2, 3, 4][..]));
}

#[test]
fn what_waits_for_one_requester_is_bounded() {
    const LEN: usize = 4 << 20;
    let mut world = World::pair(good_link(), 1, mtu(1500), fifos(1 << 14), handlers);
    let (_, key) = with_region(&mut world, LEN);
    for number in 0..8 {
        fetch(&mut world.nodes[0], &key, number, 0, LEN).unwrap();
    }
    world.pass(Duration::from_millis(200));
    let [a, b] = &mut world.nodes;
    assert_eq!(a.state.came, [0, 1, 2, 3]);
    assert_eq!(b.state.refused, [LongError::Put(RmaError::Full); 4]);
    a.am.ask(a.peer).unwrap();
    world.pass(SOON);
    let Node { am, peer, .. } = &world.nodes[0];
    assert_eq!(am.handled(*peer), 8);
    // What has left waits no more.
    fetch(&mut world.nodes[0], &key, 8, 0, LEN).unwrap();
    world.pass(Duration::from_millis(200));
    assert_eq!(world.nodes[0].state.came, [0, 1, 2, 3, 8]);
}

/// Who waits for it is gone, too.
#[test]
fn a_long_reply_that_waits_ends_with_its_requester() {
    let mut world = World::pair(good_link(), 1, mtu(1500), fifos(1 << 14), handlers);
    let (_, key) = with_region(&mut world, 100_000);
    for number in 0..10 {
        fetch(&mut world.nodes[0], &key, number, 0, 100_000).unwrap();
    }
    world.nodes[0].am.flush();
    let waits = |world: &mut World<State>| world.nodes[1].am.counters().long_reply_stalls > 0;
    assert!(world.run(SOON, waits));
    world.nodes[0].polls = false;
    // It looks at nothing any more, so it answers nothing.
    let gone = world
        .run(Duration::from_millis(60_000), |world| matches!(world.nodes[1].am.poll_event(), Some(Event::Gone { .. })));
    assert!(gone);
    world.pass(SOON);
    assert!(format!("{:?}", world.nodes[1].am).contains("replying: []"), "one waits for ever");
}
