//! Calls with a piece of memory for each rank or neighbour, of datatypes of their own: against what packing and unpacking them one
//! by one gives.
#![allow(unsafe_code)] // Raw calls, on memory that the tests own.

mod model;
mod neighbors;
mod placed;
mod refusals;

use super::*;
use crate::coll::{Blocks, Call};
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use model::{Part, exchanged, exchanged_in_place};

const SEEDS: u64 = 6;

#[test]
fn each_piece_goes_where_it_belongs_whatever_its_types_are() {
    for size in 1..=9 {
        both_ways(size, |comm| {
            let rank = comm.rank();
            for seed in 0..SEEDS {
                let what = format!("seed {seed}, rank {rank} of {size}");
                let Part { to, given, from, mut room } = Part::of_all(seed, rank, size);
                comm.alltoall_pieces(&given, &mut room, &to, &from).unwrap();
                assert!(room == exchanged(seed, rank, size), "{what}");
                let Part { from: pieces, mut room, .. } = Part::in_place(seed, rank, size);
                comm.alltoall_pieces_in_place(&mut room, &pieces).unwrap();
                assert!(room == exchanged_in_place(seed, rank, size), "in place, {what}");
            }
        });
    }
}

#[test]
fn calls_begun_in_a_scope_go_on_beside_others() {
    for size in [1, 2, 5, 8] {
        both_ways(size, |comm| {
            let rank = comm.rank();
            for seed in 100..100 + SEEDS {
                let mut first = Part::of_all(seed, rank, size);
                let mut second = Part::of_all(seed + 1_000, rank, size);
                let mut third = Part::in_place(seed, rank, size);
                let (mut sum, mut told) = ([rank], [seed ^ u64::from(rank)]);
                let (to_next, from_before) = ((rank + 1) % size, (rank + size - 1) % size);
                let (own, mut came) = ([rank], [0u32]);
                comm.scope(|scope| {
                    scope.alltoall_pieces(&first.given, &mut first.room, &first.to, &first.from)?;
                    scope.allreduce_in_place(&mut sum, &Op::Sum)?;
                    scope.send(&own, to_next, 3)?;
                    let request = scope.alltoall_pieces(&second.given, &mut second.room, &second.to, &second.from)?;
                    scope.alltoall_pieces_in_place(&mut third.room, &third.from)?;
                    scope.broadcast(&mut told, 0)?;
                    // One that waits, with all of those under way.
                    comm.barrier()?;
                    scope.recv(&mut came, from_before, 3)?;
                    if rank % 2 == 1 {
                        request.wait()?;
                    }
                    Ok(())
                })
                .unwrap();
                let what = format!("seed {seed}, rank {rank} of {size}");
                assert!(first.room == exchanged(seed, rank, size), "first, {what}");
                assert!(second.room == exchanged(seed + 1_000, rank, size), "second, {what}");
                assert!(third.room == exchanged_in_place(seed, rank, size), "in place, {what}");
                assert_eq!((sum, told, came), ([(0..size).sum()], [seed], [from_before]));
            }
        });
    }
}

#[test]
fn persistent_calls_give_what_is_there_at_each_start() {
    for size in [1, 2, 4, 7] {
        both_ways(size, |comm| {
            let rank = comm.rank();
            for seed in 200..200 + SEEDS {
                let Part { to, given, from, room } = Part::of_all(seed, rank, size);
                let mut call = comm.alltoall_pieces_init(given.clone(), room.clone(), &to, &from).unwrap();
                let in_place = Part::in_place(seed, rank, size);
                let mut there = comm.alltoall_pieces_in_place_init(in_place.room.clone(), &in_place.from).unwrap();
                for round in 0u8..3 {
                    // All ranks' bytes are others each time.
                    let turned = |bytes: &[u8]| -> Vec<u8> { bytes.iter().map(|byte| byte ^ round).collect() };
                    call.given().unwrap().copy_from_slice(&turned(&given));
                    call.room().unwrap().copy_from_slice(&turned(&room));
                    there.room().unwrap().copy_from_slice(&turned(&in_place.room));
                    let mut both = [call.request(), there.request()];
                    if rank % 2 == 1 {
                        both.reverse();
                    }
                    Persistent::start_all(both).unwrap();
                    there.wait().unwrap();
                    call.wait().unwrap();
                    let what = format!("seed {seed}, round {round}, rank {rank} of {size}");
                    assert!(call.room().unwrap() == turned(&exchanged(seed, rank, size)), "{what}");
                    assert!(there.room().unwrap() == turned(&exchanged_in_place(seed, rank, size)), "in place, {what}");
                }
            }
        });
    }
}

