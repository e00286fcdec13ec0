//! Communicators that are made at the same time, of which each rank comes to another one first.

use std::sync::{Arc, Mutex};
use std::thread;

use super::failure::leave;
use super::*;
use crate::comm::agreeing::Key;
use crate::comm::context::{About, Found, WORLD};
use crate::op::Op;
use crate::patience::{PATIENCE, until, watch};

/// Runs `each` as every rank, with two duplicates of the world.
fn job_with_two(size: u32, threads: bool, each: impl Fn(Communicator, [Communicator; 2]) + Sync) {
    in_threads(size, &Config::default(), threads, |world| {
        let two = [(); 2].map(|()| world.dup().unwrap());
        each(world, two);
    });
}

/// Before all others that these tests have, and behind them.
const FIRST: Key = Key::Call { of: WORLD };
const LAST: Key = Key::Between { bridge: u32::MAX, tag: 0, leaders: [0; 2] };

/// What this process would find if it agreed on one by itself now.
fn would_find(comm: &Communicator, key: Key) -> Found {
    let mut ids = comm.local().lock().contexts.clone();
    ids.meet(key);
    About::Places.found(&ids.offer(key, About::Places))
}

/// Takes turns until all have come to an agreement of this process: it offers its ids in each round from then on.
fn until_all_have_come(comm: &Communicator) {
    until("all have come", || {
        comm.local().lock().turn();
        would_find(comm, LAST) == Found::NotNow
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

#[test]
fn who_is_alone_takes_turns_while_what_it_agrees_on_with_others_comes_first() {
    watch("a communicator of who is alone", PATIENCE);
    const TURNS: i32 = 8;
    job_with_two(2, false, |world, [comm, _]| {
        if world.rank() == 1 {
            // It offers nothing to a later one.
            world.local().lock().contexts.meet(FIRST);
            let begun = comm.idup().unwrap();
            world.recv(&mut [0u8], 0, 0).unwrap();
            // Each is over by a turn of the other rank.
            (0..TURNS).for_each(|tag| world.ssend(&[0u8], 0, tag).unwrap());
            world.local().lock().contexts.leave(FIRST);
            return begun.wait().unwrap().barrier().unwrap();
        }
        let begun = comm.idup().unwrap();
        until_all_have_come(&world);
        let mut turns: Vec<_> = (0..TURNS).map(|tag| world.recv_init(vec![0u8], 1, tag)).collect();
        turns.iter_mut().for_each(|turn| turn.start().unwrap());
        world.send(&[0u8], 1, 0).unwrap();
        let alone = world.own();
        alone.create_group(alone.group(), 0).unwrap();
        turns.iter_mut().for_each(|turn| _ = turn.wait().unwrap());
        begun.wait().unwrap().barrier().unwrap();
    });
}

/// Others may have heard what was taken.
#[test]
fn whoever_loses_an_agreement_offers_to_the_next_one_and_nothing_of_what_it_has_offered() {
    job_with_two(2, false, |world, [comm, _]| {
        if world.rank() == 1 {
            // It offers nothing to a later one.
            world.local().lock().contexts.meet(FIRST);
            let begun = comm.idup().unwrap();
            world.recv(&mut [0u8], 0, 0).unwrap();
            comm.revoke();
            return assert_eq!(begun.wait().map(drop), Err(ErrorClass::Revoked));
        }
        let begun = comm.idup().unwrap();
        until_all_have_come(&world);
        world.send(&[0u8], 1, 0).unwrap();
        assert_eq!(begun.wait().map(drop), Err(ErrorClass::Revoked));
        let found = would_find(&world, LAST);
        assert!(matches!(found, Found::Place(_)), "no place is in its first generation: {found:?}");
    });
}

/// Of two that it takes between two groups: its own, and that of its side.
#[test]
fn a_begun_duplicate_that_cannot_be_had_leaves_the_one_id_that_was_agreed_upon() {
    for side_is_last in [false, true] {
        job(4, |world| {
            let left = world.rank() < 2;
            let half = world.split(Some(left.into()), 0).unwrap().unwrap();
            let between = half.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
            // Of what was made of two groups the side has the lower id, of a duplicate the higher one: so are the keys.
            let comm = if side_is_last { between.dup().unwrap() } else { between };
            let side = comm.0.side.as_ref().unwrap();
            let (first, last) = if side_is_last { (&comm, side) } else { (side, &comm) };
            assert!(first.0.id < last.0.id);
            let before_last = Key::Begun { of: last.0.id, tag: i32::MIN };
            world.local().lock().contexts.meet(before_last);
            let Found::Id(place) = would_find(&world, FIRST) else { panic!("all are of the first generation") };
            let begun = comm.idup().unwrap();
            until("the first one is agreed upon", || {
                world.local().lock().turn();
                would_find(&world, FIRST) == Found::Id(place + 1)
            });
            world.barrier().unwrap();
            if last.rank() == 0 {
                last.revoke();
            }
            assert_eq!(begun.wait().map(drop), Err(ErrorClass::Revoked));
            assert_eq!(would_find(&world, FIRST), Found::Place(place));
        });
    }
}
