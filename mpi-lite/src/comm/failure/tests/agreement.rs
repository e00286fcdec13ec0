//! The states of all processes of a job, in random orders of events. A failure names its seed.

use std::collections::VecDeque;

use crate::comm::failure::agreement::{Agreement, Out, Verdict, Word};
use crate::comm::failure::ranks::Ranks;

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end as u64) as usize
    }
}

enum Item {
    Word(Ranks, Word),
    /// The sender is gone.
    End,
}

struct World {
    random: Random,
    processes: Vec<Agreement>,
    begun: Vec<bool>,
    crashed: Vec<bool>,
    /// `links[from][to]`: what is on its way.
    links: Vec<Vec<VecDeque<Item>>>,
    /// Two have spoken to each other, and will notice each other's end.
    connected: Vec<Vec<bool>>,
    verdicts: Vec<Option<Verdict>>,
    events: usize,
}

const fn offer(rank: usize) -> u64 {
    !(1 << rank)
}

impl World {
    fn new(size: usize, seed: u64) -> Self {
        Self {
            random: Random(seed),
            processes: (0..size).map(|own| Agreement::new(own, size, Ranks::all(size))).collect(),
            begun: vec![false; size],
            crashed: vec![false; size],
            links: (0..size).map(|_| (0..size).map(|_| VecDeque::new()).collect()).collect(),
            connected: vec![vec![false; size]; size],
            verdicts: vec![None; size],
            events: 0,
        }
    }

    fn send(&mut self, from: usize, out: Out) {
        let alive = self.processes[from].alive().clone();
        for (to, word) in out {
            let first = !std::mem::replace(&mut self.connected[from][to], true);
            self.connected[to][from] = true;
            if !self.crashed[to] {
                self.links[from][to].push_back(Item::Word(alive.clone(), word));
            } else if first {
                // Nobody answers.
                self.links[to][from].push_back(Item::End);
            }
        }
        if let Some(verdict) = self.processes[from].verdict() {
            let known = self.verdicts[from].get_or_insert_with(|| verdict.clone());
            assert_eq!(known, verdict, "a verdict does not change");
        }
    }

    /// Of what it said last, only some reaches the others.
    fn crash(&mut self, victim: usize) {
        self.crashed[victim] = true;
        for other in 0..self.processes.len() {
            self.links[other][victim].clear();
            let kept = self.random.below(self.links[victim][other].len() + 1);
            self.links[victim][other].truncate(kept);
            if self.connected[victim][other] {
                self.links[victim][other].push_back(Item::End);
            }
        }
    }

    /// One event, of those that can happen; false when nothing can.
    fn step(&mut self) -> bool {
        let size = self.processes.len();
        let living = |world: &Self, rank: usize| !world.crashed[rank];
        let mut events = Vec::new();
        for own in (0..size).filter(|own| living(self, *own)) {
            if !self.begun[own] {
                events.push((own, own));
            }
            events.extend((0..size).filter(|from| !self.links[*from][own].is_empty()).map(|from| (from, own)));
        }
        if events.is_empty() {
            return false;
        }
        self.events += 1;
        assert!(self.events < 20 * size * size, "it goes on for ever");
        let (from, own) = events[self.random.below(events.len())];
        let mut out = Out::new();
        if from == own {
            self.begun[own] = true;
            self.processes[own].offer(vec![offer(own)], &mut out);
        } else {
            match self.links[from][own].pop_front().unwrap() {
                Item::Word(alive, word) => self.processes[own].handle(from, &alive, word, &mut out),
                Item::End => self.processes[own].lose(from, &mut out),
            }
        }
        self.send(own, out);
        true
    }

    /// Nothing happens any more: all that live have the same verdict, and so had those that died with one.
    fn check(&self) {
        let (mut verdicts, size) = (self.verdicts.iter().flatten(), self.processes.len());
        if let Some(first) = verdicts.next() {
            assert!(verdicts.all(|verdict| verdict == first), "{:?}", self.verdicts);
            for rank in (0..size).filter(|rank| first.alive.has(*rank) || !self.crashed[*rank]) {
                assert!(first.alive.has(rank), "who lives is not called gone");
                assert_eq!(first.value[0] & !offer(rank), 0, "the offer of {rank} counts");
            }
            assert_eq!(first.value[0] >> size, u64::MAX >> size, "nothing is invented");
        }
        for rank in (0..size).filter(|rank| !self.crashed[*rank]) {
            assert!(self.verdicts[rank].is_some(), "{rank} waits for ever");
        }
    }
}

