#![allow(unsafe_code)] // Raw calls, on memory that the tests own.
//! Point to point: every mode, wildcard, way of waiting and error.

use super::*;
use crate::adi::Limits;
use crate::coll::Call;
use crate::datatype::{Datatype, Predefined};
use crate::op::Op;

/// Lengths on both sides of the eager limit, in `u64`s.
const LENGTHS: [usize; 4] = [0, 1, 1_000, 100_000];

fn numbers(len: usize, seed: u64) -> Vec<u64> {
    (0..len as u64).map(|index| index * 7 + seed).collect()
}

#[test]
fn every_mode_delivers_every_length() {
    job(2, |comm| {
        comm.attach_buffer(4 << 20).unwrap();
        let modes = [Mode::Standard, Mode::Synchronous, Mode::Buffered, Mode::Ready];
        for (tag, mode) in (0..).zip(modes) {
            for len in LENGTHS {
                let data = numbers(len, u64::from(comm.rank()));
                if comm.rank() == 0 {
                    comm.send_as(mode, &data, 1, tag).unwrap();
                } else {
                    let mut room = vec![0; len];
                    let status = comm.recv(&mut room, 0, tag).unwrap();
                    assert_eq!((status.source, status.tag, status.bytes), (Some(0), Some(tag), 8 * len));
                    assert_eq!(room, numbers(len, 0));
                }
            }
        }
        assert_eq!(comm.detach_buffer(), Ok(4 << 20));
        assert_eq!(comm.detach_buffer(), Err(ErrorClass::Buffer));
    });
}

#[test]
fn buffered_sends_have_the_room_that_was_attached_and_no_more() {
    // Announced, and so in the room until it is received.
    const LEN: usize = 100_000;
    let capacity = 2 * (LEN + BUFFERED_OVERHEAD);
    job(2, |comm| {
        let mut data = vec![7u8; LEN];
        if comm.rank() == 0 {
            comm.attach_buffer(capacity).unwrap();
            assert_eq!(comm.attach_buffer(1), Err(ErrorClass::Buffer));
            for last in [false, true] {
                comm.bsend(&data, 1, 1).unwrap();
                comm.bsend(&data, 1, 1).unwrap();
                data.fill(8);
                assert_eq!(comm.bsend::<u8>(&[], 1, 1), Err(ErrorClass::Buffer));
                comm.send(&[0u8], 1, 2).unwrap();
                if last {
                    assert_eq!(comm.detach_buffer(), Ok(capacity));
                } else {
                    comm.flush_buffer();
                }
            }
            assert_eq!((comm.attach_buffer(1), comm.detach_buffer()), (Ok(()), Ok(1)));
        } else {
            for sent in [7, 8] {
                comm.recv(&mut [0u8], 0, 2).unwrap();
                for _ in 0..2 {
                    comm.recv(&mut data, 0, 1).unwrap();
                    assert!(data.iter().all(|byte| *byte == sent));
                }
            }
        }
    });
}

#[test]
fn messages_to_oneself_and_to_nobody_arrive() {
    job(1, |comm| {
        for len in LENGTHS {
            let (data, mut room) = (numbers(len, 3), vec![0; len]);
            comm.sendrecv(&data, 0, 5, &mut room, 0, 5).unwrap();
            assert_eq!(data, room);
        }
        let mut room = [9u8; 4];
        let nobody: Option<u32> = None;
        comm.send(&room, nobody, 1).unwrap();
        assert_eq!(comm.recv(&mut room, nobody, 1), Ok(Status::EMPTY));
        assert_eq!(comm.probe(nobody, 1), Ok(Status::EMPTY));
        let (found, _) = comm.mprobe(nobody, 1).unwrap();
        assert_eq!(comm.mrecv(found, &mut room), Ok(Status::EMPTY));
        assert_eq!(room, [9; 4]);
    });
}

