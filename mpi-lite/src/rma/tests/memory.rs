//! A window's memory: mapped, attached, and by runs.
#![allow(unsafe_code)] // Operations are lent what lives until they are over.

use super::job::job;
use super::operations::{fetch_and_add, get, put, window, word};
use crate::adi::Config;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::rma::{Flavor, Lent, Lock, RmaError, Room, Target, Window};

#[test]
fn what_is_not_in_mapped_memory_is_refused() {
    job(2, &Config::default(), |device, members| {
        let w = Window::allocate_shared(device, members, 800, 8).unwrap();
        w.fence(device, false).unwrap();
        // The next rank's part follows, and is not this one's.
        assert_eq!(put(&w, device, &[1], 0, 100), Err(RmaError::Range));
        assert_eq!(get(&w, device, &mut [0; 2], 0, 99), Err(RmaError::Range));
        assert!(w.share(1).is_some() && w.share(2).is_none());
        w.fence(device, true).unwrap();
        w.free(device).unwrap();
    });
}

/// MPI-5.0 12.2.4: a window has all that is attached, however it was attached.
#[test]
fn what_was_attached_in_parts_that_touch_is_accessed_as_one() {
    const WORDS: usize = 3_000;
    job(1, &Config::default(), |device, members| {
        let mut kept = vec![0u64; WORDS];
        let start = kept.as_mut_ptr().cast::<u8>();
        let at = start.expose_provenance() as i64;
        let w = Window::dynamic(device, members).unwrap();
        // The fifth word is in both.
        for (begin, end) in [(0, 35), (35, WORDS * 8)] {
            let part = std::ptr::slice_from_raw_parts_mut(start.wrapping_add(begin), end - begin);
            // SAFETY: `kept` outlives the window, and is not looked at before.
            unsafe { w.attach(part) }.unwrap();
        }
        w.lock(device, 0, Lock::Shared).unwrap();
        let words: Vec<u64> = (1..=WORDS as u64).collect();
        put(&w, device, &words, 0, at).unwrap();
        put(&w, device, &[u64::MAX; 3], 0, at + 24).unwrap();
        assert_eq!(fetch_and_add(&w, device, 7, 0, at + 32), u64::MAX);
        let (new, compare, mut found) = (5u64, 6u64, 0u64);
        let of = ((&raw const new).cast(), (&raw const compare).cast(), (&raw mut found).cast());
        // SAFETY: we wait until it is over.
        let swapped = unsafe { w.compare_and_swap(device, of.0, of.1, of.2, &Predefined::Uint64.into(), 0, at + 32) };
        w.wait(device, swapped.unwrap()).unwrap();
        put(&w, device, &[4], 0, at + 24).unwrap();
        put(&w, device, &[6], 0, at + 40).unwrap();
        let mut all = vec![0; WORDS];
        get(&w, device, &mut all, 0, at).unwrap();
        assert_eq!(w.unlock(device, 0), Ok(()));
        assert!(found == 6 && all == words);
        w.free(device).unwrap();
    });
}

/// MPI-5.0 12.3.1 and 12.3.2: as a message has to fit into the buffer that receives it, what is moved has to fit, and may be shorter.
#[test]
fn what_is_moved_may_be_shorter_than_its_room() {
    for flavor in [Flavor::Create, Flavor::Allocate] {
        for words in [5, 2_001] {
            job(2, &Config::default(), |device, members| {
                let (own, mut kept) = (members.rank, vec![0; 6_100]);
                let w = window(device, members, flavor, &mut kept);
                let (datatype, every_third) = (&word(), &Datatype::vector(2, 1, 3, &word()).unwrap());
                let spread = &every_third.resized(0, 48).unwrap();
                w.lock_all(device).unwrap();
                if own == 0 {
                    let mine = vec![1u64; words];
                    let from = Lent { address: mine.as_ptr().cast(), count: words, datatype };
                    let run = Target { rank: 1, displacement: 0, count: words + 9, datatype };
                    // Its last element is there by half.
                    let blocks = Target { rank: 1, displacement: 0, count: words / 2 + 2, datatype: spread };
                    // SAFETY: the flushes end them.
                    unsafe {
                        w.put(device, from, run).unwrap();
                        w.accumulate(device, from, blocks, &Op::Sum).unwrap();
                        w.put(device, from, Target { displacement: 1, ..blocks }).unwrap();
                        w.flush(device, 1).unwrap();
                        let fits = w.put(device, Lent { count: words + 10, ..from }, run);
                        assert_eq!(fits.map(drop), Err(RmaError::Truncated));
                    }
                    let (mut seen, mut rest) = (vec![9u64; words + 4], vec![9u64; 6_100]);
                    let into = Room { address: seen.as_mut_ptr().cast(), count: words + 4, datatype };
                    let gaps = Room { address: rest.as_mut_ptr().cast(), count: words / 2 + 2, datatype: spread };
                    let part = Target { count: words, ..run };
                    // SAFETY: the flush ends them.
                    unsafe {
                        w.get(device, into, part).unwrap();
                        w.get(device, gaps, part).unwrap();
                        assert_eq!(w.get(device, into, run).map(drop), Err(RmaError::Truncated));
                    }
                    w.flush(device, 1).unwrap();
                    let expected = |at: usize| match at % 3 {
                        0 => 1 + u64::from(at < words),
                        1 => 1,
                        _ => u64::from(at < words),
                    };
                    let shown = (0..words).map(expected).chain([9; 4]);
                    assert!(shown.eq(seen.iter().copied()), "{flavor:?} {:?}", &seen[..9]);
                    let last = 3 * (words - 1);
                    assert!((0..=last).step_by(3).all(|at| rest[at] == expected(at / 3)), "{rest:?}");
                    assert_eq!((rest[1], rest[2], rest[last + 3]), (9, 9, 9));
                    let mut behind = [7; 4];
                    get(&w, device, &mut behind, 1, last as i64).unwrap();
                    assert_eq!(behind, [1, 1, 0, 0]);
                }
                w.unlock_all(device).unwrap();
                w.free(device).unwrap();
            });
        }
    }
}

