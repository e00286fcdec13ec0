//! What error handlers are told of: each failure once, by the communicator that it is of.
#![allow(unsafe_code)] // Partitioned messages, on memory that the tests own.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::attribute::Keyval;
use crate::comm::graph::{Edge, Link};
use crate::datatype::Predefined;
use crate::op::Op;

/// A communicator of this process alone, and how often its handler was called since it was last asked. Others' handlers are not called.
fn alone(world: &Communicator) -> (Communicator, impl Fn() -> u32) {
    let (comm, told) = (world.dup().unwrap(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&told);
    comm.set_error_handler(ErrorHandler::Call(Arc::new(move |_, _| _ = count.fetch_add(1, Ordering::Relaxed))));
    world.set_error_handler(ErrorHandler::Call(Arc::new(|_, class| panic!("the world was told of {class}"))));
    (comm, move || told.swap(0, Ordering::Relaxed))
}

/// As of a library that has found an error of its own.
fn called(comm: &Communicator) -> Result<(), ErrorClass> {
    comm.call_error_handler(ErrorClass::Arg);
    Err(ErrorClass::Arg)
}

#[test]
fn each_call_that_fails_is_told_of_once() {
    job(1, |world| {
        let (comm, told) = alone(&world);
        let fails = |what: &str, done: Result<(), ErrorClass>| {
            assert!(done.is_err() && told() == 1, "{what}: {done:?}");
        };
        macro_rules! fail {
            ($($what:expr;)*) => { $(fails(stringify!($what), $what.map(drop));)* };
        }
        let (sum, four) = (&Op::Sum, Group::new([4]).unwrap());
        let (mut two, mut three, mut float) = ([0u64; 2], [0u64; 3], [0f64]);
        let side = crate::comm::cartesian::Side { size: 5, periodic: false };
        fail! {
            comm.send(&two, 7, 0);
            called(&comm);
            comm.bsend(&two, 0, 0);
            comm.recv(&mut two, 0, -3);
            comm.probe(7, 0);
            comm.improbe(7, 0);
            comm.sendrecv(&two, 9, 0, &mut three, 0, 0);
            comm.sendrecv_replace(&mut two, 0, 0, 8, 0);
            comm.scope(|scope| scope.send(&two, 9, 0).map(drop));
            comm.scope(|scope| scope.barrier()?.cancel());
            comm.recv_init(vec![0u8], 9, 0).start();
            comm.detach_buffer();
            comm.attach_buffer(0).and_then(|()| comm.attach_buffer(0));
            comm.broadcast(&mut two, 9);
            comm.allreduce(&two, &mut three, sum);
            comm.allreduce(&[1f64; 999], &mut [0f64; 999], &Op::Band);
            comm.allreduce_init(vec![1f64], vec![0f64], &Op::Band);
            comm.scope(|scope| scope.allreduce(&[1f64], &mut float, &Op::Band).map(drop));
            comm.alltoall_varying(&two, &mut three, &[1], &[1]);
            comm.alltoall_pieces(&two, &mut three, &[], &[]);
            comm.neighbor_allgather(&two, &mut three);
            comm.cartesian(&[side]);
            comm.sub_grid(&[true]);
            comm.graph(&[1, 2], &[7, 0]);
            comm.dist_graph(&[Link { source: 9, destination: 0, weight: 1 }], true);
            comm.dist_graph_adjacent(vec![Edge { rank: 9, weight: 1 }], vec![], true);
            comm.merge(false);
            comm.create(&four);
            comm.create_group(&four, 0);
            comm.intercomm(5, &comm, 0, 0);
        }
        let key = Keyval::new(|_, _| Err(ErrorClass::Other), |_, _| Err(ErrorClass::Other));
        comm.set_attribute(&key, Arc::new(1)).unwrap();
        fail! {
            comm.set_attribute(&key, Arc::new(2));
            comm.delete_attribute(&key);
            comm.dup();
            comm.idup().unwrap().wait();
            comm.clone().free();
        }
    });
}

/// MPI-5.0 9.3: by the handler of the communicator that the request is of.
#[test]
fn what_fails_is_told_of_by_who_waits_for_it_among_others() {
    fn waits<T: Debug>(mut call: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(over) = call() {
                return over;
            }
        }
    }
    job(1, |world| {
        let (comm, told) = alone(&world);
        let mut calls: [Persistent; 2] = [&world, &comm].map(|of| {
            // SAFETY: there is no memory.
            unsafe {
                of.recv_init_raw(
                    std::ptr::NonNull::dangling().as_ptr(),
                    0,
                    &Predefined::Byte.into(),
                    Source::Rank(0),
                    None,
                )
            }
        });
        let truncated = Some(ErrorClass::Truncate);
        for form in 0..6 {
            let mut room = [0u8];
            let scope = comm.scope(|scope| {
                scope.recv(&mut room, 0, 0)?;
                comm.send(&[1u8; 2], 0, 0)?;
                let status = match form {
                    0 => scope.wait_any().unwrap().1,
                    1 => scope.wait_some().unwrap()[0].1,
                    2 => scope.wait_all()[0],
                    3 => waits(|| scope.test_any()).unwrap().1,
                    4 => waits(|| scope.test_some().unwrap().first().copied()).1,
                    _ => waits(|| scope.test_all())[0],
                };
                assert_eq!((status.error, told()), (truncated, 1), "{form}");
                Ok(())
            });
            assert_eq!((scope, told()), (Ok(()), 0));
            calls[1].start().unwrap();
            comm.send(&[1u8], 0, 0).unwrap();
            let [first, second] = &mut calls;
            let mut all = [first.by_ref(), second.by_ref()];
            let (index, status) = match form {
                0 => Persistent::wait_any(&mut all).unwrap(),
                1 => Persistent::wait_some(&mut all).unwrap()[0],
                2 => (1, Persistent::wait_all(&mut all)[1]),
                3 => waits(|| Persistent::test_any(&mut all)).unwrap(),
                4 => waits(|| Persistent::test_some(&mut all).unwrap().first().copied()),
                _ => (1, waits(|| Persistent::test_all(&mut all))[1]),
            };
            assert_eq!((index, status.error, told()), (1, truncated, 1), "{form}");
        }
    });
}

