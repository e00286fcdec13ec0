//! What a message does, one behaviour a test.

use super::job::{CONTEXT, Job, bytes, pattern, small_limits};
use crate::adi::{Config, Counters, Error, Mode, Pattern};
use sidelane_nic::LinkAddr;
use sidelane_nic::fault::Faults;
use sidelane_nic::mem::{Config as NodeConfig, LinkModel};
use sidelane_nic::time::Duration;
use sidelane_proto::Endpoint;

/// Lengths on both sides of every limit of [`small_limits`].
const LENGTHS: [usize; 12] = [0, 1, 8, 99, 299, 300, 301, 400, 1_099, 1_100, 1_101, 50_000];

#[test]
fn every_length_arrives_whether_its_receive_waits_or_comes_later() {
    for posted_first in [true, false] {
        let mut job = Job::pair(&small_limits());
        for (len, tag) in LENGTHS.into_iter().zip(0..) {
            let message = bytes(tag as u32, len);
            let early = posted_first.then(|| job.recv(1, Some(0), Some(tag), len));
            let send = job.send(0, 1, tag, &message);
            job.steps(30);
            let receive = early.unwrap_or_else(|| job.recv(1, Some(0), Some(tag), len));
            let (status, got) = job.finish_recv(1, receive);
            assert_eq!((status.error, status.source, status.tag, status.bytes), (None, 0, tag, len));
            assert_eq!(got, message);
            assert_eq!(job.finish(0, send).error, None);
        }
        let counters = job.devices[1].counters();
        assert!(counters.put > 0 && counters.streamed > 0 && counters.malformed == 0, "{counters:?}");
    }
}

#[test]
fn a_message_alone_in_its_frame_is_taken_from_where_it_came_with_the_credit_on_it() {
    let mut job = Job::pair(&small_limits());
    // Many times what may be sent before the first credit comes back, which rides on these messages alone.
    for round in 0..300usize {
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        let (len, tag) = (100 + round % 200, round as i32);
        let room = if round % 5 == 0 { 50 } else { len };
        let message = bytes(round as u32, len);
        let posted_first = round % 3 > 0;
        let early = posted_first.then(|| job.recv(to, Some(from), Some(tag), room));
        let send = job.send(from, to, tag, &message);
        job.steps(30);
        let receive = early.unwrap_or_else(|| job.recv(to, Some(from), Some(tag), room));
        let (status, got) = job.finish_recv(to, receive);
        assert_eq!(status.error, (room < len).then_some(Error::Truncated));
        assert_eq!(got, &message[..room]);
        assert_eq!(job.finish(from, send).error, None);
    }
    for device in &job.devices {
        assert_eq!(*device.counters(), Counters::default(), "none was announced");
        let counters = device.ports[0].counters();
        assert!(counters.messages_in_place > 140, "{counters:?}");
    }
}

#[test]
fn behind_many_that_were_expected_the_first_unexpected_message_ends_the_turn() {
    let unexpected = |waiting: usize| {
        let mut job = Job::pair(&Config::default());
        let receives: Vec<_> = (0..waiting).map(|_| job.recv(1, Some(0), Some(1), 8)).collect();
        // Alone in its frame, which opens the connection, so that all others come together.
        job.send(0, 1, 2, &[]);
        job.steps(30);
        let sends: Vec<_> = (0..waiting as u64 + 9).map(|number| job.send(0, 1, 1, &number.to_le_bytes())).collect();
        job.devices[0].flush();
        sends.into_iter().for_each(|send| assert_eq!(job.finish(0, send).error, None));
        job.fabric.advance_to(job.fabric.now() + Duration::from_millis(1));
        job.devices[1].progress();
        let after_one_turn = job.devices[1].engine.matching.unexpected.len();
        job.steps(2);
        let after_three = job.devices[1].engine.matching.unexpected.len();
        let later: Vec<_> = (0..9).map(|_| job.recv(1, Some(0), Some(1), 8)).collect();
        for (receive, number) in receives.into_iter().chain(later).zip(0u64..) {
            assert_eq!(job.finish_recv(1, receive).1, number.to_le_bytes());
        }
        // Without the one that opened the connection.
        (after_one_turn - 1, after_three - 1)
    };
    assert_eq!(unexpected(64), (1, 9));
    assert_eq!(unexpected(15), (9, 9), "few: the turn brings all that has come");
}

