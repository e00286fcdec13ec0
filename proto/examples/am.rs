//! Counters on another endpoint: remote increments by Active Messages, over the simulated fabric.
//!
//! `cargo run --release -p sidelane-proto --example am`

use sidelane_nic::LinkAddr;
use sidelane_nic::mem::{Config as NodeConfig, Fabric};
use sidelane_proto::am::{ActiveMessages, Args, Handlers, Replier, ReplyRoom};
use sidelane_proto::{Config, Endpoint, PeerId, SendError};

/// Handlers of requests: adds to a counter; tells what one stands at.
const ADD: u8 = 0;
const READ: u8 = 1;
/// Handler of the reply to READ.
const VALUE: u8 = 0;

/// What both sides' handlers work on.
#[derive(Default)]
struct Counters {
    values: [u64; 4],
    answers: Vec<u64>,
}

fn add(state: &mut Counters, _: Replier<'_>, args: Args<'_>, _: &[u8]) {
    // Whatever a peer sends must not panic: there may be other arguments than we hope for.
    let Some([which, by]) = args.array() else { return };
    if let Some(value) = state.values.get_mut(which as usize) {
        *value += by;
    }
}

fn read(state: &mut Counters, replier: Replier<'_>, args: Args<'_>, _: &[u8]) {
    let value = args.get(0).and_then(|which| state.values.get(which as usize));
    match replier.reply_m(VALUE, [value.copied().unwrap_or(0)]) {
        // A requester that is gone needs no answer.
        Ok(()) | Err(SendError::NoPeer) => {}
        Err(error) => panic!("no answer: {error}"),
    }
}

fn value(state: &mut Counters, _: PeerId, args: Args<'_>, _: &[u8]) {
    state.answers.extend(args.get(0));
}

fn handlers() -> Handlers<Counters> {
    Handlers::new().request(ADD, add).request(READ, read).reply(VALUE, value)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fabric = Fabric::new(1);
    let node = |number| Endpoint::new(fabric.nic_at(number, NodeConfig::default()), Config::default());
    let (mut here, mut there) = (ActiveMessages::new(node(0), handlers()), ActiveMessages::new(node(1), handlers()));
    let (mut mine, mut theirs) = (Counters::default(), Counters::default());
    let peer = here.connect(LinkAddr::Mem { node: 1 })?;
    let mut turn = |here: &mut ActiveMessages<_, _>| {
        here.poll(&mut mine);
        there.poll(&mut theirs);
        mine.answers.pop()
    };

    for number in 0..1000 {
        // `Full`: not connected yet, or the FIFO is.
        while let Err(error) = here.request(peer, ADD, &[number % 4, 1], &[], ReplyRoom::NONE) {
            if error != SendError::Full {
                return Err(error.into());
            }
            turn(&mut here);
        }
    }
    here.request_m(peer, READ, [3])?;
    let counted = loop {
        if let Some(value) = turn(&mut here) {
            break value;
        }
    };
    println!("counter 3 stands at {counted}; {} of {} requests are handled", here.handled(peer), here.sent(peer));
    assert_eq!(counted, 250);
    Ok(())
}
