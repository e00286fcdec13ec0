//! Messages that are sent unasked in parts.

use super::job::{CONTEXT, Job, Receive, bytes, pattern};
use super::messages::quick_to_notice;
use crate::adi::record::Unasked;
use crate::adi::request::State;
use crate::adi::{Config, Counters, Envelope, Error, Limits, Mode, Pattern, Request};
use sidelane_nic::mem::{Config as NodeConfig, LineModel, LinkModel};

/// Frames of nine KB, so parts of 8 KiB.
const FRAME: usize = 9_000;
const KEY: Envelope = Envelope::new(CONTEXT, 0, 5);
/// The longest that is sent unasked, and most of the credit.
const LONGEST: usize = 50_000;

fn config() -> Config {
    let limits = Limits { eager_max: LONGEST, prefix: 0, put_min: 0, pull_min: Limits::NEVER };
    let endpoint = quick_to_notice();
    Config { endpoint, on_host: limits, off_host: limits, credit: 64 << 10, ..Config::default() }
}

fn job_on(link: LinkModel) -> Job {
    job_of(&config(), link)
}

fn job_of(config: &Config, link: LinkModel) -> Job {
    let node = NodeConfig { mtu: FRAME, mtu_safe: FRAME, ..NodeConfig::default() };
    let mut job = Job::on(node, 2, config, 1, link);
    // Both know each other, and what fits a frame.
    let hello = job.recv(1, Some(0), Some(99), 5);
    job.send(0, 1, 99, b"hello");
    job.finish_recv(1, hello);
    job
}

/// A message of which only the first parts have come to the second process.
fn half_a_message(posted_first: bool) -> (Job, Option<Receive>) {
    let (job, early, _) = half_sent(posted_first);
    (job, early)
}

/// The same, and the send, of which the last part is not handed over.
fn half_sent(posted_first: bool) -> (Job, Option<Receive>, Request) {
    let slow = LineModel { rate_bits_per_s: Some(100_000_000), ..LineModel::default() };
    let mut job = job_on(LinkModel { line: slow, ..LinkModel::default() });
    let early = posted_first.then(|| job.recv(1, Some(0), Some(2), LONGEST));
    let send = job.send(0, 1, 2, &bytes(2, LONGEST));
    while job.devices[1].engine.peers[0].incomplete.is_none() {
        job.step();
    }
    assert!(!job.devices[0].is_complete(send));
    (job, early, send)
}

/// All of the credit is there: what is sent goes unasked.
fn check_credit(job: &mut Job) {
    while job.devices[1].engine.peers[0].incomplete.is_some() {
        job.step();
    }
    for waits in [false, true] {
        let context = CONTEXT + 1;
        // The credit travels back.
        job.steps(100);
        let lent = job.lend(&bytes(3, LONGEST));
        let send = job.devices[0].send(1, Envelope::new(context, 0, 2), lent, Mode::Standard);
        let wanted = Pattern { context, ..pattern(Some(0), Some(2)) };
        while waits && job.devices[1].probe(wanted).is_none() {
            assert_eq!(*job.devices[1].counters(), Counters::default());
            job.step();
        }
        let (room, lent) = job.room(LONGEST);
        let receive = job.devices[1].recv(wanted, lent);
        let (status, got) = job.finish_recv(1, Receive { request: receive, room });
        assert_eq!((status.error, got), (None, &bytes(3, LONGEST)[..]));
        assert_eq!(job.finish(0, send).error, None);
    }
    assert_eq!(*job.devices[1].counters(), Counters::default());
}

