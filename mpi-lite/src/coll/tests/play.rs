//! Schedules against each other, in any order that messages in order between two ranks allow.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

use crate::coll::{Memory, Schedule, Span, Step, Transfer};
use sidelane_nic::rng::Rng;

/// The second operand and result, and the first.
pub(crate) type Operator = fn(&mut [u8], &[u8]);

pub(crate) struct Play {
    ranks: Vec<Rank>,
    /// What was sent and not yet received, and what was to be received and not yet sent, between two ranks.
    pairs: HashMap<(usize, usize), Pair>,
    rng: Rng,
    seed: u64,
}

struct Rank {
    schedule: Schedule,
    memory: [Vec<u8>; 3],
    round: usize,
    posted: bool,
    under_way: usize,
}

#[derive(Default)]
struct Pair {
    sent: VecDeque<Sent>,
    expected: VecDeque<Span>,
}

enum Sent {
    /// Left its buffer at once.
    Eager(Vec<u8>),
    /// Read from its buffer when it is received, and complete only then.
    Rendezvous(Span),
}

#[derive(Clone, Copy)]
enum Event {
    Post(usize),
    Match(usize, usize),
}

impl Play {
    pub(crate) fn new(seed: u64, ranks: impl Iterator<Item = (Schedule, Vec<u8>, Vec<u8>)>) -> Self {
        let ranks = ranks.map(|(schedule, send, receive)| {
            assert_eq!(schedule.buffer_lens(), (send.len(), receive.len()));
            let scratch = vec![GARBAGE; schedule.scratch_len()];
            Rank { schedule, memory: [send, receive, scratch], round: 0, posted: false, under_way: 0 }
        });
        Self { ranks: ranks.collect(), pairs: HashMap::new(), rng: Rng::new(seed), seed }
    }

    pub(in crate::coll) fn schedules(&self) -> impl Iterator<Item = &Schedule> {
        self.ranks.iter().map(|rank| &rank.schedule)
    }

