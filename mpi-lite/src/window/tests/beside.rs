//! What goes on in a rank while one of its calls of a window waits.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::op::Op;
use crate::window::Lock;

/// Its rounds need all ranks, again and again, whether or not they share memory.
const NUMBERS: usize = 100_000;

/// A call that waits on one rank until another one has left it.
type Wait = fn(&mut Window<u64>, bool);

const WAITS: [(&str, Wait); 3] = [
    ("fence", |window, _| drop(window.fence().unwrap())),
    ("start or post", |window, first| {
        let other = 1 - window.rank();
        if first {
            window.start(&[other]).unwrap().end().unwrap();
        } else {
            window.post(&[other]).unwrap().wait().unwrap();
        }
    }),
    ("wait", |window, first| {
        let other = 1 - window.rank();
        if first {
            window.post(&[other]).unwrap().wait().unwrap();
        } else {
            window.start(&[other]).unwrap().end().unwrap();
        }
    }),
];

#[test]
fn what_was_begun_goes_on_while_a_rank_waits() {
    for make in BOTH {
        for (call, wait) in WAITS {
            println!("{call}");
            job(2, |comm| {
                let mut window = make(&comm, 1);
                let mut numbers = vec![1 + u64::from(comm.rank()); NUMBERS];
                comm.scope(|scope| {
                    let begun = scope.allreduce_in_place(&mut numbers, &Op::Sum)?;
                    if comm.rank() == 0 {
                        wait(&mut window, true);
                        begun.wait().map(drop)
                    } else {
                        // Rank 0 is in its call, and stays there until this is over.
                        begun.wait().map(drop)?;
                        wait(&mut window, false);
                        Ok(())
                    }
                })
                .unwrap();
                assert!(numbers.iter().all(|number| *number == 3));
                window.free().unwrap();
            });
        }
    }
}

#[test]
fn other_threads_call_while_one_waits() {
    const ROUNDS: u32 = 1_000;
    for make in BOTH {
        in_threads(2, &Config::default(), true, |comm| {
            let window = &mut make(&comm, 1);
            let (rank, other) = (comm.rank(), 1 - comm.rank());
            let rounds = &AtomicU32::new(0);
            let comm = &comm;
            std::thread::scope(|scope| {
                let exchange = move || {
                    for round in 0..ROUNDS {
                        let mut got = [0];
                        comm.sendrecv(&[round], other, 0, &mut got, other, 0).unwrap();
                        assert_eq!(got, [round]);
                        rounds.store(round, Ordering::Relaxed);
                    }
                };
                if rank == 0 {
                    let exchange = scope.spawn(exchange);
                    // In the midst of the exchange, and until the other rank is through with it.
                    while rounds.load(Ordering::Relaxed) < ROUNDS / 10 {
                        std::thread::yield_now();
                    }
                    drop(window.fence().unwrap());
                    exchange.join().unwrap();
                } else {
                    exchange();
                    drop(window.fence().unwrap());
                }
            });
        });
    }
}

#[test]
fn a_lock_that_is_waited_for_keeps_nobody_else_waiting() {
    for make in BOTH {
        in_threads(2, &Config::default(), true, |comm| {
            let window = &make(&comm, 1);
            let comm = &comm;
            if comm.rank() == 0 {
                let epoch = window.lock(0, Lock::Exclusive).unwrap();
                comm.send(&[0u8], 1, 0).unwrap();
                // Rank 1 waits for the lock now, or soon, and answers all the same.
                for _ in 0..100 {
                    comm.send(&[0u8], 1, 1).unwrap();
                    comm.recv(&mut [0u8], 1, 1).unwrap();
                }
                epoch.end().unwrap();
            } else {
                comm.recv(&mut [0u8], 0, 0).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            comm.recv(&mut [0u8], 0, 1).unwrap();
                            comm.send(&[0u8], 0, 1).unwrap();
                        }
                    });
                    window.lock(0, Lock::Exclusive).unwrap().end().unwrap();
                });
            }
        });
    }
}
