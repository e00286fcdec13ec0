//! What a window does, one behaviour a test.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::comm::{Destination, Equivalence, ErrorClass, ErrorHandler};
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;
use crate::window::Lock;

#[test]
fn everybody_who_counts_gets_a_number_of_his_own() {
    for make in BOTH {
        let seen = [const { AtomicU64::new(0) }; 800];
        job(4, |comm| {
            let window = make(&comm, 2);
            let epoch = window.lock_all().unwrap();
            for _ in 0..200 {
                let number = epoch.fetch_and_op(1, 2, 1, &Op::Sum).unwrap();
                seen[number as usize].fetch_add(1, Ordering::Relaxed);
            }
            epoch.end().unwrap();
            window.free().unwrap();
        });
        assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn threads_of_a_rank_count_in_one_epoch() {
    let seen = [const { AtomicU64::new(0) }; 400];
    in_threads(2, &Config::default(), true, |comm| {
        let window = comm.window::<u64>(1).unwrap();
        let epoch = &window.lock_all().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let number = epoch.fetch_and_op(1, 0, 0, &Op::Sum).unwrap();
                        seen[number as usize].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
    });
    assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
}

#[test]
fn what_is_compared_is_swapped_by_one_only() {
    job(3, |comm| {
        let window = comm.window::<i32>(1).unwrap();
        let epoch = window.lock_all().unwrap();
        let mut seen = 0;
        for _ in 0..100 {
            loop {
                let found = epoch.compare_and_swap(seen, seen + 1, 0, 0).unwrap();
                if std::mem::replace(&mut seen, found) == found {
                    break;
                }
            }
        }
        epoch.end().unwrap();
        comm.barrier().unwrap();
        if comm.rank() == 0 {
            assert_eq!(window.read(0..1).unwrap(), [300]);
        }
        window.free().unwrap();
    });
}

/// Elements of each rank, between one of either neighbour's at both ends.
const OWN: usize = 5_000;

#[test]
fn neighbours_see_each_others_edges_after_each_fence() {
    job(3, |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        let mut window = comm.window::<f64>(OWN + 2).unwrap();
        let value = |rank: u32, step: u32| f64::from(rank + 10 * step);
        let epoch = window.fence().unwrap();
        for step in 1..20 {
            let own = vec![value(rank, step); OWN];
            epoch.window().write(1, &own).unwrap();
            epoch.put(&own[..1], left, OWN + 1).unwrap();
            epoch.put(&own[OWN - 1..], right, 0).unwrap();
            epoch.fence().unwrap();
            let all = epoch.window().read(0..OWN + 2).unwrap();
            assert_eq!((all[0], all[1], all[OWN + 1]), (value(left, step), value(rank, step), value(right, step)));
            // Nobody puts again before all have read.
            epoch.fence().unwrap();
        }
        epoch.end().unwrap();
        window.free().unwrap();
    });
}

#[test]
fn who_is_let_in_is_waited_for() {
    for make in BOTH {
        job(3, |comm| {
            let (rank, size) = (comm.rank(), comm.size());
            let (before, next) = ((rank + size - 1) % size, (rank + 1) % size);
            let window = make(&comm, 3_000);
            for round in 0..20u64 {
                let mut posted = window.post(&[before]).unwrap();
                let epoch = window.start(&[next]).unwrap();
                epoch.put(&[100 * round + u64::from(rank); 3_000], next, 0).unwrap();
                assert_eq!(epoch.put(&[1], before, 0), Err(ErrorClass::RmaSync), "it was not started");
                epoch.end().unwrap();
                if round % 2 == 0 {
                    while let Some(not_yet) = posted.test().unwrap() {
                        posted = not_yet;
                    }
                } else {
                    posted.wait().unwrap();
                }
                let mut here = [0; 3_000];
                window.lock(rank, Lock::Shared).unwrap().get(&mut here, rank, 0).unwrap();
                assert!(here.iter().all(|word| *word == 100 * round + u64::from(before)));
            }
            window.free().unwrap();
        });
    }
}

#[test]
fn who_has_the_lock_is_alone_and_gives_it_back_when_it_is_dropped() {
    for make in BOTH {
        job(4, |comm| {
            let window = make(&comm, 1);
            let mut word = [0];
            for round in 0..50 {
                let epoch = window.lock(1, Lock::Exclusive).unwrap();
                epoch.get(&mut word, 1, 0).unwrap();
                epoch.put(&[word[0] + 1], 1, 0).unwrap();
                if round % 2 == 0 {
                    epoch.end().unwrap();
                }
            }
            comm.barrier().unwrap();
            window.lock(1, Lock::Shared).unwrap().get(&mut word, 1, 0).unwrap();
            assert_eq!(word, [200]);
            window.free().unwrap();
        });
    }
}

#[test]
fn locks_of_two_ranks_are_held_at_a_time() {
    job(2, |comm| {
        let window = comm.window::<u8>(1).unwrap();
        if comm.rank() == 0 {
            let [zero, one] = [0, 1].map(|rank| window.lock(rank, Lock::Exclusive).unwrap());
            assert_eq!(window.lock(1, Lock::Shared).map(drop), Err(ErrorClass::RmaSync));
            one.put(&[2], 1, 0).unwrap();
            one.flush().unwrap();
            one.end().unwrap();
            assert_eq!(window.lock_all().map(drop), Err(ErrorClass::RmaSync), "and rank 0 is locked still");
            zero.put(&[1], 0, 0).unwrap();
            zero.end().unwrap();
        }
        comm.barrier().unwrap();
        assert_eq!(window.read(0..1).unwrap(), [comm.rank() as u8 + 1]);
        window.free().unwrap();
    });
}

#[test]
fn what_is_not_in_the_window_is_refused_and_harms_nothing() {
    const RANGE: Result<(), ErrorClass> = Err(ErrorClass::RmaRange);
    for (mapped, make) in [true, false].into_iter().zip(BOTH) {
        job(2, |comm| {
            let window = make(&comm, 100);
            if comm.rank() == 0 {
                let epoch = window.lock(1, Lock::Shared).unwrap();
                for (len, at) in [(1, 100), (101, 0), (2, 99), (1, usize::MAX), (1, usize::MAX / 8), (0, 101)] {
                    let expected = if len == 0 { Ok(()) } else { RANGE };
                    let put = epoch.put(&vec![1; len], 1, at);
                    assert_eq!(if mapped { put } else { epoch.flush() }, expected, "{len} from {at} on");
                    assert_eq!(epoch.get(&mut vec![0; len], 1, at), expected);
                    assert_eq!(epoch.flush(), if mapped { Ok(()) } else { expected }, "told once more");
                    epoch.accumulate(&vec![1; len], 1, at, &Op::Sum).unwrap();
                    assert_eq!(epoch.flush(), expected);
                }
                assert_eq!(epoch.fetch_and_op(1, 1, 100, &Op::Sum), Err(ErrorClass::RmaRange));
                assert_eq!(epoch.flush(), RANGE);
                epoch.put(&[9; 100], 1, 0).unwrap();
                epoch.end().unwrap();
            }
            comm.barrier().unwrap();
            let mut all = [7; 100];
            window.lock(1, Lock::Shared).unwrap().get(&mut all, 1, 0).unwrap();
            assert_eq!(all, [9; 100]);
            window.free().unwrap();
        });
    }
}

#[test]
fn own_elements_are_read_and_written_within_bounds() {
    job(2, |comm| {
        let window = comm.window::<[u16; 3]>(10).unwrap();
        assert_eq!((window.len(), window.is_empty(), window.size()), (10, false, 2));
        assert_eq!(window.read(0..10).unwrap(), [[0; 3]; 10]);
        window.write(8, &[[1, 2, 3], [4, 5, 6]]).unwrap();
        for (at, len) in [(9, 2), (10, 1), (0, 11), (usize::MAX, 1)] {
            assert_eq!(window.write(at, &vec![[9; 3]; len]), Err(ErrorClass::RmaRange));
            assert_eq!(window.read_into(&mut vec![[9; 3]; len], at), Err(ErrorClass::RmaRange));
            assert_eq!(window.read(at..at.saturating_add(len)).map(drop), Err(ErrorClass::RmaRange));
        }
        assert_eq!(window.read(10..10).unwrap(), [[0u16; 3]; 0]);
        assert_eq!(window.read(7..10).unwrap(), [[0; 3], [1, 2, 3], [4, 5, 6]]);
        window.free().unwrap();
    });
}

#[test]
fn who_reads_again_and_again_sees_what_comes() {
    job(2, |comm| {
        let window = comm.window::<u64>(1).unwrap();
        if comm.rank() == 0 {
            // By the target, which does nothing but read.
            window.lock(1, Lock::Shared).unwrap().accumulate(&[5], 1, 0, &Op::Sum).unwrap();
        } else {
            while window.read(0..1).unwrap() != [5] {}
        }
        window.free().unwrap();
    });
}

#[test]
fn who_gets_again_and_again_serves_others() {
    job(2, |comm| {
        let window = comm.window::<u64>(1).unwrap();
        let epoch = window.lock_all().unwrap();
        if comm.rank() == 0 {
            epoch.accumulate(&[5], 1, 0, &Op::Sum).unwrap();
            epoch.flush(1).unwrap();
        } else {
            let mut seen = [0];
            while seen != [5] {
                epoch.get(&mut seen, 1, 0).unwrap();
                epoch.flush(1).unwrap();
            }
        }
        drop(epoch);
        window.free().unwrap();
    });
}

#[test]
fn nothing_is_done_nowhere() {
    job(2, |comm| {
        let mut window = comm.window::<u32>(1).unwrap();
        let epoch = window.fence().unwrap();
        let (mut room, nowhere) = ([7u32; 2], Destination::Null);
        epoch.put(&[1, 2], nowhere, 5).unwrap();
        epoch.get(&mut room, nowhere, 0).unwrap();
        epoch.accumulate(&[1], nowhere, 0, &Op::Sum).unwrap();
        epoch.get_accumulate(&[1], &mut room, nowhere, 0, &Op::Sum).unwrap();
        assert_eq!(epoch.fetch_and_op(3, nowhere, 0, &Op::Sum), Ok(3));
        assert_eq!(epoch.compare_and_swap(4, 5, nowhere, 0), Ok(4));
        epoch.scope(|scope| scope.get(&mut room, nowhere, 0)?.wait()).unwrap();
        assert_eq!(epoch.accumulate(&[1], nowhere, 0, &Op::Maxloc), Err(ErrorClass::Op));
        epoch.end().unwrap();
        assert_eq!((room, window.read(0..1).unwrap()), ([7; 2], vec![0]));
        window.free().unwrap();
    });
}

/// Of which a part is not said to be data: it stays at home.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Kept {
    data: u32,
    own: u32,
}