    /// Of whom each rank knows that he has come, when its own schedule is over: a bit each. That goes wherever messages go which are sent
    /// after it was known, in a round before.
    pub(crate) fn known(&self) -> Vec<u32> {
        let mut known: Vec<u32> = (0..self.ranks.len()).map(|rank| 1 << rank).collect();
        let (mut rounds, mut inbox) = (vec![0; known.len()], vec![Vec::new(); known.len()]);
        let mut posted = vec![false; known.len()];
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for (rank, Rank { schedule, .. }) in self.ranks.iter().enumerate() {
                let Some(round) = schedule.round(rounds[rank]) else { continue };
                if !std::mem::replace(&mut posted[rank], true) {
                    moved = true;
                    for transfer in round.transfers {
                        if let Transfer::Send(to, _) = transfer {
                            inbox[*to as usize].push((rank as u32, known[rank]));
                        }
                    }
                }
                let waits = |transfer: &&Transfer| matches!(transfer, Transfer::Receive(..));
                let all = round.transfers.iter().filter(waits).all(|transfer| {
                    matches!(transfer, Transfer::Receive(from, _) if inbox[rank].iter().any(|(of, _)| of == from))
                });
                if all {
                    for transfer in round.transfers.iter().filter(waits) {
                        let Transfer::Receive(from, _) = transfer else { unreachable!() };
                        let at = inbox[rank].iter().position(|(of, _)| of == from).unwrap();
                        known[rank] |= inbox[rank].remove(at).1;
                    }
                    (rounds[rank], posted[rank], moved) = (rounds[rank] + 1, false, true);
                }
            }
        }
        known
    }

    /// Everybody's receive buffer at the end.
    pub(crate) fn run(mut self, operator: Operator) -> Vec<Vec<u8>> {
        while let Some(event) = self.any_event() {
            match event {
                Event::Post(rank) => self.post(rank),
                Event::Match(from, to) => self.deliver(from, to),
            }
            for rank in &mut self.ranks {
                rank.end_round(operator);
            }
        }
        if let Some(stuck) = self.stuck() {
            panic!("seed {}: no progress: {stuck}", self.seed);
        }
        self.ranks.into_iter().map(|rank| rank.memory).map(|[_, receive, _]| receive).collect()
    }

    fn any_event(&mut self) -> Option<Event> {
        let posts = self.ranks.iter().enumerate().filter(|(_, rank)| !rank.posted && !rank.ended());
        let mut events: Vec<_> = posts.map(|(rank, _)| Event::Post(rank)).collect();
        let matches = self.pairs.iter().filter(|(_, pair)| !pair.sent.is_empty() && !pair.expected.is_empty());
        let mut matches: Vec<_> = matches.map(|(pair, _)| *pair).collect();
        matches.sort_unstable();
        events.extend(matches.into_iter().map(|(from, to)| Event::Match(from, to)));
        let any = self.rng.below(events.len().max(1) as u64) as usize;
        events.get(any).copied()
    }

    fn post(&mut self, index: usize) {
        let rank = &mut self.ranks[index];
        rank.posted = true;
        for transfer in rank.schedule.round(rank.round).unwrap().transfers {
            match *transfer {
                Transfer::Send(to, span) => {
                    let sent = if self.rng.below(2) == 0 {
                        Sent::Eager(bytes(&rank.memory, span).to_vec())
                    } else {
                        rank.under_way += 1;
                        Sent::Rendezvous(span)
                    };
                    self.pairs.entry((index, to as usize)).or_default().sent.push_back(sent);
                }
                Transfer::Receive(from, span) => {
                    rank.under_way += 1;
                    // Whoever reads it before its time shall see it.
                    bytes_mut(&mut rank.memory, span).fill(GARBAGE);
                    self.pairs.entry((from as usize, index)).or_default().expected.push_back(span);
                }
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let pair = self.pairs.get_mut(&(from, to)).unwrap();
        let (sent, into) = (pair.sent.pop_front().unwrap(), pair.expected.pop_front().unwrap());
        let message = match sent {
            Sent::Eager(message) => message,
            Sent::Rendezvous(span) => {
                self.ranks[from].under_way -= 1;
                bytes(&self.ranks[from].memory, span).to_vec()
            }
        };
        assert_eq!(message.len(), into.len(), "seed {}: the length of a message from {from} to {to}", self.seed);
        bytes_mut(&mut self.ranks[to].memory, into).copy_from_slice(&message);
        self.ranks[to].under_way -= 1;
    }

    fn stuck(&self) -> Option<String> {
        let mut text = String::new();
        for (number, rank) in self.ranks.iter().enumerate().filter(|(_, rank)| !rank.ended()) {
            let _ = write!(text, "rank {number} in round {} of {}; ", rank.round, rank.schedule.rounds().count());
        }
        let mut pairs: Vec<_> = self.pairs.iter().collect();
        pairs.sort_unstable_by_key(|(pair, _)| **pair);
        for ((from, to), pair) in pairs {
            if !pair.sent.is_empty() || !pair.expected.is_empty() {
                let (sent, expected) = (pair.sent.len(), pair.expected.len());
                let _ = write!(text, "from {from} to {to} {sent} are sent and {expected} expected; ");
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

impl Rank {
    fn ended(&self) -> bool {
        self.schedule.round(self.round).is_none()
    }

    fn end_round(&mut self, operator: Operator) {
        if !self.posted || self.under_way > 0 {
            return;
        }
        for step in self.schedule.round(self.round).unwrap().steps {
            let (Step::Combine { into, from } | Step::Copy { into, from }) = *step else {
                panic!("{step:?} is none of messages")
            };
            let read = bytes(&self.memory, from).to_vec();
            let written = bytes_mut(&mut self.memory, into);
            match step {
                Step::Combine { .. } => operator(written, &read),
                _ => written.copy_from_slice(&read),
            }
        }
        self.round += 1;
        self.posted = false;
    }
}

fn bytes(memory: &[Vec<u8>; 3], span: Span) -> &[u8] {
    &memory[place(span)][span.start()..span.end()]
}

fn bytes_mut(memory: &mut [Vec<u8>; 3], span: Span) -> &mut [u8] {
    &mut memory[place(span)][span.start()..span.end()]
}

fn place(span: Span) -> usize {
    match span.memory() {
        Memory::Send => 0,
        Memory::Receive => 1,
        Memory::Scratch => 2,
    }
}

/// What is in memory that nobody has written.
pub(in crate::coll) const GARBAGE: u8 = 0xA5;

mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "rank 1 in round 1 of 2; from 0 to 1 0 are sent and 1 expected")]
    fn who_waits_for_nothing_is_named() {
        let mut waits = Schedule::new();
        waits.await_signal(0);
        waits.next_round();
        waits.await_signal(0);
        let mut sends = Schedule::new();
        sends.signal(1);
        Play::new(1, [sends, waits].map(|schedule| (schedule, vec![], vec![])).into_iter()).run(|_, _| ());
    }

    #[test]
    #[should_panic(expected = "from 0 to 1 1 are sent and 0 expected")]
    fn a_message_for_nobody_is_named() {
        let mut sends = Schedule::new();
        sends.signal(1);
        Play::new(1, [sends, Schedule::new()].map(|schedule| (schedule, vec![], vec![])).into_iter()).run(|_, _| ());
    }
}