#[test]
fn messages_of_one_sender_do_not_overtake_each_other() {
    let mut job = Job::pair(&small_limits());
    let lengths = [50_000, 8, 400, 0, 1_101, 300];
    let sends = lengths.map(|len| job.send(0, 1, 3, &bytes(len as u32, len)));
    job.steps(50);
    for len in lengths {
        let receive = job.recv(1, None, None, 60_000);
        assert_eq!(job.finish_recv(1, receive).1, bytes(len as u32, len));
    }
    for send in sends {
        job.finish(0, send);
    }
}

#[test]
fn a_receive_takes_what_it_asks_for() {
    let mut job = Job::pair(&Config::default());
    job.send(0, 1, 1, b"one");
    job.send(0, 1, 2, b"two");
    let second = job.recv(1, Some(0), Some(2), 3);
    assert_eq!(job.finish_recv(1, second).1, b"two");
    let first = job.recv(1, Some(0), Some(1), 3);
    assert_eq!(job.finish_recv(1, first).1, b"one");
}

#[test]
fn a_message_that_is_too_long_is_cut_and_the_next_one_is_whole() {
    for len in [8, 300, 700, 50_000] {
        for posted_first in [true, false] {
            let mut job = Job::pair(&small_limits());
            let early = posted_first.then(|| (job.recv(1, None, None, len - 3), job.recv(1, None, None, len)));
            let sends = [1, 2].map(|stamp| job.send(0, 1, 0, &bytes(stamp, len)));
            job.steps(30);
            let (short, fine) =
                early.unwrap_or_else(|| (job.recv(1, None, None, len - 3), job.recv(1, None, None, len)));
            let (status, got) = job.finish_recv(1, short);
            assert_eq!((status.error, got), (Some(Error::Truncated), &bytes(1, len)[..len - 3]));
            let (status, got) = job.finish_recv(1, fine);
            assert_eq!((status.error, got), (None, &bytes(2, len)[..]));
            assert!(sends.into_iter().all(|send| job.finish(0, send).error.is_none()));
        }
    }
}

#[test]
fn a_synchronous_send_waits_for_its_receive() {
    for len in [0, 8, 400, 5_000] {
        let mut job = Job::pair(&small_limits());
        let send = job.send_as(0, 1, 0, &bytes(1, len), Mode::Synchronous);
        job.steps(100);
        assert!(!job.devices[0].is_complete(send));
        let receive = job.recv(1, None, None, len);
        assert_eq!(job.finish_recv(1, receive).1, bytes(1, len));
        assert_eq!(job.finish(0, send).error, None);
    }
}

#[test]
fn a_process_sends_to_itself() {
    for mode in [Mode::Standard, Mode::Synchronous] {
        for len in [0, 8, 10_000] {
            for posted_first in [true, false] {
                let mut job = Job::pair(&small_limits());
                let early = posted_first.then(|| job.recv(0, Some(0), Some(4), len));
                let send = job.send_as(0, 0, 4, &bytes(9, len), mode);
                let waits = mode == Mode::Synchronous || len > 300;
                assert_eq!(job.devices[0].is_complete(send), posted_first || !waits);
                let receive = early.unwrap_or_else(|| job.recv(0, None, Some(4), len));
                assert_eq!(job.finish_recv(0, receive).1, bytes(9, len));
                job.finish(0, send);
            }
        }
    }
}

