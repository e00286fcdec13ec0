//! Ranks on hosts of their own, over UDP: a process that computes lives, and one that is silent does not.

use std::sync::{Barrier, Mutex, mpsc};
use std::time::Instant;

use sidelane_nic::time::Duration;

use super::*;
use crate::adi::{Device, Port, Process};
use crate::patience::{SUITE_PATIENCE, watch};

/// As jobs have it: with less there are few beats in it (`pulse::BEAT`), and on a machine with many more busy threads than cores
/// none may come.
const SILENCE: Duration = Duration::from_millis(2_000);

/// Runs both ranks of a job, each on what it takes for a host of its own.
fn two_hosts(first: impl FnOnce(Communicator) + Send, second: impl FnOnce(Communicator) + Send) {
    watch("a job of two hosts", SUITE_PATIENCE);
    let config = Config::default().noticing_silence(SILENCE);
    let (meet, processes) = (Barrier::new(2), Mutex::new(vec![None; 2]));
    let open = |own: u32| {
        let ports = vec![Port::open(&"udp:127.0.0.1:0".parse().unwrap(), &config).unwrap()];
        processes.lock().unwrap()[own as usize] = Some(Process::here(&format!("host{own}"), &ports));
        meet.wait();
        let all = processes.lock().unwrap().iter().flatten().cloned().collect();
        let world = Communicator::world(Device::open(own, all, ports, &config).unwrap(), false);
        world.with_pulse()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| first(open(0)));
        scope.spawn(|| second(open(1)));
    });
}

#[test]
fn a_rank_that_computes_lives() {
    let (over, is_over) = mpsc::channel();
    two_hosts(
        // It takes the sender along, whose end is then told also when it fails.
        move |comm| {
            comm.sendrecv(&[1u8], 1, 0, &mut [0u8], 1, 0).unwrap();
            let begun = Instant::now();
            while begun.elapsed().as_nanos() < 2 * u128::from(SILENCE.as_nanos()) {
                assert_eq!(comm.iprobe(1, 1), Ok(None));
                std::thread::yield_now();
            }
            over.send(()).unwrap();
            assert_eq!(comm.recv(&mut [0u8], 1, 1).map(|status| status.bytes), Ok(1));
        },
        move |comm| {
            comm.sendrecv(&[1u8], 0, 0, &mut [0u8], 0, 0).unwrap();
            // It is in no call for twice what counts as silence.
            is_over.recv().unwrap();
            comm.send(&[2u8], 0, 1).unwrap();
            comm.recv(&mut [0u8], 0, 2).unwrap_err();
        },
    );
}

#[test]
fn a_rank_that_is_silent_is_gone_in_bounded_time() {
    let begun = Mutex::new(None);
    two_hosts(
        |comm| {
            comm.sendrecv(&[1u8], 1, 0, &mut [0u8], 1, 0).unwrap();
            assert_eq!(comm.recv(&mut [0u8], 1, 1).map(drop), Err(ErrorClass::ProcFailed));
            let noticed = begun.lock().unwrap().take().map(|begun: Instant| begun.elapsed().as_nanos());
            // Not later than a machine that is busy with other things may make it.
            assert!(noticed.is_some_and(|after| after < 10 * u128::from(SILENCE.as_nanos())), "{noticed:?} ns");
            assert_eq!(comm.failed().processes(), [1]);
        },
        |comm| {
            comm.sendrecv(&[1u8], 0, 0, &mut [0u8], 0, 0).unwrap();
            *begun.lock().unwrap() = Some(Instant::now());
            // Its socket is closed without a word.
            drop(comm);
        },
    );
}
