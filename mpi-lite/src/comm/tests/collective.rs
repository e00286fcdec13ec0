//! Collective calls: the right bytes to the right place, for types apart in memory too.
#![allow(unsafe_code)] // Raw calls, on memory that the tests own.

use super::*;
use crate::coll::{Blocks, Call, Reduction};
use crate::datatype::{Datatype, Predefined};
use crate::op::{Op, UserOp};

const SIZE: u32 = 5;

fn numbers(rank: u32, len: usize) -> Vec<i64> {
    (0..len as i64).map(|index| index * 3 + i64::from(rank) * 1_000).collect()
}

/// Its packed copy is not unpacked over it: into memory here that nobody can write.
#[test]
fn what_the_root_of_a_broadcast_has_with_gaps_is_only_read() {
    static GIVEN: [u32; 4] = [1, 2, 3, 4];
    let call = Call::Broadcast { root: 1 };
    both_ways(3, |comm| {
        let every_second = Datatype::vector(2, 1, 2, &u32::datatype()).unwrap();
        for form in 0..3 {
            let mut room = [0; 4];
            let at = if comm.rank() == 1 { GIVEN.as_ptr().cast_mut() } else { room.as_mut_ptr() };
            let (given, data) = (Some(Elements::none()), Elements::at(at.cast(), 1, &every_second));
            // SAFETY: the room stays until the call is over, and the root's is only read.
            unsafe {
                match form {
                    0 => comm.call_raw(call, given, data, None).unwrap(),
                    1 => {
                        let mut begun = comm.start_call_raw(call, given, data, None).unwrap();
                        comm.local().wait(&mut begun).ok().unwrap();
                    }
                    _ => {
                        let mut call = comm.call_init_raw(call, given, data, None).unwrap();
                        call.start().unwrap();
                        call.wait().unwrap();
                    }
                }
            }
            assert_eq!(room, if comm.rank() == 1 { [0; 4] } else { [1, 0, 3, 0] });
        }
    });
}

#[test]
fn every_collective_gives_what_its_definition_says() {
    job(SIZE, |comm| {
        let (rank, size) = (comm.rank(), SIZE as usize);
        for len in [0, 1, 7, 5_000] {
            comm.barrier().unwrap();
            for root in [0, 3] {
                let mut data = if rank == root { numbers(9, len) } else { vec![0; len] };
                comm.broadcast(&mut data, root).unwrap();
                assert_eq!(data, numbers(9, len));
                let mut all = if rank == root { vec![0; size * len] } else { vec![] };
                comm.gather(&numbers(rank, len), &mut all, root).unwrap();
                if rank == root {
                    assert_eq!(all, (0..SIZE).flat_map(|rank| numbers(rank, len)).collect::<Vec<_>>());
                }
                let mut part = vec![0; len];
                comm.scatter(&all, &mut part, root).unwrap();
                assert_eq!(part, numbers(rank, len));
                let mut sum = vec![0; len];
                comm.reduce(&numbers(rank, len), &mut sum, &Op::Sum, root).unwrap();
                if rank == root {
                    let total = |index| numbers(0, len)[index] * 5 + 10_000;
                    assert!((0..len).all(|index| sum[index] == total(index)));
                }
            }
            let mut all = vec![0; size * len];
            comm.allgather(&numbers(rank, len), &mut all).unwrap();
            assert_eq!(all, (0..SIZE).flat_map(|rank| numbers(rank, len)).collect::<Vec<_>>());
            let to_all: Vec<i64> = (0..SIZE).flat_map(|to| numbers(10 * rank + to, len)).collect();
            comm.alltoall(&to_all, &mut all).unwrap();
            assert_eq!(all, (0..SIZE).flat_map(|from| numbers(10 * from + rank, len)).collect::<Vec<_>>());
            let (mut most, mut upto, mut below) = (vec![0; len], vec![0; len], vec![-1; len]);
            comm.allreduce(&numbers(rank, len), &mut most, &Op::Max).unwrap();
            assert_eq!(most, numbers(SIZE - 1, len));
            comm.scan(&numbers(rank, len), &mut upto, &Op::Sum).unwrap();
            comm.exscan(&numbers(rank, len), &mut below, &Op::Sum).unwrap();
            let sum = |ranks: u32| -> Vec<i64> {
                (0..len).map(|index| (0..ranks).map(|rank| numbers(rank, len)[index]).sum()).collect()
            };
            assert_eq!(upto, sum(rank + 1));
            assert_eq!(below, if rank == 0 { vec![-1; len] } else { sum(rank) });
            let mut block = vec![0; len];
            comm.reduce_scatter_block(&to_all, &mut block, &Op::Min).unwrap();
            assert_eq!(block, numbers(rank, len));
        }
    });
}

