//! Collective calls between two groups.

use super::*;
use crate::datatype::Predefined;
use crate::op::Op;

/// Two groups of a job of `left + right` ranks, and whether we are on the left. Ranks of the right come first in the world.
fn between(left: u32, right: u32, each: impl Fn(Communicator, bool) + Sync) {
    job(left + right, |comm| {
        let is_left = comm.rank() >= right;
        let part = comm.split(Some(is_left.into()), 0).unwrap().unwrap();
        let other = if is_left { 0 } else { right };
        each(part.intercomm(0, &comm, other, 0).unwrap(), is_left);
    });
}

/// What rank `rank` of a side gives.
fn numbers(is_left: bool, rank: u32, len: usize) -> Vec<i64> {
    (0..len as i64).map(|index| index + 100 * i64::from(rank) + if is_left { 10_000 } else { 0 }).collect()
}

/// Of all ranks of a side.
fn all(is_left: bool, ranks: u32, len: usize) -> Vec<i64> {
    (0..ranks).flat_map(|rank| numbers(is_left, rank, len)).collect()
}

/// The root is on the left.
fn root(comm: &Communicator, is_left: bool, rank: u32) -> Root {
    match is_left {
        true if comm.rank() == rank => Root::Here,
        true => Root::Elsewhere,
        false => Root::Rank(rank),
    }
}

const SIZES: [(u32, u32); 4] = [(1, 1), (2, 3), (3, 1), (4, 2)];

#[test]
fn roots_give_to_the_other_group_and_get_from_it() {
    for (left, right) in SIZES {
        between(left, right, |comm, is_left| {
            let rank = comm.rank();
            for (at, len) in [(0, 5), (left - 1, 3_000)] {
                let (place, is_root) = (root(&comm, is_left, at), is_left && rank == at);
                let mut data = if is_root { numbers(true, at, len) } else { vec![-1; len] };
                comm.broadcast(&mut data, place).unwrap();
                let expected = if is_root || !is_left { numbers(true, at, len) } else { vec![-1; len] };
                assert_eq!(data, expected);
                let mut sum = vec![-1; if is_root { len } else { 0 }];
                comm.reduce(&numbers(is_left, rank, len), &mut sum, &Op::Sum, place).unwrap();
                let mut gathered = vec![-1; if is_root { right as usize * len } else { 0 }];
                comm.gather(&numbers(is_left, rank, len), &mut gathered, place).unwrap();
                let counts: Vec<usize> = (0..right as usize).map(|rank| rank * 2 % 3).collect();
                let total: usize = counts.iter().sum();
                let count = if is_left { 0 } else { counts[rank as usize] };
                let mut varying = vec![-1; if is_root { total } else { 0 }];
                comm.gather_varying(&numbers(is_left, rank, count), &mut varying, &counts, place).unwrap();
                if is_root {
                    assert_eq!(gathered, all(false, right, len));
                    let of = |index| (0..right).map(|rank| numbers(false, rank, len)[index]).sum::<i64>();
                    assert!((0..len).all(|index| sum[index] == of(index)));
                    let expected: Vec<i64> =
                        (0..right).flat_map(|rank| numbers(false, rank, counts[rank as usize])).collect();
                    assert_eq!(varying, expected);
                }
                let (mut part, mut own) = (vec![-1; len], vec![-1; count]);
                comm.scatter(&gathered, &mut part, place).unwrap();
                comm.scatter_varying(&varying, &mut own, &counts, place).unwrap();
                if !is_left {
                    assert_eq!((part, own), (numbers(false, rank, len), numbers(false, rank, count)));
                }
            }
        });
    }
}

