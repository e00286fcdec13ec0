#![allow(unsafe_code)] // A receive on raw memory.
//! Ranks that leave while others count on them.

use std::sync::{Arc, Mutex};

use sidelane_nic::time::Duration;

use super::*;
use crate::datatype::Predefined;
use crate::op::Op;
use crate::patience::until;

/// Runs `each` as every rank but the last, which leaves when all have spoken to it.
pub(super) fn job_without_the_last(size: u32, each: impl Fn(Communicator) + Sync) {
    let last = size - 1;
    job(size, |comm| {
        if comm.rank() == last {
            (0..last).for_each(|rank| _ = comm.recv(&mut [0u8], rank, GOODBYE).unwrap());
            leave(comm);
        } else {
            comm.send(&[0u8], last, GOODBYE).unwrap();
            each(comm);
        }
    });
}

/// Ends this rank's part, before the others do.
pub(super) fn leave(comm: Communicator) {
    comm.into_device().close(Duration::from_millis(2_000));
}

pub(super) const GOODBYE: i32 = 77;

#[test]
fn survivors_shrink_and_go_on() {
    job_without_the_last(5, |comm| {
        // One notices and tells the others, who wait for each other in vain.
        let error = match comm.rank() {
            0 => comm.recv(&mut [0], 4, 0).map(drop),
            rank => comm.recv(&mut [0], (rank + 1) % 4, 0).map(drop),
        };
        match comm.rank() {
            0 => {
                assert_eq!(error, Err(ErrorClass::ProcFailed));
                assert_eq!(comm.failed().processes(), [4]);
                assert!(!comm.is_revoked());
                comm.revoke();
            }
            _ => assert_eq!(error, Err(ErrorClass::Revoked)),
        }
        assert!(comm.is_revoked());
        assert_eq!(comm.barrier(), Err(ErrorClass::Revoked));
        assert_eq!(comm.probe(Source::Any, None).map(drop), Err(ErrorClass::Revoked));
        let others = comm.group().excl(&[4]).unwrap();
        assert_eq!(comm.create_group(&others, 0).map(drop), Err(ErrorClass::Revoked));
        let smaller = comm.shrink().unwrap();
        assert_eq!(smaller.group().processes(), [0, 1, 2, 3]);
        let mut sum = [comm.rank()];
        smaller.allreduce_in_place(&mut sum, &Op::Sum).unwrap();
        assert_eq!((sum, smaller.is_revoked()), ([6], false));
        let again = smaller.shrink().unwrap();
        again.barrier().unwrap();
        // Neither id is used again.
        drop((comm, smaller));
        assert_eq!(again.dup().unwrap().barrier(), Ok(()));
    });
}

/// Of several: a rank has revoked them before another one has come to have them.
#[test]
fn what_is_said_of_communicators_that_are_being_made_is_heard_of_each() {
    job(2, |world| {
        let begun = [(); 2].map(|()| world.idup().unwrap());
        if world.rank() == 1 {
            begun.into_iter().for_each(|duplicate| duplicate.wait().unwrap().revoke());
            return world.send(&[0u8], 0, 0).unwrap();
        }
        world.recv(&mut [0u8], 1, 0).unwrap();
        for duplicate in begun {
            assert!(duplicate.wait().unwrap().is_revoked());
        }
    });
}

#[test]
fn partitions_that_are_not_ready_are_not_waited_for_when_nobody_is_there_to_have_them() {
    job_without_the_last(2, |comm| {
        assert_eq!(comm.recv(&mut [0u8], 1, 0).map(drop), Err(ErrorClass::ProcFailed));
        let mut data = [0u32; 2];
        // SAFETY: it outlives the message.
        let made = unsafe { comm.psend_init(data.as_mut_ptr().cast(), 2, 1, &Predefined::Uint32.into(), 1.into(), 3) };
        let (mut message, parts) = made.unwrap();
        message.start().unwrap();
        parts.ready(0).unwrap();
        assert_eq!(message.wait().map(drop), Err(ErrorClass::ProcFailed));
    });
}

