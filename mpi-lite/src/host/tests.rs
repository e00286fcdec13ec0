//! Threads as ranks: the memory between them is mapped once for each.

use std::sync::{Barrier, Mutex};

use super::*;
use crate::coll::Blocks;

/// A rank that reads its own process's memory.
struct Thread;

impl Peers for Thread {
    type Error = NonZeroU32;

    const WAITS: bool = true;

    fn turn(&mut self, _: impl Fn(usize) -> bool) -> Result<bool, NonZeroU32> {
        Ok(false)
    }

    fn sleep(&mut self) {
        std::thread::park();
    }

    fn may_sleep(&self) -> bool {
        false
    }

    fn doze(&mut self) {}

    fn slept(&mut self, _: bool) {}

    fn wake(&mut self, member: usize) {
        SLEEPERS.lock().unwrap().iter().filter(|(known, _)| *known == member).for_each(|(_, thread)| thread.unpark());
    }

    fn read(&mut self, _: usize, address: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        // As between processes: the kernel copies, so that no reference is made to what another thread has.
        let file = std::fs::File::open("/proc/self/mem").unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, into, address).unwrap();
        Ok(())
    }

    fn code(error: &NonZeroU32) -> NonZeroU32 {
        *error
    }

    fn error(code: NonZeroU32) -> NonZeroU32 {
        code
    }
}

/// Of all tests that run: a rank of another's is woken in vain.
static SLEEPERS: Mutex<Vec<(usize, std::thread::Thread)>> = Mutex::new(Vec::new());

