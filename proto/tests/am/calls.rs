//! What the calls do, one behaviour a test.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sidelane_nic::time::Duration;
use sidelane_proto::SendError;
use sidelane_proto::am::{ARGS_MAX, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::{Event, PeerId, PutHow, RemoteKey, Rights};

use crate::world::{Node, VirtualTime, World, fifos, good_link, mtu};

const ADD: u8 = 0;
const ECHO: u8 = 1;
const SILENT: u8 = 2;
const PANIC: u8 = 3;
const PANIC_AFTER_REPLY: u8 = 4;
const UPPER: u8 = 200;
const SUM: u8 = 0;
const ECHOED: u8 = 255;

#[derive(Default)]
struct State {
    total: u64,
    silent: Vec<Vec<u8>>,
    sums: Vec<u64>,
    echoed: Vec<(Vec<u64>, Vec<u8>)>,
    refused: Vec<SendError>,
}

fn handlers() -> Handlers<State> {
    Handlers::new()
        .request(ADD, |state: &mut State, replier: Replier<'_>, args, _| {
            state.total += args.iter().sum::<u64>();
            replier.reply_m(SUM, [state.total]).unwrap();
        })
        .request(ECHO, |state: &mut State, replier: Replier<'_>, args, payload: &[u8]| {
            let args: Vec<u64> = args.iter().collect();
            if let Err(error) = replier.reply(ECHOED, &args, payload) {
                state.refused.push(error);
            }
        })
        .request(SILENT, |state: &mut State, _: Replier<'_>, _, payload: &[u8]| state.silent.push(payload.to_vec()))
        .request(PANIC, |_: &mut State, _: Replier<'_>, _, _| resume_unwind(Box::new(())))
        .request(PANIC_AFTER_REPLY, |_: &mut State, replier: Replier<'_>, _, _| {
            replier.reply_m(SUM, [7]).unwrap();
            resume_unwind(Box::new(()))
        })
        .request(UPPER, |_: &mut State, replier: Replier<'_>, _, payload: &[u8]| {
            let mut reply = replier.prepare(1, payload.len() + 7).unwrap();
            for (to, from) in reply.payload().iter_mut().zip(payload) {
                *to = from.to_ascii_uppercase();
            }
            reply.commit(ECHOED, &[9], payload.len());
        })
        .reply(SUM, |state: &mut State, _: PeerId, args: Args<'_>, _| state.sums.extend(args.array::<1>().unwrap()))
        .reply(ECHOED, |state: &mut State, _, args, payload| {
            state.echoed.push((args.iter().collect(), payload.to_vec()))
        })
}

/// A handler runs although its requester always has another put at hand.
#[test]
fn puts_without_end_keep_no_request_waiting() {
    let mut world = world();
    let [a, b] = &mut world.nodes;
    let theirs = b.am.endpoint_mut().register(vec![0; 1 << 20]);
    let key = b.am.endpoint_mut().publish(theirs, Rights::WRITE, None).unwrap();
    let source = a.am.endpoint_mut().register(vec![7; 1 << 20]);
    let (mut puts, mut asked) = (Vec::new(), 0);
    world.run(Duration::from_millis(100), |world| {
        let Node { am, state, peer, .. } = &mut world.nodes[0];
        puts.retain(|put| !am.endpoint_mut().is_done(*put));
        while puts.len() < 4 {
            let put = am.endpoint_mut().put_from(*peer, &key, 0, source, 0..1 << 20, PutHow::default());
            puts.push(put.unwrap());
        }
        if state.sums.len() == asked {
            asked += 1;
            am.request_m(*peer, ADD, [1]).unwrap();
        }
        am.flush();
        false
    });
    // Four puts take 3.6 ms, and one round trip waits for no more.
    assert!(world.nodes[0].state.sums.len() > 20, "{} round trips", world.nodes[0].state.sums.len());
}

fn world() -> World<State> {
    World::pair(good_link(), 1, mtu(1500), fifos(1 << 14), handlers)
}

const SOON: Duration = Duration::from_millis(1);

#[test]
fn a_request_runs_its_handler_and_the_reply_another_one() {
    let mut world = world();
    let node = &mut world.nodes[0];
    node.am.request_m(node.peer, ADD, [1, 2, 3]).unwrap();
    node.am.request_m(node.peer, ADD, []).unwrap();
    node.am.request_m(node.peer, ADD, [1; ARGS_MAX]).unwrap();
    world.pass(SOON);
    assert_eq!(world.nodes[0].state.sums, [6, 6, 22]);
    assert_eq!(world.nodes[1].state.total, 22);
}