#[test]
fn partitions_of_which_none_is_ready_are_not_waited_for_either() {
    let made = |comm: &Communicator, data: &mut [u32; 2]| {
        // SAFETY: it outlives the message.
        unsafe { comm.psend_init(data.as_mut_ptr().cast(), 2, 1, &Predefined::Uint32.into(), 1.into(), 3) }.unwrap()
    };
    let ended = |message: &mut Persistent| {
        let mut ended = Ok(None);
        until("it has ended", || {
            ended = message.test();
            ended != Ok(None)
        });
        ended.map(drop)
    };
    job_without_the_last(2, |comm| {
        let mut data = [0u32; 2];
        let (mut message, parts) = made(&comm, &mut data);
        message.start().unwrap();
        assert_eq!(ended(&mut message), Err(ErrorClass::ProcFailed));
        assert_eq!(parts.ready(0), Err(ErrorClass::Request), "it is over");
    });
    job(2, |comm| {
        let mut data = [0u32; 2];
        if comm.rank() == 0 {
            let (mut message, _) = made(&comm, &mut data);
            message.start().unwrap();
            assert_eq!(message.test(), Ok(None));
            comm.send(&[0u8], 1, 0).unwrap();
            assert_eq!(ended(&mut message), Err(ErrorClass::Revoked));
            message.start().unwrap();
            assert_eq!(ended(&mut message), Err(ErrorClass::Revoked), "what is begun later, too");
        } else {
            comm.recv(&mut [0u8], 0, 0).unwrap();
            comm.revoke();
        }
    });
}

/// Its first member alone hears from all.
#[test]
fn a_group_that_makes_a_communicator_is_told_of_a_member_that_is_gone() {
    job_without_the_last(3, |comm| {
        comm.recv(&mut [0u8], 2, 0).unwrap_err();
        assert_eq!(comm.create_group(comm.group(), 0).map(drop), Err(ErrorClass::ProcFailed));
    });
}

#[test]
fn who_needs_nobody_begins_no_call_in_a_communicator_that_is_revoked() {
    job(2, |comm| {
        let alone = comm.split(Some(comm.rank()), 0).unwrap().unwrap();
        // By messages, of which there are none.
        let lonely = comm.dist_graph_adjacent(vec![], vec![], false).unwrap();
        let mut met = alone.barrier_init().unwrap();
        met.start().unwrap();
        assert_eq!(met.wait().map(drop), Ok(()));
        alone.revoke();
        lonely.revoke();
        let (mut data, mut none) = ([7u8], [0u8; 0]);
        let begun = [
            alone.scope(|scope| scope.barrier()?.wait().map(drop)),
            alone.scope(|scope| scope.broadcast(&mut data, 0)?.wait().map(drop)),
            lonely.scope(|scope| scope.neighbor_alltoall(&[0u8; 0], &mut none)?.wait().map(drop)),
            met.start().and_then(|()| met.wait().map(drop)),
        ];
        assert_eq!(begun, [Err(ErrorClass::Revoked); 4], "as calls that wait");
        assert_eq!([alone.barrier(), lonely.neighbor_alltoall(&[0u8; 0], &mut none)], [Err(ErrorClass::Revoked); 2]);
    });
}

/// Its sender waits for nobody, and is told all the same.
#[test]
fn a_buffered_send_that_cannot_be_is_told_of_and_takes_no_room() {
    let fails = |comm: &Communicator, to: u32, class: ErrorClass| {
        let data = vec![1u8; 100_000];
        comm.attach_buffer(data.len() + BUFFERED_OVERHEAD).unwrap();
        for _ in 0..2 {
            assert_eq!(comm.bsend(&data, to, 1), Err(class));
        }
        assert_eq!(comm.scope(|scope| scope.send_as(Mode::Buffered, &data, to, 1)?.wait().map(drop)), Err(class));
        let mut again = comm.send_init(Mode::Buffered, data, to, 1);
        assert_eq!(again.start().and_then(|()| again.wait().map(drop)), Err(class));
        comm.detach_buffer().unwrap();
    };
    job_without_the_last(2, |comm| {
        assert_eq!(comm.recv(&mut [0u8], 1, 0).map(drop), Err(ErrorClass::ProcFailed));
        fails(&comm, 1, ErrorClass::ProcFailed);
    });
    job(2, |comm| {
        let (other, copy) = (1 - comm.rank(), comm.dup().unwrap());
        copy.revoke();
        fails(&copy, other, ErrorClass::Revoked);
        fails(&copy, comm.rank(), ErrorClass::Revoked);
        comm.barrier().unwrap();
    });
}

