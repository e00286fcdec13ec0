#![allow(unsafe_code)] // Raw calls, on memory that the tests own.
//! Messages that are sent and received at the same time, in each form.

use super::*;
use crate::datatype::{Datatype, Predefined};

/// Every second number of so many.
fn every_second(len: usize) -> Datatype {
    Datatype::vector(len, 1, 2, &Predefined::Uint32.into()).unwrap()
}

fn numbers(rank: u32, len: usize) -> Vec<u32> {
    (0..2 * len as u32).map(|index| rank * 1_000_000 + index).collect()
}

/// What `mine` is when those of `theirs` that travel have come into it.
fn with_received(mine: &[u32], theirs: &[u32]) -> Vec<u32> {
    mine.iter().zip(theirs).enumerate().map(|(at, (mine, theirs))| if at % 2 == 0 { *theirs } else { *mine }).collect()
}

/// Passes our numbers on to `to`, and takes those of `from`, in each raw form.
fn pass_on(comm: &Communicator, own: &[u32], (to, from): (Destination, Source), theirs: &[u32]) {
    let (len, local) = (own.len() / 2, comm.local());
    let of = every_second(len);
    let number = Datatype::from(Predefined::Uint32).resized(0, 8).unwrap();
    for begun in [false, true] {
        let mut room = numbers(99, len);
        let expected = with_received(&room, theirs);
        let (memory, place) = (own.as_ptr().cast(), room.as_mut_ptr().cast());
        // SAFETY: both stay until it is over, and the elements are within them.
        let status = unsafe {
            if begun {
                local.finish(
                    &mut comm.start_sendrecv(memory, 1, &of, to, 7, place, len, &number, from, Some(7)).unwrap(),
                )
            } else {
                comm.sendrecv_raw(memory, 1, &of, to, 7, place, len, &number, from, Some(7)).unwrap()
            }
        };
        assert_eq!(room, expected);
        let mut both = own.to_vec();
        let place = both.as_mut_ptr().cast();
        // SAFETY: as above.
        let replaced = unsafe {
            if begun {
                local.finish(&mut comm.start_sendrecv_replace(place, 1, &of, to, 8, from, None).unwrap())
            } else {
                comm.sendrecv_replace_raw(place, 1, &of, to, 8, from, None).unwrap()
            }
        };
        assert_eq!(both, with_received(own, theirs));
        for (status, tag) in [(status, 7), (replaced, 8)] {
            let known = match from {
                Source::Null => Status::EMPTY,
                Source::Rank(rank) => {
                    Status { source: Some(rank), tag: Some(tag), bytes: 4 * len, cancelled: false, error: None }
                }
                Source::Any => Status { tag: Some(tag), bytes: 4 * len, ..status },
            };
            assert_eq!(status, known);
        }
    }
}

#[test]
fn each_form_passes_a_ring_s_numbers_on() {
    for (size, len) in [(1, 3), (2, 40_000), (3, 5), (4, 0)] {
        both_ways(size, |comm| {
            let (rank, own) = (comm.rank(), numbers(comm.rank(), len));
            let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
            pass_on(&comm, &own, (to.into(), from.into()), &numbers(from, len));
            comm.barrier().unwrap();
            pass_on(&comm, &own, (to.into(), Source::Any), &numbers(from, len));
            comm.barrier().unwrap();
            // A line: before the first and behind the last there is nobody.
            let (to, from) = ((rank + 1 < size).then_some(to), (rank > 0).then_some(from));
            let kept = numbers(99, len);
            match from {
                Some(before) => pass_on(&comm, &own, (to.into(), from.into()), &numbers(before, len)),
                None => {
                    let (mut both, mut room) = (own.clone(), kept.clone());
                    assert_eq!(comm.sendrecv(&both[..0], None, 9, &mut room, from, 9), Ok(Status::EMPTY));
                    for tag in [7, 8].repeat(2) {
                        let memory = own.as_ptr().cast();
                        // SAFETY: it stays until this returns.
                        unsafe { comm.send_raw(Mode::Standard, memory, 1, &every_second(len), to.into(), tag) }
                            .unwrap();
                    }
                    assert_eq!(comm.sendrecv_replace(&mut both, None, 9, from, 9), Ok(Status::EMPTY));
                    assert_eq!((both, room), (own, kept));
                }
            }
        });
    }
}