#[test]
fn words_and_payload_of_every_size_arrive_as_they_were() {
    let mut world = world();
    let mut expected = Vec::new();
    let medium_max = world.nodes[0].am.medium_max(world.nodes[0].peer, 3);
    for (words, len) in (0..=ARGS_MAX).map(|words| (words, words * 5)).chain([(3, medium_max), (0, 1)]) {
        let (args, payload) = (vec![!7; words], vec![words as u8; len]);
        let node = &mut world.nodes[0];
        node.am.request(node.peer, ECHO, &args, &payload, ReplyRoom::medium(words, len)).unwrap();
        expected.push((args, payload));
        world.pass(SOON);
    }
    assert_eq!(world.nodes[0].state.echoed, expected);
}

#[test]
fn a_prepared_payload_may_become_shorter_and_may_be_dropped() {
    let mut world = world();
    let node = &mut world.nodes[0];
    let mut prepared = node.am.prepare(node.peer, 2, 100, ReplyRoom::medium(1, 50)).unwrap();
    prepared.payload()[..5].copy_from_slice(b"lower");
    prepared.commit(UPPER, &[1, 2], 5);
    node.am.prepare(node.peer, 0, 100, ReplyRoom::NONE).unwrap().payload().fill(1);
    world.pass(SOON);
    assert_eq!(world.nodes[0].state.echoed, [(vec![9], b"LOWER".to_vec())]);
    assert_eq!(world.nodes[0].am.sent(world.nodes[0].peer), 1);
}

#[test]
fn a_reply_keeps_to_what_the_request_allowed() {
    let mut world = world();
    let node = &mut world.nodes[0];
    node.am.request(node.peer, ECHO, &[], &[1; 100], ReplyRoom::medium(0, 60)).unwrap();
    node.am.request(node.peer, ECHO, &[], &[1; 100], ReplyRoom::NONE).unwrap();
    node.am.request(node.peer, ECHO, &[], &[1; 100], ReplyRoom::medium(0, 100)).unwrap();
    world.pass(SOON);
    assert_eq!(world.nodes[1].state.refused, [SendError::TooLong; 2]);
    assert_eq!(world.nodes[0].state.echoed.len(), 1);
}

#[test]
fn what_is_too_long_is_refused_at_once() {
    let mut world = world();
    let Node { am, peer, .. } = &mut world.nodes[0];
    let most = am.medium_max(*peer, 1);
    assert_eq!(am.request(*peer, SILENT, &[0], &vec![0; most + 9], ReplyRoom::NONE), Err(SendError::TooLong));
    assert_eq!(am.request(*peer, SILENT, &[0; ARGS_MAX + 1], &[], ReplyRoom::NONE), Err(SendError::TooLong));
    assert_eq!(am.request(*peer, SILENT, &[], &[], ReplyRoom::medium(0, most * 2)), Err(SendError::TooLong));
    assert!(am.prepare(*peer, 1, most + 9, ReplyRoom::NONE).is_err_and(|error| error == SendError::TooLong));
    let room = am.room_max(*peer);
    assert!(am.prepare(*peer, 1, most, room).is_ok());
}

#[test]
fn without_replies_the_handled_count_follows_at_the_latest_when_asked() {
    let mut world = world();
    for number in 1..=10u64 {
        let node = &mut world.nodes[0];
        node.am.request(node.peer, SILENT, &[], b"x", ReplyRoom::NONE).unwrap();
        assert_eq!(node.am.sent(node.peer), number);
    }
    world.pass(SOON);
    let node = &mut world.nodes[0];
    assert_eq!(node.am.handled(node.peer), 0, "ten are not worth a message");
    let frames = node.am.endpoint().counters().messages_sent;
    node.am.ask(node.peer).unwrap();
    node.am.ask(node.peer).unwrap();
    assert_eq!(node.am.endpoint().counters().messages_sent - frames, 1, "once is enough");
    world.pass(SOON);
    let node = &mut world.nodes[0];
    assert_eq!(node.am.handled(node.peer), 10);
    assert_eq!(world.nodes[1].state.silent.len(), 10);
}