#[test]
fn each_group_gets_what_the_other_gives() {
    for (left, right) in SIZES {
        between(left, right, |comm, is_left| {
            let (rank, len) = (comm.rank(), 12);
            let (here, there) = if is_left { (left, right) } else { (right, left) };
            for _ in 0..3 {
                comm.barrier().unwrap();
                // Both sides may give different lengths.
                let (mine, theirs) = if is_left { (len, 5) } else { (5, len) };
                let mut got = vec![-1; theirs * there as usize];
                comm.allgather(&numbers(is_left, rank, mine), &mut got).unwrap();
                assert_eq!(got, all(!is_left, there, theirs));
                let counts: Vec<usize> = (0..there as usize).map(|rank| rank + 1).collect();
                let mut got = vec![-1; counts.iter().sum()];
                comm.allgather_varying(&numbers(is_left, rank, rank as usize + 1), &mut got, &counts).unwrap();
                let expected: Vec<i64> =
                    (0..there).flat_map(|rank| numbers(!is_left, rank, rank as usize + 1)).collect();
                assert_eq!(got, expected);
                let mut sum = vec![-1; len];
                comm.allreduce(&numbers(is_left, rank, len), &mut sum, &Op::Sum).unwrap();
                let of = |index: usize| (0..there).map(|rank| numbers(!is_left, rank, len)[index]).sum::<i64>();
                let total: Vec<i64> = (0..len).map(of).collect();
                assert_eq!(sum, total);
                // Cut into the blocks of our own ranks.
                let block = len / here as usize;
                let mut part = vec![-1; block];
                comm.reduce_scatter_block(&numbers(is_left, rank, len), &mut part, &Op::Sum).unwrap();
                assert_eq!(part, total[block * rank as usize..][..block]);
                // Rank r has 10 r + s for rank s there.
                let to: Vec<i64> = (0..there).map(|to| i64::from(10 * rank + to)).collect();
                let mut got = vec![-1; there as usize];
                comm.alltoall(&to, &mut got).unwrap();
                let expected: Vec<i64> = (0..there).map(|from| i64::from(10 * from + rank)).collect();
                assert_eq!(got, expected);
                let mut scoped = vec![-1; there as usize];
                let ones = vec![1; there as usize];
                comm.scope(|scope| {
                    scope.alltoall_varying(&to, &mut scoped, &ones, &ones)?;
                    scope.barrier().map(drop)
                })
                .unwrap();
                assert_eq!(scoped, expected);
                // The same backwards, as bytes from left to right.
                let [to_pieces, from_pieces] = [is_left, !is_left].map(|bytes| {
                    let of = if bytes { Predefined::Byte } else { Predefined::Int64 };
                    let piece = |rank| {
                        let at = 8 * (there - 1 - rank) as isize;
                        Piece::new(at, if bytes { 8 } else { 1 }, &of.into())
                    };
                    (0..there).map(piece).collect::<Vec<_>>()
                });
                let backwards: Vec<i64> = to.iter().rev().copied().collect();
                let (mut waited, mut scoped) = (vec![-1; there as usize], vec![-1; there as usize]);
                comm.alltoall_pieces(&backwards, &mut waited, &to_pieces, &from_pieces).unwrap();
                comm.scope(|scope| {
                    scope.alltoall_pieces(&backwards, &mut scoped, &to_pieces, &from_pieces)?;
                    scope.barrier().map(drop)
                })
                .unwrap();
                let expected: Vec<i64> = expected.iter().rev().copied().collect();
                assert_eq!((waited, scoped), (expected.clone(), expected));
            }
        });
    }
}

/// Who is not in the left's way may not pass before its last rank has come.
#[test]
fn a_barrier_waits_for_the_other_group() {
    between(2, 2, |comm, is_left| {
        if is_left && comm.rank() == 1 {
            // The others are told, by rank 0 of the right, that it has not passed.
            let mut told = [0u8];
            comm.recv(&mut told, 0, 5).unwrap();
            comm.barrier().unwrap();
        } else {
            comm.scope(|scope| {
                let mut barrier = scope.barrier()?;
                if !is_left && comm.rank() == 0 {
                    for _ in 0..1_000 {
                        assert_eq!(barrier.test()?, None);
                    }
                    comm.send(&[1u8], 1, 5)?;
                }
                barrier.wait().map(drop)
            })
            .unwrap();
        }
    });
}

#[test]
fn calls_that_are_not_defined_between_groups_are_refused() {
    between(1, 2, |comm, _| {
        assert_eq!(comm.scan(&[1], &mut [0], &Op::Sum), Err(ErrorClass::Comm));
        assert_eq!(comm.allreduce_in_place(&mut [1], &Op::Sum), Err(ErrorClass::Comm));
        assert_eq!(comm.reduce_in_place(&mut [1], &Op::Sum, 0), Err(ErrorClass::Comm));
        let mut all = vec![0u8; comm.remote_group().unwrap().size() as usize];
        let ones = vec![1; all.len()];
        assert_eq!(comm.allgather_in_place(&mut all), Err(ErrorClass::Comm));
        assert_eq!(comm.allgather_varying_in_place(&mut all, &ones), Err(ErrorClass::Comm));
        assert_eq!(comm.alltoall_in_place(&mut all), Err(ErrorClass::Comm));
        assert_eq!(comm.alltoall_varying_in_place(&mut all, &ones), Err(ErrorClass::Comm));
        let pieces = vec![Piece::none(); comm.remote_group().unwrap().size() as usize];
        assert_eq!(comm.alltoall_pieces_in_place(&mut [0u8], &pieces), Err(ErrorClass::Comm));
        assert_eq!(comm.neighbor_alltoall_pieces(&[0u8], &mut [0], &pieces, &pieces), Err(ErrorClass::Topology));
        assert_eq!([comm.cartesian_rank(&[]), comm.graph_rank(&[], &[])], [Err(ErrorClass::Comm); 2]);
        let topologies = [
            comm.cartesian(&[]).map(drop),
            comm.graph(&[], &[]).map(drop),
            comm.dist_graph(&[], false).map(drop),
            comm.dist_graph_adjacent(vec![], vec![], false).map(drop),
        ];
        assert_eq!(topologies, [Err(ErrorClass::Comm); 4]);
        assert_eq!(comm.broadcast(&mut [0], 7), Err(ErrorClass::Root));
    });
}
