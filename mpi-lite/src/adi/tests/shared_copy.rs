//! Long messages between processes of one host that both ends copy: two devices over shared memory, whose turns a test takes.

use sidelane_nic::mem::Fabric;
use sidelane_nic::share::{Shared, Ticket};

use super::job::{CONTEXT, Job, Receive, bytes};
use crate::adi::process::host_identity;
use crate::adi::record::Share;
use crate::adi::request::State;
use crate::adi::shared_copy::Place;
use crate::adi::{Config, Device, Error, Port, Process, Request};
use crate::both_ends::Pieces;

const LONG: usize = 1_000_000;

fn pair(name: &str) -> Job {
    let spec = format!("shm:shared-copy-{name}-{}", std::process::id()).parse().unwrap();
    let config = Config::default();
    let ports: Vec<_> = (0..2).map(|_| Port::open(&spec, &config).unwrap()).collect();
    let here = |port| Process::here(&host_identity(), std::slice::from_ref(port));
    let processes = ports.iter().map(here).collect();
    Job::of(Fabric::new(1), ports, processes, &config)
}

/// A message that the receiver has begun to read.
fn begun(job: &mut Job) -> (Request, Receive) {
    let send = job.send(0, 1, 2, &bytes(1, LONG));
    let receive = job.recv(1, Some(0), Some(2), LONG);
    while job.devices[1].engine.requests.get(receive.request).unwrap().state != State::Copying {
        job.step();
    }
    (send, receive)
}

/// What the receiver lets the sender write.
fn pieces(job: &Job) -> Pieces<'_> {
    job.devices[1].engine.copies.first_pieces()
}

fn ended(job: &mut Job, device: usize, request: Request) -> Option<Option<Error>> {
    job.devices[device].poll(request).map(|status| status.error)
}

#[test]
fn a_sender_that_is_there_writes_some_of_its_message() {
    let mut job = pair("both");
    let (send, receive) = begun(&mut job);
    let (status, got) = job.finish_recv(1, receive);
    assert!(status.error.is_none() && got == bytes(1, LONG));
    assert_eq!(job.finish(0, send).error, None);
    let [sender, receiver] = [0, 1].map(|own| *job.devices[own].counters());
    assert!(sender.given > 0, "{sender:?}");
    assert_eq!((receiver.pulled, receiver.put), (1, 0));
}

#[test]
fn a_receiver_waits_for_no_sender_that_is_elsewhere() {
    let mut job = pair("alone");
    let (send, receive) = begun(&mut job);
    while !job.devices[1].is_complete(receive.request) {
        job.devices[1].progress();
    }
    assert!(job.finish_recv(1, receive).1 == bytes(1, LONG));
    assert_eq!((job.finish(0, send).error, job.devices[0].counters().given), (None, 0));
}

#[test]
fn more_messages_than_a_board_has_lines_arrive_too() {
    let mut job = pair("many");
    let sends: Vec<_> = (0..40).map(|tag| job.send(0, 1, tag, &bytes(tag as u32, 100_000))).collect();
    let receives: Vec<_> = (0..40).map(|tag| job.recv(1, Some(0), Some(tag), 100_000)).collect();
    for (tag, receive) in (0..).zip(receives) {
        assert!(job.finish_recv(1, receive).1 == bytes(tag, 100_000), "message {tag}");
    }
    sends.into_iter().for_each(|send| assert_eq!(job.finish(0, send).error, None));
}

#[test]
fn a_message_of_which_a_piece_could_not_be_written_goes_another_way() {
    let mut job = pair("another");
    let (send, receive) = begun(&mut job);
    assert!(pieces(&job).take_back().is_some());
    pieces(&job).give_up();
    let (status, got) = job.finish_recv(1, receive);
    assert!(status.error.is_none() && got == bytes(1, LONG));
    assert_eq!((job.finish(0, send).error, job.devices[1].counters().put), (None, 1));
}

#[test]
fn a_receive_that_is_revoked_ends_when_its_sender_writes_no_more() {
    let mut job = pair("revoked");
    let (send, receive) = begun(&mut job);
    assert!(pieces(&job).take_back().is_some());
    job.devices[1].revoke(CONTEXT);
    job.steps(100);
    assert_eq!((ended(&mut job, 1, receive.request), pieces(&job).take_back()), (None, None));
    pieces(&job).put();
    while !job.devices[1].is_complete(receive.request) || !job.devices[0].is_complete(send) {
        job.step();
    }
    assert_eq!(ended(&mut job, 1, receive.request), Some(Some(Error::Revoked)));
    assert_eq!(ended(&mut job, 0, send), Some(Some(Error::Revoked)));
}

#[test]
fn a_receive_whose_sender_counts_as_gone_ends_when_it_writes_no_more_or_has_ended() {
    for has_ended in [false, true] {
        let mut job = pair(&format!("gone-{has_ended}"));
        let (_, receive) = begun(&mut job);
        assert!(pieces(&job).take_back().is_some());
        let Device { engine, ports, .. } = &mut job.devices[1];
        engine.lose(ports, 0);
        job.steps(100);
        assert_eq!(ended(&mut job, 1, receive.request), None);
        if has_ended {
            job.devices[1].engine.processes[0].mark ^= 1;
        } else {
            pieces(&job).put();
        }
        job.step();
        assert_eq!(ended(&mut job, 1, receive.request), Some(Some(Error::ProcFailed)));
    }
}

#[test]
fn forged_words_are_counted_and_nothing_is_written() {
    let mut job = pair("forged");
    let send = job.send(0, 1, 2, &bytes(1, LONG));
    job.steps(10);
    let board = Shared::new(2048).unwrap();
    let place = Place { line: 0, number: 1 };
    let share = Share { send: send.to_bits(), room: 64, at: 0, want: LONG as u64, place };
    let engine = &mut job.devices[0].engine;
    for wrong in [
        Share { at: 1, ..share },
        Share { at: u64::MAX, ..share },
        Share { want: u64::MAX, ..share },
        Share { want: 0, ..share },
        Share { place: Place { line: 32, ..place }, ..share },
    ] {
        engine.handle_share(1, wrong, board.ticket());
    }
    engine.handle_share(1, share, Shared::new(4096).unwrap().ticket());
    assert_eq!((engine.counters.malformed, engine.counters.stale), (6, 0));
    engine.handle_share(0, share, board.ticket());
    engine.handle_share(1, Share { send: send.to_bits() + 1, ..share }, board.ticket());
    assert_eq!((engine.counters.malformed, engine.counters.stale), (6, 2));
    // A board that is not there: the receiver has it all to itself.
    let mut nowhere = board.ticket().to_bytes();
    nowhere[8] ^= 1;
    engine.handle_share(1, share, Ticket::from_bytes(nowhere));
    assert!(!engine.copies.are_under_way());
    let receive = job.recv(1, Some(0), Some(2), LONG);
    assert!(job.finish_recv(1, receive).1 == bytes(1, LONG));
}