#[test]
fn credit_rides_on_what_goes_back_anyway() {
    let mut world = world();
    let before = world.nodes[1].am.counters().credits_sent;
    for _ in 0..20 {
        for _ in 0..100 {
            let node = &mut world.nodes[0];
            node.am.request(node.peer, SILENT, &[], &[], ReplyRoom::NONE).unwrap();
        }
        let node = &mut world.nodes[0];
        node.am.request_m(node.peer, ADD, [1]).unwrap();
        world.pass(SOON);
    }
    let node = &mut world.nodes[0];
    assert!(node.am.sent(node.peer) - node.am.handled(node.peer) < 256);
    // A burst of 256 that brings its own reply has the credit on it, or alone at the burst's end.
    assert!(world.nodes[1].am.counters().credits_sent - before <= 8);
}

#[test]
fn a_peer_that_does_not_look_makes_its_requester_full_and_nothing_is_lost() {
    let mut world = world();
    world.nodes[1].polls = false;
    let Node { am, peer, .. } = &mut world.nodes[0];
    let mut taken = 0;
    while am.request_m(*peer, ADD, [1]).is_ok() {
        taken += 1;
    }
    assert_eq!(am.request_m(*peer, ADD, [1]), Err(SendError::Full));
    assert!(am.counters().budget_stalls > 0, "the room for replies is what is short");
    world.pass(SOON);
    world.nodes[1].polls = true;
    world.pass(SOON);
    assert_eq!(world.nodes[1].state.total, taken);
    assert_eq!(world.nodes[0].state.sums.len() as u64, taken);
}

#[test]
fn a_request_before_the_peer_has_answered_is_full_and_after_its_end_refused() {
    let mut world = world();
    let Node { am, peer, .. } = &mut world.nodes[0];
    let stranger = am.connect(sidelane_nic::LinkAddr::Mem { node: 77 }).unwrap();
    assert_eq!(am.request_m(stranger, ADD, [1]), Err(SendError::Full));
    assert_eq!(am.ask(stranger), Ok(()), "nothing is requested");
    am.close(stranger);
    assert_eq!(am.ask(stranger), Err(SendError::NoPeer));
    am.close(*peer);
    assert_eq!(am.request_m(*peer, ADD, [1]), Err(SendError::NoPeer));
    world.pass(SOON);
    let mut events = Vec::new();
    while let Some(event) = world.nodes[0].am.poll_event() {
        events.push(event);
    }
    assert!(events.contains(&Event::Closed { peer: world.nodes[0].peer }), "{events:?}");
}

/// The second node's region of 64 KiB, whose key the first one has.
fn with_region() -> (World<State>, sidelane_proto::Region, RemoteKey) {
    let mut world = world();
    let endpoint = world.nodes[1].am.endpoint_mut();
    let region = endpoint.register(vec![0; 1 << 16]);
    let key = endpoint.publish(region, Rights::ALL, None).unwrap();
    (world, region, key)
}

#[test]
fn a_store_is_in_place_when_its_handler_runs() {
    let (mut world, region, key) = with_region();
    let bytes: Vec<u8> = (0..40_000u32).map(|at| (at * 7) as u8).collect();
    let Node { am, peer, .. } = &mut world.nodes[0];
    am.store(*peer, (&key, 100), &bytes, SILENT, [5]).unwrap();
    let ours = am.endpoint_mut().register(bytes.clone());
    let op = am.store_async(*peer, (&key, 50_000), (ours, 0..10_000), SILENT, []).unwrap();
    assert!(!am.endpoint_mut().is_source_free(op));
    let handled = |count: usize| move |world: &mut World<State>| world.nodes[1].state.silent.len() >= count;
    assert!(world.run(Duration::from_millis(10), handled(1)));
    assert_eq!(world.nodes[1].am.endpoint().region(region).unwrap()[100..40_100], bytes);
    assert!(world.run(Duration::from_millis(10), handled(2)));
    assert_eq!(world.nodes[1].am.endpoint().region(region).unwrap()[50_000..60_000], bytes[..10_000]);
    world.pass(SOON);
    let Node { am, peer, .. } = &mut world.nodes[0];
    assert!(am.endpoint_mut().is_source_free(op));
    let got = am.get(*peer, (&key, 200), (ours, 0..300)).unwrap();
    world.pass(SOON);
    let am = &mut world.nodes[0].am;
    assert_eq!(am.endpoint().region(ours).unwrap()[..300], bytes[100..400]);
    assert!(std::iter::from_fn(|| am.poll_event()).any(|event| event == Event::Got { op: got }));
}

