//! Ranks over shared memory, a thread each.
#![allow(unsafe_code)] // Calls that do not wait are lent buffers that live until they are over.

mod at_once;
mod gone;
mod misfits;
mod two_levels;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sidelane_nic::time::Duration;

use super::*;
use crate::adi::{self, Config, Device, Error, Idle, Turns};
use crate::coll::neighbor::Neighbors;
use crate::coll::tests::composed::{COMPOSE, combined, compose, input};
use crate::coll::{Blocks, Buffers, Call, Reduction, Table};
use crate::giving_way::TURNLESS_MAX;
use crate::host::FEW;

/// Runs `each` as every rank of a job on one host, or each on a host of its own as far as it knows.
fn job(size: u32, each: impl Fn(&mut Device, Ranks) + Sync) {
    in_job(size, |device| {
        // Backwards, so that ranks are not the processes' numbers.
        let processes = (0..size).rev().collect();
        let rank = (size - 1 - device.own()) as usize;
        let ranks = Ranks::new(device, 5, rank, processes, Arc::new(Table::default()));
        each(device, ranks);
    });
}

/// Runs `each` as every process of a job.
fn in_job(size: u32, each: impl Fn(&mut Device) + Sync) {
    run(size, &each);
}

/// One function for all: what starts threads is a lot of code.
fn run(size: u32, each: &(dyn Fn(&mut Device) + Sync)) {
    let running = AtomicU32::new(size);
    adi::in_threads(size, &Config::default(), |mut device| {
        each(&mut device);
        // Who closes is gone for the others, whose last call fails if they wait for each other for long.
        running.fetch_sub(1, Ordering::Relaxed);
        while running.load(Ordering::Relaxed) > 0 {
            if !device.progress() {
                std::thread::yield_now();
            }
        }
        device.close(Duration::from_millis(2_000));
    });
}

/// How a call is made.
type Make<'a> = &'a mut dyn FnMut(Call, Option<&[u8]>, &mut [u8]);

/// Every call once, with blocks of `len` bytes.
fn every_call(size: usize, rank: usize, len: usize, call: Make) {
    let root = size / 2;
    let (own, all): (_, Vec<u8>) = (input(rank, len), (0..size).flat_map(|rank| input(rank, len)).collect());
    let what = format!("rank {rank} of {size}, {len} bytes");
    let at_root = |len| vec![0; if rank == root { len } else { 0 }];
    call(Call::Barrier, None, &mut []);

    let mut data = if rank == root { input(root, len) } else { vec![0; len] };
    call(Call::Broadcast { root }, None, &mut data);
    assert!(data == input(root, len), "broadcast: {what}");

    let mut output = at_root(len);
    call(Call::Reduce { root, reduction: COMPOSE }, Some(&own), &mut output);
    assert!(rank != root || output == combined(size, len), "reduce: {what}");

    let mut output = own.clone();
    call(Call::Allreduce { reduction: COMPOSE }, None, &mut output);
    assert!(output == combined(size, len), "allreduce in place: {what}");

    let blocks = Blocks::cut(len, 2, size);
    let mut output = vec![0; blocks.len(rank)];
    call(Call::ReduceScatter { blocks, reduction: COMPOSE }, Some(&own), &mut output);
    assert!(output == combined(size, len)[blocks.start(rank)..][..blocks.len(rank)], "reduce_scatter: {what}");
    let mut output = vec![0; len];
    call(Call::ReduceScatter { blocks: Blocks::Equal(len), reduction: COMPOSE }, Some(&all), &mut output);
    // All give the same.
    let mut expected = own.clone();
    (1..size).for_each(|_| compose(&mut expected, &own));
    assert!(output == expected, "reduce_scatter of equal blocks: {what}");

    let mut output = vec![0; len];
    call(Call::Scan { reduction: COMPOSE }, Some(&own), &mut output);
    assert!(output == combined(rank + 1, len), "scan: {what}");
    call(Call::Exscan { reduction: COMPOSE }, Some(&own), &mut output);
    assert!(rank == 0 || output == combined(rank, len), "exscan: {what}");

    let mut output = at_root(all.len());
    call(Call::Gather { root, len }, Some(&own), &mut output);
    assert!(rank != root || output == all, "gather: {what}");
    let mut output = at_root(all.len());
    let blocks = (rank == root).then_some(Blocks::Equal(len));
    call(Call::Gatherv { root, blocks }, Some(&own), &mut output);
    assert!(rank != root || output == all, "gatherv: {what}");

    let given = (rank == root).then_some(&all[..]);
    let mut output = vec![0; len];
    call(Call::Scatter { root, len }, given, &mut output);
    assert!(output == own, "scatter: {what}");
    let mut output = vec![0; len];
    call(Call::Scatterv { root, blocks }, given, &mut output);
    assert!(output == own, "scatterv: {what}");
    // In place at the root.
    let mut output = vec![0; if rank == root { 0 } else { len }];
    call(Call::Scatter { root, len }, given, &mut output);
    assert!(rank == root || output == own, "scatter in place: {what}");

    let mut output = vec![0; all.len()];
    call(Call::Allgather { len }, Some(&own), &mut output);
    assert!(output == all, "allgather: {what}");
    let mut output = vec![0; all.len()];
    call(Call::Allgatherv { blocks: Blocks::Equal(len) }, Some(&own), &mut output);
    assert!(output == all, "allgatherv: {what}");

    let given: Vec<u8> = (0..size).flat_map(|to| input(rank * size + to, len)).collect();
    let expected: Vec<u8> = (0..size).flat_map(|from| input(from * size + rank, len)).collect();
    let mut output = vec![0; all.len()];
    call(Call::Alltoall { len }, Some(&given), &mut output);
    assert!(output == expected, "alltoall: {what}");
    let mut output = given.clone();
    call(Call::Alltoallv { to: Blocks::Equal(len), from: Blocks::Equal(len) }, None, &mut output);
    assert!(output == expected, "alltoallv in place: {what}");
}