/// Every rank's answer.
fn run<T: Send>(size: usize, rank: impl Fn(usize, &mut Host) -> T + Sync) -> Vec<T> {
    let first = Host::create(size).unwrap();
    let (ticket, all_have_joined) = (first.ticket(), Barrier::new(size));
    let mut first = Some(first);
    std::thread::scope(|scope| {
        let (rank, all_have_joined) = (&rank, &all_have_joined);
        let threads: Vec<_> = (0..size)
            .map(|me| {
                let first = first.take();
                scope.spawn(move || {
                    let mut host = first.unwrap_or_else(|| Host::join(ticket, me, size).unwrap());
                    SLEEPERS.lock().unwrap().push((me, std::thread::current()));
                    all_have_joined.wait();
                    at_once(host.allow_reads(true, &mut Thread)).unwrap();
                    rank(me, &mut host)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn input(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + rank * 31 + at / 251) as u8).collect()
}

/// Composes maps a x + b of bytes: associative, and another result in any other order.
fn compose(into: &mut [u8], from: &[u8]) {
    for (into, from) in into.chunks_exact_mut(2).zip(from.chunks_exact(2)) {
        into[1] = from[0].wrapping_mul(into[1]).wrapping_add(from[1]);
        into[0] = from[0].wrapping_mul(into[0]);
    }
}

fn combined(members: usize, len: usize) -> Vec<u8> {
    let mut result = input(members - 1, len);
    (0..members - 1).rev().for_each(|member| compose(&mut result, &input(member, len)));
    result
}

const SIZES: [usize; 5] = [1, 2, 3, 5, 16];
/// Short and long ones, also where a slot takes a block for each.
const LENS: [usize; 6] = [0, 2, 1000, SHORT, SHORT + 2, PIECE + 10];

#[test]
fn data_gets_where_it_belongs() {
    for size in SIZES {
        run(size, |me, host| {
            for (len, in_place) in LENS.into_iter().flat_map(|len| [(len, false), (len, true)]) {
                for root in [0, size - 1] {
                    let what = format!("{len} bytes, rank {me} of {size}, root {root}, in place {in_place}");
                    let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, len)).collect();
                    let mut data = if me == root { input(root, len) } else { vec![0; len] };
                    at_once(host.broadcast(root, &mut data, &mut Thread)).unwrap();
                    assert!(data == input(root, len), "broadcast: {what}");

                    let mut output = if in_place { all.clone() } else { vec![0; all.len()] };
                    let (own, is_root) = (input(me, len), me == root);
                    let given = (!(in_place && is_root)).then_some(&own[..]);
                    let room = is_root.then_some((&mut output[..], Blocks::Equal(len)));
                    at_once(host.gather(root, given, room, &mut Thread)).unwrap();
                    assert!(!is_root || output == all, "gather: {what}");

                    let mut block = vec![0; len];
                    let room = (!(in_place && is_root)).then_some(&mut block[..]);
                    at_once(host.scatter(root, len, is_root.then_some(&all[..]), room, &mut Thread)).unwrap();
                    assert!((in_place && is_root) || block == own, "scatter: {what}");
                }
                let what = format!("{len} bytes, rank {me} of {size}, in place {in_place}");
                let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, len)).collect();
                let mut output = vec![0; all.len()];
                output[me * len..][..len].copy_from_slice(&input(me, len));
                let own = input(me, len);
                at_once(host.allgather(Blocks::Equal(len), (!in_place).then_some(&own[..]), &mut output, &mut Thread))
                    .unwrap();
                assert!(output == all, "allgather: {what}");

                let given: Vec<u8> = (0..size).flat_map(|rank| input(me * size + rank, len)).collect();
                let expected: Vec<u8> = (0..size).flat_map(|rank| input(rank * size + me, len)).collect();
                let mut output = if in_place { given.clone() } else { vec![0; given.len()] };
                at_once(host.alltoall(len, (!in_place).then_some(&given[..]), &mut output, &mut Thread)).unwrap();
                assert!(output == expected, "alltoall: {what}");
                at_once(host.barrier(&mut Thread)).unwrap();
            }
        });
    }
}

#[test]
fn reductions_keep_the_order_of_ranks() {
    for size in SIZES {
        run(size, |me, host| {
            for (len, in_place) in LENS.into_iter().flat_map(|len| [(len, false), (len, true)]) {
                let what = format!("{len} bytes, rank {me} of {size}, in place {in_place}");
                let own = input(me, len);
                let given = (!in_place).then_some(&own[..]);
                let output = || if in_place { own.clone() } else { vec![0; len] };
                for root in [0, size - 1] {
                    let (mut output, is_root) = (output(), me == root);
                    let given = if is_root { given } else { Some(&own[..]) };
                    let room = is_root.then_some(&mut output[..]);
                    at_once(host.reduce(root, given, room, 2, compose, &mut Thread)).unwrap();
                    assert!(!is_root || output == combined(size, len), "reduce: {what}, root {root}");
                }
                let mut all = output();
                at_once(host.allreduce(given, &mut all, 2, compose, &mut Thread)).unwrap();
                assert!(all == combined(size, len), "allreduce: {what}");

                let mut prefix = output();
                at_once(host.scan(given, &mut prefix, 2, compose, &mut Thread)).unwrap();
                assert!(prefix == combined(me + 1, len), "scan: {what}");
                let mut prefix = output();
                at_once(host.exscan(given, &mut prefix, 2, compose, &mut Thread)).unwrap();
                assert!(me == 0 || prefix == combined(me, len), "exscan: {what}");

                let blocks = Blocks::cut(len, 2, size);
                let mut block = if in_place { own.clone() } else { vec![0; blocks.len(me)] };
                at_once(host.reduce_scatter(given, &mut block, blocks, 2, compose, &mut Thread)).unwrap();
                let expected = &combined(size, len)[blocks.start(me)..][..blocks.len(me)];
                assert!(&block[..blocks.len(me)] == expected, "reduce_scatter: {what}");
            }
        });
    }
}

#[test]
fn arrays_too_long_for_the_root_alone_are_reduced_in_parts() {
    run(3, |me, host| {
        let len = super::reduce::ALONE / 2 + 2;
        let own = input(me, len);
        for (root, in_place) in [(0, false), (2, true)] {
            let mut output = if in_place { own.clone() } else { vec![0; len] };
            let room = (me == root).then_some(&mut output[..]);
            let given = (!(in_place && me == root)).then_some(&own[..]);
            at_once(host.reduce(root, given, room, 2, compose, &mut Thread)).unwrap();
            assert!(me != root || output == combined(3, len), "root {root}, rank {me}");
        }
    });
}

/// What some ranks do at once fits what others do by a future.
#[test]
fn few_bytes_fit_whatever_others_do() {
    // None, what a head takes, what lengths of their own are copied, what a small slot takes.
    const LENS: [usize; 7] = [0, 2, 4, 8, 40, 42, FEW];
    for size in SIZES {
        run(size, |me, host| {
            for turn in 0..200 {
                let (len, root, few) = (LENS[turn % LENS.len()], turn % size, (me + turn) % 3 > 0);
                let what = format!("{len} bytes, rank {me} of {size}, turn {turn}, few {few}");
                let (own, peers) = (input(me, len), &mut Thread);
                let in_place = turn % 5 == 0;
                let given = (!in_place).then_some(&own[..]);
                let output = || if in_place { own.clone() } else { vec![0; len] };

                let mut data = if me == root { input(turn, len) } else { vec![0; len] };
                match few {
                    true => host.broadcast_few(root, &mut data, peers),
                    false => at_once(host.broadcast(root, &mut data, peers)),
                }
                .unwrap();
                assert!(data == input(turn, len), "broadcast: {what}");

                let mut result = output();
                let room = (me == root).then_some(&mut result[..]);
                let own_part = if me == root { given } else { Some(&own[..]) };
                match few {
                    true => host.reduce_few(root, own_part, room, compose, peers),
                    false => at_once(host.reduce(root, own_part, room, 2, compose, peers)),
                }
                .unwrap();
                assert!(me != root || result == combined(size, len), "reduce: {what}");

                let mut result = output();
                match few {
                    true => host.allreduce_few(given, &mut result, 2, compose, peers),
                    false => at_once(host.allreduce(given, &mut result, 2, compose, peers)),
                }
                .unwrap();
                assert!(result == combined(size, len), "allreduce: {what}");

                let mut result = output();
                match few {
                    true => host.scan_few(given, &mut result, compose, peers),
                    false => at_once(host.scan(given, &mut result, 2, compose, peers)),
                }
                .unwrap();
                assert!(result == combined(me + 1, len), "scan: {what}");

                let mut result = output();
                match few {
                    true => host.exscan_few(given, &mut result, compose, peers),
                    false => at_once(host.exscan(given, &mut result, 2, compose, peers)),
                }
                .unwrap();
                assert!(me == 0 || result == combined(me, len), "exscan: {what}");

                let blocks = Blocks::cut(len, 2, size);
                let mut block = if in_place { own.clone() } else { vec![0; blocks.len(me)] };
                match few {
                    true => host.reduce_scatter_few(given, &mut block, blocks, 2, compose, peers),
                    false => at_once(host.reduce_scatter(given, &mut block, blocks, 2, compose, peers)),
                }
                .unwrap();
                let expected = &combined(size, len)[blocks.start(me)..][..blocks.len(me)];
                assert!(&block[..blocks.len(me)] == expected, "reduce_scatter: {what}");

                // Blocks for all, together no more than a few bytes.
                let len = len / size / 2;
                let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, len)).collect();
                let (own, blocks) = (input(me, len), Blocks::Equal(len));
                let mut output = vec![0; all.len()];
                let room = (me == root).then_some((&mut output[..], blocks));
                match few {
                    true => host.gather_few(root, Some(&own), room, peers),
                    false => at_once(host.gather(root, Some(&own), room, peers)),
                }
                .unwrap();
                assert!(me != root || output == all, "gather: {what}");

                let mut block = vec![0; len];
                let input_of_root = (me == root).then_some(&all[..]);
                match few {
                    true => host.scatter_few(root, len, input_of_root, Some(&mut block), peers),
                    false => at_once(host.scatter(root, len, input_of_root, Some(&mut block), peers)),
                }
                .unwrap();
                assert!(block == own, "scatter: {what}");

                let mut block = vec![0; len];
                let input_of_root = (me == root).then_some((&all[..], blocks));
                match few {
                    true => host.scatter_varying_few(root, input_of_root, Some(&mut block), peers),
                    false => at_once(host.scatter_varying(root, input_of_root, Some(&mut block), peers)),
                }
                .unwrap();
                assert!(block == own, "scatter_varying: {what}");

                let mut output = vec![0; all.len()];
                match few {
                    true => host.allgather_few(blocks, Some(&own), &mut output, peers),
                    false => at_once(host.allgather(blocks, Some(&own), &mut output, peers)),
                }
                .unwrap();
                assert!(output == all, "allgather: {what}");

                let given: Vec<u8> = (0..size).flat_map(|rank| input(me * size + rank, len)).collect();
                let expected: Vec<u8> = (0..size).flat_map(|rank| input(rank * size + me, len)).collect();
                let mut output = if in_place { given.clone() } else { vec![0; given.len()] };
                let from_us = (!in_place).then_some(&given[..]);
                match few {
                    true => host.alltoall_few(len, from_us, &mut output, peers),
                    false => at_once(host.alltoall(len, from_us, &mut output, peers)),
                }
                .unwrap();
                assert!(output == expected, "alltoall: {what}");

                let mut output = vec![0; all.len()];
                match few {
                    true => host.alltoall_varying_few((&given, blocks), (&mut output, blocks), peers),
                    false => at_once(host.alltoall_varying((Some(&given), blocks), (&mut output, blocks), peers)),
                }
                .unwrap();
                assert!(output == expected, "alltoall_varying: {what}");
                match few {
                    true => host.barrier_few(peers),
                    false => at_once(host.barrier(peers)),
                }
                .unwrap();
            }
        });
    }
}

