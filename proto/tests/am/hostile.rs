//! Active Messages that nobody who follows the rules would send: from an endpoint that writes them by hand.

use sidelane_nic::mem::{Fabric, MemNic};
use sidelane_nic::rng::Rng;
use sidelane_nic::{LinkAddr, Nic};
use sidelane_proto::am::{ActiveMessages, Handlers, Reject, Replier, ReplyRoom};
use sidelane_proto::{Endpoint, Event, PeerId};

use crate::patience::{SUITE_PATIENCE, watch};
use crate::world::{fifos, mtu};

#[derive(Default)]
struct State {
    requests: u32,
    replies: u32,
    refused: u32,
}

const REQUEST: u8 = 0;
const REPLY: u8 = 1;
const CREDIT: u8 = 2;
const ASK: u8 = 3;
const WITH_CREDIT: u8 = 4;

/// A victim with a handler for request 5 and for reply 6, and an endpoint that is connected to it.
struct Attack {
    fabric: Fabric,
    victim: ActiveMessages<MemNic, State>,
    state: State,
    /// Its name for the attacker.
    attacker_at: PeerId,
    attacker: Endpoint<MemNic>,
    peer: PeerId,
}

impl Attack {
    fn begin() -> Self {
        watch("it", SUITE_PATIENCE);
        let fabric = Fabric::new(1);
        let handlers = Handlers::new()
            .request(5, |state: &mut State, replier: Replier<'_>, _, _| {
                state.requests += 1;
                state.refused += u32::from(replier.reply(6, &[], &[1; 60]).is_err());
            })
            .reply(6, |state: &mut State, _, _, _| state.replies += 1);
        let mut victim = ActiveMessages::new(Endpoint::new(fabric.nic(mtu(512)), fifos(4096)), handlers);
        let mut attacker = Endpoint::new(fabric.nic(mtu(512)), fifos(8192));
        let to: LinkAddr = victim.endpoint().nic().caps().addr;
        let peer = attacker.connect(to).unwrap();
        let mut state = State::default();
        let attacker_at = loop {
            attacker.poll();
            victim.poll(&mut state);
            if let Some(Event::Connected { peer, .. }) = victim.poll_event() {
                break peer;
            }
            fabric.advance_to(fabric.next_arrival().unwrap_or(fabric.now()));
        };
        let mut attack = Self { fabric, victim, state, attacker_at, attacker, peer };
        attack.settle();
        attack
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.attacker.poll();
            self.victim.poll(&mut self.state);
            self.fabric.advance_to(self.fabric.next_arrival().unwrap_or(self.fabric.now()));
        }
    }

    fn throw(&mut self, message: &[u8]) {
        self.attacker.send(self.peer, message).unwrap();
        self.settle();
    }

    fn rejected(&self, reason: Reject) -> u64 {
        self.victim.counters().rejected(reason)
    }

    fn heard(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.attacker.recv(|_, message| message.to_vec())).collect()
    }
}

fn head(first: u8, words: u8, handler: u8, room: u16) -> Vec<u8> {
    let [low, high] = room.to_le_bytes();
    vec![first | words << 3, handler, low, high]
}

fn credit(handled: u32, freed: u32) -> Vec<u8> {
    let mut message = head(CREDIT | WITH_CREDIT, 0, 0, 0);
    message.extend(handled.to_le_bytes());
    message.extend(freed.to_le_bytes());
    message
}

#[test]
fn what_cannot_be_read_is_counted_and_dropped() {
    let mut attack = Attack::begin();
    for message in [&[][..], &[0; 3], &[1 << 3, 5, 0, 0, 1], &[4, 5, 0, 0, 1, 2, 3]] {
        attack.throw(message);
    }
    attack.throw(&head(REQUEST, 17, 5, 0));
    assert_eq!((attack.rejected(Reject::Truncated), attack.rejected(Reject::Words)), (4, 1));
    assert_eq!(attack.state.requests, 0);
}

