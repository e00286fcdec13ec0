//! What accumulates give and fetch.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use super::job::job;
use super::operations::{fetch_and_add, get, window, word};
use crate::adi::Config;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::rma::{Flavor, Lent, Lock, RmaError, Room, Target};

#[test]
fn who_fetches_and_gives_nothing_changes_nothing() {
    job(3, &Config::default(), |device, members| {
        let (own, mut kept) = (members.rank, vec![10; 4]);
        let w = window(device, members, Flavor::Create, &mut kept);
        let datatype = &word();
        w.lock_all(device).unwrap();
        let mut last = [0; 4];
        for _ in 0..100 {
            if own == 0 {
                fetch_and_add(&w, device, 1, 2, 3);
                continue;
            }
            let (nothing, mut seen) = (Lent { address: std::ptr::null(), count: 0, datatype }, [0u64; 4]);
            let into = Room { address: seen.as_mut_ptr().cast(), count: 4, datatype };
            let to = Target { rank: 2, displacement: 0, count: 4, datatype };
            // SAFETY: we wait until it is over.
            let operation = unsafe { w.get_accumulate(device, nothing, into, to, &Op::NoOp).unwrap() };
            w.wait(device, operation).unwrap();
            assert!(seen[..3] == [10; 3] && (last[3]..=110).contains(&seen[3]), "{seen:?} after {last:?}");
            last = seen;
        }
        w.unlock_all(device).unwrap();
        w.barrier(device).unwrap();
        w.lock_all(device).unwrap();
        assert_eq!(fetch_and_add(&w, device, 0, 2, 3), 110);
        w.unlock_all(device).unwrap();
        w.free(device).unwrap();
    });
}

/// MPI-5.0 12.3.4: with `MPI_NO_OP` the origin's arguments mean nothing.
#[test]
fn who_only_fetches_may_give_anything() {
    job(1, &Config::default(), |device, members| {
        let mut kept = vec![10; 4];
        let w = window(device, members, Flavor::Create, &mut kept);
        let (datatype, other) = (&word(), &Datatype::from(Predefined::Float));
        let mut seen = [0u64; 4];
        w.lock(device, 0, Lock::Shared).unwrap();
        let anything = Lent { address: std::ptr::null(), count: 3, datatype: other };
        let into = Room { address: seen.as_mut_ptr().cast(), count: 4, datatype };
        let to = Target { rank: 0, displacement: 0, count: 4, datatype };
        // SAFETY: we wait until it is over.
        let operation = unsafe { w.get_accumulate(device, anything, into, to, &Op::NoOp).unwrap() };
        w.wait(device, operation).unwrap();
        w.unlock(device, 0).unwrap();
        w.free(device).unwrap();
        assert_eq!(seen, [10; 4]);
    });
}

/// MPI-5.0 5.1.2 allows types without elements, and 12.3.4 accumulates of all types whose elements are of one type.
#[test]
fn an_accumulate_of_a_type_without_elements_does_nothing() {
    job(1, &Config::default(), |device, members| {
        let mut kept = vec![10; 4];
        let w = window(device, members, Flavor::Create, &mut kept);
        let nothing = &Datatype::indexed(&[0, 0], &[1, 3], &word()).unwrap();
        let mut room = 0u64;
        w.lock(device, 0, Lock::Shared).unwrap();
        let from = Lent { address: (&raw const room).cast(), count: 1, datatype: nothing };
        let into = Room { address: (&raw mut room).cast(), count: 1, datatype: nothing };
        let to = Target { rank: 0, displacement: 0, count: 1, datatype: nothing };
        // SAFETY: the unlock ends both.
        unsafe {
            w.accumulate(device, from, to, &Op::Sum).unwrap();
            w.get_accumulate(device, from, into, to, &Op::Bxor).unwrap();
        }
        w.unlock(device, 0).unwrap();
        w.free(device).unwrap();
        assert_eq!(kept, [10; 4]);
    });
}

/// MPI-5.0 12.3.4: what goes from the origin to the target has to fit there, and all of the target's elements are fetched.
#[test]
fn what_is_given_may_be_less_than_what_is_fetched() {
    // A part of one request, and of many; of one run, and of every other pair of words.
    for (given, count) in [(0, 4), (3, 6), (5_000, 9_000)] {
        for step in [1, 2] {
            job(2, &Config::default(), |device, members| {
                let (own, words) = (members.rank, count * step);
                let mut kept: Vec<u64> = (0..words as u64).collect();
                let w = window(device, members, Flavor::Create, &mut kept);
                let (datatype, pairs) = (&word(), &Datatype::vector(1, 2, 2, &word()).unwrap());
                let spread = &pairs.resized(0, 16 * step as isize).unwrap();
                w.lock_all(device).unwrap();
                if own == 0 {
                    let mine = vec![1_000_000u64; count + 1];
                    let from = Lent { address: mine.as_ptr().cast(), count: given, datatype };
                    let mut seen = vec![0u64; count];
                    let into = Room { address: seen.as_mut_ptr().cast(), count, datatype };
                    let to = Target { rank: 1, displacement: 0, count: count / 2, datatype: spread };
                    // SAFETY: we wait until it is over.
                    let operation = unsafe { w.get_accumulate(device, from, into, to, &Op::Sum).unwrap() };
                    w.wait(device, operation).unwrap();
                    let place = |at: usize| (at / 2 * 2 * step + at % 2) as u64;
                    assert!(
                        seen.iter().enumerate().all(|(at, word)| *word == place(at)),
                        "{given} of {count}: {seen:?}"
                    );
                    let mut all = vec![0; words];
                    get(&w, device, &mut all, 1, 0).unwrap();
                    let mut expected: Vec<u64> = (0..words as u64).collect();
                    (0..given).for_each(|at| expected[place(at) as usize] += 1_000_000);
                    assert_eq!(all, expected);
                    let more = Lent { count: count + 1, ..from };
                    // SAFETY: nothing is begun.
                    let refused = unsafe { w.get_accumulate(device, more, into, to, &Op::Sum) };
                    assert_eq!(refused.map(drop), Err(RmaError::Truncated));
                }
                w.unlock_all(device).unwrap();
                w.free(device).unwrap();
            });
        }
    }
}

/// MPI-5.0 12.3.4: `MPI_NO_OP` is for what fetches.
#[test]
fn an_accumulate_that_neither_changes_nor_fetches_is_refused() {
    job(1, &Config::default(), |device, members| {
        let mut kept = vec![10; 4];
        let w = window(device, members, Flavor::Create, &mut kept);
        let (datatype, value) = (&word(), 1u64);
        let from = Lent { address: (&raw const value).cast(), count: 1, datatype };
        let to = Target { rank: 0, displacement: 0, count: 1, datatype };
        w.lock(device, 0, Lock::Shared).unwrap();
        // SAFETY: nothing is begun.
        assert_eq!(unsafe { w.accumulate(device, from, to, &Op::NoOp) }.map(drop), Err(RmaError::Op));
        w.unlock(device, 0).unwrap();
        w.free(device).unwrap();
    });
}