#[test]
fn chains_of_any_length_stand_between_other_calls() {
    run(4, |me, host| {
        for turn in 0..40 {
            // Longer and shorter than a ring.
            for link in 0..turn * 5 {
                let mut prefix = [0; 2];
                let given = input(me + link, 2);
                match (me + turn) % 2 {
                    0 => host.scan_few(Some(&given), &mut prefix, compose, &mut Thread),
                    _ => at_once(host.scan(Some(&given), &mut prefix, 2, compose, &mut Thread)),
                }
                .unwrap();
                let mut expected = input(me + link, 2);
                (0..me).rev().for_each(|rank| compose(&mut expected, &input(rank + link, 2)));
                assert_eq!(prefix[..], expected, "rank {me}, turn {turn}, link {link}");
            }
            let mut data = if me == 3 { input(turn, 100) } else { vec![0; 100] };
            at_once(host.broadcast(3, &mut data, &mut Thread)).unwrap();
            assert_eq!(data, input(turn, 100));
        }
    });
}

#[test]
fn long_arrays_are_left_to_others_where_one_member_cannot_read() {
    let takes = run(3, |me, host| {
        at_once(host.allow_reads(me != 1, &mut Thread)).unwrap();
        (host.limits().take(SHORT), host.limits().take(SHORT_ALL + 1))
    });
    assert_eq!(takes, [(true, false); 3]);
}