#[test]
fn a_partition_that_there_is_not_is_told_of() {
    job(1, |world| {
        let (comm, told) = alone(&world);
        let (data, mut room, byte) = ([1u8; 2], [0u8; 2], &Predefined::Byte.into());
        // SAFETY: both are there until the messages are over.
        let (mut send, partitions) =
            unsafe { comm.psend_init(data.as_ptr(), 2, 1, byte, Destination::Rank(0), 0) }.unwrap();
        // SAFETY: as above.
        let (mut receive, arrivals) = unsafe { comm.precv_init(room.as_mut_ptr(), 2, 1, byte, 0, 0) }.unwrap();
        assert_eq!((partitions.ready(0), told()), (Err(ErrorClass::Request), 1));
        send.start().unwrap();
        receive.start().unwrap();
        assert_eq!((partitions.ready_range(1..=3), told()), (Err(ErrorClass::Arg), 1));
        assert_eq!((partitions.ready(1), told()), (Err(ErrorClass::Arg), 1));
        assert_eq!((arrivals.arrived(2), told()), (Err(ErrorClass::Arg), 1));
        partitions.ready(0).unwrap();
        receive.wait().and(send.wait()).unwrap();
        drop((send, receive));
        assert_eq!((room, told()), (data, 0));
    });
}

#[test]
fn a_handler_is_told_of_codes_of_the_programs_own() {
    job(1, |world| {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let all = Arc::clone(&told);
        world.set_error_handler(ErrorHandler::Call(Arc::new(move |_, code| all.lock().unwrap().push(code))));
        let own = ErrorCode::from(ErrorClass::Io).new_code().unwrap();
        world.call_error_handler(own);
        assert_eq!(world.send(&[0u8], 7, 0), Err(ErrorClass::Rank));
        assert_eq!(*told.lock().unwrap(), [own, ErrorClass::Rank.into()]);
    });
}
