//! One-sided, between start and complete, fences or locks: what fetches and changes at once, and each operation waited for by itself.
//!
//! Whoever was first is not known before. But of operations on one word each finds what others have left, so all that was found at a
//! target, and what is there in the end, make one row; so do those of each origin, in its order.
#![allow(unsafe_code)] // Buffers are lent, and the device is.

use sidelane_mpi::comm::{Communicator, Held};
use sidelane_mpi::datatype::{Datatype, Predefined};
use sidelane_mpi::op::Op;
use sidelane_mpi::rma::{Lent, Lock, Operation, Room, Target, Window};
use sidelane_nic::rng::Rng;

use super::buffers::unwritten;
use super::layout::shuffle;
use super::members::Members;
use super::{Rank, part};

#[derive(Debug)]
pub struct Atomics {
    comm: usize,
    stamp: u64,
    /// Words of a block.
    words: usize,
    way: Way,
    /// The window is of the ranks' own memory.
    created: bool,
    /// Whom each rank accesses.
    targets: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Fence,
    Start,
    Lock(Lock),
    LockAll,
}

/// What an origin found at a target in one turn.
#[derive(Debug, Clone)]
struct Seen {
    /// Before a bit of its own was added to each.
    sums: Vec<u64>,
    /// Where its own tokens are now.
    swaps: Vec<u64>,
    /// Sums, only read.
    read: Vec<u64>,
    /// Before one was added.
    counted: u64,
    /// Before it was taken, if it was zero.
    taken: u64,
}

impl Atomics {
    pub fn random(rng: &mut Rng, comm: usize, members: &Members, stamp: u64) -> Self {
        let size = members.size() as usize;
        let words = match size {
            // Puts of so many are lent, shorter ones copied.
            ..5 if rng.chance(0.2) => 600 + rng.below(400),
            ..5 => 1 + rng.below(300),
            _ => 1 + rng.below(12),
        };
        let words = words as usize;
        let way = match rng.below(6) {
            0 => Way::Fence,
            1 => Way::Lock(Lock::Shared),
            2 => Way::Lock(Lock::Exclusive),
            3 => Way::LockAll,
            _ => Way::Start,
        };
        let targets = (0..size).map(|_| {
            let mut some: Vec<usize> = (0..size).filter(|_| rng.chance(0.6)).collect();
            shuffle(rng, &mut some);
            some
        });
        let targets = targets.collect();
        Self { comm, stamp, words, way, created: rng.chance(0.4), targets }
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let kept = comm.dup().unwrap();
        let (own, rest) = (comm.rank() as usize, rank.rest);
        let mut rng = rank.rng.clone();
        // SAFETY: The device stays where it is.
        let (seen, memory) = unsafe { kept.with_device(|turns| self.access(turns, &kept, own, &mut rng, rest)) };
        let mut all = vec![0; seen.len() * self.targets.len()];
        comm.allgather(&seen, &mut all).unwrap();
        self.check(own, &all, &memory);
    }