#[test]
fn blocks_may_have_different_lengths() {
    job(SIZE, |comm| {
        let rank = comm.rank();
        let counts: Vec<usize> = (0..SIZE as usize).map(|rank| rank * 2 % 5).collect();
        let own = numbers(rank, counts[rank as usize]);
        let everything: Vec<i64> = (0..SIZE).flat_map(|rank| numbers(rank, counts[rank as usize])).collect();
        let mut all = vec![0; everything.len()];
        comm.allgather_varying(&own, &mut all, &counts).unwrap();
        assert_eq!(all, everything);
        let mut at_root = if rank == 2 { vec![0; everything.len()] } else { vec![] };
        comm.gather_varying(&own, &mut at_root, &counts, 2).unwrap();
        assert_eq!(at_root, if rank == 2 { everything.clone() } else { vec![] });
        let mut back = vec![0; own.len()];
        comm.scatter_varying(&at_root, &mut back, &counts, 2).unwrap();
        assert_eq!(back, own);
        // Rank r sends r + s elements to s.
        let to: Vec<usize> = (0..SIZE).map(|to| (rank + to) as usize).collect();
        let data: Vec<i64> = (0..SIZE).flat_map(|to| numbers(10 * rank + to, (rank + to) as usize)).collect();
        let mut got = vec![0; data.len()];
        comm.alltoall_varying(&data, &mut got, &to, &to).unwrap();
        assert_eq!(
            got,
            (0..SIZE).flat_map(|from| numbers(10 * from + rank, (rank + from) as usize)).collect::<Vec<_>>()
        );
        let mut block = vec![0; counts[rank as usize]];
        comm.reduce_scatter(&everything, &mut block, &counts, &Op::Sum).unwrap();
        assert_eq!(block, own.iter().map(|value| value * 5).collect::<Vec<_>>());
    });
}

/// Strings of digits appended to each other: associative, and not commutative.
#[test]
fn operators_of_the_programs_own_see_the_ranks_order() {
    let append = Op::User(UserOp::new(false, |_, count, into, from| {
        for index in 0..count {
            let at = 16 * index..16 * index + 16;
            let (into, from) = (&mut into[at.clone()], &from[at]);
            let (have, more) = (from[0] as usize, into[0] as usize);
            into.copy_within(1..1 + more, 1 + have);
            into[1..1 + have].copy_from_slice(&from[1..1 + have]);
            into[0] += from[0];
        }
    }));
    job(7, |comm| {
        let mut own = [[0u8; 16]; 3];
        own.iter_mut().for_each(|text| text[..2].copy_from_slice(&[1, b'0' + comm.rank() as u8]));
        let mut all = [[0; 16]; 3];
        comm.allreduce(&own, &mut all, &append).unwrap();
        assert!(all.iter().all(|text| &text[..8] == b"\x070123456"));
        let mut upto = [[0; 16]; 3];
        comm.scan(&own, &mut upto, &append).unwrap();
        assert_eq!(upto[2][0] as u32, comm.rank() + 1);
    });
}

#[test]
fn what_an_operator_does_not_take_is_refused_by_all() {
    job(2, |comm| {
        let mut room = [0.0];
        assert_eq!(comm.allreduce(&[1.0], &mut room, &Op::Band), Err(ErrorClass::Op));
        assert_eq!(comm.reduce(&[1.0], &mut room, &Op::Sum, 2), Err(ErrorClass::Root));
        assert_eq!(comm.allgather(&[1.0], &mut room), Err(ErrorClass::Count));
        comm.allreduce(&[1.5], &mut room, &Op::Sum).unwrap();
        assert_eq!(room, [3.0]);
    });
}

/// The place of the largest value, in the C struct with a gap at its end.
#[test]
fn pairs_are_reduced_with_their_gaps() {
    job(3, |comm| {
        let kind = Predefined::DoubleInt;
        let mut own = vec![0u8; 2 * kind.extent()];
        for index in 0..2u32 {
            let at = index as usize * kind.extent();
            own[at..at + 8].copy_from_slice(&f64::from((comm.rank() + index) % 3).to_ne_bytes());
            own[at + 8..at + 12].copy_from_slice(&comm.rank().to_ne_bytes());
        }
        let mut result = vec![0x77; own.len()];
        let datatype: Datatype = kind.into();
        let call = Call::Allreduce { reduction: Reduction { element: kind.extent(), commutative: true } };
        let given = Elements::at(own.as_mut_ptr(), 2, &datatype);
        let room = Elements::at(result.as_mut_ptr(), 2, &datatype);
        // SAFETY: both are ours until this returns.
        unsafe { comm.call_raw(call, Some(given), room, Some((&datatype.clone().into(), &Op::Maxloc))) }.unwrap();
        let index = |at: usize| u32::from_ne_bytes(result[at + 8..at + 12].try_into().unwrap());
        assert_eq!((index(0), index(kind.extent())), (2, 1));
    });
}