// SAFETY: as `datatype` says, the first half of eight bytes.
unsafe impl Equivalence for Kept {
    fn datatype() -> Datatype {
        Datatype::resized(&Predefined::Uint32.into(), 0, 8).expect("a type of eight bytes")
    }
}

#[test]
fn what_is_no_data_stays_what_it_is() {
    job(2, |comm| {
        let window = comm.window::<Kept>(2).unwrap();
        let (own, other) = (comm.rank(), 1 - comm.rank());
        window.write(0, &[Kept { data: 1, own: 2 }]).unwrap();
        comm.barrier().unwrap();
        let epoch = window.lock(other, Lock::Shared).unwrap();
        epoch.put(&[Kept { data: own + 3, own: 4 }], other, 1).unwrap();
        let mut got = [Kept { data: 5, own: 6 }];
        epoch.get(&mut got, other, 0).unwrap();
        assert_eq!(got, [Kept { data: 1, own: 6 }]);
        epoch.accumulate(&[Kept { data: 10, own: 1 }], other, 0, &Op::Sum).unwrap();
        epoch.end().unwrap();
        comm.barrier().unwrap();
        assert_eq!(window.read(0..2).unwrap(), [Kept { data: 11, own: 0 }, Kept { data: other + 3, own: 0 }]);
        window.free().unwrap();
    });
}