#[test]
fn between_two_groups_they_go_to_the_other_one() {
    job(5, |comm| {
        // The last of the first three has nobody over there.
        let is_left = comm.rank() < 3;
        let part = comm.split(Some(is_left.into()), 0).unwrap().unwrap();
        let between = part.intercomm(0, &comm, if is_left { 3 } else { 0 }, 0).unwrap();
        let (rank, len) = (between.rank(), 2_000);
        let (own, theirs) = (numbers(comm.rank(), len), numbers(if is_left { rank + 3 } else { rank }, len));
        if rank < 2 {
            pass_on(&between, &own, (rank.into(), rank.into()), &theirs);
        }
    });
}

#[test]
fn one_that_is_refused_takes_no_message_in() {
    job(1, |comm| {
        let int: Datatype = Predefined::Uint32.into();
        let mut room = [0u32; 2];
        let place = room.as_mut_ptr().cast::<u8>();
        comm.send(&[3u32], 0, 1).unwrap();
        // SAFETY: nothing is begun of what is refused.
        let refused = |to: u32, send_tag, count, from: u32, tag| unsafe {
            let (to, from) = (to.into(), from.into());
            let begun = comm.start_sendrecv(place, count, &int, to, send_tag, place.add(4), 1, &int, from, Some(tag));
            let replaced = comm.start_sendrecv_replace(place, count, &int, to, send_tag, from, Some(tag));
            assert_eq!(begun.as_ref().err(), replaced.as_ref().err());
            begun.err()
        };
        assert_eq!(refused(1, 1, 1, 0, 1), Some(ErrorClass::Rank));
        assert_eq!(refused(0, -1, 1, 0, 1), Some(ErrorClass::Tag));
        assert_eq!(refused(0, 1, usize::MAX, 0, 1), Some(ErrorClass::Count));
        assert_eq!(refused(0, 1, 1, 1, 1), Some(ErrorClass::Rank));
        assert_eq!(refused(0, 1, 1, 0, -1), Some(ErrorClass::Tag));
        comm.recv(&mut room[..1], 0, 1).unwrap();
        assert_eq!(room, [3, 0]);
    });
}

#[test]
fn one_under_way_is_waited_for_with_others_and_not_cancelled() {
    job(2, |comm| {
        let (other, int) = (1 - comm.rank(), Predefined::Uint32.into());
        let (data, mut room, mut one) = ([comm.rank()], [9], [9]);
        let (memory, place) = (data.as_ptr().cast(), room.as_mut_ptr().cast());
        // SAFETY: all stay until all are over.
        let mut all = unsafe {
            let exchange =
                comm.start_sendrecv(memory, 1, &int, other.into(), 1, place, 1, &int, other.into(), Some(1)).unwrap();
            [exchange, comm.start_recv(one.as_mut_ptr().cast(), 1, &int, other.into(), Some(2)).unwrap()]
        };
        assert_eq!(comm.local().cancel(&all[0]), Err(ErrorClass::Request));
        assert_eq!(comm.local().cancel(&Pending::Done(Status::EMPTY)), Ok(()), "it is over, and was not waited for");
        let (first, status) = comm.local().wait_any(&mut all).unwrap();
        assert_eq!((first, status.source, status.bytes), (0, Some(other), 4));
        comm.send(&[5u32], other, 2).unwrap();
        assert_eq!(comm.local().wait_any(&mut all).map(|(which, _)| which), Some(1));
        assert_eq!((room, one), ([other], [5]));
        // A message that is too long is an error of the whole, and its front is there.
        let long = [7u32, 8];
        // SAFETY: as above.
        let mut begun = unsafe {
            let (to, from) = (other.into(), other.into());
            comm.start_sendrecv(long.as_ptr().cast(), 2, &int, to, 3, place, 1, &int, from, Some(3)).unwrap()
        };
        assert_eq!(comm.local().wait(&mut begun).error, Some(ErrorClass::Truncate));
        assert_eq!(room, [7]);
    });
}