#[test]
fn wildcards_take_messages_in_their_senders_order() {
    job(3, |comm| {
        if comm.rank() > 0 {
            for number in 0..50u32 {
                comm.send(&[number], 0, number as i32 % 3).unwrap();
            }
            return;
        }
        let mut next = [0; 3];
        for _ in 0..100 {
            let mut number = [0u32];
            let status = comm.recv(&mut number, Source::Any, None).unwrap();
            let source = status.source.unwrap() as usize;
            assert_eq!(number[0], next[source]);
            assert_eq!(status.tag, Some(number[0] as i32 % 3));
            next[source] += 1;
        }
        assert_eq!(next, [0, 50, 50]);
    });
}

#[test]
fn a_message_that_is_too_long_harms_no_other() {
    job(2, |comm| {
        for len in [10, 100_000] {
            if comm.rank() == 0 {
                comm.send(&numbers(len, 1), 1, 1).unwrap();
                comm.send(&numbers(2, 5), 1, 1).unwrap();
            } else {
                let mut room = [0; 3];
                assert_eq!(comm.recv(&mut room, 0, 1), Err(ErrorClass::Truncate));
                assert_eq!(room[..], numbers(3, 1));
                let status = comm.recv(&mut room, 0, 1).unwrap();
                assert_eq!((status.bytes, &room[..2]), (16, &numbers(2, 5)[..]));
            }
        }
    });
}

#[test]
fn wrong_arguments_are_refused_by_class_and_told_to_the_handler() {
    use std::sync::{Arc, Mutex};
    job(1, |comm| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        comm.set_error_handler(ErrorHandler::Call(Arc::new(move |comm, class| {
            // It may call back.
            assert_eq!(comm.iprobe(Source::Any, None), Ok(None));
            told.lock().unwrap().push(class);
        })));
        assert_eq!(comm.send(&[1u8], 1, 0), Err(ErrorClass::Rank));
        assert_eq!(comm.send(&[1u8], 0, -1), Err(ErrorClass::Tag));
        assert_eq!(comm.recv(&mut [1u8], 7, 0), Err(ErrorClass::Rank));
        assert_eq!(comm.recv(&mut [1u8], 0, -5), Err(ErrorClass::Tag));
        assert_eq!(comm.bsend(&[1u8], 0, 0), Err(ErrorClass::Buffer));
        comm.attach_buffer(BUFFERED_OVERHEAD).unwrap();
        assert_eq!(comm.bsend(&[1u8], 0, 0), Err(ErrorClass::Buffer));
        assert_eq!(comm.bsend::<u8>(&[], 0, 0), Ok(()));
        assert_eq!(comm.recv::<u8>(&mut [], 0, 0).map(|status| status.bytes), Ok(0));
        use ErrorClass::{Buffer, Rank, Tag};
        assert_eq!(*seen.lock().unwrap(), [Rank, Tag, Rank, Tag, Buffer, Buffer]);
    });
}

#[test]
fn what_cannot_be_sent_takes_no_message_in() {
    job(1, |comm| {
        comm.send(&[7u8], 0, 1).unwrap();
        let mut room = [0u8];
        assert_eq!(comm.sendrecv(&[1u8], 9, 0, &mut room, 0, 1), Err(ErrorClass::Rank));
        assert_eq!(comm.sendrecv_replace(&mut room, 0, -1, 0, 1), Err(ErrorClass::Tag));
        comm.recv(&mut room, 0, 1).unwrap();
        assert_eq!(room, [7]);
    });
}

#[test]
fn probes_tell_what_will_come_and_matched_ones_keep_it() {
    job(2, |comm| {
        if comm.rank() == 0 {
            comm.send(&numbers(5, 0), 1, 1).unwrap();
            comm.send(&numbers(100_000, 1), 1, 2).unwrap();
            comm.send(&numbers(5, 3), 1, 3).unwrap();
        } else {
            let status = comm.probe(Source::Any, 2).unwrap();
            assert_eq!((status.source, status.tag, status.bytes), (Some(0), Some(2), 800_000));
            let (found, status) = comm.mprobe(0, None).unwrap();
            assert_eq!((status.tag, status.bytes), (Some(1), 40));
            // Taken, it is nobody else's.
            assert_eq!(comm.iprobe(0, 1), Ok(None));
            let (all, _) = comm.recv_vec::<u64>(Source::Any, None).unwrap();
            assert_eq!(all, numbers(100_000, 1));
            let mut room = [0; 5];
            assert_eq!(comm.mrecv(found, &mut room).unwrap().bytes, 40);
            assert_eq!(room[..], numbers(5, 0));
            // Two elements, and a part of one.
            let (whole, status) = comm.recv_vec::<[u64; 2]>(0, 3).unwrap();
            assert_eq!((whole, status.bytes), (vec![[3, 10], [17, 24]], 40));
        }
    });
}