#[test]
fn who_waits_long_sleeps_and_is_woken() {
    run(3, |me, host| {
        for turn in 0..20 {
            // Longer than anybody spins.
            if me == turn % 3 {
                let begin = std::time::Instant::now();
                while begin.elapsed() < std::time::Duration::from_millis(3) {
                    std::hint::spin_loop();
                }
            }
            at_once(host.barrier(&mut Thread)).unwrap();
        }
    });
}

/// A rank that does not wait in calls, and sleeps between turns as soon as it may.
struct Sleeper;

impl Peers for Sleeper {
    type Error = NonZeroU32;

    const WAITS: bool = false;

    fn turn(&mut self, _: impl Fn(usize) -> bool) -> Result<bool, NonZeroU32> {
        Ok(false)
    }

    fn sleep(&mut self) {
        unreachable!("it does not wait");
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn doze(&mut self) {}

    fn slept(&mut self, _: bool) {}

    fn wake(&mut self, member: usize) {
        Thread.wake(member);
    }

    fn read(&mut self, member: usize, address: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        Thread.read(member, address, into)
    }

    fn code(error: &NonZeroU32) -> NonZeroU32 {
        *error
    }

    fn error(code: NonZeroU32) -> NonZeroU32 {
        code
    }
}

fn sleeping<F: Future>(call: F) -> F::Output {
    let mut call = pin!(call);
    loop {
        if let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        std::thread::park();
    }
}

#[test]
fn who_sleeps_while_a_call_is_pending_is_woken() {
    for size in SIZES {
        run(size, |me, host| {
            for turn in 0..50 {
                let root = turn % size;
                let len = LENS[turn % LENS.len()];
                let mut data = if me == root { input(turn, len) } else { vec![0; len] };
                sleeping(host.broadcast(root, &mut data, &mut Sleeper)).unwrap();
                assert!(data == input(turn, len), "broadcast of rank {me}, turn {turn}");
                let mut all = vec![0; len];
                sleeping(host.allreduce(Some(&input(me, len)), &mut all, 2, compose, &mut Sleeper)).unwrap();
                assert!(all == combined(size, len), "allreduce of rank {me}, turn {turn}");
                sleeping(host.barrier(&mut Sleeper)).unwrap();
            }
        });
    }
}

#[test]
fn blocks_of_any_length_get_where_they_belong() {
    for size in SIZES {
        run(size, |me, host| {
            for most in LENS {
                // From none to the longest, and not alike among ranks.
                let len = |from: usize, to: usize| most * ((from + 2 * to) % (size + 1)) / size.max(2);
                let what = format!("up to {most} bytes, rank {me} of {size}");
                let given: Vec<u8> = (0..size).flat_map(|to| input(me * size + to, len(me, to))).collect();
                let expected: Vec<u8> = (0..size).flat_map(|from| input(from * size + me, len(from, me))).collect();
                let to: Vec<usize> = (0..size).map(|to| len(me, to)).collect();
                let from: Vec<usize> = (0..size).map(|from| len(from, me)).collect();
                let mut output = vec![0; expected.len()];
                let (to, from) = (Blocks::Lens(&to), Blocks::Lens(&from));
                at_once(host.alltoall_varying((Some(&given), to), (&mut output, from), &mut Thread)).unwrap();
                assert!(output == expected, "alltoall: {what}");

                let lens: Vec<usize> = (0..size).map(|rank| len(rank, 1)).collect();
                let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, lens[rank])).collect();
                let (own, blocks) = (input(me, lens[me]), Blocks::Lens(&lens));
                let mut output = vec![0; all.len()];
                at_once(host.allgather(blocks, Some(&own), &mut output, &mut Thread)).unwrap();
                assert!(output == all, "allgather: {what}");
                for root in [0, size - 1] {
                    let mut output = vec![0; all.len()];
                    let room = (me == root).then_some((&mut output[..], blocks));
                    at_once(host.gather(root, Some(&own), room, &mut Thread)).unwrap();
                    assert!(me != root || output == all, "gather: {what}, root {root}");
                    let mut block = vec![0; own.len()];
                    let given = (me == root).then_some((&all[..], blocks));
                    at_once(host.scatter_varying(root, given, Some(&mut block), &mut Thread)).unwrap();
                    assert!(block == own, "scatter: {what}, root {root}");
                }

                // In place, what comes is as long as what goes.
                let len = |a: usize, b: usize| most * ((a + b) % (size + 1)) / size.max(2);
                let lens: Vec<usize> = (0..size).map(|other| len(me, other)).collect();
                let mut data: Vec<u8> = (0..size).flat_map(|to| input(me * size + to, len(me, to))).collect();
                let expected: Vec<u8> = (0..size).flat_map(|from| input(from * size + me, len(me, from))).collect();
                let blocks = Blocks::Lens(&lens);
                at_once(host.alltoall_varying((None, blocks), (&mut data, blocks), &mut Thread)).unwrap();
                assert!(data == expected, "alltoall in place: {what}");
            }
        });
    }
}

