//! A process's own communicator, and what is left of it at the job's end.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use sidelane_nic::time::Duration;

use super::*;
use crate::adi::{Device, Process};
use crate::attribute::Keyval;
use crate::comm::info::Info;

#[test]
fn attributes_of_its_own_are_deleted_at_the_end_the_last_one_first_while_it_communicates() {
    job(2, |world| {
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let key = |number: u32| {
            let deleted = Arc::clone(&deleted);
            Keyval::new(
                |_, _| Ok(None),
                move |own: &Communicator, _| {
                    let mut told = [0];
                    own.sendrecv(&[number], 0, 1, &mut told, 0, 1).unwrap();
                    deleted.lock().unwrap().push(told[0]);
                    Ok(())
                },
            )
        };
        for number in [7, 8, 9] {
            world.own().set_attribute(&key(number), Arc::new(())).unwrap();
        }
        world.barrier().unwrap();
        assert!(deleted.lock().unwrap().is_empty());
        world.into_device().close(Duration::from_millis(2_000));
        assert_eq!(*deleted.lock().unwrap(), [9, 8, 7]);
    });
}

#[test]
fn its_own_is_one_whoever_asks() {
    job(2, |world| {
        let half = world.split(Some(world.rank()), 0).unwrap().unwrap();
        let own = world.own();
        assert_eq!(own.compare(&half.own()), Comparison::Ident);
        assert_eq!(own.compare(&half), Comparison::Congruent);
    });
}

#[test]
fn its_own_is_one_and_keeps_nothing_also_when_the_world_is_gone() {
    let alone = vec![Process::here("", &[])];
    let world = Communicator::world(Device::open(0, alone, Vec::new(), &Config::default()).unwrap(), false);
    let first = world.own();
    let (process, copy) = (Arc::downgrade(world.local()), world.dup().unwrap());
    drop(first);
    world.own().set_info(&Info::new());
    drop(world);
    let own = copy.own();
    assert_eq!(own.compare(&copy.own()), Comparison::Ident);
    drop((own, copy));
    assert!(process.upgrade().is_none(), "its device is closed");
}

#[test]
#[ignore = "the other side of a test"]
fn asks_about_a_message_when_all_is_over() {
    in_threads(2, &Config::default(), false, |comm| {
        let mut receive = comm.recv_init(vec![0u8; 8], 1 - comm.rank(), 0);
        receive.start().unwrap();
        drop(comm.into_device());
        let _ = receive.wait();
    });
}

#[test]
#[ignore = "the other side of a test"]
fn asks_about_a_collective_call_when_all_is_over() {
    in_threads(2, &Config::default(), false, |comm| {
        let mut barrier = comm.barrier_init().unwrap();
        if comm.rank() == 0 {
            barrier.start().unwrap();
            drop(comm.into_device());
            let _ = barrier.wait();
        }
    });
}

/// Its memory may still be written to: nobody goes on with it.
#[test]
fn a_request_that_is_asked_about_when_all_is_over_ends_the_process() {
    for role in ["asks_about_a_message_when_all_is_over", "asks_about_a_collective_call_when_all_is_over"] {
        let role = format!("comm::tests::ending::{role}");
        let mut process = Command::new(std::env::current_exe().unwrap());
        let output = process.args(["--exact", &role, "--ignored", "--nocapture"]).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("a request is asked about"), "{output:?}");
    }
}