/// The same with its data behind.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
#[repr(C)]
struct Behind {
    own: u32,
    data: u32,
}

// SAFETY: as `datatype` says, the second half of eight bytes.
unsafe impl Equivalence for Behind {
    fn datatype() -> Datatype {
        let behind = Datatype::hindexed(&[1], &[4], &Predefined::Uint32.into());
        behind.and_then(|behind| behind.resized(0, 8)).expect("a type of eight bytes")
    }
}

#[test]
fn what_is_no_data_is_not_compared_or_swapped() {
    job(1, |comm| {
        let window = comm.window::<Behind>(2).unwrap();
        let epoch = window.lock(0, Lock::Exclusive).unwrap();
        epoch.put(&[Behind { own: 0, data: 5 }], 0, 1).unwrap();
        let (five, seven) = (Behind { own: 1, data: 5 }, Behind { own: 2, data: 7 });
        assert_eq!(epoch.compare_and_swap(five, seven, 0, 1), Ok(Behind { own: 1, data: 5 }));
        assert_eq!(epoch.fetch_and_op(seven, 0, 1, &Op::Sum), Ok(Behind { own: 2, data: 7 }));
        epoch.end().unwrap();
        assert_eq!(window.read(0..2).unwrap(), [Behind::default(), Behind { own: 0, data: 14 }]);
        window.free().unwrap();
    });
}

