//! What a window does, one behaviour a test.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

use super::job::job;
use super::operations::{fetch_and_add, get, put, window, word};
use crate::adi::{self, Config, Device, Process};
use crate::comm::Communicator;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::rma::epoch::{Epoch, Stage};
use crate::rma::lock_table::Wish;
use crate::rma::queue::QUEUE_MAX;
use crate::rma::{Flavor, Lent, Lock, RmaError, Room, Target, Window};

#[test]
fn everybody_who_counts_gets_a_number_of_his_own() {
    for flavor in [Flavor::Create, Flavor::Allocate] {
        job(4, &Config::default(), |device, members| {
            let (own, mut kept) = (members.rank, vec![0; 2]);
            let w = window(device, members, flavor, &mut kept);
            w.lock_all(device).unwrap();
            let mut last = None;
            for _ in 0..200 {
                let number = fetch_and_add(&w, device, 1, 2, 1);
                assert!(last < Some(number), "nobody gets one twice");
                last = Some(number);
            }
            w.unlock_all(device).unwrap();
            w.barrier(device).unwrap();
            w.lock(device, 2, Lock::Shared).unwrap();
            assert_eq!(fetch_and_add(&w, device, 0, 2, 1), 800, "seen by {own}");
            w.unlock(device, 2).unwrap();
            w.free(device).unwrap();
        });
    }
}

#[test]
fn what_is_compared_is_swapped_by_one_only() {
    job(3, &Config::default(), |device, members| {
        let mut kept = vec![0; 1];
        let w = window(device, members, Flavor::Create, &mut kept);
        w.lock_all(device).unwrap();
        let mut seen = 0u64;
        for _ in 0..100 {
            loop {
                let (new, compare, mut found) = (seen + 1, seen, 0u64);
                let at = ((&raw const new).cast(), (&raw const compare).cast(), (&raw mut found).cast());
                // SAFETY: we wait until it is over.
                let operation =
                    unsafe { w.compare_and_swap(device, at.0, at.1, at.2, &Predefined::Uint64.into(), 0, 0).unwrap() };
                w.wait(device, operation).unwrap();
                if std::mem::replace(&mut seen, found) == found {
                    break;
                }
            }
        }
        w.unlock_all(device).unwrap();
        w.barrier(device).unwrap();
        w.lock_all(device).unwrap();
        assert_eq!(fetch_and_add(&w, device, 0, 0, 0), 300);
        w.unlock_all(device).unwrap();
        w.free(device).unwrap();
    });
}

#[test]
fn who_has_the_lock_is_alone() {
    for flavor in [Flavor::Create, Flavor::Allocate] {
        job(4, &Config::default(), |device, members| {
            let mut kept = vec![0; 1];
            let w = window(device, members, flavor, &mut kept);
            let mut word = [0];
            for _ in 0..50 {
                w.lock(device, 1, Lock::Exclusive).unwrap();
                get(&w, device, &mut word, 1, 0).unwrap();
                put(&w, device, &[word[0] + 1], 1, 0).unwrap();
                w.unlock(device, 1).unwrap();
            }
            w.barrier(device).unwrap();
            w.lock(device, 1, Lock::Shared).unwrap();
            get(&w, device, &mut word, 1, 0).unwrap();
            w.unlock(device, 1).unwrap();
            assert_eq!(word, [200]);
            w.free(device).unwrap();
        });
    }
}

