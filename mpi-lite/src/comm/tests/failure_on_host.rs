//! Ranks that leave, or fail, in collective calls by shared memory: nobody waits for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use sidelane_nic::time::Duration;

use super::*;
use crate::adi;
use crate::datatype::Datatype;
use crate::op::{Op, UserOp};

/// Runs `each` as every rank but `leaver`, which leaves after a call that all make. Nobody waits at the end for others.
fn job_without(leaver: u32, size: u32, each: impl Fn(Communicator) + Sync) {
    let all_are_through = std::sync::Barrier::new(size as usize);
    adi::in_threads(size, &Config::default(), |device| {
        let comm = Communicator::world(device, false);
        comm.barrier().unwrap();
        all_are_through.wait();
        if comm.rank() != leaver {
            each(comm.clone());
        }
        comm.local().lock().device.close(Duration::from_millis(100));
    });
}

/// The same, with what all of them have done `before`; and the others stay until all are through, so that nobody is told by their end.
fn job_without_one<T>(
    leaver: u32,
    size: u32,
    before: impl Fn(&Communicator) -> T + Sync,
    each: impl Fn(&Communicator, T) + Sync,
) {
    let (all_are_through, under_way) = (std::sync::Barrier::new(size as usize), AtomicU32::new(size - 1));
    adi::in_threads(size, &Config::default(), |device| {
        let comm = Communicator::world(device, false);
        comm.barrier().unwrap();
        let done = before(&comm);
        all_are_through.wait();
        if comm.rank() != leaver {
            each(&comm, done);
            under_way.fetch_sub(1, Ordering::Relaxed);
            comm.local().wait_for(|_| (under_way.load(Ordering::Relaxed) == 0).then_some(()));
        }
        comm.local().lock().device.close(Duration::from_millis(100));
    });
}

#[test]
fn no_call_by_memory_is_made_in_a_communicator_that_is_revoked() {
    let all_know = std::sync::Barrier::new(3);
    job(3, |comm| {
        let both = |comm: &Communicator| [comm.broadcast(&mut [0u8], 0), comm.broadcast(&mut [0u8; 5_000], 0)];
        assert_eq!(both(&comm), [Ok(()); 2]);
        if comm.rank() == 0 {
            comm.revoke();
        }
        let context = comm.context(crate::comm::context::Kind::Point);
        comm.local().wait_for(|state| state.device.is_revoked(context).then_some(()));
        all_know.wait();
        // The root need not wait for anybody.
        assert_eq!(both(&comm), [Err(ErrorClass::Revoked); 2]);
        let mut data = [0u8];
        let begun = comm.scope(|scope| scope.broadcast(&mut data, 0)?.wait().map(drop));
        assert_eq!(begun, Err(ErrorClass::Revoked));
    });
}

#[test]
fn a_rank_that_leaves_fails_the_call_of_all() {
    job_without(3, 4, |comm| {
        assert_eq!(comm.barrier(), Err(ErrorClass::ProcFailed));
        assert_eq!(comm.barrier(), Err(ErrorClass::ProcFailed), "and all that follow");
    });
}

#[test]
fn a_rank_that_leaves_fails_an_exchange_of_pieces_with_it() {
    let byte: Datatype = crate::datatype::Predefined::Byte.into();
    let pieces: Vec<Piece> = (0..4).map(|at| Piece::new(at, 1, &byte)).collect();
    job_without(3, 4, |comm| {
        // By messages, as those that do not wait go whose blocks have lengths of their own; then by shared memory.
        let (data, mut room) = ([1u8; 4], [0u8; 4]);
        let begun = comm.scope(|scope| scope.alltoall_pieces(&data, &mut room, &pieces, &pieces)?.wait().map(drop));
        assert_eq!(begun, Err(ErrorClass::ProcFailed));
        assert_eq!(comm.alltoall_pieces(&data, &mut room, &pieces, &pieces), Err(ErrorClass::ProcFailed));
    });
}

#[test]
fn who_waits_for_somebody_that_waits_for_who_has_left_is_told() {
    // A chain, of which only rank 1 waits for rank 0.
    job_without(0, 4, |comm| {
        let mut all = [0u64; 2];
        assert_eq!(comm.scan(&[1, 2], &mut all, &Op::Sum), Err(ErrorClass::ProcFailed));
    });
}

#[test]
fn who_only_gives_learns_of_it_too() {
    job_without(2, 4, |comm| {
        // It may be some calls ahead.
        let calls = (0..1_000).take_while(|_| comm.gather(&[0u8; 8], &mut [0; 32], 0).is_ok()).count();
        assert!(calls < 1_000, "rank {}", comm.rank());
    });
}

#[test]
fn who_makes_a_communicator_with_one_that_has_left_is_told() {
    job_without_one(
        2,
        3,
        |_| (),
        |comm, ()| {
            assert_eq!(comm.create_group(comm.group(), 5).map(drop), Err(ErrorClass::ProcFailed));
        },
    );
}

