//! Persistent messages and collective calls: made once, and begun with other data round after round, in any order.
#![allow(unsafe_code)] // Buffers are lent to calls that go on while others are made.

use sidelane_mpi::comm::info::Info;
use sidelane_mpi::comm::{Communicator, Mode, Persistent, PersistentRef, Source, Status};
use sidelane_mpi::datatype::Predefined;
use sidelane_nic::rng::Rng;

use super::buffers::{Buffers, holds, unwritten};
use super::collective::Collective;
use super::layout::{Layout, pick, shuffle};
use super::members::{Members, Place};
use super::reduction::Reduction;
use super::{Rank, Scale, UNTOUCHED, bytes, part};

#[derive(Debug)]
pub struct Repeated {
    comm: usize,
    members: Members,
    stamp: u64,
    rounds: u64,
    messages: Vec<Message>,
    calls: Vec<Call>,
    /// All ranks begin the collective calls in the order in which they were made, and have said so.
    in_order: bool,
}

#[derive(Debug)]
struct Message {
    from: Place,
    to: Place,
    tag: i32,
    mode: Mode,
    give: (Layout, usize),
    room: (Layout, usize),
}

#[derive(Debug)]
enum Call {
    Collective(Collective),
    Reduction(Reduction),
}

/// A call that was made, inactive, and its memory.
pub struct Prepared {
    /// It is dropped first.
    call: Persistent,
    given: Vec<u8>,
    room: Vec<u8>,
    /// What is to be given in each round, what is in the room before, and what it is to bring.
    rounds: Vec<[Vec<u8>; 3]>,
    what: String,
}

impl Prepared {
    pub fn new(call: Persistent, memory: Buffers, rounds: impl Iterator<Item = Buffers>) -> Self {
        let Buffers { given, room, what, .. } = memory;
        let rounds = rounds.map(|it| [it.given, it.room, it.expected]).collect();
        Self { call, given, room, rounds, what: format!("persistent {what}") }
    }
}

