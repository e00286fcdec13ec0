//! Requests: what may be asked of them, and what others may not say of them.

use super::job::{CONTEXT, Job, bytes, pattern, small_limits};
use crate::adi::engine::Engine;
use crate::adi::envelope::Envelope;
use crate::adi::record::{self, Accept, Announce, Note, Record, Unasked};
use crate::adi::{Config, Error, Mode};
use sidelane_nic::mem::LinkModel;
use sidelane_nic::time::Duration;

#[test]
fn a_receive_is_cancelled_unless_it_was_matched() {
    let mut job = Job::pair(&Config::default());
    let receive = job.recv(1, None, None, 8);
    job.devices[1].cancel(receive.request);
    assert!(job.finish(1, receive.request).cancelled);
    let matched = job.recv(1, None, None, 8);
    job.send(0, 1, 0, b"12345678");
    job.steps(30);
    job.devices[1].cancel(matched.request);
    let (status, got) = job.finish_recv(1, matched);
    assert!(!status.cancelled && got == b"12345678");
}

#[test]
fn a_send_is_cancelled_unless_it_was_matched() {
    let mut job = Job::pair(&small_limits());
    let [cancelled, kept] = [1, 2].map(|stamp| job.send(0, 1, 0, &bytes(stamp, 5_000)));
    job.steps(30);
    job.devices[0].cancel(cancelled);
    assert!(job.finish(0, cancelled).cancelled);
    let receive = job.recv(1, None, None, 5_000);
    job.steps(1);
    job.devices[0].cancel(kept);
    assert_eq!(job.finish_recv(1, receive).1, bytes(2, 5_000));
    assert!(!job.finish(0, kept).cancelled);
}

/// Who gives a communicator up may do so before a cancel comes.
#[test]
fn a_send_that_is_cancelled_and_refused_is_cancelled() {
    let mut job = Job::pair(&small_limits());
    let [cancelled, refused] = [1, 2].map(|stamp| job.send(0, 1, 0, &bytes(stamp, 5_000)));
    job.steps(30);
    job.devices[0].cancel(cancelled);
    assert!(job.devices[1].refuse_unreceived(CONTEXT..CONTEXT + 1));
    let status = job.finish(0, cancelled);
    assert_eq!((status.cancelled, status.error), (true, None));
    assert_eq!(job.finish(0, refused).error, Some(Error::Revoked));
}

#[test]
fn a_send_to_oneself_is_cancelled_unless_it_was_found() {
    let mut job = Job::pair(&small_limits());
    let sends = [1, 2, 3].map(|tag| job.send_as(0, 0, tag, &bytes(1, 8), Mode::Synchronous));
    let device = &mut job.devices[0];
    let (found, _) = device.matched_probe(pattern(None, Some(2))).unwrap();
    sends[..2].iter().for_each(|send| device.cancel(*send));
    let ended = sends.map(|send| device.test(send).map(|status| status.cancelled));
    assert_eq!(ended, [Some(true), None, None]);
    assert_eq!(device.probe(pattern(None, None)).map(|status| status.tag), Some(3), "the first one is gone");
    let (room, lent) = job.room(8);
    let receive = job.devices[0].recv_matched(found, lent);
    assert!(!job.finish(0, receive).cancelled && job.at(room) == bytes(1, 8));
    assert_eq!(job.devices[0].test(sends[1]).map(|status| status.cancelled), Some(false));
}

#[test]
fn a_send_that_waits_for_room_is_cancelled() {
    let mut job = Job::pair(&small_limits());
    let sends: Vec<_> = (0..200).map(|tag| job.send(0, 1, tag, &bytes(tag as u32, 200))).collect();
    job.devices[0].cancel(sends[150]);
    assert_eq!(job.devices[0].poll(sends[150]).map(|status| status.cancelled), Some(true));
    for tag in (0..200).filter(|tag| *tag != 150) {
        let receive = job.recv(1, None, None, 200);
        assert_eq!(job.finish_recv(1, receive).1, bytes(tag, 200));
        assert_eq!(job.finish(0, sends[tag as usize]).error, None);
    }
}

/// Requests of several processes have the same numbers.
#[test]
fn a_send_that_is_cancelled_takes_no_other_process_s_message_back() {
    for (by, other) in [(0, 1), (1, 0)] {
        let mut job = Job::new(3, &small_limits(), 1, LinkModel::default());
        let sends = [0, 1].map(|from| job.send(from, 2, 0, &bytes(from, 5_000)));
        job.steps(30);
        let own = job.send_as(2, 2, 0, &bytes(2, 8), Mode::Synchronous);
        assert!(sends.iter().all(|send| send.to_bits() == own.to_bits()));
        job.devices[2].cancel(own);
        assert!(job.finish(2, own).cancelled);
        job.devices[by].cancel(sends[by]);
        assert!(job.finish(by as u32, sends[by]).cancelled);
        let probed = [by, other, 2].map(|from| job.devices[2].probe(pattern(Some(from as u32), None)).is_some());
        assert_eq!(probed, [false, true, false]);
    }
}

#[test]
fn a_request_that_was_freed_ends_all_the_same_and_leaves_its_place() {
    let mut job = Job::pair(&small_limits());
    for len in [8, 5_000] {
        // Before it is over, and after.
        for early in [true, false] {
            let send = job.send_as(0, 1, 0, &bytes(1, len), Mode::Synchronous);
            if early {
                job.devices[0].free(send);
            }
            let receive = job.recv(1, None, None, len);
            assert_eq!(job.finish_recv(1, receive).1, bytes(1, len));
            while !job.devices[0].is_complete(send) {
                job.step();
            }
            if !early {
                job.devices[0].free(send);
            }
            assert_eq!((send.index, receive.request.index), (0, 0));
        }
    }
}