#[test]
fn every_call_by_messages() {
    for size in [1, 2, 3, 5] {
        job(size, |device, ranks| {
            let (mut ranks, rank) = (ranks.without_shared_memory(), (size - 1 - device.own()) as usize);
            for len in [0, 2, 1000, 20_000, 300_000] {
                every_call(size as usize, rank, len, &mut |call, send, receive| {
                    ranks.call(device, call, send, receive, &mut compose).unwrap();
                });
            }
        });
    }
}

#[test]
fn every_call_by_shared_memory() {
    for size in [2, 3, 5] {
        job(size, |device, mut ranks| {
            let rank = (size - 1 - device.own()) as usize;
            for len in [0, 2, 1000, 20_000, 300_000] {
                every_call(size as usize, rank, len, &mut |call, send, receive| {
                    ranks.call(device, call, send, receive, &mut compose).unwrap();
                });
            }
        });
    }
}

/// Begins a call that goes by shared memory without waiting.
fn begin(ranks: &Ranks, call: Call, send: Option<&[u8]>, receive: &mut [u8]) -> Option<Queued> {
    let lens = Buffers { send: send.map_or(0, <[u8]>::len), receive: receive.len(), in_place: send.is_none() };
    let (queue, call) = ranks.queue_for(call, lens)?;
    // SAFETY: both live, untouched, until the call is over.
    let lent = unsafe { Lent::new(send.unwrap_or_default(), receive) };
    Some(queue.begin(call, send.is_none(), lent, KeptCombine::Any(Box::new(compose))))
}

fn finish(device: &mut Device, queued: &mut Queued) -> Result<(), Error> {
    let mut idle = Idle::new();
    while !queued.advance(device)? {
        if !device.progress() {
            device.idle(&mut idle);
        }
    }
    Ok(())
}

#[test]
fn every_call_that_does_not_wait() {
    for size in [2, 3, 5] {
        job(size, |device, mut ranks| {
            let rank = (size - 1 - device.own()) as usize;
            ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
            for len in [0, 2, 1000, 20_000, 300_000] {
                let mut queued = 0;
                every_call(size as usize, rank, len, &mut |call, send, receive| {
                    let Some(mut begun) = begin(&ranks, call, send, receive) else {
                        return ranks.call(device, call, send, receive, &mut compose).unwrap();
                    };
                    finish(device, &mut begun).unwrap();
                    queued += 1;
                });
                assert_eq!(queued, 12, "all but those with lengths of their own");
            }
        });
    }
}

