//! Every collective call in its three forms: the one that waits is compared with those that don't.
#![allow(unsafe_code)] // A raw receive, into memory of the test's own.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::comm::cartesian::Side;
use crate::datatype::Datatype;
use crate::giving_way::TURNLESS_MAX;
use crate::op::Op;

const SIZE: usize = 4;
const ROUNDS: i64 = 3;

fn numbers(rank: u32, round: i64, len: usize) -> Vec<i64> {
    (0..len as i64).map(|index| index * 7 + round * 100 + i64::from(rank) * 1_000).collect()
}

/// Begins a call by its persistent form, some times, and in a scope; both give what the call that waits gives.
macro_rules! compare {
    ($comm:expr, $name:ident, $init:ident, ($given:expr; $room:expr) $(, $arg:expr)*) => {{
        let (comm, rank) = ($comm, $comm.rank());
        let mut again = comm.$init(numbers(rank, 0, $given), vec![-1; $room] $(, $arg)*).unwrap();
        for round in 0..ROUNDS {
            let given = numbers(rank, round, $given);
            let (mut waited, mut scoped) = (vec![-1; $room], vec![-1; $room]);
            comm.$name(&given, &mut waited $(, $arg)*).unwrap();
            comm.scope(|scope| scope.$name(&given, &mut scoped $(, $arg)*).map(drop)).unwrap();
            assert_eq!(scoped, waited, stringify!($name));
            again.given().unwrap().copy_from_slice(&given);
            again.room().unwrap().fill(-1);
            again.start().unwrap();
            assert_eq!(again.room().map(drop), Err(ErrorClass::Request));
            again.wait().unwrap();
            assert_eq!(again.room().unwrap(), waited, stringify!($name));
        }
    }};
}

#[test]
fn every_collective_has_three_forms_that_give_the_same() {
    job(SIZE as u32, |comm| {
        let (comm, rank) = (&comm, comm.rank() as usize);
        let is = |root: usize, len: usize| if rank == root { len } else { 0 };
        let counts = [3, 0, 5, 2];
        let sum: usize = counts.iter().sum();
        compare!(comm, reduce, reduce_init, (6; is(1, 6)), &Op::Sum, 1);
        compare!(comm, allreduce, allreduce_init, (6; 6), &Op::Max);
        compare!(comm, scan, scan_init, (6; 6), &Op::Sum);
        compare!(comm, exscan, exscan_init, (6; 6), &Op::Sum);
        compare!(comm, reduce_scatter_block, reduce_scatter_block_init, (8; 2), &Op::Sum);
        compare!(comm, reduce_scatter, reduce_scatter_init, (sum; counts[rank]), &counts, &Op::Sum);
        compare!(comm, gather, gather_init, (5; is(2, 5 * SIZE)), 2);
        compare!(comm, gather_varying, gather_varying_init, (counts[rank]; is(2, sum)), &counts, 2);
        compare!(comm, scatter, scatter_init, (is(3, 5 * SIZE); 5), 3);
        compare!(comm, scatter_varying, scatter_varying_init, (is(3, sum); counts[rank]), &counts, 3);
        compare!(comm, allgather, allgather_init, (5; 5 * SIZE));
        compare!(comm, allgather_varying, allgather_varying_init, (counts[rank]; sum), &counts);
        compare!(comm, alltoall, alltoall_init, (3 * SIZE; 3 * SIZE));
        let to: Vec<usize> = (0..SIZE).map(|to| rank + to).collect();
        let all = to.iter().sum();
        compare!(comm, alltoall_varying, alltoall_varying_init, (all; all), &to, &to);
        // Every second number.
        let other = Datatype::vector(1, 1, 1, &i64::datatype()).unwrap().resized(0, 16).unwrap();
        let piece = |at: usize| Piece::new(16 * to[..at].iter().sum::<usize>() as isize, to[at], &other);
        let pieces: Vec<Piece> = (0..SIZE).map(piece).collect();
        compare!(comm, alltoall_pieces, alltoall_pieces_init, (2 * all; 2 * all), &pieces, &pieces);
        let ring = comm.cartesian(&[Side { size: 4, periodic: true }]).unwrap().unwrap();
        compare!(&ring, neighbor_allgather, neighbor_allgather_init, (3; 6));
        compare!(&ring, neighbor_alltoall, neighbor_alltoall_init, (6; 6));
        // The one before us, and the one after us.
        let around = [(rank + SIZE - 1) % SIZE, (rank + 1) % SIZE].map(|rank| counts[rank]);
        let come = around.iter().sum();
        compare!(&ring, neighbor_allgather_varying, neighbor_allgather_varying_init, (counts[rank]; come), &around);
        let both = [counts[rank]; 2];
        let sent = 2 * counts[rank];
        compare!(&ring, neighbor_alltoall_varying, neighbor_alltoall_varying_init, (sent; come), &both, &around);
        let pair = |lens: [usize; 2]| {
            [(0, lens[0]), (lens[0], lens[1])].map(|(at, len)| Piece::new(8 * at as isize, len, &i64::datatype()))
        };
        let (to, from) = (pair(both), pair(around));
        compare!(&ring, neighbor_alltoall_pieces, neighbor_alltoall_pieces_init, (sent; come), &to, &from);
    });
}

