#![allow(unsafe_code)] // Raw calls, on memory that the tests own.
//! Operations of all kinds, waited for together.

use std::sync::Arc;

use super::*;
use crate::datatype::{Datatype, Predefined};
use crate::rma::{Lent, Room, Target, Window};

fn int() -> Datatype {
    Predefined::Uint32.into()
}

/// A receive into `room`, begun; a persistent one, active; a barrier.
fn each_kind(comm: &Communicator, other: u32, room: &mut [u32; 1]) -> (Pending, Repeated<u32>, Repeated<u8>) {
    // SAFETY: who calls this waits for it, while it has `room`.
    let begun = unsafe { comm.start_recv(room.as_mut_ptr().cast(), 1, &int(), other.into(), Some(1)) }.unwrap();
    let mut receive = comm.recv_init(vec![0u32], other, 2);
    receive.start().unwrap();
    (begun, receive, comm.barrier_init().unwrap())
}

#[test]
fn any_some_and_all_of_several_kinds_are_waited_for() {
    job(2, |comm| {
        let (other, local, mut room) = (1 - comm.rank(), comm.local(), [0]);
        let (mut begun, mut receive, mut inactive) = each_kind(&comm, other, &mut room);
        let mut null = Pending::Null;
        let (mut own, own_ends) = comm.begin_own();
        let mut all = [
            Awaited::Begun(&mut null),
            Awaited::Begun(&mut begun),
            Awaited::Persistent(inactive.request()),
            Awaited::Persistent(receive.request()),
            Awaited::Begun(&mut own),
        ];
        assert_eq!(local.test_any(&mut all), None);
        assert_eq!(local.test_some(&mut all), Some(vec![]));
        comm.barrier().unwrap();
        comm.send(&[20u32], other, 2).unwrap();
        let (which, status) = local.wait_any(&mut all).unwrap();
        assert_eq!((which, status.tag, status.bytes), (3, Some(2), 4));
        assert_eq!((local.test_all(&mut all), local.test_all(&mut all[4..])), (None, None));
        own_ends.complete(Status { bytes: 77, ..Status::EMPTY });
        let some = local.wait_some(&mut all).unwrap();
        assert_eq!(some, [(4, Status { bytes: 77, ..Status::EMPTY })]);
        comm.barrier().unwrap();
        comm.send(&[10u32], other, 1).unwrap();
        let statuses = local.wait_all(&mut all);
        assert_eq!(statuses.iter().map(|status| status.tag).collect::<Vec<_>>(), [None, Some(1), None, None, None]);
        assert_eq!((local.wait_any(&mut all), local.test_any(&mut all)), (None, Some(None)));
        assert_eq!((local.wait_some(&mut all), local.test_some(&mut all)), (None, None));
        assert_eq!(local.test_all(&mut all), Some(vec![Status::EMPTY; 5]));
        assert_eq!((room, receive.room().unwrap()), ([10], &mut [20][..]));
    });
}

#[test]
fn who_looks_how_one_ended_may_wait_for_it_still() {
    job(2, |comm| {
        let (other, local, mut room) = (1 - comm.rank(), comm.local(), [0]);
        let (mut begun, mut receive, mut barrier) = each_kind(&comm, other, &mut room);
        assert_eq!(local.look(&mut Pending::Null), Some(Status::EMPTY));
        assert_eq!(local.look(&mut barrier.request()), Some(Status::EMPTY), "it is inactive");
        assert_eq!(local.look(&mut begun), None);
        assert_eq!(local.look(&mut receive.request()), None);
        barrier.start().unwrap();
        while local.look(&mut barrier.request()).is_none() {}
        assert_eq!(barrier.start(), Err(ErrorClass::Request), "it was not waited for");
        barrier.wait().unwrap();
        barrier.start().unwrap();
        barrier.wait().unwrap();
        comm.send(&[10u32], other, 1).unwrap();
        comm.send(&[20u32], other, 2).unwrap();
        let seen = loop {
            if let Some(status) = local.look(&mut begun) {
                break status;
            }
        };
        assert_eq!((local.look(&mut begun), local.test(&mut begun)), (Some(seen), Some(seen)));
        assert!(matches!(begun, Pending::Null));
        while local.look(&mut receive.request()).is_none() {}
        assert_eq!(receive.wait().unwrap().bytes, 4);
        assert_eq!((room, receive.room().unwrap()), ([10], &mut [20][..]));
    });
}

#[test]
fn who_looks_at_several_may_wait_for_them_still() {
    job(2, |comm| {
        let (other, local, mut room) = (1 - comm.rank(), comm.local(), [0]);
        let (mut begun, mut receive, mut inactive) = each_kind(&comm, other, &mut room);
        let mut null = Pending::Null;
        let mut all = [
            Awaited::Begun(&mut null),
            Awaited::Begun(&mut begun),
            Awaited::Persistent(inactive.request()),
            Awaited::Persistent(receive.request()),
        ];
        assert_eq!((local.look_any(&mut all), local.look_some(&mut all)), (None, Some(vec![])));
        comm.barrier().unwrap();
        comm.send(&[20u32], other, 2).unwrap();
        let (which, status) = std::iter::repeat_with(|| local.look_any(&mut all)).flatten().next().unwrap().unwrap();
        assert_eq!((which, status.tag), (3, Some(2)));
        assert_eq!(local.look_some(&mut all), Some(vec![(3, status)]));
        assert_eq!(local.look_all(&mut all), None);
        comm.barrier().unwrap();
        comm.send(&[10u32], other, 1).unwrap();
        let seen = std::iter::repeat_with(|| local.look_all(&mut all)).flatten().next().unwrap();
        assert_eq!(seen.iter().map(|status| status.tag).collect::<Vec<_>>(), [None, Some(1), None, Some(2)]);
        assert_eq!(local.look_some(&mut all), Some(vec![(1, seen[1]), (3, seen[3])]));
        assert_eq!(local.wait_all(&mut all), seen);
        let none = (Some(None), None, Some(vec![Status::EMPTY; 4]));
        assert_eq!((local.look_any(&mut all), local.look_some(&mut all), local.look_all(&mut all)), none);
        assert_eq!((room, receive.room().unwrap()), ([10], &mut [20][..]));
    });
}

