//! Operators and error handlers that panic: only their own call ends by that, and nothing that was lent is in use afterwards.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::*;
use crate::comm::context;
use crate::datatype::Datatype;
use crate::op::{Op, UserOp};

/// Whether the device has memory for a message of this communicator.
fn is_used(comm: &Communicator) -> bool {
    comm.local().lock().device.uses(context::all(comm.0.id))
}

fn panics() -> Op {
    Op::User(UserOp::new(true, |_: &Datatype, _, _: &mut [u8], _: &[u8]| panic!("the operator")))
}

#[test]
fn an_error_handler_that_panics_finds_nothing_lent() {
    job(2, |comm| {
        if comm.rank() == 0 {
            comm.set_error_handler(ErrorHandler::Call(Arc::new(|_, _| panic!("the handler"))));
            let mut room = [0u8; 8];
            let outcome = catch_unwind(AssertUnwindSafe(|| comm.sendrecv(&[1u8], 99, 0, &mut room, 1, 0)));
            assert!(outcome.is_err() && !is_used(&comm));
        }
    });
}

/// By messages: they are the communicator's first calls.
#[test]
fn an_operator_that_panics_is_no_matter_of_who_receives_meanwhile() {
    job(2, |comm| {
        let (mut sum, mut came) = ([0u8], [0u8]);
        if comm.rank() == 1 {
            comm.scope(|scope| {
                scope.allreduce(&[1u8], &mut sum, &Op::Sum)?;
                comm.send(&[7u8], 0, 0)
            })
            .unwrap();
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(|scope| {
                let sum = scope.allreduce(&[1u8], &mut sum, &panics())?;
                let received = catch_unwind(AssertUnwindSafe(|| comm.recv(&mut came, 1, 0).map(drop)));
                assert_eq!(received.ok(), Some(Ok(())));
                sum.wait()
            })
        }));
        let panic = outcome.expect_err("its operator has panicked").downcast::<&str>();
        assert_eq!(panic.ok().as_deref(), Some(&"the operator"));
        assert!(came == [7] && !is_used(&comm));
    });
}

#[test]
fn a_scope_ends_with_all_that_was_begun_whatever_panics() {
    job(2, |comm| {
        let (mut sums, mut came) = ([[0u8]; 2], [0u8]);
        let [first, second] = &mut sums;
        let is_first = comm.rank() == 0;
        let op = if is_first { panics() } else { Op::Sum };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(|scope| {
                scope.allreduce(&[1u8], first, &op)?;
                scope.allreduce(&[1u8], second, &op)?;
                if is_first { scope.recv(&mut came, 1, 0).map(drop) } else { comm.send(&[7u8], 0, 0) }
            })
        }));
        assert_eq!(outcome.is_err(), is_first);
        assert!(!is_used(&comm));
        assert_eq!(came[0], if is_first { 7 } else { 0 });
    });
}

#[test]
fn a_call_that_is_given_up_has_no_say_any_more() {
    job(2, |comm| {
        let op = if comm.rank() == 0 { panics() } else { Op::Sum };
        let mut call = comm.allreduce_in_place_init(vec![1u8], &op).unwrap();
        call.start().unwrap();
        drop(call);
        assert!(!is_used(&comm));
    });
}

#[test]
fn an_operator_may_have_the_last_of_a_communicator() {
    job(2, |comm| {
        let mut id = None;
        for _ in 0..3 {
            let own = comm.dup().unwrap();
            assert_eq!(*id.get_or_insert(own.0.id), own.0.id, "its id was free again");
            let sum = Op::User(UserOp::new(true, move |_: &Datatype, _, into: &mut [u8], from: &[u8]| {
                into[0] += from[0] + own.size() as u8 - 2;
            }));
            let mut result = [0u8];
            comm.scope(|scope| {
                let call = scope.allreduce(&[1u8], &mut result, &sum)?;
                drop(sum);
                call.wait().map(drop)
            })
            .unwrap();
            assert_eq!(result, [2]);
        }
    });
}
