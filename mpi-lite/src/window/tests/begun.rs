//! Operations that were begun.

use std::sync::Barrier;

use super::*;
use crate::comm::ErrorClass;
use crate::op::Op;
use crate::patience::until;
use crate::window::Lock;

#[test]
fn operations_begun_in_a_scope_are_under_way_at_once_and_over_at_its_end() {
    for make in BOTH {
        job(3, |comm| {
            let (rank, size) = (comm.rank(), comm.size());
            let window = make(&comm, 3 * 20_000);
            let at = |rank: u32| rank as usize * 20_000;
            let epoch = window.lock_all().unwrap();
            let given = vec![u64::from(rank) + 1; 20_000];
            epoch
                .scope(|scope| {
                    (0..size).try_for_each(|to| scope.put(&given, to, at(rank)).map(drop))?;
                    scope.accumulate(&given, rank, at(rank), &Op::Sum)?.wait()
                })
                .unwrap();
            epoch.flush_all().unwrap();
            comm.barrier().unwrap();
            let (mut got, mut before) = (vec![vec![0; 20_000]; size as usize], [7]);
            epoch
                .scope(|scope| {
                    let mut last = Vec::new();
                    for (from, room) in (0..size).zip(&mut got) {
                        last.push(scope.get(room, from, at((rank + 1) % size))?);
                    }
                    let mut request = scope.get_accumulate(&[], &mut before, rank, at((rank + 1) % size), &Op::NoOp)?;
                    while !request.test()? {}
                    last.pop().map_or(Ok(()), |request| request.wait())
                })
                .unwrap();
            let expected = u64::from((rank + 1) % size) + 1;
            for (from, got) in (0..size).zip(&got) {
                let sum = if from == (rank + 1) % size { 2 * expected } else { expected };
                assert!(got.iter().all(|word| *word == sum), "rank {rank} from {from}");
            }
            assert_eq!(before, [expected]);
            epoch.end().unwrap();
            window.free().unwrap();
        });
    }
}

#[test]
fn whoever_asks_is_told_when_an_operation_is_over_and_once_how() {
    let met = Barrier::new(2);
    job(2, |comm| {
        let mut window = unmapped(&comm, 10);
        let epoch = window.fence().unwrap();
        epoch.put(&[comm.rank().into()], comm.rank(), 3).unwrap();
        epoch.fence().unwrap();
        met.wait();
        if comm.rank() == 0 {
            let (mut word, mut beyond) = ([7], [7; 2]);
            epoch
                .scope(|scope| {
                    let mut request = scope.get(&mut word, 1, 3)?;
                    assert!(!request.test()?, "nobody has answered");
                    met.wait();
                    until("it is over", || request.test().unwrap());
                    assert!(request.test()?);
                    request.wait()
                })
                .unwrap();
            assert_eq!(word, [1]);
            epoch
                .scope(|scope| {
                    let mut request = scope.get(&mut beyond, 1, 9)?;
                    let mut told = Ok(false);
                    until("it has failed", || {
                        told = request.test();
                        told != Ok(false)
                    });
                    assert_eq!((told, request.test()), (Err(ErrorClass::RmaRange), Ok(true)));
                    request.wait()
                })
                .unwrap();
            let ended = epoch.scope(|scope| scope.get(&mut beyond, 1, 9).map(drop));
            assert_eq!(ended, Err(ErrorClass::RmaRange), "nobody has waited for it");
            assert_eq!(epoch.fence(), Err(ErrorClass::RmaRange));
        } else {
            met.wait();
            epoch.fence().unwrap();
        }
        drop(epoch);
        drop(window);
    });
}

#[test]
fn a_body_that_panics_leaves_nothing_lent() {
    job(2, |comm| {
        let window = unmapped(&comm, 50_000);
        let epoch = window.lock_all().unwrap();
        let other = 1 - comm.rank();
        epoch.put(&vec![3; 50_000], other, 0).unwrap();
        epoch.flush_all().unwrap();
        comm.barrier().unwrap();
        let mut room = vec![0; 50_000];
        let body = std::panic::AssertUnwindSafe(|| {
            epoch.scope(|scope| -> Result<(), ErrorClass> {
                scope.get(&mut room, other, 0)?;
                std::panic::resume_unwind(Box::new("of the body"));
            })
        });
        assert!(std::panic::catch_unwind(body).is_err());
        assert!(room.iter().all(|word| *word == 3), "it was waited for");
        epoch.end().unwrap();
        window.free().unwrap();
    });
}

#[test]
fn whoever_waits_for_an_operation_that_failed_is_told_also_after_all_were_waited_for() {
    job(1, |comm| {
        let window = unmapped(&comm, 4);
        let epoch = window.lock(0, Lock::Exclusive).unwrap();
        let (mut beyond, mut within) = ([0; 8], [1; 4]);
        let told = epoch.scope(|scope| {
            let (beyond, within) = (scope.get(&mut beyond, 0, 0)?, scope.get(&mut within, 0, 0)?);
            assert_eq!(epoch.flush(), Err(ErrorClass::RmaRange));
            Ok((beyond.wait(), within.wait()))
        });
        assert_eq!((told, within), (Ok((Err(ErrorClass::RmaRange), Ok(()))), [0; 4]));
        epoch.end().unwrap();
        window.free().unwrap();
    });
}