#[test]
fn a_flag_is_agreed_upon_and_a_failure_is_an_error_until_all_know_of_it() {
    job_without_the_last(4, |comm| {
        assert_eq!(comm.recv(&mut [0], 3, 0).map(drop), Err(ErrorClass::ProcFailed));
        let flag = !(1 << comm.rank());
        for knowing in 0..3 {
            let agreed = comm.agree(flag);
            assert_eq!((agreed.flag, agreed.unacknowledged.processes()), (!7, &[3][..]));
            assert_eq!(agreed.ok(), Err(ErrorClass::ProcFailed));
            if comm.rank() == knowing {
                comm.failure_ack();
                assert_eq!(comm.acknowledged().processes(), [3]);
            }
        }
        assert_eq!(comm.agree(flag).ok(), Ok(!7));
    });
}

/// Rank 1 has never spoken to the one that is gone, and nothing but the others' verdict tells it.
#[test]
fn whoever_is_told_of_a_failure_by_an_agreement_can_acknowledge_it() {
    in_threads(3, &Config::default(), true, |comm| {
        if comm.rank() == 2 {
            comm.recv(&mut [0u8], 0, GOODBYE).unwrap();
            return leave(comm);
        }
        if comm.rank() == 0 {
            comm.send(&[0u8], 2, GOODBYE).unwrap();
            assert_eq!(comm.recv(&mut [0u8], 2, 0).map(drop), Err(ErrorClass::ProcFailed));
        }
        assert_eq!(comm.agree(1).unacknowledged.processes(), [2]);
        assert_eq!(comm.failed().processes(), [2]);
        comm.failure_ack();
        assert_eq!(comm.agree(1).ok(), Ok(1));
        assert_eq!(comm.send(&[0u8], 2, 0), Err(ErrorClass::ProcFailed));
    });
}

#[test]
fn what_is_acknowledged_is_what_was_known_then() {
    job(3, |comm| {
        let rank = comm.rank();
        for other in (0..3).filter(|other| *other != rank && rank * other == 0) {
            comm.sendrecv(&[0u8], other, 0, &mut [0u8], other, 0).unwrap();
        }
        if rank > 0 {
            assert_eq!(comm.recv(&mut [0u8], 0, 0).map(drop), Err(ErrorClass::ProcFailed));
            return;
        }
        comm.local().lock().device.lose(2);
        comm.failure_ack();
        comm.local().lock().device.lose(1);
        assert_eq!((comm.acknowledged().processes(), comm.failed().processes()), (&[2][..], &[2, 1][..]));
    });
}

/// As of a process that is only stopped, and that another host's processes have not heard of for too long.
#[test]
fn whoever_lives_and_is_taken_for_gone_is_told() {
    job(2, |comm| {
        let other = 1 - comm.rank();
        comm.sendrecv(&[0u8], other, 0, &mut [0u8], other, 0).unwrap();
        if comm.rank() == 0 {
            comm.local().lock().device.lose(1);
            assert_eq!(comm.send(&[0u8], 1, 0), Err(ErrorClass::ProcFailed));
        } else {
            assert_eq!(comm.recv(&mut [0u8], 0, 0).map(drop), Err(ErrorClass::ProcFailed));
        }
    });
}

#[test]
fn ranks_in_another_order_than_their_processes_agree_and_revoke_too() {
    job(3, |world| {
        let comm = world.split(Some(0), -(world.rank() as i32)).unwrap().unwrap();
        assert_eq!(comm.agree(!(1 << comm.rank())).ok(), Ok(!7));
        if comm.rank() == 1 {
            comm.revoke();
        }
        assert_eq!(comm.recv(&mut [0u8], 1, 0).map(drop), Err(ErrorClass::Revoked));
    });
}

#[test]
fn a_receive_from_anybody_fails_until_the_failure_is_acknowledged() {
    job_without_the_last(3, |comm| {
        let (mut room, other) = ([0u8; 2], 1 - comm.rank());
        let one = |comm: &Communicator, room: &mut [u8]| {
            comm.recv(room, 2, 0).unwrap_err();
            assert_eq!(comm.recv(room, Source::Any, 0).map(drop), Err(ErrorClass::ProcFailed));
            assert_eq!(comm.probe(Source::Any, 0).map(drop), Err(ErrorClass::ProcFailed));
        };
        one(&comm, &mut room);
        comm.scope(|scope| {
            let mut receive = scope.recv(&mut room, Source::Any, 1)?;
            let pending = receive.test();
            assert_eq!(pending, Err(ErrorClass::ProcFailedPending));
            comm.failure_ack();
            assert_eq!(receive.test(), Ok(None));
            // Both have looked: what is sent now is early for nobody.
            comm.sendrecv(&[0u8], other, 2, &mut [0u8], other, 2)?;
            comm.send(&[7u8, 8], other, 1)?;
            assert_eq!(receive.wait().map(|status| status.source), Ok(Some(other)));
            Ok(())
        })
        .unwrap();
        assert_eq!(room, [7, 8]);
    });
}