#[test]
fn who_makes_a_communicator_with_a_group_whose_leader_has_left_is_told() {
    job_without_one(
        2,
        4,
        |_| (),
        |comm, ()| {
            if comm.rank() < 3 {
                let part = comm.create_group(&Group::new([0, 1]).unwrap(), 1).unwrap().unwrap();
                assert_eq!(part.intercomm(0, comm, 2, 0).map(drop), Err(ErrorClass::ProcFailed));
            }
        },
    );
}

#[test]
fn who_makes_a_communicator_with_a_group_of_which_one_has_left_is_told() {
    let halves = |comm: &Communicator| comm.split(Some(comm.rank() / 2), 0).unwrap().unwrap();
    job_without_one(1, 4, halves, |comm, half| {
        let made = half.intercomm(0, comm, if comm.rank() == 0 { 2 } else { 0 }, 0);
        assert_eq!(made.map(drop), Err(ErrorClass::ProcFailed), "rank {}", comm.rank());
    });
}

#[test]
fn a_rank_that_leaves_fails_calls_under_way() {
    job_without(3, 4, |comm| {
        let mut sum = [0u64; 1];
        let ended = comm.scope(|scope| {
            let (all, barrier) = (scope.allreduce(&[1u64], &mut sum, &Op::Sum)?, scope.barrier()?);
            Ok::<_, ErrorClass>([all.wait().map(drop), barrier.wait().map(drop)])
        });
        assert_eq!(ended, Ok([Err(ErrorClass::ProcFailed); 2]));
    });
}

/// An operator that panics in the rank whose number is its first operand's first byte.
fn panics_in(rank: u32) -> Op {
    Op::User(UserOp::new(true, move |_: &Datatype, _, _: &mut [u8], _: &[u8]| panic!("the operator of rank {rank}")))
}

#[test]
fn an_operator_that_panics_fails_the_calls_of_all() {
    job(3, |comm| {
        comm.barrier().unwrap();
        // The root combines.
        let op = panics_in(comm.rank());
        let reduced = catch_unwind(AssertUnwindSafe(|| comm.reduce(&[1u64], &mut [0], &op, 1)));
        assert_eq!(reduced.is_err(), comm.rank() == 1);
        assert_eq!(comm.barrier(), Err(ErrorClass::ProcFailed), "rank {}", comm.rank());
        // Messages are no worse for it.
        let (to, from) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
        let mut came = [0];
        comm.sendrecv(&[comm.rank()], to, 0, &mut came, from, 0).unwrap();
        assert_eq!(came, [from]);
    });
}

#[test]
fn an_operator_that_panics_ends_a_call_under_way() {
    job(2, |comm| {
        let sum = Op::User(UserOp::new(true, |_: &Datatype, _, into: &mut [u8], from: &[u8]| into[0] += from[0]));
        let op = if comm.rank() == 0 { panics_in(0) } else { sum };
        let mut result = [0u8; 1];
        // By messages, in a communicator whose first call it is.
        let own = comm.dup().unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            own.scope(|scope| scope.allreduce(&[1u8], &mut result, &op)?.wait().map(drop))
        }));
        assert_eq!(outcome.is_err(), comm.rank() == 0);
        assert_eq!(own.barrier(), Err(ErrorClass::Revoked));
        let mut came = [0];
        comm.sendrecv(&[comm.rank()], 1 - comm.rank(), 0, &mut came, 1 - comm.rank(), 0).unwrap();
        comm.barrier().unwrap();
        // By shared memory, which there is now, it has failed for all.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(|scope| scope.allreduce(&[1u8], &mut result, &panics_in(0))?.wait().map(drop))
        }));
        assert!(outcome.is_err() || outcome.is_ok_and(|ended| ended == Err(ErrorClass::ProcFailed)));
        comm.barrier().unwrap();
    });
}

#[test]
fn lengths_that_do_not_fit_are_an_error_everywhere() {
    job(3, |comm| {
        let mut data = vec![0u8; if comm.rank() == 2 { 9 } else { 8 }];
        let first = comm.broadcast(&mut data, 0);
        let second = comm.barrier();
        assert_eq!(first.and(second), Err(ErrorClass::Truncate));
    });
}

#[test]
fn an_operator_that_calls_mpi_is_told_so() {
    job(2, |comm| {
        comm.barrier().unwrap();
        let same = comm.clone();
        let op = Op::User(UserOp::new(true, move |_: &Datatype, _, _: &mut [u8], _: &[u8]| same.barrier().unwrap()));
        // The root combines.
        let reduced = catch_unwind(AssertUnwindSafe(|| comm.reduce(&[1u64], &mut [0], &op, 1)));
        let panic = reduced.err().and_then(|panic| panic.downcast::<&str>().ok());
        assert_eq!(panic.is_some_and(|text| text.contains("MPI-4.1 6.9.5")), comm.rank() == 1);
        assert_eq!(comm.barrier(), Err(ErrorClass::ProcFailed));
    });
}