#[test]
fn a_probe_shows_a_message_and_leaves_it() {
    let mut job = Job::pair(&small_limits());
    assert_eq!(job.devices[1].probe(pattern(None, None)), None);
    job.send(0, 1, 7, &bytes(1, 5_000));
    job.steps(30);
    for _ in 0..2 {
        let status = job.devices[1].probe(pattern(Some(0), None)).unwrap();
        assert_eq!((status.tag, status.bytes), (7, 5_000));
    }
    assert_eq!(job.devices[1].probe(pattern(Some(0), Some(8))), None);
    let receive = job.recv(1, None, None, 5_000);
    assert_eq!(job.finish_recv(1, receive).1, bytes(1, 5_000));
}

#[test]
fn a_matched_probe_takes_a_message_from_everybody_else() {
    for len in [8, 5_000] {
        let mut job = Job::pair(&small_limits());
        let sends = [1, 2].map(|stamp| job.send(0, 1, 0, &bytes(stamp, len)));
        job.steps(30);
        let (message, status) = job.devices[1].matched_probe(pattern(None, None)).unwrap();
        assert_eq!(status.bytes, len);
        let second = job.recv(1, None, None, len);
        assert_eq!(job.finish_recv(1, second).1, bytes(2, len));
        let (room, lent) = job.room(len);
        let request = job.devices[1].recv_matched(message, lent);
        assert_eq!(job.finish_recv(1, super::job::Receive { request, room }).1, bytes(1, len));
        assert!(sends.into_iter().all(|send| job.finish(0, send).error.is_none()));
    }
}

#[test]
fn all_that_needs_a_process_fails_when_it_is_gone() {
    let mut job = Job::pair(&Config { endpoint: quick_to_notice(), ..small_limits() });
    // Both know each other.
    job.send(0, 1, 1, b"hello");
    let hello = job.recv(1, Some(0), Some(1), 5);
    job.finish_recv(1, hello);
    let announced = job.send(0, 1, 2, &bytes(1, 5_000));
    let from_it = job.recv(0, Some(1), None, 8);
    let from_anybody = job.recv(0, None, Some(9), 8);
    let early = [(3, b"the last"), (4, b"is there")].map(|(tag, bytes)| job.send(1, 0, tag, bytes));
    job.steps(30);
    early.into_iter().for_each(|send| _ = job.finish(1, send));
    job.fabric.crash(1);
    for request in [announced, from_it.request] {
        let status = job.finish(0, request);
        assert_eq!(
            (status.error, status.bytes),
            if request == announced { (Some(Error::ProcFailed), 0) } else { (None, 8) }
        );
    }
    assert_eq!(job.devices[0].gone(), [1]);
    assert!(!job.devices[0].is_complete(from_anybody.request));
    let later = job.send(0, 1, 4, b"anybody there");
    assert_eq!(job.finish(0, later).error, Some(Error::ProcFailed));
    let kept = job.recv(0, Some(1), Some(4), 8);
    let (status, got) = job.finish_recv(0, kept);
    assert_eq!((status.error, got), (None, &b"is there"[..]));
    let later = job.recv(0, Some(1), None, 8);
    assert_eq!(job.finish(0, later.request).error, Some(Error::ProcFailed));
}

#[test]
fn a_receive_that_is_being_filled_fails_when_its_sender_is_gone() {
    let mut job = Job::pair(&Config { endpoint: quick_to_notice(), ..small_limits() });
    let send = job.send(1, 0, 2, &bytes(1, 5_000_000));
    let receive = job.recv(0, Some(1), None, 5_000_000);
    job.steps(40);
    assert!(!job.devices[1].is_complete(send) && !job.devices[0].is_complete(receive.request));
    job.fabric.crash(1);
    assert_eq!(job.finish(0, receive.request).error, Some(Error::ProcFailed));
}

