//! Groups that lose a member, or are revoked, while another group counts on them.

use std::thread;

use sidelane_nic::rng::Rng;

use super::failure::{GOODBYE, job_without_the_last, leave};
use super::*;
use crate::comm::agreeing::Key;
use crate::comm::context::{About, Kind};
use crate::op::Op;

#[test]
fn groups_on_both_sides_shrink_together() {
    job_without_the_last(5, |comm| {
        // The last one has gone: the others are split by a communicator that it is not in.
        comm.recv(&mut [0u8], 4, 0).unwrap_err();
        let all = comm.shrink().unwrap();
        let left = all.rank() < 2;
        let part = all.split(Some(left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &all, if left { 2 } else { 0 }, 0).unwrap();
        assert_eq!(
            between.agree(!(1 << all.rank())).ok(),
            Ok(if left { !0b1100 } else { !0b0011 }),
            "the others' flags"
        );
        if all.rank() == 3 {
            (0..3).for_each(|rank| _ = all.recv(&mut [0u8], rank, GOODBYE).unwrap());
            return leave(all);
        }
        all.send(&[0u8], 3, GOODBYE).unwrap();
        all.recv(&mut [0u8], 3, 0).unwrap_err();
        between.revoke();
        let smaller = between.shrink().unwrap();
        let expected: [&[u32]; 2] = if left { [&[0, 1], &[2]] } else { [&[2], &[0, 1]] };
        assert_eq!([smaller.group().processes(), smaller.remote_group().unwrap().processes()], expected);
        if left {
            smaller.send(&[smaller.rank()], 0, 0).unwrap();
        } else {
            let mut from_both = [0; 2];
            from_both.iter_mut().for_each(|room| _ = smaller.recv(std::slice::from_mut(room), Source::Any, 0).unwrap());
            from_both.sort_unstable();
            assert_eq!(from_both, [0, 1]);
        }
        assert_eq!(smaller.merge(left).unwrap().size(), 3);
    });
}

/// Also what is agreed upon within a side, where somebody does not come any more.
#[test]
fn a_revoked_communicator_between_groups_ends_calls_that_make_others_of_it() {
    for revoker in 0..4 {
        for merges in [false, true] {
            let made = in_threads(4, &Config::default(), false, |world| {
                let left = world.rank() < 2;
                let part = world.split(Some(left.into()), 0).unwrap().unwrap();
                let comm = part.intercomm(0, &world, if left { 2 } else { 0 }, 4).unwrap();
                world.barrier().unwrap();
                if world.rank() == revoker {
                    comm.revoke();
                    return Err(ErrorClass::Revoked);
                }
                if merges { comm.merge(false).map(drop) } else { comm.dup().map(drop) }
            });
            assert_eq!(made, [Err(ErrorClass::Revoked); 4], "{revoker}, {merges}");
        }
    }
}

/// A leader waits there for the other one, who never comes.
#[test]
fn a_revoked_bridge_ends_calls_that_make_communicators_between_groups() {
    for before in [false, true] {
        let made = in_threads(4, &Config::default(), false, |world| {
            let half = world.split(Some(world.rank() / 2), 0).unwrap().unwrap();
            let is_told = || assert_eq!(world.recv(&mut [0u8], 2, 1).map(drop), Err(ErrorClass::Revoked));
            let made = match world.rank() {
                rank @ 0..2 => {
                    if before {
                        is_told();
                    } else if rank == 0 {
                        world.send(&[0u8], 2, 0).unwrap();
                    }
                    half.intercomm(0, &world, 2, 7).map(drop)
                }
                rank => {
                    if rank == 2 {
                        if !before {
                            world.recv(&mut [0u8], 0, 0).unwrap();
                        }
                        world.revoke();
                    }
                    Err(ErrorClass::Revoked)
                }
            };
            is_told();
            for kind in Kind::ALL {
                assert!(world.local().lock().device.is_revoked(world.context(kind)), "{kind:?}");
            }
            made
        });
        assert_eq!(made, [Err(ErrorClass::Revoked); 4], "before: {before}");
    }
}

#[test]
fn a_leader_that_waits_for_another_group_ends_with_its_own_and_the_other_one_is_told() {
    // What two processes say of themselves is as long as what they say first.
    for size in [4, 65 + 2] {
        in_threads(size, &Config::default(), false, |world| {
            let (rank, left) = (world.rank(), world.rank() < size - 2);
            let half = world.split(Some(left.into()), 0).unwrap().unwrap();
            let other = if left { size - 2 } else { 0 };
            let make = |tag| half.intercomm(0, &world, other, tag).map(drop);
            if rank == 0 {
                // As if it had led in another call: what it hears by now the other leader hears by in the next one.
                world.local().lock().leader_tag();
            }
            if rank == 1 {
                world.recv(&mut [0u8], 0, 0).unwrap();
                half.revoke();
            } else if rank == 0 {
                world.send(&[0u8], 1, 0).unwrap();
            }
            if left {
                assert_eq!(make(7), Err(ErrorClass::Revoked));
            }
            // The others come when all of those have left.
            world.barrier().unwrap();
            if !left {
                assert_eq!(make(7), Err(ErrorClass::Other), "rank {rank}");
            }
            // Nothing of that is taken for another call's.
            let again = world.split(Some(left.into()), 0).unwrap().unwrap();
            let between = again.intercomm(0, &world, other, 7).unwrap();
            assert_eq!(between.merge(!left).unwrap().size(), size);
        });
    }
}

/// Before the first offer, and when the other leader is awaited with its one, whose group is not complete.
#[test]
fn a_group_that_agrees_with_another_one_ends_when_it_is_revoked_and_the_other_one_is_told() {
    for offers in 0..2 {
        in_threads(4, &Config::default(), false, |world| {
            let (rank, left) = (world.rank(), world.rank() < 2);
            let half = world.split(Some(left.into()), 0).unwrap().unwrap();
            let make = |half: &Communicator| half.intercomm(0, &world, if left { 2 } else { 0 }, 7);
            if rank == 2 {
                // As if it had led in other calls.
                world.local().lock().leader_tag();
            }
            match rank {
                0 => {
                    assert_eq!(make(&half).map(drop), Err(ErrorClass::Revoked));
                    world.send(&[0u8], 3, 1).unwrap();
                }
                // Its part in the call, so far.
                1 => {
                    let mut heard = [0u64; 4 + 2];
                    half.broadcast(&mut [heard.len() as u64], 0).unwrap();
                    half.broadcast(&mut heard, 0).unwrap();
                    half.agree_on_id().unwrap();
                    for _ in 0..offers {
                        let mut said = half.local().lock().contexts.offer(Key::Call { of: half.0.id }, About::Meeting);
                        half.allreduce_in_place(&mut said, &Op::Band).unwrap();
                    }
                    half.revoke();
                }
                // What is taken back was heard.
                _ => {
                    if rank == 3 {
                        world.recv(&mut [0u8], 0, 1).unwrap();
                    }
                    assert_eq!(make(&half).map(drop), Err(ErrorClass::ProcFailed), "rank {rank}");
                }
            }
            // Nothing of that is taken for another call's.
            for _ in 0..2 {
                let again = world.split(Some(left.into()), 0).unwrap().unwrap();
                assert_eq!(make(&again).unwrap().merge(!left).unwrap().size(), 4);
            }
        });
    }
}

#[test]
fn a_group_may_be_revoked_at_any_time_while_it_makes_a_communicator_with_another_one() {
    in_threads(4, &Config::default(), true, |world| {
        let (rank, left) = (world.rank(), world.rank() < 2);
        let split = || world.split(Some(left.into()), 0).unwrap().unwrap();
        let make = |half: &Communicator| half.intercomm(0, &world, if left { 2 } else { 0 }, 7);
        for round in 0..50 {
            let half = split();
            thread::scope(|scope| {
                if rank == 1 {
                    scope.spawn(|| {
                        (0..Rng::new(round).below(300)).for_each(|_| thread::yield_now());
                        half.revoke();
                    });
                }
                // Not all need to have heard of it in time; and the other group hears that there is nothing.
                let failed = make(&half).err();
                let classes = [ErrorClass::Revoked, ErrorClass::ProcFailed, ErrorClass::Other];
                assert!(failed.is_none_or(|class| classes[usize::from(!left)..].contains(&class)), "{failed:?}");
            });
            world.barrier().unwrap();
            assert_eq!(make(&split()).unwrap().merge(!left).unwrap().size(), 4, "round {round}");
        }
    });
}

#[test]
fn who_is_alone_on_two_sides_is_told_so_and_goes_on() {
    job(3, |world| {
        let left = world.rank() < 2;
        let part = world.split(Some(left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
        if !left {
            (0..2).for_each(|rank| _ = world.recv(&mut [0u8], rank, GOODBYE).unwrap());
            return leave(world);
        }
        world.send(&[0u8], 2, GOODBYE).unwrap();
        world.recv(&mut [0u8], 2, 0).unwrap_err();
        let next_id = || part.dup().unwrap().0.id;
        let id = next_id();
        for _ in 0..2 {
            assert_eq!(between.shrink().map(drop), Err(ErrorClass::ProcFailed));
        }
        assert_eq!(next_id(), id, "none was used up");
    });
}

/// Its leader has heard from the other one, who counts on it.
#[test]
fn a_side_that_loses_a_member_declines_what_it_would_make_with_the_other_one() {
    job(4, |world| {
        let left = world.rank() < 2;
        let part = world.split(Some(left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
        if world.rank() == 1 {
            [0, 2, 3].into_iter().for_each(|rank| _ = world.recv(&mut [0u8], rank, GOODBYE).unwrap());
            return leave(world);
        }
        world.send(&[0u8], 1, GOODBYE).unwrap();
        if left {
            world.recv(&mut [0u8], 1, 0).unwrap_err();
        }
        assert_eq!(between.merge(left).map(drop), Err(ErrorClass::ProcFailed));
        assert_eq!(between.dup().map(drop), Err(ErrorClass::ProcFailed));
    });
}

#[test]
fn a_side_that_cannot_be_split_declines_to_be_split_with_the_other_one() {
    job(4, |world| {
        let left = world.rank() < 2;
        let part = world.split(Some(left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
        if world.rank() == 1 {
            // Its part in it, so far.
            between.allgather(&[[0i64; 2]], &mut [[0; 2]; 2]).unwrap();
            return between.0.side.as_ref().unwrap().revoke();
        }
        let expected = if left { ErrorClass::Revoked } else { ErrorClass::ProcFailed };
        assert_eq!(between.split(Some(0), 0).map(drop), Err(expected));
    });
}

/// Of two ids that a duplicate takes one was agreed upon.
#[test]
fn a_duplicate_that_a_side_cannot_have_leaves_its_id() {
    job(4, |world| {
        let left = world.rank() < 2;
        let part = world.split(Some(left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &world, if left { 2 } else { 0 }, 0).unwrap();
        let next_place = || world.own().dup().unwrap().0.id % 4096;
        let place = next_place();
        match world.rank() {
            0 => {
                assert_eq!(between.dup().map(drop), Err(ErrorClass::Revoked));
                assert_eq!(next_place(), place);
            }
            // Its part in it, so far.
            1 => {
                between.agree_on_id().unwrap();
                between.0.side.as_ref().unwrap().revoke();
            }
            _ => _ = between.dup().unwrap(),
        }
    });
}
