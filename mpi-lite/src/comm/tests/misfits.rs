#![allow(unsafe_code)] // Raw calls.
//! Raw collective calls whose lengths do not fit.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::coll::Call;
use crate::comm::elements::Elements;
use crate::comm::operand::{Operand, reduction};
use crate::op::Op;

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
        let call = Call::Allreduce { reduction: reduction(&operand, &Op::Sum)? };
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
        let have_met = std::sync::Barrier::new(3);
        in_threads(3, &Config::default(), threads, |comm| {
            comm.barrier().unwrap();
            // Who is not through yet would be told in the barrier.
            have_met.wait();
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

/// In a tree of four ranks one passes on what it gets.
#[test]
fn who_has_too_little_room_in_a_call_by_messages_harms_only_those_who_wait_for_it() {
    let revoked = [1, 2, 3].map(|odd| {
        let (revoked, have_met) = (AtomicU32::new(0), std::sync::Barrier::new(4));
        in_threads(4, &Config::default(), true, |comm| {
            comm.barrier().unwrap();
            have_met.wait();
            let mut data = [0u8; 9];
            let len = if comm.rank() == odd { 8 } else { 9 };
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
    });
    assert_eq!(revoked, [0, 4, 0]);
}
