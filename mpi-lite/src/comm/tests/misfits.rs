#![allow(unsafe_code)] // Raw calls.
//! Raw collective calls whose lengths do not fit.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::coll::Call;
use crate::comm::elements::Elements;
use crate::comm::operand::Operand;
use crate::op::Op;

/// Until all are through what they have called, with turns: who has sent may have to hear of a connection first.
fn meet(comm: &Communicator, met: &AtomicU32, all: u32) {
    met.fetch_add(1, Ordering::Relaxed);
    comm.local().wait_for(|_| (met.load(Ordering::Relaxed) == all).then_some(()));
}

/// As programs in C may make one: a rank that gives two numbers and has room for one.
#[test]
fn a_raw_call_that_does_not_fit_is_an_error_everywhere() {
    #[derive(Clone, Copy, Debug)]
    enum Form {
        Waits,
        Begun,
        Persistent,
    }
    let make = |comm: &Communicator, form: Form, data: &[u32], room: &mut [u32]| -> Result<(), ErrorClass> {
        let operand = Operand::of::<u32>();
        let call = Call::Allreduce { reduction: operand.reduction(&Op::Sum)? };
        let (given, room) = (Some(Elements::of(data)), Elements::of_mut(room));
        // SAFETY: both are borrowed until the call is over.
        unsafe {
            match form {
                Form::Waits => comm.call_raw(call, given, room, Some((&operand, &Op::Sum))),
                Form::Begun => {
                    let mut begun = comm.start_call_raw(call, given, room, Some((&operand, &Op::Sum)))?;
                    comm.local().wait(&mut begun).ok().map(drop)
                }
                Form::Persistent => {
                    let mut call = comm.call_init_raw(call, given, room, Some((&operand, &Op::Sum)))?;
                    call.start()?;
                    call.wait().map(drop)
                }
            }
        }
    };
    // With threads by messages.
    for (threads, form) in [false, true]
        .into_iter()
        .flat_map(|threads| [Form::Waits, Form::Begun, Form::Persistent].map(|form| (threads, form)))
    {
        let met = AtomicU32::new(0);
        in_threads(3, &Config::default(), threads, |comm| {
            comm.barrier().unwrap();
            // Who is not through yet would be told in the barrier.
            meet(&comm, &met, 3);
            let data = vec![1; if comm.rank() == 1 { 2 } else { 1 }];
            let failed = make(&comm, form, &data, &mut [0]).and_then(|()| comm.barrier());
            let expected = match failed {
                // It has left in the middle of it.
                Err(ErrorClass::Revoked) => comm.rank() != 1,
                failed => failed == Err(ErrorClass::Truncate),
            };
            assert!(expected, "rank {}, {form:?}, threads {threads}: {failed:?}", comm.rank());
        });
    }
}

/// A broadcast by messages among four ranks, of which one has another length than the others: how many have a revoked communicator
/// afterwards, for each that is the odd one.
fn revoked_by_an_odd_rank(usual: usize, odd_len: usize) -> [u32; 3] {
    [1, 2, 3].map(|odd| {
        let (revoked, met) = (AtomicU32::new(0), AtomicU32::new(0));
        in_threads(4, &Config::default(), true, |comm| {
            comm.barrier().unwrap();
            meet(&comm, &met, 4);
            let mut data = [0u8; 9];
            let len = if comm.rank() == odd { odd_len } else { usual };
            let done = comm.broadcast(&mut data[..len], 0);
            match done {
                Err(ErrorClass::Truncate) => assert_eq!(comm.rank(), odd),
                done => assert!(comm.rank() != odd && matches!(done, Ok(()) | Err(ErrorClass::Revoked)), "{done:?}"),
            }
            match comm.barrier() {
                Ok(()) => {}
                failed => {
                    assert_eq!(failed, Err(ErrorClass::Revoked));
                    revoked.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        revoked.into_inner()
    })
}

/// In a tree of four ranks one passes on what it gets.
#[test]
fn who_has_too_little_room_in_a_call_by_messages_harms_only_those_who_wait_for_it() {
    assert_eq!(revoked_by_an_odd_rank(9, 8), [0, 4, 0]);
}

/// The same of one that gets less than it has room for, as by memory.
#[test]
fn who_gets_too_little_in_a_call_by_messages_is_told_and_harms_only_those_who_wait_for_it() {
    assert_eq!(revoked_by_an_odd_rank(8, 9), [0, 4, 0]);
}

#[test]
fn ranks_that_combine_arrays_of_different_lengths_by_messages_all_have_an_error() {
    for size in 2..=5 {
        for odd in 0..size {
            let met = AtomicU32::new(0);
            let done = in_threads(size, &Config::default(), true, |comm| {
                comm.barrier().unwrap();
                meet(&comm, &met, size);
                let mut data = [1u8; 9];
                let len = if comm.rank() == odd { 9 } else { 8 };
                comm.allreduce_in_place(&mut data[..len], &Op::Sum)
            });
            let is_told =
                |done: &Result<(), ErrorClass>| matches!(done, Err(ErrorClass::Truncate | ErrorClass::Revoked));
            assert!(done.iter().all(is_told), "{odd} of {size}: {done:?}");
        }
    }
}

/// From one group to another: the root of the first one has no room for all.
#[test]
fn a_call_between_groups_that_does_not_fit_is_an_error_for_both() {
    for begun in [false, true] {
        let met = AtomicU32::new(0);
        in_threads(4, &Config::default(), false, |world| {
            let side = world.rank() / 2;
            let local = world.split(Some(side), 0).unwrap().unwrap();
            let comm = Communicator::intercomm(&local, 0, &world, 2 * (1 - side), 7).unwrap();
            comm.barrier().unwrap();
            meet(&comm, &met, 4);
            let root = match world.rank() {
                0 => comm.own_number(),
                1 => crate::comm::collective::NOBODY,
                _ => comm.number_of(0),
            };
            let (data, mut room) = ([1u8; 8], [0u8; 12]);
            let (given, room) = match world.rank() {
                0 => (Elements::none(), Elements::of_mut(&mut room)),
                1 => (Elements::none(), Elements::none()),
                _ => (Elements::of(&data), Elements::none()),
            };
            let call = Call::Gather { root, len: 8 };
            // SAFETY: both are borrowed until the call is over.
            let done = unsafe {
                if begun {
                    comm.start_call_raw(call, Some(given), room, None)
                        .and_then(|mut begun| comm.local().wait(&mut begun).ok().map(drop))
                } else {
                    comm.call_raw(call, Some(given), room, None)
                }
            };
            assert_eq!(done.is_err(), world.rank() == 0, "{done:?}");
            assert_eq!(comm.barrier(), Err(ErrorClass::Revoked));
        });
    }
}