    /// What this rank has found, as words, and what is in its own part in the end.
    fn access(
        &self,
        turns: &mut Held,
        comm: &Communicator,
        own: usize,
        rng: &mut Rng,
        rest: &dyn Fn(),
    ) -> (Vec<u64>, Vec<u64>) {
        let words = self.part_words();
        let mut memory = vec![0u64; words];
        let window = if self.created {
            let bytes = std::ptr::slice_from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), words * 8);
            // SAFETY: It stays until the window is freed, and is not looked at while others may change it.
            unsafe { Window::create(turns, comm.members(), bytes, 8) }.unwrap()
        } else {
            Window::allocate(turns, comm.members(), words * 8, 8).unwrap()
        };
        let origins: Vec<usize> = (0..self.targets.len()).filter(|from| self.targets[*from].contains(&own)).collect();
        let mut seen = vec![Vec::new(); self.targets.len()];
        self.open(&window, turns, &origins, &self.targets[own]);
        for turn in 0..TURNS {
            for &target in &self.targets[own] {
                if let Way::Lock(lock) = self.way {
                    window.lock(turns, target, lock).unwrap();
                }
                seen[target].push(self.turn(&window, turns, (own, target, turn), rng));
                if let Way::Lock(_) = self.way {
                    window.unlock(turns, target).unwrap();
                }
            }
        }
        self.close(&window, turns, rng, rest);
        // Of created ones the memory is the user's, and with that none of its own.
        let part = window.memory().map_or(memory.as_ptr(), |own| own.cast::<u64>().cast_const());
        // SAFETY: All have met, or those who have access have completed it: nobody changes it.
        let found = unsafe { std::slice::from_raw_parts(part, words) }.to_vec();
        window.free(turns).unwrap();
        let seen = seen.into_iter().map(|turns| turns.into_iter().map(|seen| *seen).collect());
        (self.flat(seen.collect()), found)
    }

    fn open(&self, window: &Window, turns: &mut Held, origins: &[usize], targets: &[usize]) {
        match self.way {
            Way::Fence => window.fence(turns, false).unwrap(),
            Way::Start => {
                window.post(turns, origins).unwrap();
                window.start(turns, targets).unwrap();
            }
            Way::Lock(_) => {}
            Way::LockAll => window.lock_all(turns).unwrap(),
        }
    }

    fn close(&self, window: &Window, turns: &mut Held, rng: &mut Rng, rest: &dyn Fn()) {
        match self.way {
            Way::Fence => window.fence(turns, true).unwrap(),
            Way::Start => {
                window.complete(turns).unwrap();
                if rng.chance(0.5) {
                    return window.wait_exposed(turns).unwrap();
                }
                while !window.test_exposed(turns).unwrap() {
                    rest();
                }
            }
            Way::Lock(_) => window.fence(turns, true).unwrap(),
            Way::LockAll => {
                window.unlock_all(turns).unwrap();
                window.fence(turns, true).unwrap();
            }
        }
    }

    /// Every operation on one target, in any order; some are waited for at once.
    fn turn(&self, window: &Window, turns: &mut Held, who: (usize, usize, u64), rng: &mut Rng) -> Box<Seen> {
        let (own, target, turn) = who;
        let (words, kind): (usize, Datatype) = (self.words, Predefined::Uint64.into());
        let empty = || vec![NOTHING; words];
        let mut seen =
            Box::new(Seen { sums: empty(), swaps: empty(), read: empty(), counted: NOTHING, taken: NOTHING });
        let at = |word: usize, count: usize| Target { rank: target, displacement: word as i64, count, datatype: &kind };
        let lent = |from: &[u64]| Lent { address: from.as_ptr().cast(), count: from.len(), datatype: &kind };
        let room = |into: &mut [u64]| Room { address: into.as_mut_ptr().cast(), count: into.len(), datatype: &kind };
        let (sums, swaps, counter, flag) = (0, words, 2 * words, 2 * words + 1);
        let mut order = [0, 1, 2, 3, 4, 5];
        shuffle(rng, &mut order);
        for what in order {
            // SAFETY: What is found stays in its box until the epoch is over; what is given is waited for here, or copied.
            let operation: Operation = unsafe {
                match what {
                    0 => {
                        let bits = vec![bit(own, turn); words];
                        let into = room(&mut seen.sums);
                        let made = window.get_accumulate(turns, lent(&bits), into, at(sums, words), &Op::Sum);
                        unwritten("bits to add", &bits, &vec![bit(own, turn); words]);
                        made
                    }
                    1 => {
                        let tokens = self.tokens(own, turn);
                        let into = room(&mut seen.swaps);
                        let made = window.get_accumulate(turns, lent(&tokens), into, at(swaps, words), &Op::Replace);
                        unwritten("tokens to swap", &tokens, &self.tokens(own, turn));
                        made
                    }
                    2 => {
                        let nothing = Lent { address: std::ptr::null(), count: 0, datatype: &kind };
                        window.get_accumulate(turns, nothing, room(&mut seen.read), at(sums, words), &Op::NoOp)
                    }
                    3 => {
                        let (one, into) = (1u64, (&raw mut seen.counted).cast());
                        let element = Predefined::Uint64;
                        let one = (&raw const one).cast();
                        window.fetch_and_op(turns, one, into, element, target, counter as i64, &Op::Sum)
                    }
                    4 => {
                        let (new, zero, into) = (own as u64 + 1, 0u64, (&raw mut seen.taken).cast());
                        let (new, zero) = ((&raw const new).cast(), (&raw const zero).cast());
                        window.compare_and_swap(turns, new, zero, into, &kind, target, flag as i64)
                    }
                    _ => {
                        let mut given = self.put(own, target, turn);
                        let operation = window.put(turns, lent(&given), at(self.block(own, turn), words)).unwrap();
                        window.wait(turns, operation).unwrap();
                        unwritten("a put", &given, &self.put(own, target, turn));
                        // It is ours again.
                        given.fill(NOTHING);
                        std::hint::black_box(&given);
                        continue;
                    }
                }
            }
            .unwrap();
            if rng.chance(0.5) {
                window.wait(turns, operation).unwrap();
                let is_here = match what {
                    0 => !seen.sums.contains(&NOTHING),
                    1 => !seen.swaps.contains(&NOTHING),
                    2 => !seen.read.contains(&NOTHING),
                    3 => seen.counted != NOTHING,
                    _ => seen.taken != NOTHING,
                };
                assert!(is_here, "operation {what} of rank {own} at {target} was waited for");
            }
        }
        seen
    }

    /// What all have found at this rank, and what is there.
    fn check(&self, own: usize, all: &[u64], memory: &[u64]) {
        let (words, origins) = (self.words, 0..self.targets.len());
        let turns = || {
            let here = origins.clone().filter(|from| self.targets[*from].contains(&own));
            here.flat_map(|from| (0..TURNS).map(move |turn| (from, turn, self.unflat(all, from, own, turn))))
        };
        let count = turns().count();
        for word in 0..words {
            let what = format!("word {word} of {own}");
            let mut row: Vec<(u64, u64)> =
                turns().map(|(from, turn, seen)| (seen.sums[word], bit(from, turn))).collect();
            row.sort_by_key(|(before, _)| before.count_ones());
            let after = row.iter().try_fold(0, |now, (before, bit)| (now == *before).then_some(now | bit));
            assert_eq!(after, Some(memory[word]), "what was added to {what}: {row:x?}");
            for (from, turn, seen) in turns() {
                let (read, sum) = (seen.read[word], seen.sums[word]);
                let some = read == memory[word] || row.iter().any(|(before, _)| *before == read);
                assert!(some, "{from} has read {read:x} of {what}: {row:x?}");
                let of_turns = |turns: std::ops::Range<u64>| turns.map(|turn| bit(from, turn)).sum::<u64>();
                let (earlier, later) = (of_turns(0..turn), of_turns(turn + 1..TURNS));
                let in_order = |found: u64| found & earlier == earlier && found & later == 0;
                assert!(in_order(read) && in_order(sum), "{from} has found {read:x}, {sum:x} in turn {turn} of {what}");
                if self.way == Way::Lock(Lock::Exclusive) {
                    assert_eq!(u64::from(sum.count_ones()), seen.counted, "{from} was not alone at {what}");
                }
            }
            let mut left: Vec<(u64, u64)> =
                turns().map(|(from, turn, seen)| (seen.swaps[word], self.tokens(from, turn)[word])).collect();
            let mut now = 0;
            while let Some(next) = left.iter().position(|(before, _)| *before == now) {
                now = left.swap_remove(next).1;
            }
            assert!(left.is_empty() && now == memory[words + word], "swaps of {what}: {left:x?}, {now:x}");
        }
        let mut counted: Vec<u64> = turns().map(|(_, _, seen)| seen.counted).collect();
        for each in counted.chunks(TURNS as usize) {
            assert!(each.is_sorted(), "each of {each:?} at {own} is of one origin, in its order");
        }
        counted.sort_unstable();
        assert_eq!(counted, (0..count as u64).collect::<Vec<_>>(), "counts at {own}");
        assert_eq!(memory[2 * words], count as u64, "the counter of {own}");
        let taker = memory[2 * words + 1];
        let takes: Vec<u64> = turns().map(|(_, _, seen)| seen.taken).collect();
        let first = turns().find(|(_, _, seen)| seen.taken == 0).map_or(0, |(from, ..)| from as u64 + 1);
        let zeros = takes.iter().filter(|taken| **taken == 0).count();
        assert_eq!((taker, zeros), (first, usize::from(count > 0)), "who has taken the flag of {own}: {takes:?}");
        assert!(takes.iter().all(|taken| *taken == 0 || *taken == taker), "it was taken once: {takes:?}");
        for (from, turn, _) in turns() {
            let put = &memory[self.block(from, turn)..][..words];
            assert_eq!(put, self.put(from, own, turn), "what {from} has put to {own} in turn {turn}");
        }
    }

    /// Words of each rank's part: sums, tokens, a counter, a flag, and a block for each turn of each origin.
    fn part_words(&self) -> usize {
        self.block(self.targets.len(), 0)
    }

    fn block(&self, origin: usize, turn: u64) -> usize {
        2 * self.words + 2 + (origin * TURNS as usize + turn as usize) * self.words
    }

    fn put(&self, from: usize, to: usize, turn: u64) -> Vec<u64> {
        let stamp = part(self.stamp, (from as u64) << 32 | to as u64, turn);
        (0..self.words as u64).map(|word| part(stamp, word, 0)).collect()
    }

    /// No two are alike.
    fn tokens(&self, from: usize, turn: u64) -> Vec<u64> {
        vec![from as u64 * TURNS + turn + 1; self.words]
    }

    /// What was found by an origin at all targets, in as many words for each.
    fn flat(&self, seen: Vec<Vec<Seen>>) -> Vec<u64> {
        let all = seen.into_iter().flat_map(|mut turns| {
            let none = vec![0; self.words];
            let none = Seen { sums: none.clone(), swaps: none.clone(), read: none, counted: 0, taken: 0 };
            turns.resize(TURNS as usize, none);
            turns
        });
        all.flat_map(|Seen { sums, swaps, read, counted, taken }| [sums, swaps, read, vec![counted, taken]].concat())
            .collect()
    }

    fn unflat(&self, all: &[u64], from: usize, to: usize, turn: u64) -> Seen {
        let (words, len) = (self.words, 3 * self.words + 2);
        let at = ((from * self.targets.len() + to) * TURNS as usize + turn as usize) * len;
        let [sums, swaps, read] = [0, 1, 2].map(|block| all[at + block * words..][..words].to_vec());
        Seen { sums, swaps, read, counted: all[at + 3 * words], taken: all[at + 3 * words + 1] }
    }
}

/// One of its own for each turn of each origin.
fn bit(from: usize, turn: u64) -> u64 {
    1 << (from as u64 * TURNS + turn)
}

/// Of each origin at each of its targets. Those of 17 ranks have a bit each.
const TURNS: u64 = 2;

/// What is nowhere found.
const NOTHING: u64 = u64::MAX;
