#![allow(unsafe_code)] // Calls are begun on raw memory.
//! What duplicates have of what they are made of.

use std::sync::Arc;

use super::*;
use crate::attribute::Keyval;
use crate::comm::info::Info;
use crate::op::Op;

#[test]
fn attributes_go_to_duplicates_as_their_callbacks_say() {
    job(2, |comm| {
        let (shared, local) = (Keyval::shared(), Keyval::local());
        comm.set_attribute(&shared, Arc::new(5)).unwrap();
        comm.set_attribute(&local, Arc::new(6)).unwrap();
        let copy = comm.dup().unwrap();
        assert_eq!(copy.attribute(&shared).map(|value| *value.downcast_ref::<i32>().unwrap()), Some(5));
        assert!(copy.attribute(&local).is_none());
        let refuses = Keyval::new(|_, _| Err(ErrorClass::Keyval), |_, _| Ok(()));
        comm.set_attribute(&refuses, Arc::new(7)).unwrap();
        assert_eq!(comm.dup().map(drop), Err(ErrorClass::Keyval));
        assert_eq!(comm.delete_attribute(&refuses), Ok(true));
        comm.dup().unwrap().free().unwrap();
    });
}

/// What others say in it is not taken for what is said in the next communicator, of other processes.
#[test]
fn who_fails_to_copy_an_attribute_has_no_duplicate_and_the_others_hear_of_it() {
    for begun in [false, true] {
        job(3, |comm| {
            let pair = |with| comm.create_group(&Group::new([0, with]).unwrap(), 0).unwrap();
            // It keeps its id.
            let first = pair(1);
            if let Some(pair) = &first {
                let key = Keyval::new(|_, _| Err(ErrorClass::Keyval), |_, _| Ok(()));
                if comm.rank() == 0 {
                    pair.set_attribute(&key, Arc::new(1)).unwrap();
                }
                let copy = if begun { pair.idup().unwrap().wait() } else { pair.dup() };
                if comm.rank() == 0 {
                    assert_eq!(copy.map(drop), Err(ErrorClass::Keyval));
                    comm.recv(&mut [0u8], 1, 0).unwrap();
                } else {
                    let copy = copy.unwrap();
                    // It may have heard of it already.
                    let _ = copy.send(&[1u8], 0, 0);
                    comm.send(&[0u8], 0, 0).unwrap();
                    assert_eq!(copy.barrier(), Err(ErrorClass::Revoked));
                }
            }
            if let Some(pair) = pair(2) {
                let mut room = [0u8];
                if comm.rank() == 2 {
                    pair.send(&[2u8], 0, 0).unwrap();
                } else {
                    pair.recv(&mut room, 1, 0).unwrap();
                    assert_eq!(room, [2]);
                }
            }
        });
    }
}

#[test]
fn a_duplicate_has_what_there_was_when_it_was_begun() {
    use std::sync::atomic::{AtomicU32, Ordering};
    job(2, |comm| {
        let deleted = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&deleted);
        let key = Keyval::new(
            |_, value| Ok(Some(Arc::clone(value))),
            move |_, _| {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            },
        );
        comm.set_attribute(&key, Arc::new(1)).unwrap();
        comm.set_error_handler(ErrorHandler::Call(Arc::new(|_, _| {})));
        let begun = comm.idup().unwrap();
        comm.set_attribute(&key, Arc::new(2)).unwrap();
        comm.set_error_handler(ErrorHandler::Return);
        let copy = begun.wait().unwrap();
        assert_eq!(copy.attribute(&key).map(|value| *value.downcast_ref::<i32>().unwrap()), Some(1));
        assert!(matches!(copy.error_handler(), ErrorHandler::Call(_)));
        // The first value here was deleted for the second one.
        let refuses = Keyval::new(|_, _| Err(ErrorClass::Keyval), |_, _| Ok(()));
        comm.set_attribute(&refuses, Arc::new(3)).unwrap();
        assert_eq!(comm.idup().unwrap().wait().map(drop), Err(ErrorClass::Keyval));
        assert_eq!(deleted.load(Ordering::Relaxed), 2);
        // So is what was copied for one that cannot be made.
        copy.revoke();
        assert_eq!(copy.idup().unwrap().wait().map(drop), Err(ErrorClass::Revoked));
        assert_eq!(deleted.load(Ordering::Relaxed), 3);
        // And for one that was given up, which nobody can free.
        assert_eq!(comm.delete_attribute(&refuses), Ok(true));
        drop(comm.idup().unwrap());
        assert_eq!(deleted.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn two_groups_are_duplicated_meanwhile_too() {
    job(5, |comm| {
        let (rank, left) = (comm.rank(), comm.rank() < 2);
        let half = comm.split(Some(left.into()), 0).unwrap().unwrap();
        let between = half.intercomm(0, &comm, if left { 2 } else { 0 }, 0).unwrap();
        for round in 0..20u32 {
            let begun = [between.idup().unwrap(), comm.idup().unwrap(), between.idup().unwrap()];
            // Calls of the same communicators are not disturbed.
            let [waited, mut sum] = [between.dup().unwrap(), between.split(Some(0), 0).unwrap().unwrap()].map(|made| {
                let mut sum = [0];
                made.allreduce(&[rank + round], &mut sum, &Op::Sum).unwrap();
                sum
            });
            assert_eq!(waited, sum);
            let [first, whole, last] = begun;
            let last = last.wait().unwrap();
            whole.wait().unwrap().barrier().unwrap();
            let first = first.wait().unwrap();
            for copy in [first, last] {
                assert_eq!(copy.group().processes(), between.group().processes());
                assert_eq!(copy.remote_group(), between.remote_group());
                copy.allreduce(&[rank + round], &mut sum, &Op::Sum).unwrap();
                assert_eq!(sum, if left { [9 + 3 * round] } else { [1 + 2 * round] });
                // Its side is one of its own.
                copy.merge(left).unwrap().barrier().unwrap();
            }
        }
        drop(between.idup().unwrap());
        between.barrier().unwrap();
    });
}

#[test]
fn hints_do_not_go_to_duplicates_but_come_with_them() {
    job(2, |comm| {
        let [old, new] = ["old", "new"].map(|value| {
            let mut info = Info::new();
            info.set("mpi_assert_no_any_tag", value).unwrap();
            info
        });
        comm.set_info(&old);
        assert_eq!(
            [comm.dup().unwrap(), comm.idup().unwrap().wait().unwrap()].map(|copy| copy.info()),
            [(); 2].map(|()| Info::new())
        );
        let with = [comm.dup_with_info(&new).unwrap(), comm.idup_with_info(&new).unwrap().wait().unwrap()];
        assert_eq!(with.map(|copy| copy.info()), [new.clone(), new]);
        assert_eq!(comm.info(), old);
    });
}