#[test]
fn a_scope_ends_with_receives_that_nobody_will_serve() {
    job_without_the_last(2, |comm| {
        let mut room = [0u8; 2];
        comm.recv(&mut room, 1, 0).unwrap_err();
        let ended = comm.scope(|scope| scope.recv(&mut room, Source::Any, 1).map(drop));
        assert_eq!(ended, Err(ErrorClass::ProcFailed));
    });
}

/// By messages, as between hosts: what a call that failed has sent to who never made it is nobody else's.
#[test]
fn what_is_left_of_a_failed_call_is_not_taken_for_a_new_communicators() {
    in_threads(3, &Config::default(), true, |world| {
        let old = world.dup().unwrap();
        if world.rank() == 2 {
            (0..2).for_each(|rank| _ = world.recv(&mut [0u8], rank, GOODBYE).unwrap());
            return leave(world);
        }
        world.send(&[0u8], 2, GOODBYE).unwrap();
        assert_eq!(world.recv(&mut [0u8], 2, 0).map(drop), Err(ErrorClass::ProcFailed));
        if world.rank() == 1 {
            old.broadcast(&mut [7u32], 1).unwrap_err();
        }
        drop(old);
        let new = world.shrink().unwrap();
        let mut came = [8 + new.rank()];
        new.broadcast(&mut came, 1).unwrap();
        assert_eq!(came, [9]);
    });
}

#[test]
fn all_are_tested_as_far_as_they_can_end() {
    job_without_the_last(2, |comm| {
        let mut room = [0u8; 2];
        comm.recv(&mut room, 1, 0).unwrap_err();
        // SAFETY: the room stays until the receive is over.
        let receive = unsafe { comm.start_recv(room.as_mut_ptr(), 2, &u8::datatype(), Source::Any, Some(1)) };
        let mut all = [receive.unwrap()];
        let told = comm.local().test_all(&mut all).map(|all| all[0].error);
        assert_eq!(told, Some(Some(ErrorClass::ProcFailedPending)));
        let seen = comm.local().look(&mut all[0]).and_then(|status| status.error);
        assert_eq!(seen, Some(ErrorClass::ProcFailedPending));
        comm.failure_ack();
        assert_eq!(comm.local().test_all(&mut all), None);
        let [mut receive] = all;
        comm.local().cancel(&receive).unwrap();
        assert!(comm.local().finish(&mut receive).cancelled);
    });
}

#[test]
fn a_call_that_fails_is_told_once_to_the_handler_of_its_own_communicator() {
    // A leader of the other side, and another one.
    for leaver in [2, 3] {
        job(4, |world| {
            let (rank, left) = (world.rank(), world.rank() < 2);
            let half = world.split(Some(left.into()), 0).unwrap().unwrap();
            let between = half.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
            if rank == leaver {
                let others = (0..4).filter(|other| *other != leaver);
                others.for_each(|other| _ = world.recv(&mut [0u8], other, GOODBYE).unwrap());
                drop((half, between));
                return leave(world);
            }
            world.send(&[0u8], leaver, GOODBYE).unwrap();
            world.recv(&mut [0u8], leaver, 0).unwrap_err();
            let told = Arc::new(Mutex::new(Vec::new()));
            let is_told = |what: &str, of: &Communicator, failed: &dyn Fn() -> Result<(), ErrorClass>| {
                let all = Arc::clone(&told);
                let handler =
                    move |comm: &Communicator, code: ErrorCode| all.lock().unwrap().push((comm.clone(), code));
                of.set_error_handler(ErrorHandler::Call(Arc::new(handler)));
                assert_eq!(failed(), Err(ErrorClass::ProcFailed), "{what}");
                let told = std::mem::take(&mut *told.lock().unwrap());
                let told: Vec<_> = told.iter().map(|(comm, code)| (comm.compare(of), *code)).collect();
                assert_eq!(told, [(Comparison::Ident, ErrorClass::ProcFailed.into())], "{what}");
            };
            is_told("dup", &between, &|| between.dup().map(drop));
            is_told("split", &between, &|| between.split(Some(0), 0).map(drop));
            is_told("merge", &between, &|| between.merge(left).map(drop));
            is_told("create_group", &world, &|| world.create_group(world.group(), 0).map(drop));
            if left {
                is_told("intercomm", &half, &|| half.intercomm(0, &world, leaver, 1).map(drop));
            }
        });
    }
}
