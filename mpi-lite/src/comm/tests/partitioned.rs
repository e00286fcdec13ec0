//! Partitioned messages: by threads, and cut differently on both sides.
#![allow(unsafe_code)] // Raw calls, on memory that the tests own.

use super::*;
use crate::datatype::{Datatype, Predefined};

/// The elements of a message, which threads write and read by parts.
struct Array(Vec<u32>);

impl Array {
    fn at(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

#[test]
fn partitions_arrive_as_they_are_ready_however_both_sides_cut_them() {
    for (sends, receives) in [(1, 1), (4, 4), (6, 4), (3, 12), (12, 1)] {
        job(2, |comm| {
            let mut array = Array(vec![0; 12]);
            let kind = Predefined::Uint32.into();
            if comm.rank() == 0 {
                // SAFETY: the array outlives the message, and a partition is written only while it is not ready.
                let (mut message, parts) =
                    unsafe { comm.psend_init(array.at(), sends, 12 / sends, &kind, 1.into(), 3) }.unwrap();
                assert_eq!(parts.ready(0), Err(ErrorClass::Request));
                for round in 0..5 {
                    message.start().unwrap();
                    assert_eq!(parts.ready(sends), Err(ErrorClass::Arg));
                    for part in (0..sends).rev() {
                        assert_eq!(message.test(), Ok(None));
                        let range = part * 12 / sends..(part + 1) * 12 / sends;
                        range.for_each(|at| array.0[at] = 100 * round + at as u32);
                        parts.ready(part).unwrap();
                        assert_eq!(parts.ready(part), Err(ErrorClass::Arg));
                    }
                    message.wait().unwrap();
                }
            } else {
                // SAFETY: the array outlives the message, and is read only where it has arrived.
                let (mut message, arrivals) =
                    unsafe { comm.precv_init(array.at(), receives, 12 / receives, &kind, 0, 3) }.unwrap();
                assert_eq!(arrivals.arrived(receives), Err(ErrorClass::Arg));
                for round in 0..5 {
                    message.start().unwrap();
                    // The last ones come first.
                    for part in (0..receives).rev() {
                        while !arrivals.arrived(part).unwrap() {}
                        let range = part * 12 / receives..(part + 1) * 12 / receives;
                        assert!(range.into_iter().all(|at| array.0[at] == 100 * round + at as u32));
                    }
                    let status = message.wait().unwrap();
                    assert_eq!((status.source, status.tag, status.bytes), (Some(0), Some(3), 48));
                    assert_eq!(arrivals.arrived(0), Ok(true));
                }
            }
        });
    }
}

#[test]
fn threads_send_their_parts_at_the_same_time() {
    const PARTS: usize = 16;
    const LEN: usize = 5_000;
    in_threads(2, &Config::default(), true, |comm| {
        let mut array = Array(vec![0; PARTS * LEN]);
        let kind = Predefined::Uint32.into();
        if comm.rank() == 0 {
            // SAFETY: as above.
            let (mut message, parts) = unsafe { comm.psend_init(array.at(), PARTS, LEN, &kind, 1.into(), 0) }.unwrap();
            for round in 0..4u32 {
                message.start().unwrap();
                std::thread::scope(|scope| {
                    for (part, chunk) in array.0.chunks_mut(LEN).enumerate() {
                        let parts = parts.clone();
                        scope.spawn(move || {
                            chunk.fill(round * 100 + part as u32);
                            parts.ready(part).unwrap();
                        });
                    }
                });
                message.wait().unwrap();
            }
        } else {
            // SAFETY: as above.
            let (mut message, arrivals) = unsafe { comm.precv_init(array.at(), PARTS, LEN, &kind, 0, 0) }.unwrap();
            for round in 0..4u32 {
                message.start().unwrap();
                std::thread::scope(|scope| {
                    for (part, chunk) in array.0.chunks(LEN).enumerate() {
                        let arrivals = arrivals.clone();
                        scope.spawn(move || {
                            while !arrivals.arrived(part).unwrap() {
                                std::thread::yield_now();
                            }
                            // SAFETY: it has arrived, and the next round begins later.
                            let all = (0..LEN).all(
                                |at| unsafe { chunk.as_ptr().add(at).read_volatile() } == round * 100 + part as u32,
                            );
                            assert!(all);
                        });
                    }
                });
                message.wait().unwrap();
            }
        }
    });
}

#[test]
fn data_with_gaps_arrives_where_it_belongs() {
    job(2, |comm| {
        // Every other number.
        let every_other = Datatype::vector(3, 1, 2, &Predefined::Uint32.into()).unwrap();
        let every_other = every_other.resized(0, 24).unwrap();
        let mut array = Array((0..24).collect());
        if comm.rank() == 0 {
            // SAFETY: as above.
            let (mut message, parts) = unsafe { comm.psend_init(array.at(), 4, 1, &every_other, 1.into(), 0) }.unwrap();
            message.start().unwrap();
            parts.ready_list([3, 1]).unwrap();
            parts.ready_range(2..=2).unwrap();
            comm.sendrecv(&[0u8], 1, 1, &mut [0u8], 1, 1).unwrap();
            parts.ready(0).unwrap();
            message.wait().unwrap();
        } else {
            array.0.fill(99);
            // SAFETY: as above.
            let (mut message, arrivals) = unsafe { comm.precv_init(array.at(), 2, 2, &every_other, 0, 0) }.unwrap();
            message.start().unwrap();
            let arrived_from = |array: &Array, first: usize| {
                let expected = |at: usize| if at >= first && at.is_multiple_of(2) { at as u32 } else { 99 };
                assert!((0..24).all(|at| array.0[at] == expected(at)), "{:?}", array.0);
            };
            // Sent behind three of them.
            comm.recv(&mut [0u8], 0, 1).unwrap();
            assert_eq!([arrivals.arrived(0), arrivals.arrived(1)], [Ok(false), Ok(true)]);
            arrived_from(&array, 12);
            // It is the program's again.
            array.0[12] = 500;
            comm.send(&[0u8], 0, 1).unwrap();
            message.wait().unwrap();
            assert_eq!(std::mem::replace(&mut array.0[12], 12), 500);
            arrived_from(&array, 0);
        }
    });
}

#[test]
fn a_partition_has_arrived_when_all_has_of_which_the_sender_has_made_it() {
    job(2, |comm| {
        let (mut array, kind) = (Array(vec![comm.rank(); 12]), Predefined::Uint32.into());
        // SAFETY: the array outlives the message, and is not used while it is under way.
        unsafe {
            if comm.rank() == 0 {
                let (mut message, parts) = comm.psend_init(array.at(), 6, 2, &kind, 1.into(), 0).unwrap();
                message.start().unwrap();
                parts.ready(0).unwrap();
                comm.sendrecv(&[0u8], 1, 1, &mut [0u8], 1, 1).unwrap();
                parts.ready_range(1..=5).unwrap();
                message.wait().unwrap();
            } else {
                let (mut message, arrivals) = comm.precv_init(array.at(), 4, 3, &kind, 0, 0).unwrap();
                message.start().unwrap();
                // Sent behind two thirds of it.
                comm.recv(&mut [0u8], 0, 1).unwrap();
                (0..10).for_each(|_| assert_eq!(arrivals.arrived(0), Ok(false)));
                comm.send(&[0u8], 0, 1).unwrap();
                message.wait().unwrap();
                assert_eq!(array.0, [0; 12]);
            }
        }
    });
}

#[test]
fn messages_of_different_lengths_do_not_match_and_others_are_unharmed() {
    job(2, |comm| {
        let mut arrays = [Array(vec![comm.rank(); 8]), Array(vec![comm.rank(); 8])];
        let kind = Predefined::Uint32.into();
        let [short, fine] = &mut arrays;
        if comm.rank() == 0 {
            // SAFETY: as above.
            let mut both = unsafe {
                [
                    comm.psend_init(short.at(), 8, 1, &kind, 1.into(), 0).unwrap(),
                    comm.psend_init(fine.at(), 8, 1, &kind, 1.into(), 0).unwrap(),
                ]
            };
            for (message, parts) in &mut both {
                message.start().unwrap();
                parts.ready_range(0..=7).unwrap();
            }
            both.iter_mut().for_each(|(message, _)| _ = message.wait().unwrap());
        } else {
            // SAFETY: as above.
            let mut both = unsafe {
                [
                    comm.precv_init(short.at(), 7, 1, &kind, 0, 0).unwrap(),
                    comm.precv_init(fine.at(), 2, 4, &kind, 0, 0).unwrap(),
                ]
            };
            both.iter_mut().for_each(|(message, _)| message.start().unwrap());
            let arrived = loop {
                match both[0].1.arrived(0) {
                    Ok(false) => {}
                    arrived => break arrived,
                }
            };
            assert_eq!(arrived, Err(ErrorClass::Truncate), "nothing is there");
            assert_eq!(both[0].0.wait(), Err(ErrorClass::Truncate));
            assert_eq!(both[0].1.arrived(0), Ok(true), "it is inactive");
            assert_eq!(both[1].0.wait().map(|status| status.bytes), Ok(32));
            assert_eq!(fine.0, [0; 8]);
            assert_eq!(short.0, [1; 8]);
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn partitions_of_messages_at_the_same_time_are_told_apart() {
    job(2, |comm| {
        let mut arrays = [Array(vec![1; 4]), Array(vec![2; 4])];
        let kind = Predefined::Uint32.into();
        if comm.rank() == 0 {
            // SAFETY: as above.
            let mut both = arrays
                .each_mut()
                .map(|array| unsafe { comm.psend_init(array.at(), 4, 1, &kind, 1.into(), 0) }.unwrap());
            both.iter_mut().for_each(|(message, _)| message.start().unwrap());
            // The second one first.
            both.iter().rev().for_each(|(_, parts)| parts.ready_range(0..=3).unwrap());
            both.iter_mut().for_each(|(message, _)| _ = message.wait().unwrap());
        } else {
            arrays.iter_mut().for_each(|array| array.0.fill(0));
            // SAFETY: as above.
            let mut both =
                arrays.each_mut().map(|array| unsafe { comm.precv_init(array.at(), 4, 1, &kind, 0, 0) }.unwrap());
            both.iter_mut().for_each(|(message, _)| message.start().unwrap());
            both.iter_mut().for_each(|(message, _)| _ = message.wait().unwrap());
            assert_eq!(arrays.map(|array| array.0), [[1; 4], [2; 4]]);
        }
    });
}

/// Both sides make a pair that they never begin, and then another.
#[test]
fn pairs_are_matched_in_the_order_in_which_they_were_made_also_with_those_that_are_gone() {
    job(2, |comm| {
        let (mut array, kind) = (Array(vec![0; 4]), Predefined::Uint32.into());
        // SAFETY: the array outlives the messages, and is not used while one is under way.
        unsafe {
            if comm.rank() == 0 {
                comm.recv(&mut [0u8], 1, 9).unwrap();
                drop(comm.psend_init(array.at(), 2, 2, &kind, 1.into(), 3).unwrap());
                array.0.fill(5);
                let (mut message, parts) = comm.psend_init(array.at(), 2, 2, &kind, 1.into(), 3).unwrap();
                message.start().unwrap();
                parts.ready_range(0..=1).unwrap();
                message.wait().unwrap();
            } else {
                drop(comm.precv_init(array.at(), 2, 2, &kind, 0, 3).unwrap());
                comm.send(&[0u8], 0, 9).unwrap();
                let (mut message, _) = comm.precv_init(array.at(), 2, 2, &kind, 0, 3).unwrap();
                message.start().unwrap();
                message.wait().unwrap();
                assert_eq!(array.0, [5; 4]);
            }
        }
    });
}

#[test]
fn a_message_that_is_never_complete_gives_its_memory_back() {
    job(2, |comm| {
        // Partitions that are announced.
        const LEN: usize = 50_000;
        let (mut array, kind) = (Array(vec![0; 8 * LEN]), Predefined::Uint32.into());
        let other = 1 - comm.rank();
        // SAFETY: the array outlives all of them.
        unsafe {
            let (mut nobody_receives, parts) = comm.psend_init(array.at(), 8, LEN, &kind, other.into(), 1).unwrap();
            nobody_receives.start().unwrap();
            parts.ready(2).unwrap();
            let (mut nobody_sends, arrivals) = comm.precv_init(array.at(), 8, LEN, &kind, other, 2).unwrap();
            nobody_sends.start().unwrap();
            assert_eq!(arrivals.arrived(0), Ok(false));
            drop((nobody_receives, nobody_sends));
            assert_eq!(parts.ready(3), Err(ErrorClass::Request));
            // What is sent now is for who receives now.
            comm.barrier().unwrap();
            let (mut sent, parts) = comm.psend_init(array.at(), 1, 4, &kind, other.into(), 2).unwrap();
            let (mut received, _) = comm.precv_init(array.at().add(LEN), 1, 4, &kind, other, 2).unwrap();
            sent.start().unwrap();
            received.start().unwrap();
            parts.ready(0).unwrap();
            assert_eq!((received.wait().map(|status| status.bytes), sent.wait().map(drop)), (Ok(16), Ok(())));
            let (mut nowhere, parts) = comm.psend_init(array.at(), 2, 4, &kind, Destination::Null, 0).unwrap();
            nowhere.start().unwrap();
            parts.ready_range(0..=1).unwrap();
            assert_eq!(nowhere.wait(), Ok(Status::EMPTY));
            let (mut nowhere, _) = comm.precv_init(array.at(), 2, 4, &kind, Source::Null, 0).unwrap();
            nowhere.start().unwrap();
            assert_eq!(nowhere.wait(), Ok(Status::EMPTY));
            assert_eq!(comm.precv_init(array.at(), 2, 4, &kind, Source::Any, 0).map(drop), Err(ErrorClass::Rank));
            for (partitions, count) in [(usize::MAX, 1), (1 << 31, 0), (2, usize::MAX)] {
                let made = comm.psend_init(array.at(), partitions, count, &kind, other.into(), 0).map(drop);
                assert_eq!(made, Err(ErrorClass::Count));
            }
        }
        comm.barrier().unwrap();
    });
}

/// MPI-5.0 4.2.1: the number of partitions is not negative, and so is that of their elements.
#[test]
fn messages_of_no_partitions_are_over_when_they_are_begun() {
    job(2, |comm| {
        let (mut array, kind) = (Array(vec![7]), Predefined::Uint32.into());
        for (sends, receives) in [((0, 3), (0, 1)), ((0, 0), (2, 0)), ((2, 0), (0, 5))] {
            if comm.rank() == 0 {
                // SAFETY: the array outlives the message.
                let (mut message, parts) =
                    unsafe { comm.psend_init(array.at(), sends.0, sends.1, &kind, 1.into(), 3) }.unwrap();
                for _ in 0..2 {
                    message.start().unwrap();
                    assert_eq!(parts.ready(sends.0), Err(ErrorClass::Arg));
                    parts.ready_list(0..sends.0).unwrap();
                    assert_eq!(message.wait(), Ok(Status::EMPTY));
                }
            } else {
                // SAFETY: as above.
                let (mut message, arrivals) =
                    unsafe { comm.precv_init(array.at(), receives.0, receives.1, &kind, 0, 3) }.unwrap();
                for _ in 0..2 {
                    message.start().unwrap();
                    assert_eq!(arrivals.arrived(receives.0), Err(ErrorClass::Arg));
                    for partition in 0..receives.0 {
                        while !arrivals.arrived(partition).unwrap() {}
                    }
                    let status = message.wait().unwrap();
                    assert_eq!((status.source, status.tag, status.bytes), (Some(0), Some(3), 0));
                }
            }
        }
        assert_eq!(array.0, [7]);
    });
}