/// Each gets what is long, and gives the lock back without waiting for it.
#[test]
fn what_was_got_under_a_lock_is_of_before_the_next_ones_lock() {
    const WORDS: usize = 1 << 17;
    job(3, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank as u64, vec![0; if members.rank == 1 { WORDS } else { 0 }]);
        let w = window(device, members, Flavor::Create, &mut kept);
        if own != 1 {
            let mut got = vec![0u64; WORDS];
            for round in 0..40 {
                let stamp = vec![round * 2 + own; WORDS];
                let kind: Datatype = Predefined::Uint64.into();
                let target = Target { rank: 1, displacement: 0, count: WORDS, datatype: &kind };
                w.lock(device, 1, Lock::Exclusive).unwrap();
                if own == 0 {
                    let room = Room { address: got.as_mut_ptr().cast(), count: WORDS, datatype: &kind };
                    // SAFETY: it is over when the lock is given back.
                    unsafe { w.get(device, room, target) }.unwrap();
                } else {
                    put(&w, device, &stamp, 1, 0).unwrap();
                }
                w.unlock(device, 1).unwrap();
                assert!(got.iter().all(|word| *word == got[0]), "all of them of one time");
            }
        }
        w.free(device).unwrap();
    });
}

/// Two lock all, each of which finds its own memory free, and that of the other locked by a writer or about to be.
#[test]
fn who_locks_all_comes_by_writers_who_wait() {
    for _ in 0..20 {
        let (made, asked) = (AtomicU32::new(0), Barrier::new(4));
        job(4, &Config::default(), |device, members| {
            let (own, mut kept) = (members.rank, vec![0; 1]);
            let w = window(device, members, Flavor::Create, &mut kept);
            made.fetch_add(1, Ordering::Relaxed);
            while made.load(Ordering::Relaxed) < 4 {
                device.progress();
            }
            if own < 2 {
                let lock = w.ask_for_lock(device, own + 2, Wish::One(Lock::Exclusive));
                device.flush();
                // It has not been taken in.
                asked.wait();
                device.wait(lock);
                w.state().epoch = Epoch::Locked(vec![(own + 2, Stage::Open)]);
                w.unlock(device, own + 2).unwrap();
            } else {
                asked.wait();
                w.lock_all(device).unwrap();
                w.unlock_all(device).unwrap();
            }
            w.free(device).unwrap();
        });
    }
}

#[test]
fn what_is_not_in_the_window_is_refused_and_the_next_operation_is_done() {
    job(2, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![7; 3_000]);
        let w = window(device, members, Flavor::Create, &mut kept[1_000..2_000]);
        if own == 0 {
            w.lock(device, 1, Lock::Shared).unwrap();
            for (len, displacement) in [(1, 1_000), (1, -1), (900, 101), (1_001, 0), (1, i64::MAX), (1, i64::MIN)] {
                put(&w, device, &vec![1; len], 1, displacement).unwrap();
                assert_eq!(w.flush(device, 1), Err(RmaError::Range), "{len} from {displacement} on");
                assert_eq!(get(&w, device, &mut vec![0; len], 1, displacement), Err(RmaError::Range));
                assert_eq!(w.flush(device, 1), Err(RmaError::Range));
                assert_eq!(w.flush(device, 1), Ok(()));
            }
            put(&w, device, &[9; 900], 1, 100).unwrap();
            w.unlock(device, 1).unwrap();
        }
        w.free(device).unwrap();
        let written = if own == 0 { 0 } else { 900 };
        assert_eq!(kept.iter().filter(|word| **word == 9).count(), written);
        assert_eq!(kept.iter().filter(|word| **word == 7).count(), 3_000 - written);
    });
}

#[test]
fn accumulates_of_one_origin_are_done_in_its_order() {
    let limits = adi::Limits { eager_max: 300, prefix: 100, put_min: 1_000, pull_min: 1_000 };
    for config in [Config::default(), Config { on_host: limits, single_copy: false, ..Config::default() }] {
        job(2, &config, |device, members| {
            let (own, mut kept) = (members.rank, vec![0; 3_000]);
            let w = window(device, members, Flavor::Create, &mut kept);
            w.fence(device, false).unwrap();
            let values: Vec<[u64; 100]> = (1..=40).map(|value| [value; 100]).collect();
            let (datatype, data) = (&word(), vec![7u64; 2_000]);
            if own == 0 {
                let lend = |words: &[u64]| Lent { address: words.as_ptr().cast(), count: words.len(), datatype };
                // SAFETY: the fence ends them.
                unsafe {
                    // What follows waits for its data.
                    let to = Target { rank: 1, displacement: 1_000, count: 2_000, datatype };
                    w.put(device, lend(&data), to).unwrap();
                    for (value, len) in values.iter().zip((1..=100).rev().step_by(7).cycle()) {
                        let to = Target { rank: 1, displacement: 0, count: len, datatype };
                        w.accumulate(device, lend(&value[..len]), to, &Op::Replace).unwrap();
                    }
                }
            }
            w.fence(device, true).unwrap();
            w.free(device).unwrap();
            if own == 1 {
                assert_eq!((kept[0], kept[1_000], kept[2_999]), (40, 7, 7));
            }
        });
    }
}

