//! Random programs of one-sided operations, in every kind of epoch and of window, against a sequential model. In a round no two
//! operations conflict, except for accumulates of one operator: what a round leaves is the same in whatever order.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_nic::rng::Rng;

use super::job::job;
use crate::adi::{Config, Device, Limits};
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::rma::{Flavor, Lent, Lock, Members, Operation, Room, Target, Window};

const SIZE: usize = 3;
/// Elements of each rank's window: more than one part of an operation.
const CELLS: usize = 12_000;

/// What happens to elements in a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    Read,
    Written,
    Combined(usize),
}

const OPS: [Op; 3] = [Op::Sum, Op::Bxor, Op::Max];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Put,
    Get,
    Accumulate(usize),
    GetAccumulate(usize),
}

/// One operation, as every rank knows it: elements `first + i * (stride per block) ..` of the target.
#[derive(Clone, Debug)]
struct Step {
    origin: usize,
    target: usize,
    act: Act,
    first: usize,
    blocks: usize,
    block: usize,
    stride: usize,
    /// Elements between two of the origin's.
    spread: usize,
    value: u32,
}

impl Step {
    fn cells(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.blocks).flat_map(move |b| (0..self.block).map(move |i| self.first + b * self.stride + i))
    }

    fn len(&self) -> usize {
        self.blocks * self.block
    }

    fn operand(&self, at: usize) -> u32 {
        self.value.wrapping_mul(2_654_435_761).wrapping_add(at as u32)
    }

    fn random(rng: &mut Rng) -> Self {
        let below = |rng: &mut Rng, most: usize| rng.below(most as u64) as usize;
        let block = match below(rng, 10) {
            0..6 => 1 + below(rng, 20),
            6..9 => 1 + below(rng, 1_500),
            _ => 1 + below(rng, 11_000),
        };
        let blocks = if rng.chance(0.5) { 1 } else { 1 + below(rng, CELLS / (block + 1)) };
        let stride = block + if rng.chance(0.3) { 0 } else { below(rng, CELLS / blocks - block + 1) };
        let span = (blocks - 1) * stride + block;
        let op = below(rng, OPS.len());
        Self {
            origin: below(rng, SIZE),
            target: below(rng, SIZE),
            act: [Act::Put, Act::Get, Act::Accumulate(op), Act::GetAccumulate(op)][below(rng, 4)],
            first: below(rng, CELLS - span + 1),
            blocks,
            block,
            stride,
            spread: if rng.chance(0.6) { 1 } else { 2 + below(rng, 3) },
            value: rng.below(1 << 32) as u32,
        }
    }
}

fn combine(op: usize, old: u32, new: u32) -> u32 {
    match op {
        0 => old.wrapping_add(new),
        1 => old ^ new,
        _ => old.max(new),
    }
}

/// Steps of a round that do not conflict; the model is what they leave, and what each fetches.
fn round(rng: &mut Rng, model: &mut [Vec<u32>]) -> Vec<(Step, Vec<u32>)> {
    let mut uses = vec![vec![Use::Free; CELLS]; SIZE];
    let mut steps = Vec::new();
    for _ in 0..rng.below(25) {
        let step = Step::random(rng);
        let wanted = match step.act {
            Act::Put | Act::GetAccumulate(_) => Use::Written,
            Act::Get => Use::Read,
            Act::Accumulate(op) => Use::Combined(op),
        };
        let (uses, cells) = (&mut uses[step.target], &mut model[step.target]);
        let free = |cell| uses[cell] == Use::Free || uses[cell] == wanted && wanted != Use::Written;
        if !step.cells().all(free) {
            continue;
        }
        let mut before = Vec::new();
        for (at, cell) in step.cells().enumerate() {
            uses[cell] = wanted;
            before.push(cells[cell]);
            match step.act {
                Act::Put => cells[cell] = step.operand(at),
                Act::Get => {}
                Act::Accumulate(op) | Act::GetAccumulate(op) => {
                    cells[cell] = combine(op, cells[cell], step.operand(at));
                }
            }
        }
        steps.push((step, before));
    }
    steps
}

/// What an operation has borrowed, and where it was begun.
struct Begun {
    step: Step,
    expected: Vec<u32>,
    _given: Vec<u32>,
    room: Vec<u32>,
    operation: Operation,
}

fn begin(window: &Window, device: &mut Device, step: &Step, expected: &[u32], base: i64) -> Begun {
    let unsigned = Datatype::from(Predefined::Unsigned);
    let (len, spread) = (step.len(), step.spread);
    let here = Datatype::vector(len, 1, spread as isize, &unsigned).unwrap();
    let there = Datatype::vector(step.blocks, step.block, step.stride as isize, &unsigned).unwrap();
    let mut given = vec![0xdead_beef; len * spread];
    (0..len).for_each(|at| given[at * spread] = step.operand(at));
    let mut room = vec![0; len * spread];
    let displacement = base + step.first as i64 * if window.flavor() == Flavor::Dynamic { 4 } else { 1 };
    let target = Target { rank: step.target, displacement, count: 1, datatype: &there };
    let from = Lent { address: given.as_ptr().cast(), count: 1, datatype: &here };
    let into = Room { address: room.as_mut_ptr().cast(), count: 1, datatype: &here };
    // SAFETY: both live in `Begun` until the operation is over.
    let operation = unsafe {
        match step.act {
            Act::Put => window.put(device, from, target),
            Act::Get => window.get(device, into, target),
            Act::Accumulate(op) => window.accumulate(device, from, target, &OPS[op]),
            Act::GetAccumulate(op) => window.get_accumulate(device, from, into, target, &OPS[op]),
        }
    };
    Begun { step: step.clone(), expected: expected.to_vec(), _given: given, room, operation: operation.unwrap() }
}