#[test]
fn a_scope_waits_for_all_that_was_begun_in_it() {
    job(2, |comm| {
        let other = 1 - comm.rank();
        let data = numbers(100_000, u64::from(comm.rank()));
        let (mut first, mut second) = (vec![0; 100_000], vec![0; 7]);
        comm.scope(|scope| {
            let early = scope.recv(&mut second, other, 2)?;
            scope.recv(&mut first, other, 1)?;
            scope.send(&data, other, 1)?;
            scope.send(&data[..7], other, 2)?;
            assert_eq!(early.wait()?.bytes, 56);
            Ok(())
        })
        .unwrap();
        assert_eq!(first, numbers(100_000, u64::from(other)));
        assert_eq!(second, first[..7]);
        let mut room = [0u8];
        let short = comm.scope(|scope| {
            scope.recv(&mut room, other, 3)?;
            scope.send(&[1u8, 2], other, 3).map(drop)
        });
        assert_eq!(short, Err(ErrorClass::Truncate));
    });
}

/// Its memory is the caller's again, though nobody sends to it, or receives from it.
#[test]
fn a_scope_whose_body_fails_or_panics_cancels_what_it_has_begun() {
    job(2, |comm| {
        let data = numbers(100_000, 7);
        for panics in [false, true] {
            if comm.rank() == 1 {
                comm.recv(&mut [0u8], 0, 2).unwrap();
                assert!(comm.iprobe(0, 3).unwrap().is_none(), "what was announced is taken back");
                comm.send(&data, 0, 1).unwrap();
                continue;
            }
            let mut room = vec![0; data.len()];
            let body = || {
                comm.scope(|scope| {
                    scope.recv(&mut room, 1, 1)?;
                    scope.send(&data, 1, 3)?;
                    if panics { panic!("the body") } else { Err::<(), _>(ErrorClass::Other) }
                })
            };
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).ok();
            assert_eq!(ended, (!panics).then_some(Err(ErrorClass::Other)));
            comm.send(&[0u8], 1, 2).unwrap();
            let mut next = vec![0; data.len()];
            comm.recv(&mut next, 1, 1).unwrap();
            assert!(next == data && room[0] == 0, "panics: {panics}");
        }
    });
}

/// What has come by then has come.
#[test]
fn a_scope_whose_body_fails_waits_for_what_is_under_way() {
    job(2, |comm| {
        let data = numbers(100_000, 7);
        if comm.rank() == 1 {
            return comm.send(&data, 0, 1).unwrap();
        }
        // Matched, and no more than begun.
        let (found, _) = comm.mprobe(1, 1).unwrap();
        let mut room = vec![0; data.len()];
        let ended = comm.scope(|scope| {
            scope.mrecv(found, &mut room)?;
            Err::<(), _>(ErrorClass::Other)
        });
        assert_eq!(ended, Err(ErrorClass::Other));
        assert!(room == data);
    });
}