#[test]
fn neighbours_of_a_ring_and_of_a_line_get_each_others_blocks() {
    for (size, periodic) in SIZES.into_iter().flat_map(|size| [(size, true), (size, false)]) {
        run(size, |me, host| {
            let around = |rank: usize, step: usize| {
                let there = rank + step;
                (periodic || (1..=size).contains(&there)).then_some((there + size - 1) % size)
            };
            let both = [around(me, 0), around(me, 2)];
            let ranks = both.map(|rank| rank.map(|rank| rank as u32));
            for len in LENS {
                let what = format!("{len} bytes, rank {me} of {size}, periodic {periodic}");
                let mut output = vec![9; 2 * len];
                let room = (&mut output[..], Blocks::Equal(len));
                let few = len + 2 * 4 <= FEW && me % 2 == 0;
                match few {
                    true => host.neighbor_allgather_few(&ranks, &input(me, len), room, &mut Thread),
                    false => at_once(host.neighbor_allgather((&ranks, &ranks), &input(me, len), room, &mut Thread)),
                }
                .unwrap();
                let of = |at: usize, bytes: &dyn Fn(usize) -> Vec<u8>| both[at].map_or(vec![9; len], bytes);
                let expected = [of(0, &|from| input(from, len)), of(1, &|from| input(from, len))].concat();
                assert!(output == expected, "allgather: {what}");

                let given = [input(2 * me, len), input(2 * me + 1, len)].concat();
                let mut output = vec![9; 2 * len];
                let blocks = Blocks::Equal(len);
                match few && 2 * len + 2 * 4 <= FEW {
                    true => host.neighbor_alltoall_few(&ranks, (&given, blocks), (&mut output, blocks), &mut Thread),
                    false => {
                        at_once(host.neighbor_alltoall(&ranks, (&given, blocks), (&mut output, blocks), &mut Thread))
                    }
                }
                .unwrap();
                // From the one before us what it sent forwards, from the one behind us what it sent backwards.
                let expected = [of(0, &|from| input(2 * from + 1, len)), of(1, &|from| input(2 * from, len))].concat();
                assert!(output == expected, "alltoall: {what}");
            }
        });
    }
}

