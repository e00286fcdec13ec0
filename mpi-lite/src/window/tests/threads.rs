//! Several threads of a rank in calls of one window at a time. Also run under ThreadSanitizer (`./test thread_sanitizer`).

use std::thread;

use super::*;
use crate::comm::ErrorClass;
use crate::window::{AllLocked, Epoch, Lock};

/// Runs `each` as every rank, with windows that others map and that they do not.
fn job_of_threads(size: u32, each: impl Fn(&Communicator, Window<u64>) + Sync, len: usize) {
    for make in BOTH {
        in_threads(size, &Config::default(), true, |comm| each(&comm, make(&comm, len)));
    }
}

/// The same thread of the other rank has come as far.
fn meet(comm: &Communicator, thread: i32) {
    let other = 1 - comm.rank();
    comm.sendrecv(&[0u8], other, thread, &mut [0u8], other, thread).unwrap();
}

#[test]
fn a_lock_is_given_back_while_another_thread_waits_for_one() {
    let each = |comm: &Communicator, window: Window<u64>| {
        for _ in 0..20 {
            let kept = window.lock(comm.rank(), Lock::Exclusive).unwrap();
            comm.barrier().unwrap();
            thread::scope(|scope| {
                scope.spawn(|| window.lock(1 - comm.rank(), Lock::Exclusive).unwrap().end().unwrap());
                // It waits by now, or soon, for the lock that the other rank has, as that one does for ours.
                (0..20).for_each(|_| meet(comm, 0));
                kept.end().unwrap();
            });
        }
        window.free().unwrap();
    };
    job_of_threads(2, each, 1);
}

#[test]
fn a_part_is_posted_while_another_thread_starts_an_epoch() {
    let each = |comm: &Communicator, window: Window<u64>| {
        let other = 1 - comm.rank();
        for round in 0..100 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let epoch = window.start(&[other]).unwrap();
                    epoch.put(&[round], other, 0).unwrap();
                    epoch.end().unwrap();
                });
                window.post(&[other]).unwrap().wait().unwrap();
            });
        }
        window.free().unwrap();
    };
    job_of_threads(2, each, 1);
}

#[test]
fn what_is_done_twice_at_a_time_is_refused() {
    const REFUSED: Result<(), ErrorClass> = Err(ErrorClass::RmaSync);
    let each = |comm: &Communicator, mut window: Window<u64>| {
        let go_on = || if comm.rank() == 0 { comm.send(&[0u8], 1, 9) } else { comm.recv(&mut [0u8], 0, 9).map(drop) };
        if comm.rank() == 1 {
            let kept = window.lock(1, Lock::Exclusive).unwrap();
            comm.barrier().unwrap();
            go_on().unwrap();
            kept.end().unwrap();
            comm.barrier().unwrap();
            go_on().unwrap();
            window.start(&[0]).unwrap().end().unwrap();
            let epoch = window.fence().unwrap();
            go_on().unwrap();
            epoch.fence().unwrap();
            epoch.end().unwrap();
            return window.free().unwrap();
        }
        // Rank 1 lets the first of two go on when the second has been refused.
        let twice = |call: &(dyn Fn() -> Result<(), ErrorClass> + Sync)| {
            let call = || call().inspect_err(|_| go_on().unwrap());
            thread::scope(|scope| {
                let first = scope.spawn(call);
                let ends = [call(), first.join().unwrap()];
                assert!(ends.contains(&Ok(())) && ends.contains(&REFUSED), "{ends:?}");
            });
        };
        comm.barrier().unwrap();
        twice(&|| window.lock(1, Lock::Exclusive)?.end());
        comm.barrier().unwrap();
        let posted = window.post(&[1]).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| posted.wait().unwrap());
            assert_eq!(window.post(&[1]).map(drop), REFUSED);
            go_on().unwrap();
        });
        let epoch = window.fence().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                // Until the other thread's fence has begun, which waits for rank 1.
                while epoch.put(&[1], 1, 0).is_ok() {}
                assert_eq!(epoch.fence(), REFUSED);
                go_on().unwrap();
            });
            epoch.fence().unwrap();
        });
        epoch.end().unwrap();
        window.free().unwrap();
    };
    job_of_threads(2, each, 1);
}

