//! Several threads of each rank call at the same time. Also run under ThreadSanitizer (`./test thread_sanitizer`).
#![allow(unsafe_code)] // Raw calls, on memory that the tests own.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::comm::sleeper::Watcher;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::rma::{Lent, Target, Window};

const THREADS: u32 = 4;

#[test]
fn threads_of_one_rank_do_not_wait_for_each_other() {
    in_threads(2, &Config::default(), true, |comm| {
        let own: Vec<Communicator> = (0..THREADS).map(|_| comm.dup().unwrap()).collect();
        std::thread::scope(|scope| {
            for (thread, mine) in (0..THREADS).zip(&own) {
                let comm = &comm;
                scope.spawn(move || {
                    let other = 1 - comm.rank();
                    for round in 0..200u32 {
                        // Each thread waits for its own messages, which those of the other rank send in their own time.
                        let (sent, mut got) = ([round, thread], [0; 2]);
                        let tag = thread as i32;
                        comm.sendrecv(&sent, other, tag, &mut got, other, tag).unwrap();
                        assert_eq!(got, sent);
                        let mut sum = [round + comm.rank()];
                        mine.allreduce_in_place(&mut sum, &Op::Sum).unwrap();
                        assert_eq!(sum, [2 * round + 1]);
                    }
                    // All threads make new communicators of their own at once.
                    for _ in 0..5 {
                        mine.dup().unwrap().barrier().unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn threads_keep_what_they_hang_on_a_communicator() {
    use crate::attribute::Keyval;
    use std::sync::Arc;
    in_threads(1, &Config::default(), true, |comm| {
        let kept = Keyval::local();
        comm.set_attribute(&kept, Arc::new(7u32)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..2_000u32 {
                        let own = Keyval::local();
                        comm.set_attribute(&own, Arc::new(round)).unwrap();
                        assert!(comm.attribute(&own).is_some() && comm.attribute(&kept).is_some());
                        assert_eq!(comm.delete_attribute(&own), Ok(true));
                    }
                });
            }
        });
    });
}

#[test]
fn the_end_of_a_job_waits_for_calls_of_other_threads() {
    in_threads(2, &Config::default(), true, |comm| {
        if comm.rank() == 0 {
            comm.recv(&mut [0u8], 1, 1).unwrap();
            return comm.send(&[7u8; 100_000], 1, 0).unwrap();
        }
        let there = comm.clone();
        let other = std::thread::spawn(move || {
            let mut room = vec![0u8; 100_000];
            there.recv(&mut room, 0, 0).map(|_| room)
        });
        while comm.local().lock().lookout.has_nobody_but(&Watcher::default()) {
            std::thread::yield_now();
        }
        comm.send(&[1u8], 0, 1).unwrap();
        let mut device = comm.into_device();
        assert_eq!(other.join().unwrap(), Ok(vec![7; 100_000]));
        device.close(sidelane_nic::time::Duration::from_millis(2_000));
    });
}

#[test]
fn who_waits_notices_who_has_left_alone_and_among_threads() {
    let soon = Config::default().noticing_silence(sidelane_nic::time::Duration::from_millis(100));
    for threads in [false, true] {
        in_threads(2, &soon, threads, |comm| {
            if comm.rank() == 1 {
                // Without a word: there is no connection that could end.
                return comm.into_device().close(sidelane_nic::time::Duration::from_millis(100));
            }
            assert_eq!(comm.recv(&mut [0u8], 1, 0).map(drop), Err(ErrorClass::ProcFailed));
        });
    }
}

/// Rounds of each kind of call.
const ROUNDS: u64 = 100;

#[test]
fn threads_make_all_kinds_of_calls_at_the_same_time() {
    in_threads(2, &Config::default(), true, |world| {
        let own: Vec<_> = (0..3).map(|_| world.dup().unwrap()).collect();
        let sum = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| send_numbers(&world));
            for _ in 0..2 {
                scope.spawn(|| sum.fetch_add(receive_from_anybody(&world), Ordering::Relaxed));
            }
            scope.spawn(|| call_together(&own[0]));
            scope.spawn(|| exchange_parts(&own[1]));
            scope.spawn(|| accumulate(&own[2]));
        });
        assert_eq!(sum.into_inner(), (0..2 * ROUNDS).sum::<u64>());
    });
}

/// Short and long ones, to two threads of the other rank.
fn send_numbers(comm: &Communicator) {
    for number in 0..2 * ROUNDS {
        let data = vec![number; if number % 8 == 0 { 5_000 } else { 1 }];
        comm.send(&data, 1 - comm.rank(), (number % 3) as i32).unwrap();
    }
}

/// Half of those.
fn receive_from_anybody(comm: &Communicator) -> u64 {
    let numbers = (0..ROUNDS).map(|_| {
        let (data, _) = comm.recv_vec::<u64>(Source::Any, None).unwrap();
        assert!(data.iter().all(|number| *number == data[0]));
        data[0]
    });
    numbers.sum()
}

fn call_together(comm: &Communicator) {
    for round in 0..ROUNDS {
        let (mut waited, mut begun) = ([round + u64::from(comm.rank())], [0; 2]);
        let given = waited;
        comm.scope(|scope| {
            scope.allgather(&given, &mut begun)?;
            comm.allreduce_in_place(&mut waited, &Op::Sum)
        })
        .unwrap();
        assert_eq!((waited, begun), ([2 * round + 1], [round, round + 1]));
        if round % 10 == 0 {
            comm.dup().unwrap().barrier().unwrap();
        }
    }
}

/// Each rank sends; of the four parts two threads say that they are ready.
fn exchange_parts(comm: &Communicator) {
    let (other, kind) = (1 - comm.rank(), Datatype::from(Predefined::Uint64));
    let (mut out, mut into) = (vec![0u64; 4], vec![0u64; 4]);
    let (out_at, into_at) = (out.as_mut_ptr(), into.as_mut_ptr());
    // SAFETY: both arrays outlive the messages; parts are written while they are not ready, and read when all have come.
    unsafe {
        let (mut send, parts) = comm.psend_init(out_at.cast(), 4, 1, &kind, other.into(), 0).unwrap();
        let (mut receive, _) = comm.precv_init(into_at.cast(), 4, 1, &kind, other, 0).unwrap();
        for round in 0..ROUNDS {
            receive.start().unwrap();
            send.start().unwrap();
            (0..4).for_each(|at| out_at.add(at).write(round));
            std::thread::scope(|scope| {
                scope.spawn(|| parts.ready_range(0..=1).unwrap());
                parts.ready_list([3, 2]).unwrap();
            });
            send.wait().unwrap();
            receive.wait().unwrap();
            (0..4).for_each(|at| assert_eq!(into_at.add(at).read(), round));
        }
    }
}

/// Both add to a counter of rank 0's.
fn accumulate(kept: &Communicator) {
    let (mut counter, one, kind) = ([0u64], [1u64], Datatype::from(Predefined::Uint64));
    let shown: *mut [u8] = std::ptr::slice_from_raw_parts_mut(counter.as_mut_ptr().cast(), 8);
    // SAFETY: the device stays where it is, and the memory until the window is freed; nobody uses it before.
    unsafe {
        let window = kept.with_device(|device| Window::create(device, kept.members(), shown, 8)).unwrap();
        kept.with_device(|device| window.fence(device, false)).unwrap();
        for _ in 0..ROUNDS / 10 {
            let from = Lent { address: one.as_ptr().cast(), count: 1, datatype: &kind };
            let to = Target { rank: 0, displacement: 0, count: 1, datatype: &kind };
            kept.with_device(|device| window.accumulate(device, from, to, &Op::Sum)).unwrap();
            kept.with_device(|device| window.fence(device, false)).unwrap();
        }
        kept.with_device(|device| window.free(device)).unwrap();
    }
    assert_eq!(counter[0], if kept.rank() == 0 { 2 * ROUNDS / 10 } else { 0 });
}