/// Columns of everybody's matrix become rows at the root.
#[test]
fn elements_apart_are_gathered_where_they_belong() {
    job(3, |comm| {
        let byte = Predefined::Byte.into();
        let column = Datatype::vector(4, 1, 3, &byte).unwrap();
        let mut matrix: Vec<u8> = (0..12).map(|index| index + 20 * comm.rank() as u8).collect();
        // Ranks' rows lie at the root in the reverse order, with a gap.
        let mut rows = vec![0xff; 15];
        let pieces = [(10, 4), (5, 4), (0, 4)];
        let lens = [4; 3];
        let given = Elements::at(matrix[1..].as_mut_ptr(), 1, &column);
        let is_root = comm.rank() == 1;
        let call = Call::Gatherv { root: 1, blocks: is_root.then_some(Blocks::Lens(&lens)) };
        let room = if is_root { Elements::new(rows.as_mut_ptr(), &pieces, &byte) } else { Elements::none() };
        // SAFETY: both are ours until the call is over.
        let mut pending = unsafe { comm.start_call_raw(call, Some(given), room, None) }.unwrap();
        assert_eq!(comm.local().wait(&mut pending).error, None);
        if is_root {
            assert_eq!(rows, [41, 44, 47, 50, 255, 21, 24, 27, 30, 255, 1, 4, 7, 10, 255]);
        }
    });
}

/// A rank that waits for something else still serves collectives that others wait for.
#[test]
fn calls_under_way_go_on_whatever_a_rank_waits_for() {
    job(4, |comm| {
        let copy = comm.dup().unwrap();
        let (mut data, mut sum) = ([0u64; 3], [0u64; 3]);
        if comm.rank() == 0 {
            data = [7; 3];
        }
        comm.scope(|scope| {
            scope.broadcast(&mut data, 0)?;
            scope.allreduce(&[1; 3], &mut sum, &Op::Sum)?;
            if comm.rank() == 1 {
                // Others are through with the scope before they send this.
                copy.recv(&mut [0u8; 1], 3, 0)?;
            }
            Ok(())
        })
        .unwrap();
        if comm.rank() == 3 {
            copy.send(&[0u8], 1, 0).unwrap();
        }
        assert_eq!((data, sum), ([7; 3], [4; 3]));
    });
}

/// Rank 1 is between the root and others in a broadcast that they wait for, and waits itself in another call.
#[test]
fn calls_under_way_go_on_while_a_rank_is_in_another_call() {
    job(8, |comm| {
        let copy = comm.dup().unwrap();
        for same in [true, false] {
            let other = if same { &comm } else { &copy };
            let mut data = if comm.rank() == 0 { [9u64; 2] } else { [0; 2] };
            let begun = |early: bool| {
                let mut data = data;
                comm.scope(|scope| {
                    let request = scope.broadcast(&mut data, 0)?;
                    if !early {
                        request.wait()?;
                    }
                    other.barrier()
                })?;
                Ok::<_, ErrorClass>(data)
            };
            // Even ranks go into the barrier with the broadcast under way, odd ones only after it.
            data = begun(comm.rank() % 2 == 0).unwrap();
            assert_eq!(data, [9; 2]);
        }
    });
}

