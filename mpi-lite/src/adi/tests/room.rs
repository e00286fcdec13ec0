//! Messages for which there is no room: on their way, and where nobody receives them.

use super::job::{CONTEXT, Job, bytes, small_limits};
use crate::adi::{Config, Envelope, Error, Idle, Mode, Request};
use sidelane_nic::fault::Faults;
use sidelane_nic::mem::LinkModel;

#[test]
fn what_nobody_receives_is_bounded_and_nothing_is_lost() {
    let mut job = Job::pair(&small_limits());
    let sends: Vec<_> = (0..1_000).map(|stamp| job.send(0, 1, stamp, &bytes(stamp as u32, 200))).collect();
    job.steps(3_000);
    // 4 KiB of credit are 128 units, and a message of 200 bytes takes seven.
    let complete = sends.iter().filter(|send| job.devices[0].is_complete(**send)).count();
    assert_eq!(complete, 18);
    for stamp in (0..1_000).rev() {
        let receive = job.recv(1, Some(0), Some(stamp), 200);
        assert_eq!(job.finish_recv(1, receive).1, bytes(stamp as u32, 200));
    }
    for send in sends {
        job.finish(0, send);
    }
    job.steps(30);
    // More than half of the credit has come back; the rest comes with the next word.
    let again: Vec<_> = (0..8).map(|stamp| job.send(0, 1, stamp, &bytes(0, 200))).collect();
    assert!(again.iter().all(|send| job.devices[0].is_complete(*send)));
}

#[test]
fn two_that_flood_each_other_come_to_an_end() {
    let mut job = Job::pair(&small_limits());
    let mut sends = Vec::new();
    for round in 0..300 {
        for (from, to) in [(0, 1), (1, 0)] {
            sends.push((from, job.send(from, to, round, &bytes(round as u32, 250))));
        }
    }
    for round in 0..300 {
        for at in [0, 1] {
            let receive = job.recv(at, None, Some(round), 250);
            assert_eq!(job.finish_recv(at, receive).1, bytes(round as u32, 250));
        }
    }
    for (from, send) in sends {
        job.finish(from, send);
    }
}

#[test]
fn who_waits_for_room_in_a_fifo_is_told_that_nothing_moves() {
    let mut job = Job::pair(&small_limits());
    let long = job.recv(1, Some(0), Some(1), 50_000);
    job.steps(5);
    let announced = job.send(0, 1, 1, &bytes(1, 50_000));
    job.steps(3);
    // Its receiver's answer still comes, and finds no room for what it asks for.
    let lost = LinkModel { faults: Faults { loss: 1.0, ..Faults::default() }, ..LinkModel::default() };
    job.fabric.set_link(0, 1, lost);
    let short: Vec<_> = (0..20).map(|tag| job.send(0, 1, 10 + tag, &bytes(0, 240))).collect();
    job.steps(50);
    assert!(short.iter().any(|send| !job.devices[0].is_complete(*send)), "the FIFO is full");
    let mut moved = 0;
    for _ in 0..100 {
        moved += usize::from(job.devices[0].progress());
        job.step();
    }
    assert!(moved < 10, "{moved} of 100 turns");
    job.fabric.set_link(0, 1, LinkModel::default());
    assert_eq!(job.finish_recv(1, long).1, bytes(1, 50_000));
    job.finish(0, announced);
}

#[test]
fn who_waits_for_room_for_a_put_is_told_that_nothing_moves_and_sleeps() {
    let mut job = Job::pair(&small_limits());
    // What is missing of each is put by copies (`COPIED_MAX`), of which there is room for few.
    let receives: Vec<_> = (0..20).map(|tag| job.recv(1, Some(0), Some(tag), 1_110)).collect();
    job.steps(5);
    let sends: Vec<_> = (0..20).map(|tag| job.send(0, 1, tag, &bytes(tag as u32, 1_110))).collect();
    job.steps(3);
    let lost = LinkModel { faults: Faults { loss: 1.0, ..Faults::default() }, ..LinkModel::default() };
    job.fabric.set_link(0, 1, lost);
    job.steps(50);
    let mut moved = 0;
    for _ in 0..100 {
        moved += usize::from(job.devices[0].progress());
        job.step();
    }
    assert!(moved < 10, "{moved} of 100 turns");
    job.devices[0].progress();
    let before = job.fabric.now();
    job.devices[0].idle(&mut Idle::tired());
    assert!(job.fabric.now() > before, "a sleep takes time");
    job.fabric.set_link(0, 1, LinkModel::default());
    for (receive, tag) in receives.into_iter().zip(0..) {
        assert_eq!(job.finish_recv(1, receive).1, bytes(tag, 1_110));
    }
    sends.into_iter().for_each(|send| assert_eq!(job.finish(0, send).error, None));
}