#[test]
fn a_store_that_finds_its_request_full_puts_nothing() {
    let (mut world, region, key) = with_region();
    world.nodes[1].polls = false;
    let Node { am, peer, .. } = &mut world.nodes[0];
    while am.request_m(*peer, ADD, []).is_ok() {}
    let refused = am.long(*peer, &key, 0, &[1; 9], ADD, &[], ReplyRoom::SHORT).unwrap_err();
    assert!(refused.is_full(), "{refused}");
    world.nodes[1].polls = true;
    world.pass(SOON);
    assert_eq!(world.nodes[1].am.endpoint().region(region).unwrap()[..9], [0; 9]);
}

#[test]
#[should_panic(expected = "two handlers with index 2")]
fn an_index_has_one_handler() {
    let _ = handlers().request(SILENT, |_, _, _, _| {});
}

#[test]
fn replies_before_a_handler_that_panics_go_out_at_once() {
    let mut world = world();
    let [a, b] = &mut world.nodes;
    a.am.request(a.peer, ADD, &[1], &[], ReplyRoom::SHORT).unwrap();
    a.am.request(a.peer, PANIC, &[], &[], ReplyRoom::SHORT).unwrap();
    b.polls = false;
    world.pass(Duration::from_millis(1));
    let [_, b] = &mut world.nodes;
    assert!(catch_unwind(AssertUnwindSafe(|| b.am.poll(&mut b.state))).is_err());
    b.polls = true;
    // Before any timer of either side could bring another frame.
    assert!(world.run(Duration::from_micros(50), |world| !world.nodes[0].state.sums.is_empty()));
}

/// Its request is over, however: handled once, answered at most once, and its room comes back.
#[test]
fn a_handler_that_panics_has_handled_its_request() {
    let mut world = world();
    let [a, b] = &mut world.nodes;
    a.am.request(a.peer, PANIC, &[], &[], ReplyRoom::SHORT).unwrap();
    a.am.request(a.peer, PANIC_AFTER_REPLY, &[], &[], ReplyRoom::SHORT).unwrap();
    a.am.request(a.peer, SILENT, &[], b"after it", ReplyRoom::NONE).unwrap();
    a.am.ask(a.peer).unwrap();
    b.polls = false;
    world.pass(Duration::from_millis(1));
    let [_, b] = &mut world.nodes;
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| b.am.poll(&mut b.state))).is_err());
    }
    b.polls = true;
    let done = world.run(Duration::from_millis(1_000), |world| {
        let a = &world.nodes[0];
        a.am.handled(a.peer) == a.am.sent(a.peer)
    });
    let [a, b] = &mut world.nodes;
    assert!(done, "{} of {} are handled", a.am.handled(a.peer), a.am.sent(a.peer));
    assert_eq!((&a.state.sums[..], &b.state.silent[..]), (&[7][..], &[b"after it".to_vec()][..]));
    assert_eq!(a.am.counters().rejected_total(), 0);
}

/// Whose reply is on its way, and who is owed word of its credit, is known when the handler panics: no later message would bring it up.
#[test]
fn handlers_that_panic_starve_no_requester() {
    let mut world = world();
    let catch = |world: &mut World<State>| {
        world.nodes[1].polls = false;
        world.pass(SOON);
        let b = &mut world.nodes[1];
        b.polls = true;
        let polled = || catch_unwind(AssertUnwindSafe(|| b.am.poll(&mut b.state)));
        assert!(std::iter::repeat_with(polled).take(10_000).any(|polled| polled.is_ok()), "one panic a message");
    };
    let sent = world.nodes[0].am.sent(world.nodes[0].peer);
    let Node { am, peer, .. } = &mut world.nodes[0];
    let most = am.room_max(*peer);
    while am.request(*peer, PANIC, &[], &[], most).is_ok() {}
    assert!(am.sent(*peer) > sent);
    catch(&mut world);
    let has_room = |world: &mut World<State>| {
        let Node { am, peer, .. } = &mut world.nodes[0];
        am.request(*peer, PANIC_AFTER_REPLY, &[], &[], most).is_ok()
    };
    assert!(world.run(Duration::from_millis(1_000), has_room));
    catch(&mut world);
    assert!(world.run(Duration::from_micros(50), |world| !world.nodes[0].state.sums.is_empty()));
    let am = &world.nodes[1].am;
    assert_eq!(am.counters().replies_sent, 1);
    assert_eq!(am.endpoint().counters().messages_sent, am.counters().credits_sent + 1);
}