impl Begun {
    fn check(&self) {
        if matches!(self.step.act, Act::Get | Act::GetAccumulate(_)) {
            let got: Vec<_> = self.room.iter().step_by(self.step.spread).copied().collect();
            assert_eq!(got, self.expected, "{:?}", self.step);
        }
    }
}

/// One rank's part of a program.
fn run(device: &mut Device, members: Members, seed: u64, bases: &[AtomicU64]) {
    let own = members.rank;
    let mut rng = Rng::new(seed);
    let flavor = [Flavor::Create, Flavor::Allocate, Flavor::Shared, Flavor::Dynamic][rng.below(4) as usize];
    let mut kept = vec![0u32; CELLS];
    let memory = std::ptr::slice_from_raw_parts_mut(kept.as_mut_ptr().cast::<u8>(), CELLS * 4);
    let window = match flavor {
        // SAFETY: `kept` outlives the window, and is only looked at by address.
        Flavor::Create => unsafe { Window::create(device, members, memory, 4) },
        Flavor::Allocate => Window::allocate(device, members, CELLS * 4, 4),
        Flavor::Shared => Window::allocate_shared(device, members, CELLS * 4, 4),
        Flavor::Dynamic => Window::dynamic(device, members),
    };
    let window = window.unwrap();
    let memory = window.memory().unwrap_or(memory);
    let mut base = vec![0; SIZE];
    if flavor == Flavor::Dynamic {
        // SAFETY: as above.
        unsafe { window.attach(memory).unwrap() };
        bases[own].store(memory.cast::<u8>().expose_provenance() as u64, Ordering::Release);
        window.barrier(device).unwrap();
        base = bases.iter().map(|base| base.load(Ordering::Acquire) as i64).collect();
    }
    let mut model = vec![vec![0u32; CELLS]; SIZE];
    for _ in 0..6 {
        let mode = rng.below(5);
        let steps = round(&mut rng, &mut model);
        // From here on ranks differ.
        let mut dice = Rng::new(rng.below(u64::MAX) ^ own as u64);
        let mine: Vec<_> = steps.iter().filter(|(step, _)| step.origin == own).collect();
        let mut begun = Vec::new();
        let all: Vec<usize> = (0..SIZE).collect();
        match mode {
            0 => {
                window.fence(device, false).unwrap();
                for (step, expected) in mine {
                    begun.push(begin(&window, device, step, expected, base[step.target]));
                }
                window.fence(device, true).unwrap();
            }
            1 => {
                window.post(device, &all).unwrap();
                window.start(device, &all).unwrap();
                for (step, expected) in mine {
                    begun.push(begin(&window, device, step, expected, base[step.target]));
                }
                window.complete(device).unwrap();
                if dice.chance(0.5) {
                    while !window.test_exposed(device).unwrap() {
                        std::thread::yield_now();
                    }
                } else {
                    window.wait_exposed(device).unwrap();
                }
            }
            2 | 3 => {
                for target in all {
                    let kind = if mode == 2 { Lock::Shared } else { Lock::Exclusive };
                    window.lock(device, target, kind).unwrap();
                    for (step, expected) in mine.iter().filter(|(step, _)| step.target == target) {
                        begun.push(begin(&window, device, step, expected, base[target]));
                    }
                    window.unlock(device, target).unwrap();
                }
            }
            _ => {
                window.lock_all(device).unwrap();
                for (step, expected) in mine {
                    begun.push(begin(&window, device, step, expected, base[step.target]));
                    let last = begun.last().unwrap();
                    match dice.below(6) {
                        0 => window.flush(device, step.target).unwrap(),
                        1 => window.flush_local(device, step.target).unwrap(),
                        2 => window.wait(device, last.operation).unwrap(),
                        3 => {
                            if let Some(end) = window.test(device, last.operation) {
                                end.unwrap();
                                last.check();
                            }
                        }
                        _ => {}
                    }
                }
                if dice.chance(0.5) {
                    window.flush_all(device).unwrap();
                    begun.iter().for_each(Begun::check);
                }
                window.unlock_all(device).unwrap();
            }
        }
        begun.iter().for_each(Begun::check);
        window.barrier(device).unwrap();
        window.sync();
        for (cell, expected) in model[own].iter().enumerate() {
            // SAFETY: within our own part, which nobody writes before the next barrier.
            let got = unsafe { memory.cast::<u32>().add(cell).read() };
            assert_eq!(got, *expected, "rank {own}, cell {cell}, mode {mode}");
        }
        window.barrier(device).unwrap();
    }
    window.free(device).unwrap();
}

#[test]
fn random_programs_leave_what_the_model_says() {
    let only = std::env::var("RMA_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    for seed in only.map_or(0..SEEDS, |seed| seed..seed + 1) {
        eprintln!("repeat with RMA_SEED={seed}");
        let bases: Vec<_> = (0..SIZE).map(|_| AtomicU64::new(0)).collect();
        // Half of them by messages that are put instead of read, and with small limits.
        let limits = Limits { eager_max: 2_000, prefix: 500, put_min: 3_000, pull_min: 3_000 };
        let small = Config { on_host: limits, credit: 16 << 10, single_copy: false, ..Config::default() };
        let config = if seed % 2 == 0 { Config::default() } else { small };
        job(SIZE as u32, &config, |device, members| run(device, members, seed, &bases));
    }
}

const SEEDS: u64 = 40;
