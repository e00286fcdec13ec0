#![allow(unsafe_code)] // Calls are begun on raw memory.
//! What is left of communicators that are gone: their ids, and what was under way in them.

use super::*;
use crate::coll::{Call, Reduction};
use crate::op::Op;

/// Ids are used again: far more communicators are made than there are ids, while others stay.
#[test]
fn freed_communicators_leave_their_ids() {
    job(2, |comm| {
        let mut kept = Vec::new();
        for round in 0..6_000u32 {
            let copy = comm.dup().unwrap();
            if round % 1_000 == 0 {
                kept.push(copy);
            }
        }
        for (number, copy) in (0..).zip(&kept) {
            let sum = &mut [number];
            copy.allreduce_in_place(sum, &Op::Sum).unwrap();
            assert_eq!(*sum, [2 * number]);
        }
    });
}

/// By who is in none, and by who has begun a duplicate and does not want it.
#[test]
fn ids_of_communicators_that_nobody_has_are_free_again() {
    job(2, |comm| {
        let next_ids = || [(); 2].map(|()| comm.dup().unwrap()).map(|made| made.0.id);
        let (ids, first) = (next_ids(), comm.group().incl(&[0]).unwrap());
        for _ in 0..3 {
            assert_eq!(comm.create(&first).unwrap().is_some(), comm.rank() == 0);
            assert_eq!(next_ids(), ids);
            assert_eq!(comm.split((comm.rank() == 0).then_some(0), 0).unwrap().is_some(), comm.rank() == 0);
            assert_eq!(next_ids(), ids);
            drop(comm.idup().unwrap());
            assert_eq!(next_ids(), ids);
        }
    });
}

/// A message and a collective call that are under way keep their context from those that are made next.
#[test]
fn what_is_under_way_in_a_freed_communicator_ends_undisturbed() {
    job(2, |comm| {
        let (first, second) = (comm.dup().unwrap(), comm.dup().unwrap());
        let (mut room, mut sum, given) = ([0u8; 2], [0u32], [comm.rank() + 1]);
        let call = Call::Allreduce { reduction: Reduction { element: 4, commutative: true } };
        let (datatype, operand) = (u32::datatype(), u32::datatype().into());
        // SAFETY: All of it stays until both are over.
        let mut begun = unsafe {
            [
                first.start_recv(room.as_mut_ptr(), 2, &u8::datatype(), Source::Any, None).unwrap(),
                second
                    .start_call_raw(
                        call,
                        Some(Elements::at(given.as_ptr().cast_mut().cast(), 1, &datatype)),
                        Elements::at(sum.as_mut_ptr().cast(), 1, &datatype),
                        Some((&operand, &Op::Sum)),
                    )
                    .unwrap(),
            ]
        };
        let other = 1 - comm.rank();
        // Rank 1's message comes when rank 0 has made others.
        if comm.rank() == 1 {
            comm.recv(&mut [0u8], 0, 0).unwrap();
        }
        first.send(&[7u8, 7], other, 3).unwrap();
        drop((first, second));
        if comm.rank() == 0 {
            comm.send(&[0u8], 1, 0).unwrap();
        }
        for _ in 0..3 {
            let next = comm.dup().unwrap();
            let mut got = [0u8];
            next.sendrecv(&[9u8], other, 3, &mut got, Source::Any, None).unwrap();
            let mut most = [[comm.rank(); 9]];
            next.allreduce_in_place(&mut most, &Op::Max).unwrap();
            assert_eq!((got, most), ([9], [[1; 9]]));
        }
        assert!(comm.local().wait_all(&mut begun).iter().all(|status| status.error.is_none()));
        assert_eq!((room, sum), ([7, 7], [3]));
    });
}

#[test]
fn communicators_that_were_revoked_or_agreed_in_do_not_use_ids_up() {
    // More than there are places, also of each kind alone.
    job(1, |world| {
        for number in 0..10_000 {
            let comm = if number % 16 == 0 { world.idup().unwrap().wait() } else { world.dup() }.unwrap();
            match number % 2 {
                0 => assert_eq!(comm.agree(1).ok(), Ok(1)),
                _ => comm.revoke(),
            }
        }
        assert_eq!(world.dup().unwrap().barrier(), Ok(()));
    });
}

/// It has come, and was not received, when the communicators are freed.
#[test]
fn nothing_of_a_freed_communicator_is_taken_for_the_next_ones() {
    job(2, |world| {
        let (rank, other) = (world.rank(), 1 - world.rank());
        for number in 0..100u8 {
            let comm = world.dup().unwrap();
            assert_eq!(comm.iprobe(Source::Any, None), Ok(None), "{number}");
            world.barrier().unwrap();
            match number % 4 {
                0 => comm.send(&[number], other, 3).unwrap(),
                1 => comm.send(&[number], rank, 3).unwrap(),
                _ => {}
            }
            // Behind it, so that it is there.
            world.sendrecv(&[0u8], other, 0, &mut [0u8], other, 0).unwrap();
            let found = (number % 4 < 2 && number % 8 > 3).then(|| comm.mprobe(Source::Any, 3).unwrap().0);
            drop(comm);
            world.dup().unwrap().barrier().unwrap();
            // It is received by another communicator's call.
            let mut received = [0];
            if let Some(found) = found {
                world.mrecv(found, &mut received).unwrap();
                assert_eq!(received, [number]);
            }
        }
    });
}

/// Each has the place of the one before.
#[test]
fn nothing_of_a_revoked_communicator_is_taken_for_the_next_ones() {
    job(2, |world| {
        let (rank, other) = (world.rank(), 1 - world.rank());
        for number in 0..300u32 {
            let comm = if number % 16 == 0 { world.idup().unwrap().wait() } else { world.dup() }.unwrap();
            let mut came = [0];
            comm.sendrecv(&[number], other, 0, &mut came, other, 0).unwrap();
            assert_eq!(came, [number]);
            match number % 2 {
                0 => assert_eq!(comm.agree(1).ok(), Ok(1)),
                // The other one may hear of it only when it has given the communicator up.
                _ if rank == 0 => comm.revoke(),
                _ => {}
            }
        }
        assert!(!world.is_revoked());
        world.barrier().unwrap();
    });
}
