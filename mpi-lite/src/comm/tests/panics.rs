//! Operators and error handlers that panic: only their own call ends by that, nothing that was lent is in use afterwards, and
//! ranks that wait for what an operator has not done are told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use sidelane_nic::time::Duration;

use super::*;
use crate::adi::{Device, Port, Process};
use crate::comm::context;
use crate::datatype::Datatype;
use crate::op::{Op, UserOp};
use crate::patience::{SUITE_PATIENCE, watch};

/// Whether the device has memory for a message of this communicator.
fn is_used(comm: &Communicator) -> bool {
    comm.local().lock().device.uses(context::all(comm.0.id))
}

fn panics() -> Op {
    Op::User(UserOp::new(true, |_: &Datatype, _, _: &mut [u8], _: &[u8]| panic!("the operator")))
}

/// One that panics at rank `rank`.
fn panics_at(comm: &Communicator, rank: u32) -> Op {
    let last = |_: &Datatype, _, _: &mut [u8], _: &[u8]| {};
    if comm.rank() == rank { panics() } else { Op::User(UserOp::new(true, last)) }
}

/// Runs `each` as every rank: two share what they take for a host, and the others' they reach over UDP. A rank that fails ends
/// the process, since the others would wait for it for ever.
pub(super) fn on_hosts_of_two(size: u32, each: impl Fn(Communicator) + Sync) {
    watch(&format!("a job of {size} on hosts of two"), SUITE_PATIENCE);
    let (config, under_way) = (Config::default(), AtomicU32::new(size));
    let (meet, processes) = (Barrier::new(size as usize), Mutex::new(vec![None; size as usize]));
    let rank = |own: u32| {
        let host = format!("panics-{}-{}", std::process::id(), own / 2);
        let specs = [format!("shm:{host}"), "udp:127.0.0.1:0".to_owned()];
        let ports: Vec<Port> = specs.iter().map(|spec| Port::open(&spec.parse().unwrap(), &config).unwrap()).collect();
        processes.lock().unwrap()[own as usize] = Some(Process::here(&host, &ports));
        meet.wait();
        let all = processes.lock().unwrap().iter().flatten().cloned().collect();
        let world = Communicator::world(Device::open(own, all, ports, &config).unwrap(), false);
        each(world.clone());
        under_way.fetch_sub(1, Ordering::Relaxed);
        world.local().wait_for(|_| (under_way.load(Ordering::Relaxed) == 0).then_some(()));
        world.local().lock().device.close(Duration::from_millis(2_000));
    };
    std::thread::scope(|scope| {
        for own in 0..size {
            let rank = &rank;
            scope.spawn(move || catch_unwind(AssertUnwindSafe(|| rank(own))).unwrap_or_else(|_| std::process::abort()));
        }
    });
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
        let own = comm.dup().unwrap();
        let (mut sum, mut came) = ([0u8], [0u8]);
        if comm.rank() == 1 {
            // It ends well if what rank 0 gives is here before the news that it has failed.
            let _ = own.scope(|scope| {
                scope.allreduce(&[1u8], &mut sum, &Op::Sum)?;
                comm.send(&[7u8], 0, 0)
            });
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            own.scope(|scope| {
                let sum = scope.allreduce(&[1u8], &mut sum, &panics())?;
                let received = catch_unwind(AssertUnwindSafe(|| comm.recv(&mut came, 1, 0).map(drop)));
                assert_eq!(received.ok(), Some(Ok(())));
                sum.wait()
            })
        }));
        let panic = outcome.expect_err("its operator has panicked").downcast::<&str>();
        assert_eq!(panic.ok().as_deref(), Some(&"the operator"));
        assert!(came == [7] && !is_used(&own));
    });
}

#[test]
fn a_scope_ends_with_all_that_was_begun_whatever_panics() {
    job(2, |comm| {
        let (mut sums, mut came) = ([[0u8]; 2], [0u8]);
        let [first, second] = &mut sums;
        let is_first = comm.rank() == 0;
        let op = if is_first { panics() } else { Op::Sum };
        let own = comm.dup().unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(|scope| {
                if is_first { scope.recv(&mut came, 1, 0).map(drop) } else { comm.send(&[7u8], 0, 0) }?;
                // It may be told of the panic before it has all that it waits for.
                let _ = own.scope(|scope| {
                    scope.allreduce(&[1u8], first, &op)?;
                    scope.allreduce(&[1u8], second, &op).map(drop)
                });
                Ok::<_, ErrorClass>(())
            })
        }));
        assert_eq!(outcome.is_err(), is_first);
        assert!(!is_used(&comm) && !is_used(&own));
        if is_first && came == [0] {
            // It had not come yet, and so is not lost.
            comm.recv(&mut came, 1, 0).unwrap();
        }
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
fn a_call_whose_operator_has_panicked_can_be_begun_again() {
    job(2, |comm| {
        let mut call = comm.allreduce_in_place_init(vec![1u8], &panics_at(&comm, 0)).unwrap();
        call.start().unwrap();
        let ended = catch_unwind(AssertUnwindSafe(|| call.wait()));
        assert_eq!(ended.is_err(), comm.rank() == 0);
        call.start().unwrap();
        assert_eq!(call.wait().map(drop), Err(ErrorClass::Revoked));
        assert!(!is_used(&comm));
    });
}

/// Some share memory, and others wait for messages.
#[test]
fn an_operator_that_panics_ends_the_calls_of_ranks_on_other_hosts() {
    on_hosts_of_two(4, |comm| {
        for values in [1, 100, 100_000] {
            let own = comm.dup().unwrap();
            let (given, mut result) = (vec![1u64; values], vec![0; values]);
            // The root combines.
            let op = panics_at(&comm, 3);
            let reduced = catch_unwind(AssertUnwindSafe(|| own.reduce(&given, &mut result, &op, 3)));
            assert_eq!(reduced.is_err(), comm.rank() == 3, "{values} values");
            // Those of its own host may be told by their memory.
            let ended = own.barrier();
            assert!(matches!(ended, Err(ErrorClass::Revoked | ErrorClass::ProcFailed)), "{values} values: {ended:?}");
        }
        comm.barrier().unwrap();
    });
}

/// By messages: the communicator's first calls, and all where several threads may call.
#[test]
fn who_waits_for_an_operator_that_panicked_is_told_though_its_rank_calls_no_more() {
    for multiple in [false, true] {
        let are_told = Barrier::new(3);
        in_threads(3, &Config::default(), multiple, |comm| {
            let own = comm.dup().unwrap();
            let (op, mut result) = (panics_at(&comm, 1), [0u64]);
            // The root combines, and who only gives may be through.
            let ended = catch_unwind(AssertUnwindSafe(|| {
                own.scope(|scope| scope.reduce(&[1u64], &mut result, &op, 1)?.wait().map(drop))
            }));
            assert_eq!(ended.is_err(), comm.rank() == 1);
            if ended.is_ok() {
                assert_eq!(own.barrier(), Err(ErrorClass::Revoked));
            }
            are_told.wait();
            comm.barrier().unwrap();
        });
    }
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