/// Its memory is the user's again, whatever the sender has a key for.
#[test]
fn the_room_of_a_receive_that_is_over_is_closed_to_its_sender() {
    for revoked in [false, true] {
        let mut job = Job::pair(&small_limits());
        job.send(0, 1, 2, &bytes(1, 5_000));
        job.steps(30);
        let receive = job.recv(1, Some(0), Some(2), 5_000);
        let accept = answer_to(&mut job, 0);
        match revoked {
            true => job.devices[1].revoke(CONTEXT),
            false => job.devices[0].engine.handle_accept(1, accept),
        }
        assert_eq!(job.finish(1, receive.request).error, revoked.then_some(Error::Revoked));
        let received = job.at(receive.room).to_vec();
        let (other, receiver) = (job.lend(&bytes(2, 5_000)), job.devices[0].engine.peers[1].id.unwrap());
        let put = job.devices[0].ports[0].put(receiver, &accept.key.unwrap(), other, 0..1_000, false);
        assert!(put.is_ok());
        job.steps(100);
        assert!(job.at(receive.room) == received, "revoked: {revoked}");
    }
}

/// What the receiver of its message says to process `at`, which has not heard it.
fn answer_to(job: &mut Job, at: usize) -> Accept {
    let mut answer = None;
    loop {
        if let Some(accept) = answer {
            return accept;
        }
        job.fabric.advance_to(job.fabric.now() + Duration::from_micros(1));
        let port = &mut job.devices[at].ports[0];
        port.poll();
        port.recv_all(|_, message| {
            if let Some((_, Record::Accept(accept))) = record::parse(message) {
                answer = Some(accept);
            }
        });
    }
}

#[test]
fn a_receive_that_is_said_to_be_over_twice_ends_once() {
    let mut job = Job::pair(&small_limits());
    job.send(0, 1, 2, &bytes(1, 5_000));
    job.steps(30);
    let receive = job.recv(1, Some(0), Some(2), 5_000).request;
    job.devices[1].free(receive);
    (0..2).for_each(|_| job.devices[1].engine.handle_note(0, Note::Finished, receive.to_bits()));
    job.steps(1);
    let [one, other] = [1, 2].map(|tag| job.recv(1, None, Some(tag), 8).request.index);
    assert_ne!(one, other, "its place is free once");
}

/// Nobody of this version says any of it. The sender has announced a message, and the receiver waits for its rest.
#[test]
fn what_breaks_the_rules_is_counted_and_changes_nothing() {
    let (message, key) = (bytes(1, 900), Envelope::new(CONTEXT, 0, 3));
    let mut job = Job::pair(&small_limits());
    let send = job.send(0, 1, 2, &message);
    job.steps(30);
    let receive = job.recv(1, Some(0), Some(2), message.len());
    let [sender, receiver] = &mut job.devices[..] else { unreachable!("they are two") };
    let (sender, receiver) = (&mut sender.engine, &mut receiver.engine);
    let (sent, received) = (send.to_bits(), receive.request.to_bits());
    let accept = Accept { send: sent, receive: u64::MAX, at: 0, want: 1, key: None };
    let foreign = |engine: &Engine| (engine.counters.malformed, engine.counters.stale, engine.counters.beyond_credit);

    sender.handle_accept(1, Accept { at: 900, ..accept });
    sender.handle_accept(1, Accept { at: u64::MAX, ..accept });
    sender.handle_data(1, sent, 0, b"to a send");
    [Note::Cancelled, Note::Finished].into_iter().for_each(|note| sender.handle_note(1, note, sent));
    assert_eq!(foreign(sender), (5, 0, 0));
    // Of no request, and not by whom it is.
    sender.handle_accept(1, Accept { send: !sent, ..accept });
    sender.handle_accept(0, accept);
    sender.handle_note(1, Note::Taken, !sent);
    sender.handle_note(0, Note::Taken, sent);
    assert_eq!(foreign(sender), (5, 4, 0));

    receiver.handle_data(0, received, 99, b"again");
    receiver.handle_data(0, received, 101, b"beyond");
    receiver.handle_data(0, received, 100, &[0; 801]);
    [Note::Cancelled, Note::Finished, Note::Taken].into_iter().for_each(|note| receiver.handle_note(0, note, received));
    receiver.handle_data(1, received, 100, b"not by whom it is");
    receiver.handle_data(0, !received, 100, b"of none");
    assert_eq!(foreign(receiver), (6, 2, 0));
    // The first one leaves no credit for another one.
    receiver.handle_unasked(0, Unasked::Eager { key, bytes: &[0; 3_000] });
    receiver.handle_unasked(0, Unasked::Eager { key, bytes: &[0; 3_000] });
    receiver.handle_unasked(0, Unasked::Begin { key, len: 3_000, bytes: b"first" });
    receiver.handle_announce(0, key, Announce { send: 7, len: 9_000, address: 0 }, &[0; 3_000]);
    assert_eq!((foreign(receiver), receiver.matching.unexpected.len()), ((6, 2, 3), 1));
    // What is no record at all.
    let id = sender.peers[1].id.unwrap();
    job.devices[0].ports[0].send(id, b"nonsense", &[]).unwrap();
    while job.devices[1].counters().malformed < 7 {
        job.step();
    }

    let (status, got) = job.finish_recv(1, receive);
    assert_eq!((status.error, got), (None, &message[..]));
    let status = job.finish(0, send);
    assert_eq!((status.error, status.cancelled), (None, false));
}