impl Repeated {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, stamp: u64, scale: Scale) -> Self {
        let places = members.places();
        let message = |rng: &mut Rng, tag: i32| {
            let from = *pick(rng, &places);
            let group = members.peers_of(from.0);
            let to = (group, rng.below(members.groups[group].len() as u64) as u32);
            let kind = *pick(rng, &[Predefined::Byte, Predefined::Int32, Predefined::Double]);
            let (give, room) = (Layout::random(rng, kind), Layout::random(rng, kind));
            let count = scale.length(rng) / give.bytes(1);
            let more = room.count_for(count * give.elements()) + rng.below(2) as usize;
            let mode = *pick(rng, &[Mode::Standard, Mode::Synchronous, Mode::Buffered]);
            Message { from, to, tag, mode, give: (give, count), room: (room, more) }
        };
        let count = rng.below(2 * places.len() as u64 + 1) as i32;
        let messages = (0..count).map(|number| message(rng, FIRST_TAG + number)).collect();
        let calls = (0..rng.below(4)).map(|number| {
            let stamp = part(stamp, 1, number);
            if rng.chance(0.6) {
                Call::Collective(Collective::random(rng, comm, members, stamp, scale))
            } else {
                Call::Reduction(Reduction::random(rng, comm, members, stamp, scale))
            }
        });
        let calls = calls.collect();
        let (rounds, in_order) = (1 + rng.below(4), rng.chance(0.5));
        Self { comm, members: members.clone(), stamp, rounds, messages, calls, in_order }
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let mut hints = Info::new();
        hints.set("mpi_assert_strict_persistent_collective_ordering", &self.in_order.to_string()).unwrap();
        comm.set_info(&hints);
        let own = self.members.place(rank.process).expect("who has the communicator is in it");
        let mut all: Vec<(Prepared, Option<Status>)> = Vec::new();
        for call in &self.calls {
            let prepared = match call {
                Call::Collective(collective) => collective.prepare(&comm, rank, self.rounds),
                Call::Reduction(reduction) => reduction.prepare(&comm, rank, self.rounds),
            };
            all.push((prepared, None));
        }
        for (number, message) in self.messages.iter().enumerate() {
            all.extend((message.from == own).then(|| (self.send(&comm, number), None)));
            all.extend((message.to == own).then(|| self.receive(&comm, number)));
        }
        for round in 0..self.rounds as usize {
            for (Prepared { given, room, rounds, .. }, _) in &mut all {
                given.copy_from_slice(&rounds[round][0]);
                room.copy_from_slice(&rounds[round][1]);
            }
            self.begin(&mut all, &mut rank.rng);
            let mut calls: Vec<PersistentRef> = all.iter_mut().map(|(prepared, _)| prepared.call.by_ref()).collect();
            for (at, status) in wait_somehow(&mut calls, rank) {
                let (Prepared { given, room, rounds, what, .. }, expected) = &all[at];
                assert_eq!(status.error, None, "{what}, round {round}");
                if let Some(expected) = expected {
                    assert_eq!(status, *expected, "{what}, round {round}");
                }
                let [lent, _, into] = &rounds[round];
                holds(&format!("round {round} of {what}"), room, into);
                unwritten(what, given, lent);
            }
            assert!(all.iter().all(|(prepared, _)| !prepared.call.is_active()), "all were waited for");
        }
    }

    /// In any order, but the collective calls in their own where all have said so.
    fn begin(&self, all: &mut [(Prepared, Option<Status>)], rng: &mut Rng) {
        let mut order: Vec<usize> = (0..all.len()).collect();
        shuffle(rng, &mut order);
        if self.in_order {
            let mut next = 0..self.calls.len();
            for at in order.iter_mut().filter(|at| **at < self.calls.len()) {
                *at = next.next().expect("as many");
            }
        }
        if rng.chance(0.3) {
            let mut calls: Vec<(usize, &mut Persistent)> =
                all.iter_mut().enumerate().map(|(at, (prepared, _))| (at, &mut prepared.call)).collect();
            calls.sort_by_key(|(at, _)| order.iter().position(|other| other == at));
            return Persistent::start_all(calls.into_iter().map(|(_, call)| call.by_ref())).unwrap();
        }
        for at in order {
            all[at].0.call.start().unwrap();
        }
    }

    fn packed(&self, number: usize, round: u64) -> Vec<u8> {
        let (layout, count) = &self.messages[number].give;
        bytes(part(self.stamp, number as u64, round), layout.bytes(*count))
    }

    fn send(&self, comm: &Communicator, number: usize) -> Prepared {
        let Message { to, tag, mode, give: (layout, count), .. } = &self.messages[number];
        let given = |round| layout.memory_of(*count, &self.packed(number, round), 0x11);
        let rounds: Vec<_> = (0..self.rounds).map(|round| [given(round), Vec::new(), Vec::new()]).collect();
        let memory = rounds[0][0].clone();
        // SAFETY: The memory stays where it is, and is not written while the send is active.
        let call = unsafe { comm.send_init_raw(*mode, memory.as_ptr(), *count, &layout.datatype, to.1.into(), *tag) };
        Prepared { call, given: memory, room: Vec::new(), rounds, what: format!("sent message {number}") }
    }

    fn receive(&self, comm: &Communicator, number: usize) -> (Prepared, Option<Status>) {
        let Message { from, tag, room: (layout, count), .. } = &self.messages[number];
        let before = vec![UNTOUCHED; layout.memory(*count)];
        let after = |round| layout.memory_of(*count, &self.packed(number, round), UNTOUCHED);
        let rounds = (0..self.rounds).map(|round| [Vec::new(), before.clone(), after(round)]).collect();
        let mut room = before;
        // SAFETY: The room stays where it is, and is not touched while the receive is active.
        let call = unsafe {
            comm.recv_init_raw(room.as_mut_ptr(), *count, &layout.datatype, Source::Rank(from.1), Some(*tag))
        };
        let bytes = self.packed(number, 0).len();
        let status = Status { source: Some(from.1), tag: Some(*tag), bytes, ..Status::EMPTY };
        (Prepared { call, given: Vec::new(), room, rounds, what: format!("received message {number}") }, Some(status))
    }
}

/// Waits for all that are active, in one of the many ways; how each has ended.
fn wait_somehow(calls: &mut [PersistentRef], rank: &mut Rank) -> Vec<(usize, Status)> {
    let mut over = Vec::new();
    match rank.rng.below(4) {
        0 => return Persistent::wait_all(calls).into_iter().enumerate().collect(),
        1 => over.extend(std::iter::from_fn(|| Persistent::wait_any(calls))),
        2 => {
            while let Some(some) = Persistent::wait_some(calls) {
                over.extend(some);
            }
        }
        _ => {
            let mut left: Vec<usize> = (0..calls.len()).collect();
            shuffle(&mut rank.rng, &mut left);
            while let Some(at) = left.pop() {
                match calls[at].test().unwrap() {
                    Some(status) => over.push((at, status)),
                    // Others may be over before.
                    None if rank.rng.chance(0.9) => {
                        left.insert(0, at);
                        (rank.rest)();
                    }
                    None => over.push((at, calls[at].wait().unwrap())),
                }
            }
        }
    }
    assert_eq!(over.len(), calls.len(), "each is over once");
    over
}

/// Beyond those of other messages.
const FIRST_TAG: i32 = 1_000;
