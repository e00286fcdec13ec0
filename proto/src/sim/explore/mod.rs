//! Every order of events between two real endpoints, within bounds: frames arrive in any order, are lost or come twice,
//! time-outs strike while frames are on their way, a process dies and lives anew. On a reliable driver, where none of that
//! happens to frames: users take, send and close in any order.
//!
//! An explicit-state search over the code itself, not over a model of it in TLA+, Spin or stateright: nobody has to keep that true to the
//! code, and faults in what a model leaves out are found too. From each state every possible step is taken;
//! states that were seen are recognised by a digest of both endpoints, the frames under way and what the users know. The
//! faults are counted off a [`Budget`], so every path ends; where nothing is possible any more, [`World::judge_end`] asks
//! whether anything is missing. An endless path would be longer than `STEPS_MAX`.

mod operations;
mod talk;
mod wire;
mod world;

use std::collections::HashSet;

use operations::Operation;
use world::{Step, World};

/// Faults that a path may still contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Budget {
    losses: u8,
    copies: u8,
    /// Frames that overtake others of their direction.
    overtakings: u8,
    /// Timers that fire although frames are under way.
    early_timers: u8,
    /// Deaths of node 1; it lives anew at once.
    restarts: u8,
}

/// What the users want: who dials and what is sent.
#[derive(Clone, Copy, Debug)]
struct Plan {
    budget: Budget,
    /// What node 0 does on node 1's memory, before its messages.
    operations: &'static [Operation],
    /// Messages are requests of Active Messages, and node 1 replies to each.
    active: bool,
    /// Lengths of the messages of each node.
    messages: [&'static [usize]; 2],
    dials: [bool; 2],
    closes: [bool; 2],
    /// Users take messages when they like.
    lazy: bool,
    /// Bytes of each node's FIFOs; those of two frames in any case.
    fifo: usize,
    /// Longest message that node 1 takes.
    longest: usize,
}

/// What the search found.
#[derive(Debug, Default)]
struct Found {
    states: usize,
    steps: u64,
    ends: u64,
    longest: usize,
}

/// Takes every path. The first that breaks a rule comes back, step by step.
fn explore<const RELIABLE: bool>(plan: &Plan) -> Result<Found, String> {
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let mut path: Vec<Step> = Vec::new();
    let begin = World::<RELIABLE>::new(plan);
    let nodes = begin.digests_of_nodes();
    seen.insert(begin.digest(nodes));
    // One entry for each step of `path`, and one for the beginning: what can still be tried there, and its nodes' digests.
    let mut open = vec![(begin.steps(), nodes)];
    let mut world = Some(begin);
    while let Some((choices, nodes)) = open.last_mut() {
        let Some(step) = choices.pop() else {
            open.pop();
            path.pop();
            world = None;
            continue;
        };
        // After a dead end the way to here is played again: endpoints are not copied, as real ones are not.
        let mut here = world.take().unwrap_or_else(|| replay::<RELIABLE>(plan, &path));
        path.push(step);
        found.steps += 1;
        let told = |what: String| format!("{what}\n{}", story::<RELIABLE>(plan, &path));
        here.take(step).map_err(&told)?;
        if path.len() > STEPS_MAX {
            return Err(told("it does not come to an end".into()));
        }
        let nodes = here.digests_after_step(*nodes);
        // That a step leaves a node as it was is asked now and then.
        debug_assert!(
            !found.steps.is_multiple_of(64) || nodes == here.digests_of_nodes(),
            "{}",
            told(format!("{step:?}"))
        );
        if !seen.insert(here.digest(nodes)) {
            path.pop();
            continue;
        }
        found.longest = found.longest.max(path.len());
        let steps = here.steps();
        if steps.is_empty() {
            here.judge_end().map_err(&told)?;
            found.ends += 1;
        }
        open.push((steps, nodes));
        world = Some(here);
    }
    found.states = seen.len();
    Ok(found)
}

fn replay<const RELIABLE: bool>(plan: &Plan, path: &[Step]) -> World<RELIABLE> {
    let mut world = World::<RELIABLE>::new(plan);
    for step in path {
        world.take(*step).expect("it was taken before");
    }
    world
}

/// A path, step by step, with the frames that are then under way.
fn story<const RELIABLE: bool>(plan: &Plan, path: &[Step]) -> String {
    let mut world = World::<RELIABLE>::new(plan);
    let mut story = format!("begin: {world}\n");
    for step in path {
        let taken = world.take(*step);
        story += &format!("{step:?}: {world}\n");
        if taken.is_err() {
            break;
        }
    }
    story
}

/// No path is longer, or something goes round in circles.
const STEPS_MAX: usize = 400;

const CALM: Budget = Budget { losses: 0, copies: 0, overtakings: 0, early_timers: 0, restarts: 0 };
const DIAL: Plan = Plan {
    budget: CALM,
    operations: &[],
    active: false,
    messages: [&[16, 200], &[16]],
    dials: [true, false],
    closes: [true, false],
    lazy: false,
    fifo: 1024,
    longest: usize::MAX,
};
/// A put, a get of what was put, an addition, and a message behind them; or a put of two frames.
const OPERATE: Plan = Plan {
    operations: &[Operation::Put { at: 0, len: 8 }, Operation::Get { at: 0, len: 8 }, Operation::Add],
    messages: [&[16], &[]],
    ..DIAL
};
const PUT: Plan = Plan { operations: &[Operation::Put { at: 0, len: 200 }], messages: [&[16], &[]], ..DIAL };
const REQUEST: Plan = Plan { active: true, messages: [&[16, 16], &[]], ..DIAL };

fn check(name: &str, plan: &Plan) {
    judge(name, explore::<false>(plan));
}

/// On a driver that is reliable itself.
fn check_reliable(name: &str, plan: &Plan) {
    judge(name, explore::<true>(plan));
}

fn judge(name: &str, found: Result<Found, String>) {
    match found {
        Ok(found) => println!("{name}: {found:?}"),
        Err(why) => panic!("{name}: {why}"),
    }
}

#[test]
fn loss_and_late_acks() {
    check("loss", &Plan { budget: Budget { losses: 2, early_timers: 1, ..CALM }, ..DIAL });
}

#[test]
fn copies_and_overtaking() {
    let messages: [&[usize]; 2] = [&[200], &[16]];
    check("copies", &Plan { budget: Budget { losses: 1, copies: 1, overtakings: 1, ..CALM }, messages, ..DIAL });
}

#[test]
fn both_dial_and_both_close() {
    let plan = Plan { messages: [&[16], &[16]], dials: [true; 2], closes: [true; 2], ..DIAL };
    check("both dial", &Plan { budget: Budget { losses: 1, copies: 1, ..CALM }, ..plan });
}

#[test]
fn a_peer_that_lives_anew() {
    check("restart", &Plan { budget: Budget { losses: 1, copies: 1, restarts: 1, ..CALM }, ..DIAL });
}

#[test]
fn operations_under_loss() {
    check("operations, loss", &Plan { budget: Budget { losses: 1, copies: 1, ..CALM }, ..OPERATE });
    check("put, loss", &Plan { budget: Budget { losses: 2, ..CALM }, ..PUT });
}

#[test]
fn operations_copied_and_overtaken() {
    check("operations, copies", &Plan { budget: Budget { copies: 1, overtakings: 1, ..CALM }, ..PUT });
}

#[test]
fn operations_on_a_peer_that_lives_anew() {
    check("operations, restart", &Plan { budget: Budget { restarts: 1, ..CALM }, ..OPERATE });
}

#[test]
fn active_messages_under_loss() {
    check("active, loss", &Plan { budget: Budget { losses: 1, early_timers: 1, ..CALM }, ..REQUEST });
}

#[test]
fn active_messages_copied_and_overtaken() {
    let messages: [&[usize]; 2] = [&[16], &[]];
    check("active, copies", &Plan { budget: Budget { copies: 1, overtakings: 1, ..CALM }, messages, ..REQUEST });
}

#[test]
fn active_messages_to_a_peer_that_lives_anew() {
    check("active, restart", &Plan { budget: Budget { losses: 1, restarts: 1, ..CALM }, ..REQUEST });
}

#[test]
fn reliable_both_dial_and_close_whenever_they_like() {
    let plan = Plan { dials: [true; 2], closes: [true; 2], lazy: true, ..DIAL };
    check_reliable("reliable", &Plan { budget: Budget { early_timers: 1, ..CALM }, ..plan });
}

#[test]
fn reliable_messages_without_credit() {
    let messages: [&[usize]; 2] = [&[144; 4], &[]];
    check_reliable("reliable, credit", &Plan { messages, fifo: 0, closes: [true; 2], lazy: true, ..DIAL });
}

#[test]
fn reliable_operations_behind_a_close() {
    let plan = Plan { closes: [true; 2], messages: [&[], &[16]], lazy: true, ..OPERATE };
    check_reliable("reliable, operations", &Plan { budget: Budget { early_timers: 1, ..CALM }, ..plan });
}

#[test]
fn reliable_messages_that_are_not_taken() {
    for dials in [[true, false], [true; 2]] {
        let plan = Plan { dials, closes: [true; 2], longest: 100, ..DIAL };
        check_reliable("reliable, too long", &Plan { budget: Budget { early_timers: 1, ..CALM }, ..plan });
    }
}