/// What a rank does in a call.
type Part = fn(&mut Host) -> Result<(), NonZeroU32>;

#[test]
fn calls_that_do_not_fit_fail_everywhere() {
    let cases: [(&str, Part, Part); 8] = [
        (
            "another root, of few bytes",
            |host| host.broadcast_few(if host.me() == 2 { 1 } else { 0 }, &mut [0; 8], &mut Thread),
            |host| host.broadcast_few(0, &mut [0; 8], &mut Thread),
        ),
        (
            "a longer block, of few bytes",
            |host| host.scatter_varying_few(0, Some((&[0; 9], Blocks::Equal(3))), None, &mut Thread),
            |host| host.scatter_varying_few(0, None, Some(&mut [0; 4]), &mut Thread),
        ),
        (
            "another root",
            // The first one is what two expect of it, and nobody is what the last one does.
            |host| at_once(host.broadcast(if host.me() == 2 { 1 } else { 0 }, &mut [0; 8], &mut Thread)),
            |host| at_once(host.broadcast(0, &mut [0; 8], &mut Thread)),
        ),
        (
            "another length",
            |host| at_once(host.broadcast(0, &mut [0; 8], &mut Thread)),
            |host| at_once(host.broadcast(0, &mut vec![0; 100_000], &mut Thread)),
        ),
        (
            "another call",
            |host| at_once(host.broadcast(0, &mut [0; 8], &mut Thread)),
            |host| at_once(host.scatter(0, 8, None, Some(&mut [0; 8]), &mut Thread)),
        ),
        (
            "other counts",
            |host| at_once(host.allgather(Blocks::Lens(&[3, 4, 5]), Some(&[0; 3]), &mut [0; 12], &mut Thread)),
            |host| at_once(host.allgather(Blocks::Lens(&[3, 3, 6]), Some(&[0; 3]), &mut [0; 12], &mut Thread)),
        ),
        (
            "a longer block",
            |host| at_once(host.scatter_varying(0, Some((&[0; 9], Blocks::Equal(3))), None, &mut Thread)),
            |host| at_once(host.scatter_varying(0, None, Some(&mut [0; 4]), &mut Thread)),
        ),
        (
            "a longer array",
            |host| at_once(host.allreduce(None, &mut [0; 20_000], 1, |_, _| (), &mut Thread)),
            |host| at_once(host.allreduce(None, &mut [0; 30_000], 1, |_, _| (), &mut Thread)),
        ),
    ];
    for (what, most, odd) in cases {
        let ended = run(3, |me, host| {
            let done = if me == 1 { odd(host) } else { most(host) };
            // As who calls this does: and then all meet, if not in this call, then in the next one.
            let done = done.and_then(|()| at_once(host.barrier(&mut Thread)));
            if let Err(code) = done {
                host.fail(code);
                host.tell(&mut Thread);
            }
            done
        });
        assert_eq!(ended, [Err(DIFFER); 3], "{what}");
    }
}

#[test]
fn one_member_s_failure_is_everybody_s() {
    const WHY: NonZeroU32 = NonZeroU32::new(7).unwrap();
    let ended = run(5, |me, host| {
        if me == 3 {
            host.fail(WHY);
            host.tell(&mut Thread);
            return Err(WHY);
        }
        at_once(host.barrier(&mut Thread))
    });
    assert_eq!(ended, [Err(WHY); 5]);
}

#[test]
fn an_error_while_waiting_ends_the_call() {
    struct Gone;
    impl Peers for Gone {
        type Error = &'static str;

        const WAITS: bool = true;

        fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<bool, Self::Error> {
            if awaits(1) { Err("rank 1 is gone") } else { Ok(false) }
        }

        fn sleep(&mut self) {}

        fn may_sleep(&self) -> bool {
            false
        }

        fn doze(&mut self) {}

        fn slept(&mut self, _: bool) {}

        fn wake(&mut self, _: usize) {}

        fn read(&mut self, _: usize, _: u64, _: &mut [u8]) -> Result<(), Self::Error> {
            Ok(())
        }

        fn code(_: &Self::Error) -> NonZeroU32 {
            DIFFER
        }

        fn error(_: NonZeroU32) -> Self::Error {
            "calls do not fit"
        }
    }
    let mut host = Host::create(2).unwrap();
    assert_eq!(at_once(host.barrier(&mut Gone)), Err("rank 1 is gone"));
}
