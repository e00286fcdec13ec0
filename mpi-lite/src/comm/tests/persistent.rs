//! Messages that are begun again and again.
#![allow(unsafe_code)] // Raw calls, on memory that the tests own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::*;
use crate::datatype::{Datatype, Predefined};

#[test]
fn a_persistent_message_goes_as_often_as_it_is_begun() {
    job(2, |comm| {
        let (mut data, other) = ([0u32; 4], 1 - comm.rank());
        let (memory, kind) = (data.as_mut_ptr().cast::<u8>(), Predefined::Uint32.into());
        // SAFETY: `data` outlives both, and is touched only while they are inactive.
        let mut message = unsafe {
            if comm.rank() == 0 {
                comm.send_init_raw(Mode::Standard, memory, 4, &kind, other.into(), 3)
            } else {
                comm.recv_init_raw(memory, 4, &kind, other.into(), None)
            }
        };
        assert_eq!(message.wait(), Ok(Status::EMPTY));
        for round in 0..100 {
            // SAFETY: as above.
            let now = unsafe { &mut *memory.cast::<[u32; 4]>() };
            if comm.rank() == 0 {
                *now = [round; 4];
            }
            message.start().unwrap();
            assert_eq!(message.start(), Err(ErrorClass::Request));
            let status = message.wait().unwrap();
            assert!(!message.is_active());
            if comm.rank() == 1 {
                assert_eq!((status.bytes, status.tag, *now), (16, Some(3), [round; 4]));
            }
        }
        comm.barrier().unwrap();
        if comm.rank() == 1 {
            // Active when it is dropped, and no message comes.
            message.start().unwrap();
        }
        drop(message);
        comm.barrier().unwrap();
    });
}

#[test]
fn messages_of_slices_are_begun_again_with_what_is_there_then() {
    job(2, |comm| {
        let other = 1 - comm.rank();
        let second = Datatype::vector(3, 1, 2, &Predefined::Uint32.into()).unwrap();
        let (piece, whole) = (Piece::new(4, 1, &second), Piece::new(0, 7, &Predefined::Uint32.into()));
        let mut all = [
            comm.send_init(Mode::Standard, vec![0u32; 4], other, 1),
            comm.recv_init(vec![0u32; 4], other, 1),
            comm.send_piece_init(Mode::Synchronous, vec![0u32; 7], &piece, other, 2).unwrap(),
            comm.recv_piece_init(vec![0u32; 7], &piece, other, 2).unwrap(),
        ];
        for round in 1..20 {
            all[0].given().unwrap().fill(round);
            all[2].given().unwrap().copy_from_slice(&[0, round, 0, round + 1, 0, round + 2, 0]);
            Persistent::start_all(all.iter_mut().map(Repeated::request)).unwrap();
            assert_eq!(all[1].room().map(drop), Err(ErrorClass::Request));
            assert_eq!(all[0].given().map(drop), Err(ErrorClass::Request));
            let ended = Persistent::wait_all(&mut all.each_mut().map(Repeated::request));
            assert!(ended.iter().all(|status| status.error.is_none()));
            assert_eq!(ended[3].bytes, 12);
            assert_eq!(all[1].room().unwrap(), [round; 4]);
            assert_eq!(all[3].room().unwrap(), [0, round, 0, round + 1, 0, round + 2, 0]);
        }
        assert_eq!(comm.recv_piece_init(vec![0u32; 6], &whole, other, 2).map(drop), Err(ErrorClass::Buffer));
        comm.barrier().unwrap();
        // Active when they are dropped, and no message comes.
        all[1].start().unwrap();
        all[3].start().unwrap();
        drop(all);
        comm.barrier().unwrap();
    });
}

#[test]
fn a_message_that_is_cancelled_is_begun_again() {
    job(2, |comm| {
        let other = 1 - comm.rank();
        let mut receive = comm.recv_init(vec![0u8], other, 5);
        assert_eq!(receive.cancel(), Err(ErrorClass::Request));
        for _ in 0..3 {
            receive.start().unwrap();
            receive.cancel().unwrap();
            assert!(receive.wait().unwrap().cancelled);
        }
        receive.start().unwrap();
        receive.request().cancel().unwrap();
        assert!(receive.request().wait().unwrap().cancelled);
        // Nobody sends before none is cancelled any more.
        comm.barrier().unwrap();
        receive.start().unwrap();
        comm.send(&[7u8], other, 5).unwrap();
        assert!(!receive.wait().unwrap().cancelled);
        assert_eq!(receive.room().unwrap(), [7]);
        let mut barrier = comm.barrier_init().unwrap();
        barrier.start().unwrap();
        assert_eq!(barrier.cancel(), Err(ErrorClass::Request));
        barrier.wait().unwrap();
    });
}

#[test]
fn a_call_that_is_over_when_it_is_begun_is_not_cancelled_either() {
    job(2, |comm| {
        // In memory that they share it is over for whoever comes last.
        comm.barrier().unwrap();
        let mut hints = comm.info();
        hints.set("mpi_assert_strict_persistent_collective_ordering", "true").unwrap();
        comm.set_info(&hints);
        let mut barrier = comm.barrier_init().unwrap();
        barrier.start().unwrap();
        assert_eq!(barrier.cancel(), Err(ErrorClass::Request));
        barrier.wait().unwrap();
    });
}

#[test]
fn calls_of_several_processes_are_not_waited_for_at_once() {
    let handed_over = Mutex::new(None);
    in_threads(2, &Config::default(), false, |comm| {
        if comm.rank() == 1 {
            let mut receive = comm.recv_init(vec![0u8; 64], 0, 3);
            receive.start().unwrap();
            *handed_over.lock().unwrap() = Some(receive);
            comm.barrier().unwrap();
            comm.barrier().unwrap();
            let mut receive = handed_over.lock().unwrap().take().unwrap();
            assert_eq!(receive.room(), Err(ErrorClass::Request), "it is under way");
            comm.recv(&mut [0u8], 0, 9).unwrap();
            receive.wait().unwrap();
            assert_eq!(receive.room().unwrap(), [9; 64]);
        } else {
            comm.barrier().unwrap();
            let mut foreign = handed_over.lock().unwrap().take().unwrap();
            let mut own = comm.recv_init(vec![0u8; 64], 1, 3);
            let both = AssertUnwindSafe(|| Persistent::wait_any(&mut [own.request(), foreign.request()]));
            assert!(catch_unwind(both).is_err());
            let look = AssertUnwindSafe(|| comm.local().look(&mut foreign.request()));
            assert!(catch_unwind(look).is_err());
            let calls: [fn(&Local, &mut [Awaited<'_>]); 6] = [
                |local, all| _ = local.wait_any(all),
                |local, all| _ = local.test_any(all),
                |local, all| _ = local.wait_some(all),
                |local, all| _ = local.test_some(all),
                |local, all| _ = local.wait_all(all),
                |local, all| _ = local.test_all(all),
            ];
            for call in calls {
                let mut both = [own.request(), foreign.request()].map(Awaited::Persistent);
                assert!(catch_unwind(AssertUnwindSafe(|| call(comm.local(), &mut both))).is_err());
            }
            *handed_over.lock().unwrap() = Some(foreign);
            comm.barrier().unwrap();
            comm.send(&[9u8; 64], 1, 3).unwrap();
            comm.send(&[9u8], 1, 9).unwrap();
        }
    });
}
