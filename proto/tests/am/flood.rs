//! Both sides request as much as they can, of handlers that reply as much as they may, over the smallest FIFOs.

use sidelane_nic::fault::Faults;
use sidelane_nic::mem::LinkModel;
use sidelane_nic::rng::Rng;
use sidelane_nic::time::Duration;
use sidelane_proto::SendError;
use sidelane_proto::am::{Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::sim::Scenario;

use crate::world::{Node, VirtualTime, World, fifos, good_link, mtu};

const ASK: u8 = 3;
const ANSWER: u8 = 7;

#[derive(Default)]
struct State {
    handled: u64,
    /// What the peer should have got back from us: numbers of requests that we replied to.
    replied: Vec<u64>,
    got: Vec<u64>,
}

/// The request's kind follows from its number.
const KINDS: u64 = 4;
const SILENT: u64 = 3;

fn content(number: u64, len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(move |at| (number as u8).wrapping_mul(31) ^ at as u8)
}

fn handlers() -> Handlers<State> {
    Handlers::new()
        .request(ASK, |state: &mut State, replier: Replier<'_>, args: Args<'_>, payload: &[u8]| {
            let [number] = args.array().expect("one word");
            assert_eq!(number, state.handled, "in order, each once");
            assert!(payload.iter().copied().eq(content(number, payload.len())), "request {number} is altered");
            state.handled += 1;
            if number % KINDS == SILENT {
                return;
            }
            let most = replier.payload_max(1).expect("it has room for a word");
            if number % KINDS == 0 {
                let mut reply = replier.prepare(1, most).expect("a reply always finds room");
                reply.payload().iter_mut().zip(content(number, most)).for_each(|(to, from)| *to = from);
                reply.commit(ANSWER, &[number], most);
            } else {
                let payload: Vec<u8> = content(number, most).collect();
                replier.reply(ANSWER, &[number], &payload).expect("a reply always finds room");
            }
            state.replied.push(number);
        })
        .reply(ANSWER, |state: &mut State, _, args: Args<'_>, payload: &[u8]| {
            let [number] = args.array().expect("one word");
            assert!(payload.iter().copied().eq(content(number, payload.len())), "reply {number} is altered");
            state.got.push(number);
        })
}

fn feed(node: &mut Node<State>, rng: &mut Rng, next: &mut u64, count: u64) {
    let Node { am, peer, .. } = node;
    let (room_max, medium_max) = (am.room_max(*peer), am.medium_max(*peer, 1));
    while *next < count {
        let room = if rng.chance(0.5) { room_max } else { ReplyRoom::medium(1, 0) };
        let payload: Vec<u8> = content(*next, rng.below(medium_max as u64 + 1) as usize).collect();
        match am.request(*peer, ASK, &[*next], &payload, room) {
            Ok(()) => *next += 1,
            Err(SendError::Full) => break,
            Err(error) => panic!("request {next}: {error}"),
        }
    }
}

/// Both sides flood; false if they get stuck.
fn play(world: &mut World<State>, seed: u64, count: u64) -> bool {
    let mut rng = Rng::new(seed);
    let mut next = [0; 2];
    for _ in 0..STEPS_MAX {
        for (node, next) in world.nodes.iter_mut().zip(&mut next) {
            node.polls = rng.chance(0.7);
            feed(node, &mut rng, next, count);
            if *next == count {
                // Full: next time.
                let _ = node.am.ask(node.peer);
            }
        }
        world.pass(Duration::from_nanos(10_u64.pow(3 + rng.below(5) as u32)));
        if next == [count; 2] && world.nodes.iter().all(|node| node.am.handled(node.peer) == count) {
            return true;
        }
    }
    false
}

/// Some hundred seconds of virtual time.
const STEPS_MAX: u32 = 100_000;

fn judge(world: &mut World<State>, what: &str, count: u64) {
    for (here, there) in [(0, 1), (1, 0)] {
        let [here, there] = [&world.nodes[here], &world.nodes[there]];
        assert_eq!(here.state.handled, count, "{what}");
        assert!(here.state.replied == there.state.got, "{what}: each reply once, in order");
        assert_eq!(here.am.counters().rejected_total(), 0, "{what}: {:?}", here.am.counters());
    }
    world.nodes.iter_mut().for_each(|node| node.polls = true);
    let room_is_back = world.run(Duration::from_millis(60_000), |world| {
        world.nodes.iter_mut().all(|Node { am, peer, .. }| {
            let room = am.room_max(*peer);
            am.prepare(*peer, 1, 0, room).is_ok()
        })
    });
    assert!(room_is_back, "{what}: the room is not back");
}