#[test]
fn any_some_and_all_find_what_is_over() {
    job(2, |comm| {
        let other = 1 - comm.rank();
        if comm.rank() == 0 {
            let mut rooms = [[0u32; 1]; 4];
            comm.scope(|scope| {
                for (tag, room) in (0..).zip(&mut rooms) {
                    assert_eq!(scope.recv(room, other, tag)?.index(), tag as usize);
                }
                // Sent one by one, in this order, each when the one before was seen.
                for tag in [2, 0, 3, 1] {
                    comm.send(&[tag], other, 9)?;
                    let (index, status) = scope.wait_any().expect("one is left");
                    assert_eq!((index, status.tag), (tag as usize, Some(tag)));
                }
                assert_eq!(scope.wait_any(), None);
                assert_eq!((scope.wait_some(), scope.test_some(), scope.test_any()), (None, None, Some(None)));
                assert_eq!(scope.wait_all(), [Status::EMPTY; 4], "each was waited for");
                Ok(())
            })
            .unwrap();
            assert_eq!(rooms, [[0], [10], [20], [30]]);
            comm.scope(|scope| {
                for (tag, room) in (0..).zip(&mut rooms) {
                    scope.recv(room, other, tag)?;
                }
                assert_eq!((scope.test_any(), scope.test_some(), scope.test_all()), (None, Some(vec![]), None));
                let tags = |some: &[(usize, Status)]| some.iter().map(|(_, status)| status.tag).collect::<Vec<_>>();
                comm.send(&[3], other, 9)?;
                assert_eq!(tags(&scope.wait_some().expect("some are left")), [Some(3)]);
                comm.send(&[1], other, 9)?;
                let one = until(|| scope.test_any()).expect("some are left");
                assert_eq!(tags(&[one]), [Some(1)]);
                comm.send(&[2], other, 9)?;
                let some = until(|| scope.test_some().filter(|some| !some.is_empty()));
                assert_eq!(tags(&some), [Some(2)]);
                comm.send(&[0], other, 9)?;
                let all = until(|| scope.test_all());
                assert_eq!(all.iter().map(|status| status.tag).collect::<Vec<_>>(), [Some(0), None, None, None]);
                Ok(())
            })
            .unwrap();
        } else {
            for _ in 0..8 {
                let mut tag = [0i32];
                comm.recv(&mut tag, other, 9).unwrap();
                comm.send(&[tag[0] as u32 * 10], other, tag[0]).unwrap();
            }
        }
    });
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
    }
}

#[test]
fn what_is_cancelled_was_not_received() {
    job(2, |comm| {
        if comm.rank() == 0 {
            let mut room = [5u8];
            comm.scope(|scope| {
                let mut request = scope.recv(&mut room, 1, 4)?;
                assert_eq!(request.test()?, None);
                request.cancel()?;
                assert!(request.wait()?.cancelled);
                Ok(())
            })
            .unwrap();
            assert_eq!(room, [5]);
            comm.send(&[0u8], 1, 0).unwrap();
        } else {
            comm.recv(&mut [0u8], 0, 0).unwrap();
        }
    });
}

/// `MPI_Request_free`: of messages and a call whose ends nobody asks for.
#[test]
fn what_is_freed_goes_on_by_itself() {
    job(2, |comm| {
        let (local, other) = (comm.local(), 1 - comm.rank());
        let data = numbers(100_000, u64::from(comm.rank()));
        let (mut room, mut sum) = (vec![0; data.len()], [comm.rank()]);
        let (kind, operand) = (u64::datatype(), Operand::from(u32::datatype()));
        let call = Call::Allreduce { reduction: operand.reduction(&Op::Sum).unwrap() };
        // SAFETY: all of it stays until everything is over.
        let begun = unsafe {
            [
                comm.start_recv(room.as_mut_ptr().cast(), room.len(), &kind, Source::Rank(other), Some(1)).unwrap(),
                comm.start_call_raw(call, None, Elements::of_mut(&mut sum), Some((&operand, &Op::Sum))).unwrap(),
                comm.start_send(Mode::Standard, data.as_ptr().cast(), data.len(), &kind, other.into(), 1).unwrap(),
            ]
        };
        begun.into_iter().chain([Pending::Null]).for_each(|begun| local.free(begun));
        local.wait_for(|state| (state.orphans.is_empty() && state.runs.is_empty()).then_some(()));
        assert!(room == numbers(100_000, u64::from(other)) && sum == [1]);
    });
}