#[test]
fn nothing_is_done_outside_of_its_epoch() {
    job(2, &Config::default(), |device, members| {
        let w = Window::allocate(device, members, 8, 8).unwrap();
        assert_eq!(put(&w, device, &[1], 0, 0), Err(RmaError::Sync));
        assert_eq!((w.unlock(device, 0), w.unlock_all(device)), (Err(RmaError::Sync), Err(RmaError::Sync)));
        assert_eq!(w.complete(device), Err(RmaError::Sync));
        assert_eq!(w.wait_exposed(device), Err(RmaError::Sync));
        assert_eq!(w.flush(device, 0), Err(RmaError::Sync));
        assert_eq!(w.detach(device, w.memory().unwrap().cast()), Err(RmaError::Flavor));
        w.lock(device, 0, Lock::Shared).unwrap();
        assert_eq!(put(&w, device, &[1], 1, 0), Err(RmaError::Sync));
        assert_eq!(put(&w, device, &[1], 2, 0), Err(RmaError::Rank));
        assert_eq!(w.fence(device, false), Err(RmaError::Sync));
        assert_eq!(w.lock(device, 0, Lock::Shared), Err(RmaError::Sync));
        w.unlock(device, 0).unwrap();
        w.free(device).unwrap();
    });
}

#[test]
fn pairs_with_gaps_are_combined_as_pairs() {
    job(3, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![u64::MAX; 2 * 5_000]);
        if own == 0 {
            kept.iter_mut().step_by(2).for_each(|value| *value = (-1f64).to_bits());
        }
        let w = window(device, members, Flavor::Create, &mut kept);
        let datatype = &Datatype::from(Predefined::DoubleInt);
        let mine: Vec<u64> = (0..5_000).flat_map(|i| [(((i + own) % 3) as f64).to_bits(), own as u64]).collect();
        let from = Lent { address: mine.as_ptr().cast(), count: 5_000, datatype };
        let to = Target { rank: 0, displacement: 0, count: 5_000, datatype };
        w.fence(device, false).unwrap();
        // SAFETY: the fence ends it.
        unsafe {
            w.accumulate(device, from, to, &Op::Maxloc).unwrap();
            // One element's bytes are one run.
            w.accumulate(device, Lent { count: 1, ..from }, Target { count: 1, ..to }, &Op::Maxloc).unwrap();
            assert_eq!(w.accumulate(device, from, to, &Op::Sum), Err(RmaError::Op));
        }
        w.fence(device, true).unwrap();
        w.free(device).unwrap();
        if own == 0 {
            for (i, pair) in kept.chunks(2).enumerate() {
                let best = (5 - i % 3) % 3;
                assert_eq!(f64::from_bits(pair[0]), 2.0);
                // The gap's bytes stay.
                assert_eq!(pair[1], 0xffff_ffff_0000_0000 | best as u64, "pair {i}");
            }
        }
    });
}

