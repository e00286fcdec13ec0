//! Windows of which a member is gone, that were not freed, or never made.

use sidelane_nic::time::Duration;

use super::*;
use crate::adi;
use crate::comm::ErrorClass;
use crate::op::Op;
use crate::window::Lock;

#[test]
fn who_is_gone_fails_what_needs_him_and_lets_go_of_his_locks() {
    const GONE: Result<(), ErrorClass> = Err(ErrorClass::ProcFailed);
    for make in BOTH {
        let all_have_met = std::sync::Barrier::new(3);
        adi::in_threads(3, &Config::default(), |device| {
            let comm = Communicator::world(device, false);
            let mut window = make(&comm, 1_000);
            if comm.rank() == 2 {
                std::mem::forget(window.lock(1, Lock::Exclusive).unwrap());
                comm.barrier().unwrap();
                all_have_met.wait();
                return comm.into_device().close(Duration::from_millis(2_000));
            }
            comm.barrier().unwrap();
            all_have_met.wait();
            assert_eq!(window.lock(2, Lock::Shared).map(drop), GONE);
            assert_eq!(window.lock_all().map(drop), GONE);
            assert_eq!(window.start(&[2]).map(drop), GONE);
            if comm.rank() == 1 {
                // Rank 0 has left, and says nothing.
                assert_eq!(window.start(&[0, 2]).map(drop), GONE);
                assert_eq!(window.post(&[0, 2]).unwrap().wait(), GONE);
                let mut posted = window.post(&[0, 2]).map(Some);
                while let Ok(Some(still)) = posted {
                    posted = still.test();
                }
                assert_eq!(posted.map(drop), GONE);
            }
            let others = comm.shrink().unwrap();
            // No receive of what was given up is left, and takes the word of the next epoch.
            if comm.rank() == 0 {
                window.post(&[1]).unwrap().wait().unwrap();
            } else {
                window.start(&[0]).unwrap().end().unwrap();
            }
            let epoch = window.lock(1, Lock::Exclusive).unwrap();
            let mut word = [0];
            epoch.get(&mut word, 1, 0).unwrap();
            epoch.put(&[word[0] + 1], 1, 0).unwrap();
            assert_eq!(epoch.accumulate(&[1], 2, 0, &Op::Sum), Err(ErrorClass::RmaSync));
            epoch.end().unwrap();
            others.barrier().unwrap();
            if comm.rank() == 0 {
                window.lock(1, Lock::Shared).unwrap().get(&mut word, 1, 0).unwrap();
                assert_eq!(word, [2]);
            }
            others.barrier().unwrap();
            assert_eq!(window.fence().map(drop), GONE);
            assert_eq!(window.free(), GONE);
            comm.into_device().close(Duration::from_millis(2_000));
        });
    }
}

#[test]
fn a_window_that_was_not_freed_takes_no_messages_of_others() {
    job(2, |comm| {
        drop(comm.window::<u64>(1).unwrap());
        for number in 0..5u64 {
            let (other, mut got) = (comm.dup().unwrap(), [0]);
            if comm.rank() == 0 {
                other.send(&[number], 1, 0).unwrap();
                comm.send(&[number], 1, 0).unwrap();
            } else {
                // What was sent before has come as well, and nobody receives it yet.
                comm.recv(&mut got, 0, 0).unwrap();
                assert!(other.iprobe(0, 0).unwrap().is_some());
                other.recv(&mut got, 0, 0).unwrap();
                assert_eq!(got, [number]);
            }
        }
    });
}

#[test]
fn a_window_that_was_not_freed_serves_the_others() {
    job(2, |comm| {
        let mut window = Some(comm.window::<u64>(1).unwrap());
        if comm.rank() == 1 {
            window = None;
        }
        if let Some(window) = window {
            for number in 0..10 {
                let epoch = window.lock(1, Lock::Exclusive).unwrap();
                assert_eq!(epoch.fetch_and_op(1, 1, 0, &Op::Sum), Ok(number));
            }
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn a_part_that_was_posted_is_waited_for_before_the_end() {
    job(1, |comm| {
        let window = comm.window::<u64>(1).unwrap();
        drop(window.post(&[0]).unwrap());
        assert_eq!(window.post(&[0]).map(drop), Err(ErrorClass::RmaSync));
        window.start(&[0]).unwrap().end().unwrap();
        assert_eq!(window.free(), Err(ErrorClass::RmaSync));
    });
}

#[test]
fn nobody_waits_for_a_rank_that_has_no_memory_for_its_part() {
    job(3, |comm| {
        let len = if comm.rank() == 1 { usize::MAX } else { 8 };
        assert_eq!(comm.window::<u64>(len).map(drop), Err(ErrorClass::NoMem));
        comm.window::<u64>(8).unwrap().free().unwrap();
    });
}

#[test]
fn a_window_is_of_one_group() {
    job(2, |comm| {
        let alone = comm.split(Some(comm.rank()), 0).unwrap().unwrap();
        let between = alone.intercomm(0, &comm, 1 - comm.rank(), 0).unwrap();
        assert_eq!(between.window::<u8>(1).map(drop), Err(ErrorClass::Comm));
    });
}

#[test]
fn an_access_after_the_ranks_own_revoke_is_told() {
    job(1, |comm| {
        let window = unmapped(&comm, 1);
        let epoch = window.lock(0, Lock::Exclusive).unwrap();
        epoch.put(&[1], 0, 0).unwrap();
        window.revoke();
        assert_eq!(epoch.put(&[1], 0, 0), Err(ErrorClass::Revoked));
        drop(epoch);
        assert_eq!(window.free(), Ok(()), "a rank alone waits for nobody");
    });
}

/// A call that waits for rank 0, which does not come.
type Wait = fn(&mut Window<u64>) -> Result<(), ErrorClass>;

#[test]
fn who_waits_in_a_window_that_is_revoked_is_told() {
    const REVOKED: Result<(), ErrorClass> = Err(ErrorClass::Revoked);
    let waits: [Wait; 5] = [
        |window| window.fence().map(drop),
        |window| window.start(&[0]).map(drop),
        |window| window.post(&[0]).unwrap().wait(),
        |window| window.lock(0, Lock::Exclusive).map(drop),
        |window| window.lock_all().map(drop),
    ];
    for (make, is_mapped) in BOTH.into_iter().zip([true, false]) {
        for wait in waits {
            job(3, |comm| {
                let mut window = make(&comm, 1);
                if comm.rank() == 0 {
                    std::mem::forget(window.lock(0, Lock::Exclusive).unwrap());
                    comm.barrier().unwrap();
                    window.revoke();
                } else {
                    comm.barrier().unwrap();
                    assert_eq!(wait(&mut window), REVOKED);
                    assert!(window.is_revoked());
                    // As does whatever comes next.
                    assert_eq!(wait(&mut window), REVOKED);
                }
                let own = window.write(0, &[7]).and_then(|()| window.read(0..1));
                assert_eq!(own, if is_mapped { Ok(vec![7]) } else { Err(ErrorClass::RmaFlavor) });
                // Rank 0 has a lock that it did not give back.
                let freed = if comm.rank() == 0 { Err(ErrorClass::RmaSync) } else { REVOKED };
                assert_eq!(window.free(), freed);
                comm.barrier().unwrap();
            });
        }
    }
}