/// Two doubles apart, and no memory behind the last one's data: its gap is another's.
#[test]
fn a_users_operator_leaves_the_gaps_of_elements_alone() {
    let add = Op::User(UserOp::new(true, |datatype: &Datatype, count, into, from| {
        for at in (0..count).map(|element| element * datatype.extent() as usize) {
            let number = |bytes: &[u8]| f64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
            let sum = number(from) + number(into);
            into[at..at + 8].copy_from_slice(&sum.to_ne_bytes());
        }
    }));
    // The second one's data does not begin at its lower bound.
    let double = Datatype::from(Predefined::Double);
    let types = [double.resized(0, 16).unwrap(), double.resized(-8, 16).unwrap()];
    job(2, |comm| {
        for datatype in &types {
            let own = f64::from(comm.rank());
            let mut memory = [[own, -1.0 - own]; 10];
            let elements = Elements::at(memory.as_mut_ptr().cast(), 10, datatype);
            let operand = Operand::from(datatype.clone());
            let call = Call::Allreduce { reduction: operand.reduction(&add).unwrap() };
            // SAFETY: all elements' data is in `memory`, which nobody else uses.
            unsafe { comm.call_raw(call, None, elements.clone(), Some((&operand, &add))) }.unwrap();
            assert_eq!(memory, [[1.0, -1.0 - own]; 10]);
            // SAFETY: as above.
            let mut again = unsafe { comm.call_init_raw(call, None, elements, Some((&operand, &add))) }.unwrap();
            again.start().unwrap();
            again.wait().unwrap();
            assert_eq!(memory, [[2.0, -1.0 - own]; 10]);
        }
    });
}

/// Each rank is the root of its own calls: nobody is waited for.
#[test]
fn lengths_that_do_not_fit_are_refused_and_harm_nobody() {
    job(2, |comm| {
        let (rank, sum, ones) = (comm.rank(), &Op::Sum, [1, 1]);
        let ([one, two, three, four], room) = ([[0i64; 4]; 4], &mut [0i64; 4]);
        let (one, two, three) = (&one[..1], &two[..2], &three[..3]);
        let refused = [
            comm.reduce(two, &mut room[..1], sum, rank),
            comm.allreduce(two, &mut room[..3], sum),
            comm.scan(two, &mut room[..1], sum),
            comm.exscan(two, &mut room[..1], sum),
            comm.reduce_scatter_block(three, &mut room[..1], sum),
            comm.reduce_scatter(three, &mut room[..1], &ones, sum),
            comm.reduce_scatter(two, &mut room[..1], &[2], sum),
            comm.reduce_scatter(two, &mut room[..2], &ones, sum),
            comm.gather(one, &mut room[..3], rank),
            comm.gather_varying(one, &mut room[..3], &ones, rank),
            comm.scatter(three, &mut room[..1], rank),
            comm.scatter_varying(three, &mut room[..1], &ones, rank),
            comm.allgather(one, &mut room[..4]),
            comm.allgather_varying(one, &mut room[..3], &ones),
            comm.allgather_varying(two, &mut room[..2], &ones),
            comm.alltoall(three, &mut room[..3]),
            comm.alltoall(two, &mut room[..4]),
            comm.alltoall_varying(three, &mut room[..2], &ones, &ones),
            comm.alltoall_varying(two, &mut room[..3], &ones, &ones),
        ];
        assert_eq!(refused, [Err(ErrorClass::Count); 19]);
        assert_eq!((comm.alltoall(&four[..2], &mut room[..2]), comm.barrier()), (Ok(()), Ok(())));
    });
}

/// By messages, as between hosts.
#[test]
fn all_ranks_get_the_same_also_of_what_has_no_order() {
    for size in 2..=5 {
        in_threads(size, &Config::default(), true, |comm| {
            for odd in 0..size {
                let is_odd = comm.rank() == odd;
                let given = if is_odd { [f64::NAN, -0.0] } else { [1.0, 0.0] };
                for op in [Op::Max, Op::Min] {
                    let mut result = [0.0; 2];
                    comm.allreduce(&given, &mut result, &op).unwrap();
                    let mut all = vec![[0; 2]; size as usize];
                    comm.allgather(&[result.map(f64::to_bits)], &mut all).unwrap();
                    assert!(all.iter().all(|each| *each == all[0]), "{op:?}, {size} ranks, odd is {odd}: {all:x?}");
                }
            }
        });
    }
}

/// MPI-5.0 12.3.4: `MPI_REPLACE` and `MPI_NO_OP` are for accumulates.
#[test]
fn reductions_refuse_what_is_of_accumulates_only() {
    job(2, |comm| {
        for op in [Op::Replace, Op::NoOp] {
            let mut sum = [0u64];
            let refused = [
                comm.allreduce(&[1u64], &mut sum, &op),
                comm.reduce(&[1u64; 999], &mut [0; 999], &op, 0),
                comm.scope(|scope| scope.scan(&[1u64], &mut sum, &op).map(drop)),
                comm.allreduce_in_place_init(vec![1u64], &op).map(drop),
            ];
            assert_eq!(refused, [Err(ErrorClass::Op); 4], "{op:?}");
        }
        comm.barrier().unwrap();
    });
}