#[test]
fn every_length_arrives_whether_its_receive_waits_or_comes_later() {
    // So much that each goes unasked, though not all of it is back.
    let mut job = job_of(&Config { credit: 10 * LONGEST, ..config() }, LinkModel::default());
    let around = (FRAME - 150..FRAME + 50).step_by(2);
    for (len, tag) in around.chain([8_191, 8_192, 16_383, 16_384, 16_385, 40_960, LONGEST - 1, LONGEST]).zip(0..) {
        let message = bytes(tag as u32, len);
        let room = if tag % 5 == 4 { 12_000 } else { len };
        let early = (tag % 2 == 0).then(|| job.recv(1, Some(0), Some(tag), room));
        let send = job.send(0, 1, tag, &message);
        job.steps(100);
        let receive = early.unwrap_or_else(|| job.recv(1, Some(0), Some(tag), room));
        let (status, got) = job.finish_recv(1, receive);
        assert_eq!(status.error, (room < len).then_some(Error::Truncated));
        assert_eq!((status.source, status.tag, got), (0, tag, &message[..room.min(len)]));
        assert_eq!(job.finish(0, send).error, None);
        job.steps(100);
    }
    assert_eq!(*job.devices[1].counters(), Counters::default(), "none was announced");
    let counters = job.devices[1].ports[0].counters();
    assert!(counters.messages_in_place > 100, "{counters:?}");
}

#[test]
fn messages_behind_one_in_parts_do_not_overtake_it() {
    let mut job = job_on(LinkModel::default());
    let lengths = [LONGEST, 0, 20_000, 60_000, 9_000, LONGEST];
    let sends = lengths.map(|len| job.send(0, 1, 3, &bytes(len as u32, len)));
    for len in lengths {
        let receive = job.recv(1, None, None, 60_000);
        assert!(job.finish_recv(1, receive).1 == bytes(len as u32, len));
    }
    for send in sends {
        job.finish(0, send);
    }
}

#[test]
fn a_receive_takes_a_message_of_which_parts_are_missing() {
    for is_probed in [false, true] {
        let (mut job, _) = half_a_message(false);
        let receive = if is_probed {
            let (message, status) = job.devices[1].matched_probe(pattern(None, None)).unwrap();
            assert_eq!(status.bytes, LONGEST, "of all of it");
            let (room, lent) = job.room(LONGEST);
            // More comes before it is received.
            job.steps(1_000);
            Receive { request: job.devices[1].recv_matched(message, lent), room }
        } else {
            job.recv(1, Some(0), Some(2), LONGEST)
        };
        assert!(!job.devices[1].is_complete(receive.request));
        let (status, got) = job.finish_recv(1, receive);
        assert_eq!((status.error, got), (None, &bytes(2, LONGEST)[..]));
        check_credit(&mut job);
    }
}

#[test]
fn a_context_that_is_revoked_between_two_parts_ends_the_receive_and_gives_the_credit_back() {
    for posted_first in [true, false] {
        let (mut job, early) = half_a_message(posted_first);
        job.devices[1].revoke(CONTEXT);
        if let Some(receive) = early {
            assert_eq!(job.finish(1, receive.request).error, Some(Error::Revoked));
        }
        check_credit(&mut job);
    }
    // And what begins later.
    let mut job = job_on(LinkModel::default());
    job.devices[1].revoke(CONTEXT);
    job.send(0, 1, 2, &bytes(2, LONGEST));
    job.steps(1_000);
    check_credit(&mut job);
}

#[test]
fn a_message_whose_sender_is_gone_between_two_parts_ends_its_receive_and_is_not_found_by_others() {
    let (mut job, early) = half_a_message(true);
    job.fabric.crash(0);
    assert_eq!(job.finish(1, early.unwrap().request).error, Some(Error::ProcFailed));

    let (mut job, _) = half_a_message(false);
    job.fabric.crash(0);
    let receive = job.recv(1, Some(0), Some(9), 8);
    job.finish(1, receive.request);
    assert_eq!(job.devices[1].probe(pattern(None, None)), None);

    let (mut job, _) = half_a_message(false);
    let (message, _) = job.devices[1].matched_probe(pattern(None, None)).unwrap();
    job.fabric.crash(0);
    let receive = job.recv(1, Some(0), Some(9), 8);
    job.finish(1, receive.request);
    let (_, lent) = job.room(LONGEST);
    let request = job.devices[1].recv_matched(message, lent);
    assert_eq!(job.finish(1, request).error, Some(Error::ProcFailed));
}