#[test]
fn a_duplicate_of_a_communicator_has_windows() {
    job(3, &Config::default(), |device, members| {
        let own = members.rank;
        let alone = Device::open(0, vec![Process::here("", &[])], vec![], &Config::default()).unwrap();
        let world = Communicator::world(std::mem::replace(device, alone), false);
        let dup = world.dup().unwrap();
        // SAFETY: nobody takes the device away.
        let found = unsafe {
            dup.with_device(|device| {
                let w = Window::allocate(device, dup.members(), 24, 8).unwrap();
                w.fence(device, false).unwrap();
                for rank in 0..3 {
                    put(&w, device, &[10 + own as u64], rank, own as i64).unwrap();
                }
                w.fence(device, false).unwrap();
                let mut found = [0; 3];
                get(&w, device, &mut found, own, 0).unwrap();
                w.fence(device, true).unwrap();
                w.free(device).unwrap();
                found
            })
        };
        assert_eq!(found, [10, 11, 12]);
        drop(dup);
        *device = world.into_device();
    });
}

/// Long ones too, which the target asks for late.
#[test]
fn after_a_local_flush_what_was_lent_is_the_callers_again() {
    const ROUNDS: u64 = 20;
    for (words, of_all) in [1, 100, 20_000].into_iter().flat_map(|words| [(words, true), (words, false)]) {
        job(3, &Config::default(), |device, members| {
            let (own, mut kept) = (members.rank, vec![0; words]);
            let w = window(device, members, Flavor::Create, &mut kept);
            let outside = [w.flush_local_all(device), w.flush_local(device, 1)];
            assert_eq!(outside, [Err(RmaError::Sync); 2], "outside of an epoch");
            w.lock_all(device).unwrap();
            if own == 0 {
                let (mut lent, datatype) = (vec![0; words], &word());
                for round in 1..=ROUNDS {
                    lent.fill(round);
                    for rank in [1, 2] {
                        let from = Lent { address: lent.as_ptr().cast(), count: words, datatype };
                        // SAFETY: it is written again after a local flush only.
                        unsafe {
                            w.put(device, from, Target { rank, displacement: 0, count: words, datatype }).unwrap()
                        };
                    }
                    if of_all {
                        w.flush_local_all(device).unwrap();
                    } else {
                        [1, 2].into_iter().for_each(|rank| w.flush_local(device, rank).unwrap());
                    }
                }
                lent.fill(u64::MAX);
            }
            w.unlock_all(device).unwrap();
            w.barrier(device).unwrap();
            w.free(device).unwrap();
            assert!(kept.iter().all(|word| *word == if own == 0 { 0 } else { ROUNDS }), "{words} words at {own}");
        });
    }
}

/// Of a target that serves nobody for a while.
#[test]
fn who_asks_without_end_waits_until_some_of_it_is_done() {
    let (met, has_waited) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    job(2, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, (0..=QUEUE_MAX as u64).collect::<Vec<_>>());
        let w = window(device, members, Flavor::Create, &mut kept);
        w.fence(device, false).unwrap();
        met.wait();
        if own == 0 {
            let (all, waits) = (Arc::clone(&met), Arc::clone(&has_waited));
            device.on_idle_ask(Box::new(move || {
                if !waits.swap(true, Ordering::Relaxed) {
                    all.wait();
                }
                None
            }));
            let (mut found, datatype) = (vec![0u64; QUEUE_MAX + 1], &word());
            for (at, room) in found.iter_mut().enumerate() {
                assert!(!has_waited.load(Ordering::Relaxed), "{at} are under way");
                let into = Room { address: (&raw mut *room).cast(), count: 1, datatype };
                let from = Target { rank: 1, displacement: at as i64, count: 1, datatype };
                // SAFETY: nobody looks there before the fence.
                unsafe { w.get(device, into, from).unwrap() };
            }
            assert!(has_waited.load(Ordering::Relaxed), "more than {QUEUE_MAX} are under way");
            w.fence(device, true).unwrap();
            assert!(found.iter().copied().eq(0..=QUEUE_MAX as u64));
        } else {
            met.wait();
            w.fence(device, true).unwrap();
        }
        w.free(device).unwrap();
    });
}