#[test]
#[ignore = "run by another test"]
fn part_of_a_process_whose_files_are_short() {
    job(3, &Config::default(), |device, members| {
        let (own, len) = (members.rank, 7 << 18);
        let last = len / 8 - 1;
        let w = Window::allocate(device, members, len, 8).unwrap();
        assert!(w.state().mapped.share((own + 1) % 3).is_none(), "part of what is longer than a file may be");
        w.fence(device, false).unwrap();
        put(&w, device, &[own as u64], own, 0).unwrap();
        put(&w, device, &[own as u64 + 10], (own + 1) % 3, last as i64).unwrap();
        w.fence(device, true).unwrap();
        let memory = w.memory().unwrap().cast::<u64>();
        // SAFETY: of the window, which nobody accesses any more, and it is not freed yet.
        let found = unsafe { (memory.read(), memory.add(last).read()) };
        assert_eq!(found, (own as u64, (own as u64 + 2) % 3 + 10));
        w.free(device).unwrap();
    });
}

#[test]
fn ranks_whose_memory_cannot_be_one_have_some_each() {
    let part = "rma::tests::memory::part_of_a_process_whose_files_are_short";
    // Of blocks of 512 or 1,024 B: as long as a part, and not as all three.
    let script = "ulimit -f 4096; exec \"$0\" --exact \"$1\" --ignored";
    let own = std::env::current_exe().unwrap();
    let output = std::process::Command::new("sh").args(["-c", script]).arg(own).arg(part).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

/// More runs than one request has.
#[test]
fn of_many_runs_in_mapped_memory_all_are_accessed_or_none() {
    const RUNS: usize = 3_000;
    job(2, &Config::default(), |device, members| {
        let own = members.rank;
        let w = window(device, members, Flavor::Allocate, &mut vec![0; 2 * RUNS]);
        let (datatype, every_other) = (&word(), &Datatype::vector(RUNS, 1, 2, &word()).unwrap());
        w.lock_all(device).unwrap();
        if own == 0 {
            let (mine, mut seen, mut all) =
                ((1..=RUNS as u64).collect::<Vec<_>>(), vec![0u64; RUNS], vec![7; 2 * RUNS]);
            let from = Lent { address: mine.as_ptr().cast(), count: RUNS, datatype };
            let into = Room { address: seen.as_mut_ptr().cast(), count: RUNS, datatype };
            let at = |displacement| Target { rank: 1, displacement, count: 1, datatype: every_other };
            // The last one is behind the window.
            // SAFETY: they are refused.
            let refused = unsafe { [w.put(device, from, at(2)).map(drop), w.get(device, into, at(2)).map(drop)] };
            assert_eq!(refused, [Err(RmaError::Range); 2]);
            get(&w, device, &mut all, 1, 0).unwrap();
            assert!(all.iter().chain(&seen).all(|word| *word == 0), "something was accessed");
            // SAFETY: the flush ends them.
            unsafe {
                w.put(device, from, at(1)).unwrap();
                w.flush(device, 1).unwrap();
                w.get(device, into, at(1)).unwrap();
            }
            w.flush(device, 1).unwrap();
            get(&w, device, &mut all, 1, 0).unwrap();
            assert!(all.iter().step_by(2).all(|word| *word == 0) && all[1..].iter().step_by(2).eq(&mine));
            assert_eq!(seen, mine);
        }
        w.unlock_all(device).unwrap();
        w.free(device).unwrap();
    });
}
