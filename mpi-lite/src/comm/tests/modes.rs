//! What the modes of sends differ in: when a send is over, and room for those that are buffered.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;

/// Cannot go unasked.
const LONG: usize = 100_000;

/// MPI-4.1 3.4.
#[test]
fn of_short_messages_only_a_synchronous_one_waits_for_its_receive() {
    let receives = AtomicBool::new(false);
    job(2, |comm| {
        if comm.rank() == 0 {
            comm.attach_buffer(1 + BUFFERED_OVERHEAD).unwrap();
            comm.scope(|scope| {
                let mut waits = scope.send_as(Mode::Synchronous, &[1u8], 1, 1)?;
                comm.send(&[2u8], 1, 2)?;
                comm.bsend(&[3u8], 1, 3)?;
                comm.rsend(&[4u8], 1, 4)?;
                for _ in 0..100 {
                    assert_eq!(waits.test()?, None);
                }
                comm.send(&[0u8], 1, 0)?;
                waits.wait().map(drop)
            })
            .unwrap();
            comm.ssend(&[5u8], 1, 5).unwrap();
            assert!(receives.load(Ordering::Acquire), "nobody had received it");
        } else {
            let mut room = [9u8];
            for tag in [0, 4, 3, 2, 1] {
                comm.recv(&mut room, 0, tag).unwrap();
                assert_eq!(room, [tag as u8]);
            }
            // It has come, and its sender may go on only now.
            comm.probe(0, 5).unwrap();
            receives.store(true, Ordering::Release);
            comm.recv(&mut room, 0, 5).unwrap();
        }
    });
}

/// Without room: that is for buffered ones alone.
#[test]
fn a_send_that_is_said_to_be_ready_needs_no_room() {
    job(2, |comm| {
        let mut data = vec![comm.rank() as u8; LONG];
        if comm.rank() == 0 {
            comm.recv(&mut [0u8], 1, 1).unwrap();
            comm.rsend(&data, 1, 2).unwrap();
            return;
        }
        comm.scope(|scope| {
            let receive = scope.recv(&mut data, 0, 2)?;
            comm.send(&[0u8], 0, 1)?;
            receive.wait().map(drop)
        })
        .unwrap();
        assert!(data.iter().all(|byte| *byte == 0));
    });
}

/// Which is for messages of the communicator alone, before that of the process (MPI-4.1 3.6).
#[test]
fn a_communicators_own_room_is_flushed_and_taken_back() {
    let received = AtomicU32::new(0);
    job(2, |world| {
        let (comm, mut data) = (world.dup().unwrap(), vec![7u8; LONG]);
        if comm.rank() == 1 {
            for _ in 0..3 {
                comm.probe(0, 0).unwrap();
                received.fetch_add(1, Ordering::Release);
                comm.recv(&mut data, 0, 0).unwrap();
            }
            return;
        }
        let capacity = LONG + BUFFERED_OVERHEAD;
        world.attach_buffer(1).unwrap();
        comm.attach_own_buffer(capacity).unwrap();
        assert_eq!(comm.attach_own_buffer(1), Err(ErrorClass::Buffer));
        for sent in 1..=2 {
            comm.bsend(&data, 1, 0).unwrap();
            comm.flush_own_buffer();
            assert_eq!(received.load(Ordering::Acquire), sent);
        }
        comm.bsend(&data, 1, 0).unwrap();
        assert_eq!(comm.detach_own_buffer(), Ok(capacity));
        assert_eq!(received.load(Ordering::Acquire), 3);
        assert_eq!(
            (comm.detach_own_buffer(), comm.bsend(&data, 1, 0)),
            (Err(ErrorClass::Buffer), Err(ErrorClass::Buffer))
        );
        assert_eq!(world.detach_buffer(), Ok(1));
    });
}