/// A column of a matrix goes to a row of another.
#[test]
fn elements_apart_are_packed_on_the_way() {
    const SIDE: usize = 300;
    job(2, |comm| {
        let double = Predefined::Double.into();
        let column = Datatype::vector(SIDE, 1, SIDE as isize, &double).unwrap();
        if comm.rank() == 0 {
            let matrix: Vec<f64> = (0..SIDE * SIDE).map(|index| index as f64).collect();
            // SAFETY: the matrix has all of the column, and is not changed.
            unsafe { comm.send_raw(Mode::Synchronous, matrix[7..].as_ptr().cast(), 1, &column, 1.into(), 0) }.unwrap();
            let mut room = vec![0.0; SIDE * SIDE];
            // SAFETY: as above, and the room is ours.
            let status = unsafe { comm.recv_raw(room[3..].as_mut_ptr().cast(), 1, &column, 1.into(), None) };
            assert_eq!(status.unwrap().bytes, 8 * 5);
            let expected: Vec<f64> = (0..SIDE * SIDE)
                .map(|index| if index % SIDE == 3 && index / SIDE < 5 { (index / SIDE) as f64 } else { 0.0 })
                .collect();
            assert!(room == expected);
        } else {
            let mut row = vec![0.0; SIDE];
            comm.recv(&mut row, 0, 0).unwrap();
            assert!(row.iter().enumerate().all(|(index, value)| *value == (index * SIDE + 7) as f64));
            // Fewer than the other side has room for.
            comm.send(&[0.0, 1.0, 2.0, 3.0, 4.0], 0, 1).unwrap();
        }
    });
}

#[test]
fn room_for_buffered_sends_is_free_again_when_they_were_received() {
    // More than one turn brings.
    const BEFORE: usize = 200;
    let received = std::sync::Barrier::new(2);
    // The receiver takes the messages from our memory, without a turn of ours.
    let config = Config { on_host: Limits { pull_min: 0, ..Limits::SHARED_MEMORY }, ..Config::default() };
    in_threads(2, &config, false, |comm| {
        let data = vec![7u8; 100_000];
        if comm.rank() == 0 {
            comm.attach_buffer(data.len() + BUFFERED_OVERHEAD).unwrap();
            // From now on messages go out without a turn of ours.
            comm.sendrecv(&[0u8], 1, 1, &mut [0u8], 1, 1).unwrap();
            comm.bsend(&data, 1, 0).unwrap();
            received.wait();
            comm.bsend(&data, 1, 0).unwrap();
            comm.detach_buffer().unwrap();
            for _ in 0..BEFORE {
                comm.recv(&mut [0u8], 1, 2).unwrap();
            }
        } else {
            let mut room = vec![0; data.len()];
            comm.sendrecv(&[0u8], 0, 1, &mut [0u8], 0, 1).unwrap();
            for _ in 0..BEFORE {
                comm.send(&[0u8], 0, 2).unwrap();
            }
            comm.recv(&mut room, 0, 0).unwrap();
            received.wait();
            comm.recv(&mut room, 0, 0).unwrap();
        }
    });
}

#[test]
fn what_is_in_a_communicators_own_room_goes_on_when_that_is_dropped() {
    job(2, |comm| {
        let (copy, mut data) = (comm.dup().unwrap(), vec![7u8; 100_000]);
        if comm.rank() == 0 {
            copy.attach_own_buffer(BUFFER_AUTOMATIC).unwrap();
            copy.bsend(&data, 1, 0).unwrap();
            let mut flushed = copy.iflush_own_buffer();
            drop(copy);
            assert_eq!(comm.local().test(&mut flushed), None);
            comm.send(&[0u8], 1, 1).unwrap();
            assert_eq!(comm.local().finish(&mut flushed), Status::EMPTY);
        } else {
            data.fill(0);
            comm.recv(&mut [0u8], 0, 1).unwrap();
            copy.recv(&mut data, 0, 0).unwrap();
            assert!(data.iter().all(|byte| *byte == 7));
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn pieces_are_sent_in_any_mode_and_a_probed_message_is_received_in_a_scope() {
    job(2, |comm| {
        let piece = Piece::new(8, 2, &u64::datatype());
        if comm.rank() == 0 {
            let data = [1u64, 2, 3, 4];
            comm.send_piece_as(Mode::Synchronous, &data, &piece, 1, 5).unwrap();
            comm.scope(|scope| scope.send_piece_as(Mode::Synchronous, &data, &piece, 1, 6)?.wait()).unwrap();
            return;
        }
        for tag in [5, 6] {
            let (mut room, (found, _)) = ([0u64; 2], comm.mprobe(0, tag).unwrap());
            let status = comm.scope(|scope| scope.mrecv(found, &mut room)?.wait()).unwrap();
            assert_eq!((status.bytes, room), (16, [2, 3]));
        }
    });
}