#[test]
fn floods_from_both_sides_over_full_fifos_never_stick() {
    let (mut stalls, mut full) = (0, 0);
    for seed in 0..1000 {
        let stormy = Scenario::stormy(seed);
        let link = if seed % 4 == 0 { good_link() } else { stormy.link };
        let frame = stormy.mtu[0].min(3_000);
        let mut world = World::pair(link, seed, mtu(frame), fifos(1 << (seed % 12)), handlers);
        let count = 150;
        if !play(&mut world, seed, count) {
            for Node { am, state, peer, .. } in &mut world.nodes {
                println!("{} sent, {} handled here; {:?}", am.sent(*peer), state.handled, am.counters());
                println!("{:?} {:?}", am.poll_event(), am.endpoint().counters());
            }
            panic!("seed {seed}: stuck at {:?}", world.fabric.now());
        }
        judge(&mut world, &format!("seed {seed}"), count);
        for node in &world.nodes {
            stalls += node.am.counters().budget_stalls;
            full += node.am.endpoint().counters().credit_stalls;
        }
    }
    assert!(stalls > 1000 && full > 10, "neither budgets nor FIFOs were ever full: {stalls}, {full}");
}

const QUIET: u8 = 4;

/// Requests without payload whose handler is silent, until there is no room; how many.
fn fill(node: &mut Node<State>) -> u64 {
    let before = node.am.sent(node.peer);
    while node.am.request(node.peer, QUIET, &[], &[], ReplyRoom::SHORT).is_ok() {}
    node.am.sent(node.peer) - before
}

/// Waits until both sides know of everything that they sent, and have empty FIFOs.
fn all_is_told(world: &mut World<State>) -> bool {
    world.run(Duration::from_millis(60_000), |world| {
        world.nodes.iter_mut().all(|Node { am, peer, .. }| {
            // Full: next time.
            let _ = am.ask(*peer);
            am.handled(*peer) == am.sent(*peer) && am.endpoint_mut().is_settled(*peer)
        })
    })
}

/// Both sides' room and FIFOs are used up before either handles anything, so that the word of what was handled finds its own FIFO
/// full, and then the line takes nothing for a while: it is told later, none of it is lost, and all room comes back.
#[test]
fn credit_that_finds_a_full_fifo_or_is_lost_on_the_way_comes_late_and_whole() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        // Not so bad that a peer seems dead: credit of a peer that is gone is nobody's.
        let span = Duration::from_micros(40);
        let faults = Faults { loss: 0.1, duplicate: 0.1, reorder: 0.2, reorder_span: span, ..Faults::NONE };
        let link = LinkModel { faults: if seed % 2 == 0 { Faults::NONE } else { faults }, ..good_link() };
        let quiet = || handlers().request(QUIET, |_: &mut State, _: Replier<'_>, _, _| {});
        let mut world = World::pair(link, seed, mtu(512), fifos(4096), quiet);
        let mut room = None;
        let mut next = [0; 2];
        for round in 0..6 {
            world.nodes.iter_mut().for_each(|node| node.polls = false);
            for (node, next) in world.nodes.iter_mut().zip(&mut next) {
                // All room, of which some is used for replies, and then what the FIFO still takes.
                if rng.chance(0.5) {
                    let until = *next + rng.below(20);
                    feed(node, &mut rng, next, until);
                }
                fill(node);
                while node.am.request(node.peer, QUIET, &[], &[9; 100], ReplyRoom::NONE).is_ok() {}
            }
            // What is on the line is lost, and what is said next.
            if rng.chance(0.7) {
                world.fabric.partition(0, 1, world.fabric.now() + Duration::from_micros(rng.below(100_000)));
            }
            let first = rng.below(2) as usize;
            world.nodes[first].polls = true;
            world.pass(Duration::from_micros(rng.below(100_000)));
            world.nodes[1 - first].polls = true;
            assert!(all_is_told(&mut world), "seed {seed}, round {round}: stuck");
            let all = world.nodes.each_mut().map(fill);
            assert_eq!(*room.get_or_insert(all), all, "seed {seed}, round {round}: room was lost, or made");
            assert!(all_is_told(&mut world), "seed {seed}, round {round}: stuck at the end");
        }
        for node in &world.nodes {
            assert_eq!(node.am.counters().rejected_total(), 0, "seed {seed}: {:?}", node.am.counters());
        }
    }
}