#[test]
fn what_was_announced_by_a_process_that_is_gone_is_not_found_and_fails_where_it_was_set_aside() {
    let mut job = Job::pair(&Config { endpoint: quick_to_notice(), ..small_limits() });
    for tag in [1, 2] {
        job.send(0, 1, tag, &bytes(1, 5_000));
    }
    job.steps(30);
    let (set_aside, _) = job.devices[1].matched_probe(pattern(None, Some(1))).unwrap();
    assert!(job.devices[1].probe(pattern(None, None)).is_some());
    job.fabric.crash(0);
    while job.devices[1].gone().is_empty() {
        job.step();
    }
    assert_eq!(job.devices[1].probe(pattern(None, None)), None);
    let (_, lent) = job.room(5_000);
    let receive = job.devices[1].recv_matched(set_aside, lent);
    assert_eq!(job.devices[1].poll(receive).map(|status| status.error), Some(Some(Error::ProcFailed)));
}

#[test]
fn revoking_a_context_ends_all_that_is_under_way_in_it() {
    let mut job = Job::pair(&small_limits());
    let announced = job.send(0, 1, 2, &bytes(1, 5_000));
    let receive = job.recv(1, None, Some(9), 8);
    job.steps(30);
    job.devices[1].revoke(CONTEXT);
    assert_eq!(job.finish(1, receive.request).error, Some(Error::Revoked));
    assert_eq!(job.finish(0, announced).error, Some(Error::Revoked), "told by the receiver");
    let later = job.recv(1, None, Some(9), 8);
    assert_eq!(job.finish(1, later.request).error, Some(Error::Revoked));
    // It has the place of the last one, and not its message.
    let (_, lent) = job.room(8);
    let other = job.devices[1].recv(Pattern { context: CONTEXT + 1, ..pattern(None, Some(9)) }, lent);
    let unaware = job.send_as(0, 1, 9, b"late", Mode::Synchronous);
    assert_eq!(job.finish(0, unaware).error, Some(Error::Revoked));
    assert!(other.index == later.request.index && !job.devices[1].is_complete(other));
    job.devices[0].revoke(CONTEXT);
    for len in [8, 5_000] {
        let aware = job.send(0, 1, 2, &bytes(1, len));
        assert_eq!(job.finish(0, aware).error, Some(Error::Revoked));
    }
}

#[test]
fn an_announced_send_ends_at_its_revocation_only_when_its_receiver_has_answered() {
    let mut job = Job::pair(&small_limits());
    let announced = job.send(0, 1, 2, &bytes(1, 5_000));
    job.steps(30);
    job.devices[0].revoke(CONTEXT);
    assert!(!job.devices[0].is_complete(announced), "the receiver may still read it");
    assert_eq!(job.finish(0, announced).error, Some(Error::Revoked));
    assert_eq!(job.devices[1].probe(pattern(None, None)), None, "it was told");
}

#[test]
fn a_message_that_was_set_aside_ends_with_its_context() {
    for len in [8, 5_000] {
        let mut job = Job::pair(&small_limits());
        let send = job.send_as(0, 1, 2, &bytes(1, len), Mode::Synchronous);
        job.steps(30);
        let (message, _) = job.devices[1].matched_probe(pattern(None, None)).unwrap();
        job.devices[1].revoke(CONTEXT);
        assert_eq!(job.finish(0, send).error, Some(Error::Revoked));
        let (room, lent) = job.room(len);
        let request = job.devices[1].recv_matched(message, lent);
        let (status, _) = job.finish_recv(1, super::job::Receive { request, room });
        assert_eq!((status.error, status.bytes), (Some(Error::Revoked), 0));
    }
}

#[test]
fn a_job_closes_after_its_last_message() {
    let mut job = Job::pair(&small_limits());
    job.send(0, 1, 0, b"the last");
    job.steps(30);
    let mut second = job.devices.pop().unwrap();
    job.devices[0].close(Duration::from_millis(5));
    let (_, lent) = job.room(8);
    let receive = second.recv(pattern(None, None), lent);
    assert_eq!(second.wait(receive).bytes, 8);
}