#[test]
fn a_persistent_message_that_is_given_up_active_goes_on() {
    job(2, |comm| {
        let (other, mut data) = (1 - comm.rank(), vec![comm.rank(); 100_000]);
        let memory = data.as_mut_ptr().cast::<u8>();
        // SAFETY: it stays until the barrier, before which the message was received.
        unsafe {
            let mut sent = comm.send_init_raw(Mode::Standard, memory, data.len(), &int(), other.into(), 1);
            sent.start().unwrap();
            sent.free();
            comm.send_init_raw(Mode::Standard, memory, 1, &int(), other.into(), 1).free();
        }
        let mut room = vec![9; 100_000];
        comm.recv(&mut room, other, 1).unwrap();
        assert!(room.iter().all(|number| *number == other));
        comm.barrier().unwrap();
        assert_eq!(comm.iprobe(other, 1), Ok(None));
        comm.barrier().unwrap();
    });
}

#[test]
fn operations_of_a_window_are_waited_for_with_messages() {
    both_ways(3, |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        let kept = comm.dup().unwrap();
        // SAFETY: nothing takes the device away.
        let window = unsafe { kept.with_device(|held| Window::allocate(held, kept.members(), 8, 4)) }.unwrap();
        // SAFETY: as above.
        unsafe { kept.with_device(|held| window.lock_all(held)) }.unwrap();
        let window = Arc::new(window);
        let (number, mut got, mut room) = ([rank + 1], [9u32], [9u32]);
        let (to, of) = (((rank + 1) % size) as usize, &int());
        let target = |displacement| Target { rank: to, displacement, count: 1, datatype: of };
        let begin = |operation| {
            let window = Arc::clone(&window);
            // SAFETY: as above.
            unsafe { comm.begin_asking(move |device| Some(window.poll(device, operation)?.map_err(ErrorClass::from))) }
        };
        // SAFETY: the memory stays until all is over, and as above.
        let (put, get, outside) = unsafe {
            kept.with_device(|held| {
                let from = Lent { address: number.as_ptr().cast(), count: 1, datatype: of };
                let into = Room { address: got.as_mut_ptr().cast(), count: 1, datatype: of };
                let put = window.accumulate(held, from, target(0), &crate::op::Op::Sum).unwrap();
                let get = window.get_accumulate(held, from, into, target(1), &crate::op::Op::Sum).unwrap();
                let nothing = Room { address: room.as_mut_ptr().cast(), count: 1, datatype: of };
                (put, get, window.get_accumulate(held, from, nothing, target(2), &crate::op::Op::Sum).unwrap())
            })
        };
        let other = (rank + size - 1) % size;
        // SAFETY: the room stays until it is over.
        let received = unsafe { comm.start_recv(room.as_mut_ptr().cast(), 1, of, other.into(), Some(4)) }.unwrap();
        let mut all = [begin(put), received, begin(get), begin(outside)];
        let mut ended = [None; 4];
        let mut sent = false;
        while let Some((which, status)) = comm.local().wait_any(&mut all) {
            assert_eq!(ended[which].replace(status.error), None);
            if !std::mem::replace(&mut sent, true) {
                comm.send(&[rank], to as u32, 4).unwrap();
            }
        }
        assert_eq!(ended, [Some(None), Some(None), Some(None), Some(Some(ErrorClass::RmaRange))]);
        assert_eq!((got, room), ([0], [other]));
        // SAFETY: as above; what was refused is told once more to who waits for all.
        let _ = unsafe { kept.with_device(|held| window.unlock_all(held)) };
        comm.barrier().unwrap();
        let mut sums = [0u32; 2];
        let into = Room { address: sums.as_mut_ptr().cast(), count: 2, datatype: of };
        // SAFETY: it stays.
        unsafe { window.load(into, 0) }.unwrap();
        assert_eq!(sums, [other + 1; 2]);
        let window = Arc::into_inner(window).expect("nothing asks it any more");
        // SAFETY: as above.
        let _ = unsafe { kept.with_device(|held| window.free(held)) };
    });
}

#[test]
fn the_program_s_own_operation_ends_another_thread_s_wait() {
    in_threads(2, &Config::default(), true, |comm| {
        let (mut own, ends) = comm.begin_own();
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| comm.local().wait(&mut own));
            ends.complete(Status { bytes: 3, ..Status::EMPTY });
            assert_eq!(waits.join().unwrap().bytes, 3);
        });
        let (mut given_up, ends) = comm.begin_own();
        assert_eq!(comm.local().test(&mut given_up), None);
        drop(ends);
        assert!(comm.local().wait(&mut given_up).cancelled);
        let (unwanted, ends) = comm.begin_own();
        let Pending::Running(handle) = unwanted else { unreachable!("it has not ended") };
        comm.local().free(unwanted);
        assert!(!comm.local().lock().runs.knows(handle));
        ends.complete(Status::EMPTY);
        comm.barrier().unwrap();
    });
}
