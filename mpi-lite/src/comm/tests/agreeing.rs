//! Communicators that are made at the same time, of which each rank comes to another one first.

use std::sync::{Arc, Mutex};
use std::thread;

use super::failure::leave;
use super::*;
use crate::comm::agreeing::Key;
use crate::comm::context::About;
use crate::op::Op;

/// Runs `each` as every rank, with two duplicates of the world.
fn job_with_two(size: u32, threads: bool, each: impl Fn(Communicator, [Communicator; 2]) + Sync) {
    in_threads(size, &Config::default(), threads, |world| {
        let two = [(); 2].map(|()| world.dup().unwrap());
        each(world, two);
    });
}

const ROUNDS: usize = 50;

#[test]
fn duplicates_may_be_begun_in_any_order_of_those_they_are_of() {
    job_with_two(2, false, |world, [a, b]| {
        for _ in 0..ROUNDS {
            let begun = if world.rank() == 0 {
                [a.idup().unwrap(), b.idup().unwrap()]
            } else {
                let of_b = b.idup().unwrap();
                [a.idup().unwrap(), of_b]
            };
            begun.into_iter().for_each(|duplicate| duplicate.wait().unwrap().barrier().unwrap());
        }
    });
}

#[test]
fn one_that_waits_goes_before_another_that_somebody_has_only_begun() {
    for later in [false, true] {
        job_with_two(2, false, move |world, [a, b]| {
            for _ in 0..ROUNDS {
                if world.rank() == 0 {
                    let begun = a.idup().unwrap();
                    // It has its turn here before the other rank goes on.
                    world.recv(&mut [0u8], 1, 0).unwrap();
                    b.dup().unwrap().barrier().unwrap();
                    begun.wait().unwrap().barrier().unwrap();
                    continue;
                }
                let begun = (!later).then(|| a.idup().unwrap());
                world.send(&[0u8], 0, 0).unwrap();
                b.dup().unwrap().barrier().unwrap();
                begun.unwrap_or_else(|| a.idup().unwrap()).wait().unwrap().barrier().unwrap();
            }
        });
    }
}

#[test]
fn a_process_alone_makes_communicators_while_it_waits_for_others() {
    job_with_two(2, false, |world, [a, _]| {
        if world.rank() == 1 {
            world.recv(&mut [0u8], 0, 0).unwrap();
            return a.idup().unwrap().wait().unwrap().barrier().unwrap();
        }
        let own = world.own();
        let (of_all, alone) = (a.idup().unwrap(), own.idup().unwrap());
        own.dup().unwrap();
        alone.wait().unwrap();
        world.send(&[0u8], 1, 0).unwrap();
        let (alone, of_all) = (own.idup().unwrap(), of_all.wait().unwrap());
        of_all.barrier().unwrap();
        alone.wait().unwrap();
    });
}

#[test]
fn threads_make_them_in_another_order_than_other_ranks_do() {
    job_with_two(3, true, |world, [a, b]| {
        let (rank, left) = (world.rank(), world.rank() < 2);
        let group = world.group().incl(&[2, 0]).unwrap();
        let half = world.split(Some(left.into()), 0).unwrap().unwrap();
        let of_a = || (0..ROUNDS).for_each(|_| a.dup().unwrap().barrier().unwrap());
        let of_b = || (0..ROUNDS).for_each(|_| b.split(Some(0), 0).unwrap().unwrap().barrier().unwrap());
        let of_some = || {
            if rank != 1 {
                (0..ROUNDS).for_each(|_| world.create_group(&group, 3).unwrap().unwrap().barrier().unwrap());
            }
        };
        let between = || {
            let made = (0..ROUNDS).map(|_| half.intercomm(0, &world, if left { 2 } else { 0 }, 3).unwrap());
            made.for_each(|between| between.dup().unwrap().merge(left).unwrap().barrier().unwrap());
        };
        if rank == 0 {
            thread::scope(|scope| {
                scope.spawn(of_a);
                scope.spawn(of_b);
                scope.spawn(of_some);
                scope.spawn(between);
            });
            return;
        }
        // All of each kind, one after the other: nobody has to wait for another kind first.
        of_b();
        between();
        of_some();
        of_a();
    });
}

/// What tells them apart is in one order on both sides.
#[test]
fn threads_make_several_between_the_same_groups() {
    job_with_two(4, true, |world, [a, b]| {
        let left = world.rank() < 2;
        let halves = [(); 2].map(|()| world.split(Some(left.into()), 0).unwrap().unwrap());
        let make = |half: &Communicator, (bridge, leader, tag): (&Communicator, u32, i32)| {
            // The outer ones of all lead, or the inner ones.
            let (leader, other) = if left { (leader, 3 - leader) } else { (1 - leader, leader) };
            half.intercomm(leader, bridge, other, tag).unwrap()
        };
        for ways in [[(&a, 0, 3), (&b, 0, 3)], [(&a, 0, 3), (&a, 0, 4)], [(&a, 0, 3), (&a, 1, 3)]] {
            for _ in 0..ROUNDS {
                let [one, other] = thread::scope(|scope| {
                    let make = |at: usize| {
                        scope.spawn({
                            let (make, half) = (&make, &halves[at]);
                            move || make(half, ways[at])
                        })
                    };
                    [make(0), make(1)].map(|made| made.join().unwrap())
                });
                assert_ne!(one.0.id, other.0.id);
                other.barrier().unwrap();
            }
        }
    });
}

#[test]
fn an_error_handler_makes_a_communicator_of_those_that_are_left() {
    for threads in [false, true] {
        job_with_two(3, threads, |world, [comm, other]| {
            if world.rank() == 2 {
                // It comes as the others do, and has heard in the second round that they have met; in the third it is missed.
                for about in [About::Meeting, About::Places] {
                    let mut said = comm.local().lock().contexts.offer(Key::Call { of: comm.0.id }, about);
                    comm.allreduce_in_place(&mut said, &Op::Band).unwrap();
                }
                drop((comm, other));
                return leave(world);
            }
            let made = Arc::new(Mutex::new(None));
            let of_handler = Arc::clone(&made);
            comm.set_error_handler(ErrorHandler::Call(Arc::new(move |comm, _| {
                comm.revoke();
                *of_handler.lock().unwrap() = Some(comm.shrink());
            })));
            comm.dup().map(drop).unwrap_err();
            let smaller = made.lock().unwrap().take().expect("the handler has run").unwrap();
            assert_eq!(smaller.group().processes(), [0, 1]);
            smaller.barrier().unwrap();
        });
    }
}

#[test]
fn duplicates_that_are_only_begun_do_not_use_ids_up() {
    job(1, |world| {
        for _ in 0..5_000 {
            drop(world.idup().unwrap().wait().unwrap());
        }
    });
}