/// A matrix of columns here becomes rows there: numbers, not bytes.
#[test]
fn a_matrix_is_transposed_over_ranks() {
    const SIZE: usize = 3;
    both_ways(SIZE as u32, |comm| {
        let number: Datatype = Predefined::Double.into();
        let column = Datatype::vector(SIZE, 1, SIZE as isize, &number).unwrap();
        let rank = comm.rank() as usize;
        let matrix: Vec<f64> = (0..SIZE * SIZE).map(|at| (100 * rank + at) as f64).collect();
        let to: Vec<Piece> = (0..SIZE).map(|at| Piece::new(8 * at as isize, 1, &column)).collect();
        let from: Vec<Piece> = (0..SIZE).map(|at| Piece::new((8 * SIZE * at) as isize, SIZE, &number)).collect();
        let mut rows = vec![0.0; SIZE * SIZE];
        comm.alltoall_pieces(&matrix, &mut rows, &to, &from).unwrap();
        let expected = |row: usize, at: usize| (100 * row + at * SIZE + rank) as f64;
        assert!((0..SIZE * SIZE).all(|at| rows[at] == expected(at / SIZE, at % SIZE)), "{rows:?}");
    });
}

#[test]
fn a_piece_is_sent_and_received_without_what_is_beside_it() {
    both_ways(2, |comm| {
        let number: Datatype = Predefined::Int32.into();
        let (column, row) = (Datatype::vector(3, 1, 3, &number).unwrap(), Piece::new(12, 3, &number));
        let other = 1 - comm.rank();
        let matrix = [0, 1, 2, 10, 11, 12, 20, 21, 22].map(|cell: i32| cell + 100 * comm.rank() as i32);
        let last = Piece::new(8, 1, &column);
        let (mut waited, mut scoped) = ([-1; 9], [-1; 9]);
        if comm.rank() == 0 {
            comm.send_piece(&matrix, &last, other, 1).unwrap();
            assert_eq!(comm.recv_piece(&mut waited, &row, other, 1).unwrap().bytes, 12);
        } else {
            comm.recv_piece(&mut waited, &row, other, 1).unwrap();
            comm.send_piece(&matrix, &last, other, 1).unwrap();
        }
        comm.scope(|scope| {
            scope.recv_piece(&mut scoped, &row, other, 2)?;
            scope.send_piece(&matrix, &last, other, 2).map(drop)
        })
        .unwrap();
        let [a, b, c] = [2, 12, 22].map(|cell| cell + 100 * other as i32);
        assert_eq!([waited, scoped], [[-1, -1, -1, a, b, c, -1, -1, -1]; 2]);
        for bad in [Piece::new(12, 1, &column), Piece::new(-1, 1, &number), Piece::new(33, 1, &number)] {
            assert_eq!(comm.send_piece(&matrix, &bad, other, 3), Err(ErrorClass::Buffer));
            assert_eq!(comm.recv_piece(&mut waited, &bad, other, 3).map(drop), Err(ErrorClass::Buffer));
            let begun = comm.scope(|scope| scope.recv_piece(&mut scoped, &bad, other, 3).map(drop));
            assert_eq!(begun, Err(ErrorClass::Buffer));
        }
    });
}

/// What C's `MPI_Alltoallw` is: pieces at absolute addresses (`MPI_BOTTOM`), in one call.
#[test]
fn pieces_at_addresses_are_exchanged_by_raw_calls() {
    both_ways(2, |comm| {
        let (int, other) = (Predefined::Int32.into(), 1 - comm.rank() as usize);
        let given = [vec![comm.rank() as i32; 3], vec![10 + comm.rank() as i32; 3]];
        let mut rooms = [vec![-1i32; 3], vec![-1i32; 3]];
        let at = |address: *mut i32| Piece::new(address.expose_provenance() as isize, 3, &int);
        let to = given.each_ref().map(|data| at(data.as_ptr().cast_mut()));
        let from = rooms.each_mut().map(|data| at(data.as_mut_ptr()));
        let [to_lens, from_lens] = [&to, &from].map(|pieces| Piece::lens(pieces).unwrap());
        let call = Call::Alltoallv { to: Blocks::Lens(&to_lens), from: Blocks::Lens(&from_lens) };
        let [given_at, room_at] = [&to, &from].map(|pieces| Elements::each(std::ptr::null_mut(), pieces));
        // SAFETY: all four are ours, and live until this returns.
        unsafe { comm.call_raw(call, Some(given_at), room_at, None) }.unwrap();
        let mine = comm.rank() as i32 * 10;
        assert_eq!(rooms[other], [other as i32 + mine; 3]);
        assert_eq!(rooms[1 - other], [comm.rank() as i32 + mine; 3]);
    });
}
