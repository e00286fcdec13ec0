//! Every number of ranks, lengths and seeds that algorithms are tried with, and what ranks give.

use sidelane_nic::rng::Rng;

use super::play::{GARBAGE, Operator};
use crate::coll::{Memory, Schedule, Span};

/// Team sizes, lengths, numbers below what `numbers` says of the size, seeds.
pub(super) fn each_case(numbers: fn(usize) -> usize, mut case: impl FnMut(usize, usize, usize, u64)) {
    let mut seed = 0;
    for ranks in 1..=RANKS_MAX {
        for len in COUNTS {
            for number in 0..numbers(ranks) {
                seed += 1;
                case(ranks, len, number, seed);
            }
        }
    }
}

/// What every rank gives.
pub(super) struct Inputs {
    bytes: Vec<Vec<u8>>,
}

impl Inputs {
    pub(super) fn new(ranks: usize, len: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self { bytes: (0..ranks).map(|_| random(rng.next_u64(), len)).collect() }
    }

    pub(super) fn of(&self, rank: usize) -> &[u8] {
        &self.bytes[rank]
    }

    /// The send and receive buffers of a rank, which puts its input where its output is, or not, if it has one.
    pub(super) fn buffers(&self, rank: usize, in_place: bool, output: bool) -> (Vec<u8>, Vec<u8>) {
        let input = self.bytes[rank].clone();
        match (in_place, output) {
            (true, _) => (vec![], input),
            (false, true) => (input.clone(), vec![GARBAGE; input.len()]),
            (false, false) => (input, vec![]),
        }
    }

    pub(super) fn combined(&self, first: usize, end: usize, operator: Operator) -> Vec<u8> {
        let mut inputs = self.bytes[first..end].iter().rev();
        let mut result = inputs.next().unwrap().clone();
        for left in inputs {
            operator(&mut result, left);
        }
        result
    }
}

pub(super) fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// Places for blocks in no order with holes between them, and the end.
pub(super) fn scattered(lens: &[usize]) -> (Vec<usize>, usize) {
    let mut starts = vec![0; lens.len()];
    let mut end = 0;
    for index in (0..lens.len()).rev() {
        starts[index] = end + 1;
        end += 1 + lens[index];
    }
    (starts, end + lens.len())
}

pub(super) fn spans(schedule: &Schedule) -> (Span, Span) {
    let (send, receive) = schedule.buffer_lens();
    (Span::new(Memory::Send, 0, send), Span::new(Memory::Receive, 0, receive))
}

pub(super) const RANKS_MAX: usize = 17;
const COUNTS: [usize; 6] = [0, 1, 2, 5, 16, 37];