#[test]
fn parts_that_break_the_rules_are_counted_and_change_nothing() {
    let (mut job, early) = half_a_message(true);
    let forge = |job: &mut Job, all: &[Unasked]| {
        let engine = &mut job.devices[1].engine;
        for forged in all {
            let before = engine.counters.malformed;
            engine.handle_unasked(0, *forged);
            assert_eq!(engine.counters.malformed, before + 1, "{forged:?}");
        }
    };
    let begins = [
        Unasked::Begin { key: KEY, len: u64::MAX, bytes: b"long" },
        Unasked::Begin { key: KEY, len: 64 << 10, bytes: b"beyond the credit" },
        Unasked::Begin { key: KEY, len: 3, bytes: b"short" },
    ];
    let too_much = [0; LONGEST];
    let parts = [
        Unasked::Part { at: 0, bytes: b"again" },
        Unasked::Part { at: u64::MAX, bytes: b"beyond" },
        Unasked::Part { at: 8_192, bytes: &too_much },
        Unasked::Begin { key: KEY, len: 10, bytes: b"too early" },
    ];
    forge(&mut job, &parts);
    forge(&mut job, &begins);
    let receive = early.unwrap();
    let (status, got) = job.finish_recv(1, receive);
    assert_eq!((status.error, got), (None, &bytes(2, LONGEST)[..]));
    // Also when nothing is under way.
    forge(&mut job, &begins);
}

#[test]
fn what_begins_when_its_sender_counts_as_gone_is_left_out() {
    let mut job = job_on(LinkModel::default());
    let from_anybody = job.recv(1, None, None, 8);
    let device = &mut job.devices[1];
    device.engine.lose(&mut device.ports, 0);
    device.engine.handle_unasked(0, Unasked::Begin { key: KEY, len: 10, bytes: b"first" });
    device.engine.handle_unasked(0, Unasked::Part { at: 5, bytes: b"later" });
    assert_eq!(*device.counters(), Counters { stale: 2, ..Counters::default() });
    let state = device.engine.requests.at(from_anybody.request.index).state;
    assert!(matches!(state, State::Posted { .. }), "{state:?}");
}

#[test]
fn a_send_in_parts_ends_with_its_last_part_whatever_is_asked_meanwhile() {
    let (mut job, early, send) = half_sent(true);
    job.devices[0].cancel(send);
    job.devices[0].revoke(CONTEXT);
    let receive = early.unwrap();
    job.devices[1].cancel(receive.request);
    assert!(!job.devices[0].is_complete(send) && !job.devices[1].is_complete(receive.request));
    let (status, got) = job.finish_recv(1, receive);
    assert_eq!((status.error, got), (None, &bytes(2, LONGEST)[..]));
    let status = job.finish(0, send);
    assert_eq!((status.error, status.cancelled), (None, false));
    check_credit(&mut job);
}

#[test]
fn a_send_in_parts_fails_when_its_receiver_is_gone() {
    let (mut job, _, send) = half_sent(true);
    job.fabric.crash(1);
    assert_eq!(job.finish(0, send).error, Some(Error::ProcFailed));
}

#[test]
fn a_receive_that_is_freed_or_too_short_takes_what_it_can_of_a_message_that_has_begun() {
    let (mut job, early) = half_a_message(true);
    job.devices[1].free(early.unwrap().request);
    check_credit(&mut job);

    let (mut job, _) = half_a_message(false);
    let receive = job.recv(1, Some(0), Some(2), 20_000);
    let (status, got) = job.finish_recv(1, receive);
    assert_eq!((status.error, got), (Some(Error::Truncated), &bytes(2, LONGEST)[..20_000]));
    check_credit(&mut job);
}

#[test]
fn who_waits_for_the_receive_announces_what_fits_no_frame() {
    let mut job = job_on(LinkModel::default());
    for (len, announced_whole) in [(8_000, true), (20_000, false)] {
        let before = *job.devices[1].counters();
        let send = job.send_as(0, 1, 2, &bytes(4, len), Mode::Synchronous);
        job.steps(100);
        assert!(!job.devices[0].is_complete(send));
        let receive = job.recv(1, Some(0), Some(2), len);
        assert_eq!(job.finish_recv(1, receive).1, bytes(4, len));
        assert_eq!(job.finish(0, send).error, None);
        assert_eq!(*job.devices[1].counters() == before, announced_whole, "{len} bytes");
    }
}