#[test]
fn calls_with_one_memory_have_three_forms_too() {
    job(SIZE as u32, |comm| {
        let own = |round: i64| numbers(comm.rank(), round, 5);
        let mut told = comm.broadcast_init(vec![0; 5], 2).unwrap();
        let mut sum = comm.allreduce_in_place_init(vec![0; 5], &Op::Sum).unwrap();
        let mut met = comm.barrier_init().unwrap();
        for round in 0..ROUNDS {
            let (mut scoped_told, mut scoped_sum) = (own(round), own(round));
            comm.scope(|scope| {
                scope.broadcast(&mut scoped_told, 2)?;
                scope.allreduce_in_place(&mut scoped_sum, &Op::Sum)?;
                scope.barrier().map(drop)
            })
            .unwrap();
            let total: Vec<i64> = (0..5).map(|at| (0..4).map(|rank| numbers(rank, round, 5)[at]).sum()).collect();
            assert_eq!((scoped_told, scoped_sum), (numbers(2, round, 5), total.clone()));
            told.room().unwrap().copy_from_slice(&own(round));
            sum.room().unwrap().copy_from_slice(&own(round));
            // All three at once, whatever is over first.
            let mut all = [told.request(), sum.request(), met.request()];
            Persistent::start_all(all.iter_mut().map(PersistentRef::again)).unwrap();
            let mut seen = [false; 3];
            while let Some((which, status)) = Persistent::wait_any(&mut all) {
                assert!(!std::mem::replace(&mut seen[which], true) && status.error.is_none());
            }
            assert_eq!(seen, [true; 3]);
            assert_eq!(told.room().unwrap(), numbers(2, round, 5));
            assert_eq!(sum.room().unwrap(), total);
        }
    });
}

#[test]
fn persistent_messages_and_calls_are_waited_for_together() {
    job(2, |comm| {
        let other = 1 - comm.rank();
        let (mut met, mut told) = (comm.barrier_init().unwrap(), comm.broadcast_init(vec![comm.rank()], 0).unwrap());
        assert_eq!(Persistent::wait_some(&mut [met.request(), told.request()]), None);
        met.start().unwrap();
        told.start().unwrap();
        // They go on while something else is waited for.
        comm.sendrecv(&[1u8], other, 0, &mut [0u8], other, 0).unwrap();
        let mut over = 0;
        while let Some(some) = Persistent::wait_some(&mut [met.request(), told.request()]) {
            over += some.len();
        }
        assert_eq!((over, told.room().unwrap()), (2, &mut [0][..]));
        met.start().unwrap();
        told.start().unwrap();
        let statuses = Persistent::wait_all(&mut [met.request(), told.request()]);
        assert!(statuses.len() == 2 && statuses.iter().all(|status| status.error.is_none()));
        met.start().unwrap();
        told.start().unwrap();
        let mut over = 0;
        while let Some(some) = Persistent::test_some(&mut [met.request(), told.request()]) {
            over += some.len();
        }
        assert_eq!((over, Persistent::test_any(&mut [met.request(), told.request()])), (2, Some(None)));
        met.start().unwrap();
        told.start().unwrap();
        let one = loop {
            if let Some(one) = Persistent::test_any(&mut [met.request(), told.request()]) {
                break one.expect("both were active").0;
            }
        };
        let statuses = loop {
            if let Some(statuses) = Persistent::test_all(&mut [met.request(), told.request()]) {
                break statuses;
            }
        };
        assert_eq!((one < 2, statuses.len()), (true, 2));
        // Active when it is dropped: it is waited for.
        met.start().unwrap();
    });
}