#[test]
fn what_the_standard_does_not_combine_is_refused() {
    job(1, |comm| {
        let window = comm.window::<f32>(4).unwrap();
        let epoch = window.lock_all().unwrap();
        assert_eq!(epoch.accumulate(&[1.0], 0, 0, &Op::Band), Err(ErrorClass::Op));
        assert_eq!(epoch.compare_and_swap(0.0, 1.0, 0, 0), Err(ErrorClass::Op));
        assert_eq!(epoch.get_accumulate(&[1.0; 2], &mut [0.0], 0, 0, &Op::Sum), Err(ErrorClass::Truncate));
        assert_eq!(epoch.put(&[1.0], 1, 0), Err(ErrorClass::Rank));
        epoch.accumulate(&[1.5; 4], 0, 0, &Op::Sum).unwrap();
        // The second is only fetched.
        let mut before = [0.0; 2];
        epoch.get_accumulate(&[1.0], &mut before, 0, 0, &Op::Sum).unwrap();
        epoch.end().unwrap();
        assert_eq!((before, &window.read(0..4).unwrap()[..]), ([1.5; 2], &[2.5, 1.5, 1.5, 1.5][..]));
        window.free().unwrap();
    });
}

#[test]
fn errors_go_to_the_handler_of_the_communicator_it_was_made_of() {
    job(1, |comm| {
        let told = std::sync::Arc::new(AtomicU64::new(0));
        let here = std::sync::Arc::clone(&told);
        comm.set_name("the user's");
        comm.set_error_handler(ErrorHandler::Call(std::sync::Arc::new(move |comm, code| {
            assert_eq!(comm.name(), "the user's");
            here.fetch_add(code.to_abi() as u64, Ordering::Relaxed);
        })));
        let window = comm.window::<u8>(1).unwrap();
        assert_eq!(window.write(1, &[1]), Err(ErrorClass::RmaRange));
        assert_eq!(told.load(Ordering::Relaxed), ErrorClass::RmaRange as u64);
        window.free().unwrap();
    });
}

#[test]
fn a_windows_own_handler_is_told_instead() {
    job(1, |comm| {
        comm.set_error_handler(ErrorHandler::Call(std::sync::Arc::new(|_, code| panic!("told: {code}"))));
        let window = comm.window::<u8>(1).unwrap();
        assert!(window.error_handler().is_none());
        let told = std::sync::Arc::new(AtomicU64::new(0));
        let here = std::sync::Arc::clone(&told);
        window.set_error_handler(ErrorHandler::Call(std::sync::Arc::new(move |window: &Window<u8>, code| {
            assert_eq!((window.len(), code), (1, ErrorClass::RmaRange.into()));
            here.fetch_add(1, Ordering::Relaxed);
        })));
        assert_eq!(window.write(1, &[1]), Err(ErrorClass::RmaRange));
        assert_eq!(window.read(1..2), Err(ErrorClass::RmaRange));
        window.call_error_handler(ErrorClass::RmaRange);
        assert_eq!(told.load(Ordering::Relaxed), 3);
        window.set_error_handler(ErrorHandler::Return);
        assert_eq!(window.write(1, &[1]), Err(ErrorClass::RmaRange));
        assert_eq!(told.load(Ordering::Relaxed), 3);
        window.free().unwrap();
    });
}

