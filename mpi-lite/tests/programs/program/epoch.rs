//! One-sided: a window of all members, and what they do to each other's memory in it.
#![allow(unsafe_code)] // Buffers are lent, and the device is.

use sidelane_mpi::comm::{Communicator, Held};
use sidelane_mpi::datatype::{Datatype, Predefined};
use sidelane_mpi::op::Op;
use sidelane_mpi::rma::{Lent, Lock, Room, Target, Window};
use sidelane_nic::rng::Rng;

use super::buffers::unwritten;
use super::members::Members;
use super::{Rank, part};

/// Every rank's part has a block of words for each rank, which only that one puts to and reads, and one to which all add.
#[derive(Debug)]
pub struct Epoch {
    comm: usize,
    stamp: u64,
    /// Words of a block.
    words: usize,
    locks: bool,
}

impl Epoch {
    pub fn random(rng: &mut Rng, comm: usize, _: &Members, stamp: u64) -> Self {
        Self { comm, stamp, words: 1 + rng.below(300) as usize, locks: rng.chance(0.5) }
    }

    pub fn run(&self, rank: &mut Rank) {
        let Some(comm) = rank.comms[self.comm].clone() else { return };
        let kept = comm.dup().unwrap();
        let (own, size) = (u64::from(comm.rank()), u64::from(comm.size()));
        // SAFETY: The device stays where it is.
        unsafe { kept.with_device(|turns| self.epoch(turns, &kept, own, size)) };
    }

    fn epoch(&self, turns: &mut Held, comm: &Communicator, own: u64, size: u64) {
        let words = self.words;
        let len = (size as usize + 1) * words * 8;
        let window = Window::allocate(turns, comm.members(), len, 8).unwrap();
        let datatype: Datatype = Predefined::Uint64.into();
        let targets: Vec<usize> = (0..size as usize).map(|next| (next + own as usize) % size as usize).collect();
        let given: Vec<Vec<u64>> = targets.iter().map(|target| self.put(own, *target as u64)).collect();
        let added = self.added(own);
        let mut got = vec![vec![0u64; words]; targets.len()];
        let at = |target: usize, block: u64| Target {
            rank: target,
            displacement: (block as usize * words) as i64,
            count: words,
            datatype: &datatype,
        };
        let lent = |from: &[u64]| Lent { address: from.as_ptr().cast(), count: words, datatype: &datatype };
        if !self.locks {
            window.fence(turns, false).unwrap();
        }
        for (target, given) in targets.iter().zip(&given) {
            if self.locks {
                window.lock(turns, *target, Lock::Shared).unwrap();
            }
            // SAFETY: Both stay until the epoch is over.
            unsafe {
                window.put(turns, lent(given), at(*target, own)).unwrap();
                window.accumulate(turns, lent(&added), at(*target, size), &Op::Sum).unwrap();
            }
            if self.locks {
                window.unlock(turns, *target).unwrap();
            }
        }
        // What was put is there after the epoch; what all have added, when all have met.
        if self.locks {
            window.lock_all(turns).unwrap();
        } else {
            window.fence(turns, false).unwrap();
        }
        for (target, got) in targets.iter().zip(&mut got) {
            let into = Room { address: got.as_mut_ptr().cast(), count: words, datatype: &datatype };
            // SAFETY: As above.
            unsafe { window.get(turns, into, at(*target, own)).unwrap() };
        }
        if self.locks {
            window.unlock_all(turns).unwrap();
        } else {
            window.fence(turns, true).unwrap();
        }
        for (target, given) in targets.iter().zip(&given) {
            unwritten("a put", given, &self.put(own, *target as u64));
        }
        unwritten("an accumulate", &added, &self.added(own));
        assert_eq!(got, given, "what rank {own} has put");
        let memory = window.memory().expect("it was allocated");
        // `free` returns when all have come; the memory is looked at before it goes.
        if self.locks {
            window.fence(turns, true).unwrap();
            window.sync();
        }
        // SAFETY: No epoch is open that could change it, and the window is not freed yet.
        let all: Vec<u64> = unsafe { std::slice::from_raw_parts(memory.cast::<u64>(), len / 8) }.to_vec();
        let expected: Vec<u64> = (0..size).flat_map(|from| self.put(from, own)).collect();
        assert_eq!(all[..expected.len()], expected, "what all have put to rank {own}");
        let sums = (0..size).map(|from| self.added(from)).reduce(|mut sum, next| {
            sum.iter_mut().zip(next).for_each(|(sum, next)| *sum = sum.wrapping_add(next));
            sum
        });
        assert_eq!(all[expected.len()..], sums.expect("one at least"), "what all have added at rank {own}");
        window.free(turns).unwrap();
    }

    fn put(&self, from: u64, to: u64) -> Vec<u64> {
        (0..self.words as u64).map(|word| part(self.stamp, from << 32 | to, word)).collect()
    }

    fn added(&self, from: u64) -> Vec<u64> {
        (0..self.words as u64).map(|word| part(self.stamp, 1 << 60 | from, word)).collect()
    }
}
