#![allow(unsafe_code)] // Raw calls, on memory that the tests own.
//! Operations of all kinds, waited for together.

use super::*;
use crate::datatype::{Datatype, Predefined};

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
        let mut all = [
            Awaited::Begun(&mut null),
            Awaited::Begun(&mut begun),
            Awaited::Persistent(inactive.request()),
            Awaited::Persistent(receive.request()),
        ];
        assert_eq!(local.test_any(&mut all), None);
        assert_eq!(local.test_some(&mut all), Some(vec![]));
        comm.barrier().unwrap();
        comm.send(&[20u32], other, 2).unwrap();
        let (which, status) = local.wait_any(&mut all).unwrap();
        assert_eq!((which, status.tag, status.bytes), (3, Some(2), 4));
        assert_eq!(local.test_all(&mut all), None);
        comm.barrier().unwrap();
        comm.send(&[10u32], other, 1).unwrap();
        let statuses = local.wait_all(&mut all);
        assert_eq!(statuses.iter().map(|status| status.tag).collect::<Vec<_>>(), [None, Some(1), None, None]);
        assert_eq!((local.wait_any(&mut all), local.test_any(&mut all)), (None, Some(None)));
        assert_eq!((local.wait_some(&mut all), local.test_some(&mut all)), (None, None));
        assert_eq!(local.test_all(&mut all), Some(vec![Status::EMPTY; 4]));
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