/// Its epoch is dropped while the panic unwinds, and has the same error to tell.
#[test]
fn an_error_handler_that_panics_ends_its_call_only() {
    job(1, |comm| {
        let window = unmapped(&comm, 4);
        comm.set_error_handler(ErrorHandler::Call(std::sync::Arc::new(|_, class| panic!("told: {class}"))));
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let epoch = window.lock(0, Lock::Exclusive).unwrap();
            let mut beyond = [0; 8];
            epoch.scope(|scope| scope.get(&mut beyond, 0, 0)?.wait()).unwrap();
        }));
        assert!(failed.unwrap_err().downcast_ref::<String>().unwrap().starts_with("told: "));
        comm.set_error_handler(ErrorHandler::Return);
        window.lock(0, Lock::Exclusive).unwrap().end().unwrap();
        window.free().unwrap();
    });
}

#[test]
fn what_was_begun_goes_on_while_somebody_reads_again_and_again() {
    job(2, |comm| {
        let window = comm.window::<u64>(1).unwrap();
        comm.scope(|scope| {
            let barrier = scope.barrier()?;
            if comm.rank() == 0 {
                barrier.wait()?;
                window.lock(1, Lock::Shared)?.put(&[1], 1, 0)?;
            } else {
                while window.read(0..1)? == [0] {}
                barrier.wait()?;
            }
            Ok(())
        })
        .unwrap();
        window.free().unwrap();
    });
}

#[test]
fn nobody_is_named_twice_and_nothing_else_is_opened_between_fences() {
    job(2, |comm| {
        let mut window = comm.window::<u64>(1).unwrap();
        assert_eq!(window.start(&[1, 1]).map(drop), Err(ErrorClass::Rank));
        assert_eq!(window.post(&[1, 1]).map(drop), Err(ErrorClass::Rank));
        let epoch = window.fence().unwrap();
        assert_eq!(epoch.window().lock(1, Lock::Shared).map(drop), Err(ErrorClass::RmaSync));
        assert_eq!(epoch.window().lock_all().map(drop), Err(ErrorClass::RmaSync));
        epoch.put(&[7], 1 - comm.rank(), 0).unwrap();
        epoch.end().unwrap();
        assert_eq!(window.read(0..1).unwrap(), [7]);
        window.lock(1, Lock::Shared).unwrap().end().unwrap();
        window.free().unwrap();
    });
}

/// Callbacks may communicate.
#[test]
fn attributes_are_deleted_before_the_window_ends() {
    use crate::attribute::Keyval;

    job(2, |comm| {
        let window = comm.window::<u64>(1).unwrap();
        assert_eq!(window.name(), "");
        window.set_name("counters");
        let met = comm.clone();
        let key = Keyval::new(
            |_, _| Ok(None),
            move |of: &crate::rma::Window, value| {
                assert_eq!((of.name(), *value.downcast_ref::<i32>().unwrap()), ("counters".to_owned(), 7));
                met.barrier()
            },
        );
        window.set_attribute(&key, std::sync::Arc::new(7)).unwrap();
        assert_eq!(*window.attribute(&key).unwrap().downcast_ref::<i32>().unwrap(), 7);
        assert_eq!((window.delete_attribute(&key), window.delete_attribute(&key)), (Ok(true), Ok(false)));
        window.set_attribute(&key, std::sync::Arc::new(7)).unwrap();
        window.free().unwrap();
        let window = comm.window::<u64>(1).unwrap();
        let refuses = Keyval::new(|_, _| Ok(None), |_, _| Err(ErrorClass::Keyval));
        window.set_attribute(&refuses, std::sync::Arc::new(8)).unwrap();
        assert_eq!(window.free(), Err(ErrorClass::Keyval));
    });
}