#[test]
fn all_threads_that_wait_are_told_that_the_window_is_revoked() {
    const REVOKED: Result<(), ErrorClass> = Err(ErrorClass::Revoked);
    let each = |comm: &Communicator, window: Window<u64>| {
        if comm.rank() == 0 {
            let kept = window.lock(0, Lock::Exclusive).unwrap();
            comm.barrier().unwrap();
            (0..20).for_each(|_| meet(comm, 0));
            while !window.is_revoked() {
                window.turn();
            }
            assert_eq!(kept.end(), REVOKED);
        } else {
            comm.barrier().unwrap();
            thread::scope(|scope| {
                scope.spawn(|| assert_eq!(window.lock(0, Lock::Exclusive).map(drop), REVOKED));
                scope.spawn(|| assert_eq!(window.post(&[0]).and_then(|posted| posted.wait()), REVOKED));
                // They wait by now, or will have to.
                (0..20).for_each(|_| meet(comm, 0));
                window.revoke();
            });
        }
        assert_eq!(window.free(), REVOKED);
    };
    job_of_threads(2, each, 1);
}

/// Elements of a part: few go with the request, many as a message of their own.
const FEW: usize = 10;
const MANY: usize = 700;

#[test]
fn threads_change_the_parts_of_different_ranks_at_once() {
    const RANKS: u32 = 3;
    const ROUNDS: u64 = 60;
    let each = |comm: &Communicator, window: Window<u64>| {
        thread::scope(|scope| {
            for target in 0..RANKS {
                let window = &window;
                scope.spawn(move || (0..ROUNDS).for_each(|_| count(window, target)));
            }
        });
        comm.barrier().unwrap();
        let mut found = vec![0; MANY];
        window.lock(comm.rank(), Lock::Shared).unwrap().get(&mut found, comm.rank(), 0).unwrap();
        assert_eq!(found[..FEW], [ROUNDS * u64::from(RANKS); FEW]);
        window.free().unwrap();
    };
    job_of_threads(RANKS, each, MANY);
}

/// Adds one to a part's elements, by a lock: to the first ones, and each other time to all, which are never behind by more than that.
fn count(window: &Window<u64>, target: u32) {
    let epoch = window.lock(target, Lock::Exclusive).unwrap();
    let mut found = vec![0; MANY];
    epoch.get(&mut found, target, 0).unwrap();
    let counted = found[0];
    assert_eq!(found[..FEW], [counted; FEW]);
    assert_eq!(found[FEW..], [counted - counted % 2; MANY - FEW]);
    let len = if counted.is_multiple_of(2) { FEW } else { MANY };
    epoch.put(&vec![counted + 1; len], target, 0).unwrap();
    epoch.flush().unwrap();
    epoch.get(&mut found, target, 0).unwrap();
    assert_eq!(found[..len], vec![counted + 1; len]);
    epoch.end().unwrap();
}

/// More than may be under way at a target at a time, of all threads.
const SINGLES: usize = 600;

#[test]
fn operations_of_several_threads_at_one_target_are_told_apart() {
    const THREADS: i32 = 3;
    let each = |comm: &Communicator, window: Window<u64>| {
        let epoch = &window.lock_all().unwrap();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || (0..10).for_each(|round| exchange_singles(comm, epoch, thread, round)));
            }
        });
        comm.barrier().unwrap();
    };
    job_of_threads(2, each, SINGLES * THREADS as usize);
}

/// Puts elements one by one to the other rank, whose thread of the same number looks whether all are there.
fn exchange_singles(comm: &Communicator, epoch: &Epoch<u64, AllLocked>, thread: i32, round: u64) {
    let (own, other, first) = (comm.rank(), 1 - comm.rank(), thread as usize * SINGLES);
    let of = |rank: u32| -> Vec<u64> {
        let stamp = (round << 8 | u64::from(rank) << 4 | thread as u64) << 32;
        (0..SINGLES as u64).map(|index| stamp | index).collect()
    };
    let (given, mut seen) = (of(own), vec![0; SINGLES]);
    epoch
        .scope(|scope| {
            for (index, one) in given.chunks(1).enumerate() {
                scope.put(one, other, first + index)?;
            }
            Ok(())
        })
        .unwrap();
    epoch.flush(other).unwrap();
    meet(comm, thread);
    epoch
        .scope(|scope| {
            for (index, one) in seen.chunks_mut(1).enumerate() {
                scope.get(one, own, first + index)?;
            }
            Ok(())
        })
        .unwrap();
    assert!(seen == of(other), "thread {thread} in round {round}");
    // All were looked at.
    meet(comm, thread);
}