#[test]
fn calls_that_do_not_wait_go_on_beside_those_that_do() {
    job(5, |device, mut ranks| {
        let rank = 4 - device.own() as usize;
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        for len in [2, 3_000, 60_000] {
            let (scan, all) = (Call::Scan { reduction: COMPOSE }, Call::Allreduce { reduction: COMPOSE });
            let own = input(rank, len);
            let mut rooms = vec![vec![0; len]; 5];
            rooms[0].copy_from_slice(&input(rank, len));
            let mut calls: Vec<_> = rooms
                .iter_mut()
                .enumerate()
                .map(|(at, room)| match at {
                    0 => begin(&ranks, Call::Broadcast { root: 3 }, Some(&[]), room).unwrap(),
                    1 => begin(&ranks, scan, Some(&own), room).unwrap(),
                    2 => begin(&ranks, Call::Barrier, Some(&[]), &mut []).unwrap(),
                    3 => begin(&ranks, all, Some(&own), room).unwrap(),
                    _ => begin(&ranks, Call::Broadcast { root: 0 }, Some(&[]), room).unwrap(),
                })
                .collect();
            // One that waits moves them on, as every turn of a process does.
            let mut turns = Beside { device, calls: &mut calls, over: [false; 5], turns: 0 };
            let mut output = vec![0; len];
            ranks.call(&mut turns, all, Some(&own), &mut output, &mut compose).unwrap();
            assert!(output == combined(5, len));
            while turns.over != [true; 5] {
                turns.turn();
            }
            drop(calls);
            assert!(rooms[0] == input(3, len), "broadcast, rank {rank}, {len} bytes");
            assert!(rooms[1] == combined(rank + 1, len), "scan, rank {rank}, {len} bytes");
            assert!(rooms[3] == combined(5, len), "allreduce, rank {rank}, {len} bytes");
        }
    });
}

/// Moves calls on in any order, and counts its turns.
struct Beside<'a> {
    device: &'a mut Device,
    calls: &'a mut [Queued],
    over: [bool; 5],
    turns: u32,
}

impl Turns for Beside<'_> {
    fn device(&mut self) -> &mut Device {
        self.device
    }

    fn turn(&mut self) -> bool {
        for (call, over) in self.calls.iter_mut().zip(&mut self.over).rev() {
            *over = *over || call.advance(self.device).unwrap();
        }
        self.turns += 1;
        self.device.progress()
    }
}

/// Others may wait for a turn of who always finds in memory what it looks for.
#[test]
fn of_many_calls_in_memory_some_take_a_turn() {
    job(2, |device, mut ranks| {
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        let mut turns = Beside { device, calls: &mut [], over: [false; 5], turns: 0 };
        for few in [true, false] {
            let before = turns.turns;
            for _ in 0..1_000 {
                if few {
                    ranks
                        .call_few(&mut turns, &Call::Barrier, None, &mut [], None)
                        .expect("it is of few bytes")
                        .unwrap();
                } else {
                    ranks.call(&mut turns, Call::Barrier, None, &mut [], &mut compose).unwrap();
                }
            }
            assert!(turns.turns - before >= 1_000 / TURNLESS_MAX);
        }
    });
}

/// Who computes on after a call that waits for nobody takes no turn.
#[test]
fn what_was_sent_before_a_call_goes_out_with_it() {
    let (has_come, call) = (std::sync::Barrier::new(2), Call::Broadcast { root: 1 });
    job(2, |device, mut ranks| {
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        let mut broadcast = |device: &mut Device, few: bool| {
            if few { ranks.call_few(device, &call, None, &mut [7; 8], None) } else { None }
                .unwrap_or_else(|| ranks.call(device, call, None, &mut [7; 8], &mut compose))
                .unwrap();
        };
        for few in [true, false] {
            if device.own() == 0 {
                // Not only the first one, which goes at once.
                for tag in 0..3 {
                    let envelope = adi::Envelope::new(7, 1, tag);
                    let sent = device.send(1, envelope, adi::Outgoing::EMPTY, adi::Mode::Standard);
                    device.free(sent);
                }
                broadcast(device, few);
                has_come.wait();
            } else {
                for tag in 0..3 {
                    let pattern = adi::Pattern { context: 7, source: None, tag: Some(tag) };
                    let received = device.recv(pattern, adi::Incoming::EMPTY);
                    assert_eq!(device.wait(received).error, None);
                }
                has_come.wait();
                broadcast(device, few);
            }
        }
    });
}