#[test]
fn revoking_a_context_gives_back_the_credit_of_what_was_kept_in_it() {
    let mut job = Job::pair(&small_limits());
    // 4 KiB of credit are 128 units, and an empty message takes one.
    for _ in 0..128 {
        let sends = [0, 1].map(|to| job.send(0, to, 2, &[]));
        assert!(sends.into_iter().all(|send| job.devices[0].is_complete(send)));
    }
    let unasked = job.send(0, 1, 2, &[]);
    assert!(!job.devices[0].is_complete(unasked), "the credit is used up");
    job.steps(30);
    job.devices[1].revoke(CONTEXT);
    assert_eq!(job.finish(0, unasked).error, Some(Error::Revoked));
    job.steps(30);
    let nothing = job.lend(&[]);
    let elsewhere = Envelope::new(CONTEXT + 1, 0, 2);
    job.devices[0].revoke(CONTEXT);
    for to in [0, 1] {
        let again = job.devices[0].send(to, elsewhere, nothing, Mode::Standard);
        assert!(job.devices[0].is_complete(again), "to {to}");
    }
}

#[test]
fn credit_that_came_with_an_announcement_is_given_back_however_that_ends() {
    let received = |job: &mut Job| {
        let receive = job.recv(1, Some(0), Some(2), 5_000);
        job.send(0, 1, 2, &bytes(1, 5_000));
        job.finish_recv(1, receive);
    };
    let cancelled = |job: &mut Job| {
        let send = job.send(0, 1, 2, &bytes(1, 5_000));
        job.steps(30);
        job.devices[0].cancel(send);
        assert!(job.finish(0, send).cancelled);
    };
    let refused = |job: &mut Job| {
        job.devices[1].revoke(CONTEXT);
        let send = job.send(0, 1, 2, &bytes(1, 5_000));
        assert_eq!(job.finish(0, send).error, Some(Error::Revoked));
    };
    for once in [received as fn(&mut Job), cancelled, refused] {
        let mut job = Job::pair(&small_limits());
        // Its first 100 bytes take four units of 128.
        (0..40).for_each(|_| once(&mut job));
        job.steps(100);
        for _ in 0..128 {
            let send = job.send(0, 1, 3, &[]);
            assert!(job.devices[0].is_complete(send), "all of the credit is there");
        }
    }
}

/// Nobody will take it.
#[test]
fn what_comes_for_a_context_that_is_revoked_is_not_kept_and_its_credit_comes_back() {
    let mut job = Job::pair(&small_limits());
    job.devices[1].revoke(CONTEXT);
    // More than twice what may be sent before the first credit comes back.
    for _ in 0..300 {
        let send = job.send(0, 1, 2, &[]);
        assert!(job.devices[0].is_complete(send));
        job.steps(20);
    }
    assert_eq!(job.devices[1].engine.matching.unexpected.len(), 0);
}

/// MPI-5.0 3.5: a short message might find room where a longer one before it found none.
#[test]
fn no_message_overtakes_another_for_which_there_was_no_room() {
    let mut job = Job::pair(&Config { credit: 64 << 10, ..small_limits() });
    let first = job.send(0, 1, 3, b"they meet");
    job.steps(20);
    job.finish(0, first);
    let receive = job.recv(1, None, None, 300);
    job.finish_recv(1, receive);
    let (mut sent, mut waiting) = (Vec::new(), 0);
    while waiting < 3 {
        let request = job.send(0, 1, 3, &bytes(sent.len() as u32, 290));
        waiting += u32::from(request != Request::SENT);
        sent.push((request, 290));
    }
    for _ in 0..4 {
        sent.push((job.send(0, 1, 3, &bytes(sent.len() as u32, 5)), 5));
    }
    job.steps(100);
    for (number, (request, len)) in (0..).zip(sent) {
        let receive = job.recv(1, None, None, 300);
        assert_eq!(job.finish_recv(1, receive).1, bytes(number, len));
        job.finish(0, request);
    }
}