/// Who is no process of the job takes nobody's place, and nobody counts as dead for it.
#[test]
fn strangers_take_no_place_in_the_table_of_peers() {
    let full = sidelane_proto::Config { peers_max: 1, ..Config::default().endpoint };
    let mut job = Job::new(3, &Config { endpoint: full, ..small_limits() }, 1, LinkModel::default());
    let mut strangers: Vec<_> = (0..70u64)
        .map(|seed| {
            let config = sidelane_proto::Config { seed: Some(seed), ..Config::default().endpoint };
            Endpoint::new(job.fabric.nic(NodeConfig::default()), config)
        })
        .collect();
    for stranger in &mut strangers {
        stranger.connect(LinkAddr::Mem { node: 1 }).unwrap();
    }
    for _ in 0..1_000 {
        strangers.iter_mut().for_each(|stranger| _ = stranger.poll());
        job.step();
    }
    assert!(strangers.iter_mut().all(|stranger| stranger.poll_event().is_none()));
    for (from, to) in [(0, 1), (1, 2), (2, 1)] {
        job.send(from, to, 3, b"ours");
        let receive = job.recv(to, Some(from), None, 8);
        let (status, message) = job.finish_recv(to, receive);
        assert_eq!((status.error, message), (None, &b"ours"[..]), "{from} to {to}");
    }
}

pub fn quick_to_notice() -> sidelane_proto::Config {
    sidelane_proto::Config { keep_alive: Duration::from_millis(5), ..Config::default().endpoint }
}

/// Of what goes to and fro each side so sends first what it has touched last.
#[test]
fn of_two_that_send_long_data_one_begins_at_its_end() {
    const LEN: usize = (1 << 20) + 1_000;
    let node = NodeConfig { mtu: 60_000, mtu_safe: 60_000, ..NodeConfig::default() };
    let short_frames = NodeConfig { mtu: 9_000, mtu_safe: 9_000, ..NodeConfig::default() };
    for (node, from, len, backwards) in
        [(node, 0, LEN, false), (node, 1, LEN, true), (node, 1, 1 << 19, false), (short_frames, 1, LEN, false)]
    {
        let mut job = Job::on(node, 2, &Config::default(), 1, LinkModel::default());
        let message = bytes(7, len);
        let receive = job.recv(1 - from, Some(from), Some(1), len);
        let send = job.send(from, 1 - from, 1, &message);
        let has_come = |job: &Job, at: usize| job.received(receive)[at] == message[at];
        while ![0, len - 1].into_iter().any(|at| has_come(&job, at)) {
            job.step();
        }
        assert_eq!([0, len - 1].map(|at| has_come(&job, at)), [!backwards, backwards]);
        let (status, got) = job.finish_recv(1 - from, receive);
        assert!(status.error.is_none() && got == message);
        assert_eq!(job.finish(from, send).error, None);
    }
}

#[test]
fn long_messages_arrive_either_way_over_a_bad_link() {
    let node = NodeConfig { mtu: 60_000, mtu_safe: 60_000, ..NodeConfig::default() };
    let faults = Faults {
        loss: 0.03,
        duplicate: 0.05,
        reorder: 0.1,
        delay: 0.05,
        corrupt: 0.05,
        truncate: 0.02,
        ..Faults::NONE
    };
    let link = LinkModel { faults, ..LinkModel::default() };
    for seed in 0..20 {
        let mut job = Job::on(node, 2, &Config::default(), seed, link);
        for (from, len) in [(0, 1 << 20), (1, 1 << 20), (1, (2 << 20) + 100)] {
            let message = bytes(seed as u32, len);
            let receive = job.recv(1 - from, Some(from), Some(1), len);
            let send = job.send(from, 1 - from, 1, &message);
            let (status, got) = job.finish_recv(1 - from, receive);
            assert!(status.error.is_none() && got == message, "seed {seed}, from {from}: {status:?}");
            assert_eq!(job.finish(from, send).error, None, "seed {seed}, from {from}");
        }
    }
}