/// Who is made to give few bytes may get many.
#[test]
fn a_rank_that_gives_few_bytes_takes_long_blocks_of_others() {
    const LENS: [usize; 3] = [1, 5_000, 20_000];
    job(3, |device, mut ranks| {
        let rank = 2 - device.own() as usize;
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        let (own, blocks) = (input(rank, LENS[rank]), Blocks::Lens(&LENS));
        let all: Vec<u8> = (0..3).flat_map(|rank| input(rank, LENS[rank])).collect();
        let others = [(rank + 2) % 3, (rank + 1) % 3];
        let (around, around_lens) = (others.map(|other| Some(other as u32)), others.map(|other| LENS[other]));
        let neighbors = Neighbors::Grid(&around);
        let at_root = if rank == 0 { all.clone() } else { Vec::new() };
        for (call, expected) in [
            (Call::Gatherv { root: 0, blocks: (rank == 0).then_some(blocks) }, at_root),
            (Call::Allgatherv { blocks }, all.clone()),
            (
                Call::NeighborAllgather { neighbors, from: Blocks::Lens(&around_lens) },
                others.map(|other| input(other, LENS[other])).concat(),
            ),
        ] {
            let mut room = vec![0; expected.len()];
            let few = (own.len() <= FEW).then(|| ranks.call_few(device, &call, Some(&own), &mut room, None)).flatten();
            few.unwrap_or_else(|| ranks.call(device, call, Some(&own), &mut room, &mut compose)).unwrap();
            assert!(room == expected, "{call:?}, rank {rank}");
        }
    });
}

#[test]
fn a_call_that_does_not_fit_fails_and_all_behind_it() {
    job(3, |device, mut ranks| {
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        let (mut room, barrier) = (vec![0; if device.own() == 1 { 9 } else { 8 }], Call::Barrier);
        let mut first = begin(&ranks, Call::Broadcast { root: 2 }, Some(&[]), &mut room).unwrap();
        let mut second = begin(&ranks, barrier, Some(&[]), &mut []).unwrap();
        let first = finish(device, &mut first);
        let second = finish(device, &mut second);
        assert_eq!(first.and(second), Err(Error::Truncated));
        let mut third = begin(&ranks, barrier, Some(&[]), &mut []).unwrap();
        assert_eq!(finish(device, &mut third), Err(Error::Truncated));
        ranks.call(device, barrier, None, &mut [], &mut compose).unwrap();
    });
}

#[test]
fn who_finds_the_memory_of_a_failed_rank_gone_has_its_error() {
    let (met, gone) = (std::sync::Barrier::new(3), std::sync::Barrier::new(3));
    job(3, |device, mut ranks| {
        let rank = 2 - device.own();
        let word = 0u64;
        if device.read_memory(device.own(), (&raw const word).expose_provenance() as u64, &mut [0; 8]).is_err() {
            return println!("skipped: processes may not read each other's memory here");
        }
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        met.wait();
        let mut room = vec![0; UNMAPPED + usize::from(rank == 1)];
        if rank == 2 {
            gone.wait();
        }
        let ended = ranks.call(device, Call::Broadcast { root: 0 }, None, &mut room, &mut compose);
        assert_eq!(ended, Err(Error::Truncated), "rank {rank}");
        drop(room);
        if rank < 2 {
            gone.wait();
        }
    });
}

/// What is this long goes back to the system when it is freed (mallopt(3), DEFAULT_MMAP_THRESHOLD_MAX).
const UNMAPPED: usize = 40 << 20;

#[test]
fn what_a_rank_gives_itself_fits_or_not_as_a_message_would() {
    job(2, |device, ranks| {
        let (mut ranks, rank) = (ranks.without_shared_memory(), (1 - device.own()) as usize);
        for (own, expected) in [(1, Err(Error::Truncated)), (0, Err(Error::Truncated)), (2, Ok(())), (3, Ok(()))] {
            let mut counts = [2; 2];
            counts[rank] = own;
            let from = Blocks::Counts { counts: &counts, element: 1 };
            let mut room = vec![9; 2 + own];
            let call = Call::Alltoallv { to: Blocks::Equal(2), from };
            assert_eq!(ranks.call(device, call, Some(&[7; 4]), &mut room, &mut compose), expected);
            if expected.is_ok() {
                let untouched = from.start(rank) + 2..from.start(rank) + own;
                assert!(room.iter().enumerate().all(|(at, byte)| (*byte == 9) == untouched.contains(&at)), "{room:?}");
            }
        }
    });
}