#[test]
fn a_handler_that_is_not_there_is_not_run_and_its_credit_comes_back() {
    let mut attack = Attack::begin();
    attack.heard();
    attack.throw(&head(REQUEST, 0, 99, 4));
    attack.throw(&head(REQUEST, 0, 6, 4));
    assert_eq!(attack.rejected(Reject::NoHandler), 2);
    attack.throw(&head(ASK, 0, 0, 0));
    assert_eq!(attack.heard(), [credit(2, 8)]);
}

#[test]
fn a_request_beyond_the_budget_does_not_run() {
    let mut attack = Attack::begin();
    // 4096 / 2 bytes of 8.
    let granted = attack.heard();
    assert_eq!(granted, [credit(0, 256)]);
    attack.throw(&head(REQUEST, 0, 5, 257));
    assert_eq!((attack.rejected(Reject::OverBudget), attack.state.requests), (1, 0));
    attack.throw(&head(REQUEST, 0, 5, 256));
    assert_eq!((attack.rejected(Reject::OverBudget), attack.state.requests), (1, 1));
}

#[test]
fn a_requester_that_takes_no_replies_ends_with_refused_ones_and_hurts_nobody_else() {
    let mut attack = Attack::begin();
    // It says that it has room again without having taken what came: its FIFO for messages is full in the end.
    for _ in 0..400 {
        if attack.attacker.send(attack.peer, &head(REQUEST, 0, 5, 16)).is_err() {
            break;
        }
        attack.settle();
    }
    assert!(attack.state.refused > 0, "{} requests", attack.state.requests);
    assert_eq!(attack.victim.counters().rejected_total(), attack.rejected(Reject::OverBudget));
}

#[test]
fn replies_and_credit_for_nothing_are_dropped() {
    let mut attack = Attack::begin();
    attack.throw(&head(REPLY, 0, 6, 0));
    assert_eq!(attack.rejected(Reject::NoRequest), 1);
    attack.throw(&credit(1, 0));
    assert_eq!(attack.rejected(Reject::NoRequest), 2);
    attack.throw(&credit(0, 1000));
    let to = attack.attacker_at;
    assert_eq!(attack.victim.request(to, 1, &[], &[], ReplyRoom::medium(0, 80)), Ok(()));
    attack.throw(&head(REPLY, 0, 6, 1000));
    assert_eq!(attack.rejected(Reject::Credit), 1);
    assert_eq!(attack.state.replies, 0);
    attack.throw(&head(REPLY, 0, 6, 12));
    assert_eq!((attack.state.replies, attack.rejected(Reject::NoRequest)), (1, 2));
    attack.throw(&head(REPLY, 0, 6, 0));
    assert_eq!((attack.state.replies, attack.rejected(Reject::NoRequest)), (1, 3));
}

#[test]
fn no_bytes_panic_or_stop_what_comes_after() {
    for seed in 0..200 {
        let (mut attack, mut rng) = (Attack::begin(), Rng::new(seed));
        for _ in 0..200 {
            let mut message = vec![0; rng.below(40) as usize];
            rng.fill(&mut message);
            if let Some(first) = message.first_mut().filter(|_| rng.chance(0.8)) {
                *first = rng.below(8) as u8 | (rng.below(4) as u8) << 3;
            }
            if let Some(handler) = message.get_mut(1).filter(|_| rng.chance(0.8)) {
                *handler = 5 + rng.below(2) as u8;
            }
            let _ = attack.attacker.send(attack.peer, &message);
            attack.settle();
            attack.heard();
            let to = attack.attacker_at;
            let _ = attack.victim.request(to, 0, &[], &[], ReplyRoom::SHORT);
        }
        let before = attack.state.requests;
        attack.throw(&head(REQUEST, 0, 5, 0));
        assert_eq!(attack.state.requests, before + 1, "seed {seed}");
    }
}
