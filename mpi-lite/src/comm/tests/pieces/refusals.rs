//! Pieces that do not fit, and calls that come to nothing.
#![allow(unsafe_code)] // A type of the tests' own.

use super::*;
use crate::comm::cartesian::Side;

/// A byte and a number, with a gap between them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Gapped(u8, u32);

crate::equivalence!(Gapped { 0, 1 });

#[test]
fn pieces_that_do_not_fit_are_refused_before_anything_is_sent() {
    both_ways(2, |comm| {
        let byte: Datatype = Predefined::Byte.into();
        let rank = comm.rank() as usize;
        let piece = |at, count| Piece::new(at, count, &byte);
        let good = [piece(0, 2), piece(2, 2)];
        let (data, mut room) = ([1u8; 4], [0u8; 4]);
        let mut call = |to: &[Piece], from: &[Piece]| {
            let mut scoped = room;
            let begun = comm.scope(|scope| scope.alltoall_pieces(&data, &mut scoped, to, from).map(drop));
            assert_eq!(comm.alltoall_pieces_init(data.to_vec(), room.to_vec(), to, from).map(drop), begun);
            assert_eq!(comm.alltoall_pieces(&data, &mut room, to, from), begun);
            begun
        };
        assert_eq!(call(&good[..1], &good), Err(ErrorClass::Count));
        assert_eq!(call(&good, &good[..1]), Err(ErrorClass::Count));
        for (at, count) in [(-1, 2), (3, 2), (0, 5), (4, 1), (isize::MAX, 2), (isize::MIN, 2)] {
            let bad = [piece(at, count), piece(at, count)];
            assert_eq!(call(&bad, &good), Err(ErrorClass::Buffer));
            assert_eq!(call(&good, &bad), Err(ErrorClass::Buffer));
        }
        assert_eq!(call(&[piece(0, usize::MAX), Piece::none()], &good), Err(ErrorClass::Count));
        let mut longer = good.clone();
        longer[rank] = piece(0, 3);
        assert_eq!(call(&longer, &good), Err(ErrorClass::Count), "more for ourselves than we take");
        let mut gapped = [Gapped(1, 2); 2];
        assert_eq!(comm.alltoall_pieces(&gapped.clone(), &mut gapped, &good, &good), Err(ErrorClass::Type));
        assert_eq!(comm.alltoall_pieces_in_place(&mut gapped, &good), Err(ErrorClass::Type));
        assert_eq!(comm.neighbor_alltoall_pieces(&data, &mut room, &good, &good), Err(ErrorClass::Topology));
        assert_eq!(comm.neighbor_alltoall_varying(&data, &mut room, &[2, 2], &[2, 2]), Err(ErrorClass::Topology));
        assert_eq!(comm.neighbor_allgather_varying(&data, &mut room, &[2, 2]), Err(ErrorClass::Topology));
        let ring = comm.cartesian(&[Side { size: 2, periodic: true }]).unwrap().unwrap();
        assert_eq!(ring.neighbor_alltoall_pieces(&data, &mut room, &good[..1], &good), Err(ErrorClass::Count));
        assert_eq!(ring.neighbor_alltoall_varying(&data, &mut room, &[2, 1], &[2, 2]), Err(ErrorClass::Count));
        assert_eq!(ring.neighbor_alltoall_varying(&data, &mut room, &[2, 2], &[4]), Err(ErrorClass::Count));
        assert_eq!(ring.neighbor_allgather_varying(&data, &mut room, &[2, 1]), Err(ErrorClass::Count));
        assert_eq!(ring.neighbor_allgather(&data, &mut room[..3]), Err(ErrorClass::Count));
        assert_eq!(ring.neighbor_alltoall(&data[..3], &mut room), Err(ErrorClass::Count));
        assert_eq!(ring.neighbor_alltoall(&data, &mut room[..3]), Err(ErrorClass::Count));
        let mut counts = [2, 2];
        counts[rank] = 1;
        assert_eq!(comm.alltoall_varying(&data, &mut room[..3], &[2, 2], &counts), Err(ErrorClass::Count));
        assert_eq!(room, [0; 4]);
        comm.alltoall_pieces(&data, &mut room, &good, &good).unwrap();
        assert_eq!(room, data);
    });
}

#[test]
fn a_piece_that_is_too_long_is_cut_and_reported() {
    // Of few bytes, and of so many that both sides have to be there.
    for (by_messages, len) in [(false, 3), (false, 300_000), (true, 3), (true, 300_000)] {
        in_threads(3, &Config::default(), by_messages, |comm| {
            let byte: Datatype = Predefined::Byte.into();
            let (rank, mut data, mut room) = (comm.rank(), vec![5u8; 3 * len], vec![0u8; 3 * len]);
            let even: Vec<Piece> = (0..3).map(|at| Piece::new((len * at) as isize, len, &byte)).collect();
            let mut from = even.clone();
            if rank == 1 {
                from[2].count = len - 1;
            }
            let ended = comm.alltoall_pieces(&data, &mut room, &even, &from);
            if rank == 1 {
                assert_eq!(ended, Err(ErrorClass::Truncate));
            }
            if by_messages {
                // Nobody else is harmed, nor is what comes next.
                assert!(rank == 1 || ended == Ok(()) && room == data);
                data.fill(6);
                comm.alltoall_pieces(&data, &mut room, &even, &even).unwrap();
                assert_eq!(room, data);
            }
        });
    }
}

#[test]
fn calls_of_a_revoked_communicator_end() {
    both_ways(3, |comm| {
        let copy = comm.dup().unwrap();
        let ring = comm.cartesian(&[Side { size: 3, periodic: true }]).unwrap().unwrap();
        let byte: Datatype = Predefined::Byte.into();
        let (data, mut room) = ([1u8; 3], [0u8; 3]);
        let pieces: Vec<Piece> = (0..3).map(|at| Piece::new(at, 1, &byte)).collect();
        if comm.rank() == 0 {
            copy.revoke();
            ring.revoke();
        }
        // The others wait for it in vain, or know already.
        assert_eq!(copy.alltoall_pieces(&data, &mut room, &pieces, &pieces), Err(ErrorClass::Revoked));
        let neighbors = &pieces[..2];
        assert_eq!(ring.neighbor_alltoall_pieces(&data, &mut room, neighbors, neighbors), Err(ErrorClass::Revoked));
    });
}