#[test]
fn a_revoked_call_that_does_not_wait_ends() {
    let through = std::sync::Barrier::new(2);
    job(2, |device, mut ranks| {
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        // Who is not through yet would be told too.
        through.wait();
        if device.own() == 0 {
            let mut call = begin(&ranks, Call::Barrier, Some(&[]), &mut []).unwrap();
            assert_eq!(call.advance(device), Ok(false));
            device.revoke(5);
            assert_eq!(finish(device, &mut call), Err(Error::Revoked));
        }
    });
}

#[test]
fn calls_under_way_at_the_same_time_do_not_mix() {
    job(4, |device, mut ranks| {
        let rank = 3 - device.own() as usize;
        let (len, under_way) = (3_000, 8);
        let inputs: Vec<_> = (0..under_way).map(|call| input(rank + call, len)).collect();
        let mut outputs = vec![vec![0; len]; under_way];
        let mut executions: Vec<_> = (0..under_way).map(|_| Execution::default()).collect();
        let call = Call::Allreduce { reduction: COMPOSE };
        for ((input, output), execution) in inputs.iter().zip(&mut outputs).zip(&mut executions) {
            // SAFETY: both live, untouched, until all are over.
            let lent = unsafe { Lent::new(&raw const input[..], &raw mut output[..]) };
            start(&mut ranks, device, execution, call, false, lent);
        }
        // Calls that wait go on meanwhile.
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        for execution in executions.iter_mut().rev() {
            finish_steps(&ranks, device, execution);
            assert!(!execution.is_under_way());
        }
        for (call, output) in outputs.iter().enumerate() {
            let mut expected = input(3 + call, len);
            (0..3).rev().for_each(|rank| compose(&mut expected, &input(rank + call, len)));
            assert!(*output == expected, "call {call}");
        }
    });
}

/// Begins a call by messages.
fn start(ranks: &mut Ranks, device: &mut Device, execution: &mut Execution, call: Call, in_place: bool, lent: Lent) {
    let (send, receive) = lent.lens();
    ranks.build(execution, call, Buffers { send, receive, in_place });
    let tag = ranks.next_tag();
    ranks.course().start(device, execution, lent, tag);
}

fn finish_steps(ranks: &Ranks, device: &mut Device, execution: &mut Execution) {
    while !ranks.course().advance(device, execution, &mut compose).unwrap() {
        device.progress();
    }
}

#[test]
fn a_persistent_call_is_made_again() {
    job(3, |device, mut ranks| {
        let rank = 2 - device.own() as usize;
        let (mut data, mut execution) = (vec![0; 500], Execution::default());
        for turn in 0..5 {
            if rank == 1 {
                data.copy_from_slice(&input(turn, 500));
            }
            // SAFETY: it lives, untouched, until the call is over.
            let lent = unsafe { Lent::new(&[], &raw mut data[..]) };
            match turn {
                0 => start(&mut ranks, device, &mut execution, Call::Broadcast { root: 1 }, true, lent),
                _ => ranks.course().start(device, &mut execution, lent, turn as i32),
            }
            finish_steps(&ranks, device, &mut execution);
            assert!(data == input(turn, 500), "turn {turn}");
        }
    });
}

#[test]
fn a_revoked_call_ends() {
    let through = std::sync::Barrier::new(2);
    job(2, |device, mut ranks| {
        ranks.call(device, Call::Barrier, None, &mut [], &mut compose).unwrap();
        // Who is not through yet would be told too.
        through.wait();
        if device.own() == 0 {
            device.revoke(5);
            let ended = ranks.call(device, Call::Barrier, None, &mut [], &mut compose);
            assert_eq!(ended, Err(Error::Revoked), "by shared memory");
            let ended = ranks.call(device, Call::Barrier, None, &mut [], &mut compose);
            assert_eq!(ended, Err(Error::Revoked), "by messages");
        }
    });
}
