//! Threads as ranks: the memory between them is mapped once for each.

use std::convert::Infallible;
use std::sync::Barrier;

use super::*;
use crate::coll::Blocks;

/// A rank that reads its own process's memory.
struct Thread;

impl Peers for Thread {
    type Error = Infallible;

    fn turn(&mut self, _: impl Fn(usize) -> bool) -> Result<(), Infallible> {
        Ok(())
    }

    fn read(&mut self, _: usize, address: u64, into: &mut [u8]) -> Result<(), Infallible> {
        // As between processes: the kernel copies, so that no reference is made to what another thread has.
        let file = std::fs::File::open("/proc/self/mem").unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, into, address).unwrap();
        Ok(())
    }
}

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
                    all_have_joined.wait();
                    host.allow_reads(true, &mut Thread).unwrap();
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
const LENS: [usize; 6] = [0, 2, 1000, SHORT, SHORT + 2, 3 * PIECE + 10];

#[test]
fn data_gets_where_it_belongs() {
    for size in SIZES {
        run(size, |me, host| {
            for (len, in_place) in LENS.into_iter().flat_map(|len| [(len, false), (len, true)]) {
                for root in [0, size - 1] {
                    let what = format!("{len} bytes, rank {me} of {size}, root {root}, in place {in_place}");
                    let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, len)).collect();
                    let mut data = if me == root { input(root, len) } else { vec![0; len] };
                    host.broadcast(root, &mut data, &mut Thread).unwrap();
                    assert!(data == input(root, len), "broadcast: {what}");

                    let mut output = if in_place { all.clone() } else { vec![0; all.len()] };
                    let (own, is_root) = (input(me, len), me == root);
                    let given = (!(in_place && is_root)).then_some(&own[..]);
                    host.gather(root, len, given, is_root.then_some(&mut output[..]), &mut Thread).unwrap();
                    assert!(!is_root || output == all, "gather: {what}");

                    let mut block = vec![0; len];
                    let room = (!(in_place && is_root)).then_some(&mut block[..]);
                    host.scatter(root, len, is_root.then_some(&all[..]), room, &mut Thread).unwrap();
                    assert!((in_place && is_root) || block == own, "scatter: {what}");
                }
                let what = format!("{len} bytes, rank {me} of {size}, in place {in_place}");
                let all: Vec<u8> = (0..size).flat_map(|rank| input(rank, len)).collect();
                let mut output = vec![0; all.len()];
                output[me * len..][..len].copy_from_slice(&input(me, len));
                let own = input(me, len);
                host.allgather(len, (!in_place).then_some(&own[..]), &mut output, &mut Thread).unwrap();
                assert!(output == all, "allgather: {what}");

                let given: Vec<u8> = (0..size).flat_map(|rank| input(me * size + rank, len)).collect();
                let expected: Vec<u8> = (0..size).flat_map(|rank| input(rank * size + me, len)).collect();
                let mut output = if in_place { given.clone() } else { vec![0; given.len()] };
                host.alltoall(len, (!in_place).then_some(&given[..]), &mut output, &mut Thread).unwrap();
                assert!(output == expected, "alltoall: {what}");
                host.barrier(&mut Thread).unwrap();
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
                    host.reduce(given, room, 2, compose, &mut Thread).unwrap();
                    assert!(!is_root || output == combined(size, len), "reduce: {what}, root {root}");
                }
                let mut all = output();
                host.allreduce(given, &mut all, 2, compose, &mut Thread).unwrap();
                assert!(all == combined(size, len), "allreduce: {what}");

                for (inclusive, name) in [(true, "scan"), (false, "exscan")] {
                    let with = usize::from(inclusive);
                    let mut prefix = output();
                    host.scan(inclusive, given, &mut prefix, 2, compose, &mut Thread).unwrap();
                    assert!(me + with == 0 || prefix == combined(me + with, len), "{name}: {what}");
                }

                let blocks = Blocks::cut(len, 2, size);
                let mut block = if in_place { own.clone() } else { vec![0; blocks.len(me)] };
                host.reduce_scatter(given, &mut block, blocks, 2, compose, &mut Thread).unwrap();
                let expected = &combined(size, len)[blocks.start(me)..][..blocks.len(me)];
                assert!(&block[..blocks.len(me)] == expected, "reduce_scatter: {what}");
            }
        });
    }
}

#[test]
fn long_arrays_are_left_to_others_where_one_member_cannot_read() {
    let takes = run(3, |me, host| {
        host.allow_reads(me != 1, &mut Thread).unwrap();
        (host.takes(SHORT), host.takes(SHORT + 1))
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
            host.barrier(&mut Thread).unwrap();
        }
    });
}

#[test]
fn an_error_while_waiting_ends_the_call() {
    struct Gone;
    impl Peers for Gone {
        type Error = &'static str;

        fn turn(&mut self, awaits: impl Fn(usize) -> bool) -> Result<(), Self::Error> {
            if awaits(1) { Err("rank 1 is gone") } else { Ok(()) }
        }

        fn read(&mut self, _: usize, _: u64, _: &mut [u8]) -> Result<(), Self::Error> {
            Ok(())
        }
    }
    let mut host = Host::create(2).unwrap();
    assert_eq!(host.barrier(&mut Gone), Err("rank 1 is gone"));
}