fn play(size: usize, seed: u64, crashes: &[(usize, usize)]) -> usize {
    let mut world = World::new(size, seed);
    loop {
        for (at, victim) in crashes {
            if *at == world.events && !world.crashed[*victim] {
                world.crash(*victim);
            }
        }
        if !world.step() {
            break;
        }
    }
    world.check();
    world.events
}

#[test]
fn all_get_the_same_whoever_dies_at_whichever_step() {
    for size in 1..=4 {
        for seed in 0..60 {
            for victim in 0..size {
                for at in 0..play(size, seed, &[]) {
                    play(size, seed, &[(at, victim)]);
                }
            }
        }
    }
}

#[test]
fn all_get_the_same_whoever_dies_at_whichever_two_steps() {
    let (size, mut random) = (4, Random(1));
    for seed in 0..6 {
        let steps = play(size, seed, &[]);
        for first in 0..steps {
            for second in first..steps + 10 {
                let victim = random.below(size);
                play(size, seed, &[(first, victim), (second, (victim + 1 + random.below(size - 1)) % size)]);
            }
        }
    }
}

#[test]
fn all_get_the_same_when_many_die() {
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let size = 2 + random.below(8);
        let mut crashes: Vec<_> =
            (0..random.below(size + 1)).map(|_| (random.below(6 * size), random.below(size))).collect();
        crashes.sort_unstable();
        let run = std::panic::catch_unwind(|| play(size, seed, &crashes));
        assert!(run.is_ok(), "seed {seed}");
    }
}

/// Nobody who follows the rules tells one that it is not alive.
#[test]
fn a_verdict_without_its_receiver_changes_nothing() {
    let mut alive = Ranks::all(2);
    alive.remove(1);
    let verdict = Verdict { alive, value: vec![0] };
    for word in [Word::Propose(verdict.clone()), Word::Agreed(verdict.clone()), Word::Locked(0, verdict)] {
        let (mut agreement, mut out) = (Agreement::new(1, 2, Ranks::all(2)), Out::new());
        agreement.offer(vec![3], &mut out);
        out.clear();
        agreement.handle(0, &Ranks::all(2), word, &mut out);
        assert_eq!((agreement.verdict(), out), (None, vec![]));
    }
}

/// Nor who is not the first that is alive: one takes another for gone that lives.
#[test]
fn nothing_is_locked_that_another_one_than_the_lead_proposes() {
    let (mut agreement, mut out) = (Agreement::new(0, 3, Ranks::all(3)), Out::new());
    agreement.offer(vec![3], &mut out);
    out.clear();
    let mut alive = Ranks::all(3);
    alive.remove(0);
    let verdict = Verdict { alive: Ranks::all(3), value: vec![0] };
    agreement.handle(1, &alive, Word::Propose(verdict), &mut out);
    assert!(!out.iter().any(|(_, word)| *word == Word::Accept), "{out:?}");
    agreement.handle(1, &Ranks::all(3), Word::Offer(vec![1]), &mut out);
    agreement.handle(2, &Ranks::all(3), Word::Offer(vec![7]), &mut out);
    assert_eq!(out.last(), Some(&(2, Word::Propose(Verdict { alive: Ranks::all(3), value: vec![1] }))));
}

#[test]
fn a_lead_calls_only_who_has_not_spoken() {
    let (mut agreement, mut out) = (Agreement::new(0, 4, Ranks::all(4)), Out::new());
    agreement.handle(2, &Ranks::all(4), Word::Offer(vec![1]), &mut out);
    agreement.offer(vec![3], &mut out);
    assert_eq!(out, [(1, Word::Call), (3, Word::Call)]);
}

#[test]
fn without_failures_each_member_is_told_three_words_and_says_two() {
    // Offers are out before the lead asks.
    let size = 9;
    let mut world = World::new(size, 0);
    let mut words = 0;
    for own in (0..size).rev() {
        let mut out = Out::new();
        world.processes[own].offer(vec![offer(own)], &mut out);
        world.begun[own] = true;
        words += out.len();
        world.send(own, out);
    }
    while world.step() {}
    world.check();
    assert_eq!(words, 2 * (size - 1));
    assert_eq!(world.events, 5 * (size - 1));
}