#[test]
fn persistent_calls_are_begun_in_any_order() {
    job(4, |comm| {
        comm.barrier().unwrap();
        let backwards = comm.rank() % 2 == 1;
        for round in 0..ROUNDS {
            let [mut ones, mut tens] =
                [1, 10].map(|value| comm.allreduce_in_place_init(vec![value + round], &Op::Sum).unwrap());
            let mut both = [ones.request(), tens.request()];
            if backwards {
                both.reverse();
            }
            Persistent::start_all(both.iter_mut().map(PersistentRef::again)).unwrap();
            Persistent::wait_all(&mut both);
            let sums = [ones.room().unwrap()[0], tens.room().unwrap()[0]];
            assert_eq!(sums, [4 * (1 + round), 4 * (10 + round)]);
        }
    });
}

/// The hint is about those among themselves.
#[test]
fn persistent_calls_in_strict_order_are_begun_before_or_after_others() {
    job(4, |comm| {
        comm.barrier().unwrap();
        let mut hints = comm.info();
        hints.set("mpi_assert_strict_persistent_collective_ordering", "true").unwrap();
        comm.set_info(&hints);
        let mut again = comm.allreduce_in_place_init(vec![0i64], &Op::Sum).unwrap();
        for round in 0..ROUNDS {
            again.room().unwrap()[0] = round;
            let (given, mut once) = ([10 + round], [0]);
            comm.scope(|scope| {
                if comm.rank() == 0 {
                    again.start()?;
                }
                scope.allreduce(&given, &mut once, &Op::Sum)?;
                if comm.rank() != 0 {
                    again.start()?;
                }
                again.wait().map(drop)
            })
            .unwrap();
            assert_eq!((again.room().unwrap()[0], once), (4 * round, [4 * (10 + round)]));
        }
    });
}

/// Memory that another thread may be writing is not read.
#[test]
fn what_a_call_that_is_begun_again_writes_is_not_printed() {
    job(1, |comm| {
        let call = comm.allreduce_in_place_init(vec![987_654_321i64], &Op::Sum).unwrap();
        assert!(!format!("{call:?}").contains("987654321"));
    });
}

#[test]
fn who_begins_calls_that_are_over_at_once_serves_others_too() {
    serves_others(|pair| {
        Box::new(|| {
            let mut data = [0u8];
            pair.scope(|scope| scope.broadcast(&mut data, 1)?.wait().map(drop)).unwrap();
        })
    });
}

#[test]
fn who_begins_calls_again_that_are_over_at_once_serves_others_too() {
    serves_others(|pair| {
        let mut hints = pair.info();
        hints.set("mpi_assert_strict_persistent_collective_ordering", "true").unwrap();
        pair.set_info(&hints);
        let mut again = pair.broadcast_init(vec![0u8], 1).unwrap();
        Box::new(move || {
            again.start().unwrap();
            again.wait().unwrap();
        })
    });
}

/// The root is ahead by so many calls that the other one takes no turn in any of its own, which are made by what `prepare` returns.
fn serves_others(prepare: impl Fn(&Communicator) -> Box<dyn FnMut() + '_> + Sync) {
    let (ahead, [posted, sent]) = (AtomicU32::new(0), [const { AtomicBool::new(false) }; 2]);
    job(3, |comm| {
        let rank = comm.rank();
        let pair = comm.split((rank < 2).then_some(0), 0).unwrap();
        let mut word = [0u8];
        let mut broadcast = pair.as_ref().map(&prepare);
        let mut broadcast = || broadcast.as_mut().unwrap()();
        match rank {
            0 => {
                pair.as_ref().unwrap().barrier().unwrap();
                comm.recv(&mut word, 2, 1).unwrap();
                // SAFETY: it is waited for.
                let receive = unsafe { comm.start_recv(word.as_mut_ptr(), 1, &u8::datatype(), 2.into(), Some(2)) };
                let mut receive = receive.unwrap();
                posted.store(true, Ordering::Release);
                while ahead.load(Ordering::Acquire) < TURNLESS_MAX || !sent.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                (0..TURNLESS_MAX).for_each(|_| broadcast());
                let Pending::Transfer(transfer) = &receive else { unreachable!("it is a message") };
                let request = transfer.request;
                assert!(comm.local().lock().device.is_complete(request), "it is taken in meanwhile");
                assert_eq!(comm.local().finish(&mut receive).error, None);
            }
            1 => {
                pair.as_ref().unwrap().barrier().unwrap();
                for _ in 0..TURNLESS_MAX {
                    broadcast();
                    ahead.fetch_add(1, Ordering::Release);
                }
            }
            _ => {
                comm.send(&[1u8], 0, 1).unwrap();
                while !posted.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                comm.send(&[1u8], 0, 2).unwrap();
                sent.store(true, Ordering::Release);
            }
        }
    });
}
