//! Messages whose context or process ends while they are on the way.

use super::job::{CONTEXT, Job, bytes, pattern, small_limits};
use crate::adi::idle::SELDOM;
use crate::adi::request::State;
use crate::adi::{Config, Device, Error, Idle, Limits, Patience, Port, Process};
use sidelane_nic::mem::{Config as NodeConfig, Fabric, LinkModel};
use sidelane_nic::time::Duration;

#[test]
fn an_announced_send_ends_though_its_receive_was_revoked_before_it_could_be_answered() {
    let mut job = Job::pair(&small_limits());
    let announced = job.send(0, 1, 2, &bytes(1, 50_000));
    job.steps(30);
    let sends: Vec<_> = (0..400).map(|tag| job.send(1, 0, tag, &bytes(0, 200))).collect();
    assert!(!job.devices[1].is_complete(*sends.last().unwrap()), "the FIFO is full");
    let receive = job.recv(1, Some(0), Some(2), 50_000);
    job.devices[1].revoke(CONTEXT);
    let ended = job.devices[1].poll(receive.request).and_then(|status| status.error);
    assert_eq!(ended, Some(Error::Revoked));
    job.devices[0].revoke(CONTEXT);
    job.steps(2_000);
    let ended = job.devices[0].poll(announced).and_then(|status| status.error);
    assert_eq!(ended, Some(Error::Revoked));
}

/// They are read until then.
#[test]
fn a_send_whose_bytes_are_on_the_way_ends_with_them_though_its_context_is_revoked() {
    for put_min in [Limits::NEVER, 1_000] {
        let config = small_limits();
        let mut job = Job::pair(&Config { off_host: Limits { put_min, ..config.off_host }, ..config });
        let message = bytes(1, 200_000);
        let send = job.send(0, 1, 2, &message);
        let receive = job.recv(1, Some(0), Some(2), message.len());
        let state = |job: &mut Job| job.devices[0].engine.requests.get(send).unwrap().state;
        while !matches!(state(&mut job), State::Streaming { at: 1.., .. } | State::Putting { .. }) {
            job.step();
        }
        job.devices[0].revoke(CONTEXT);
        assert!(!job.devices[0].is_complete(send));
        let (status, got) = job.finish_recv(1, receive);
        assert!(status.error.is_none() && got == message);
        assert_eq!(job.finish(0, send).error, None);
    }
}

/// The receiver computes meanwhile; its pulse takes in what comes.
#[test]
fn a_message_that_has_come_as_a_whole_outlives_its_sender() {
    let quick = sidelane_proto::Config { keep_alive: Duration::from_millis(5), ..Config::default().endpoint };
    let mut job = Job::pair(&Config { endpoint: quick, ..small_limits() });
    let receive = job.recv(1, Some(0), Some(2), 50_000);
    let send = job.send(0, 1, 2, &bytes(1, 50_000));
    while job.devices[1].counters().put == 0 {
        job.step();
    }
    while !job.devices[0].is_complete(send) {
        job.devices[0].progress();
        computes(&mut job, 1);
    }
    // And says so.
    job.devices[0].progress();
    job.devices[0].flush();
    // Much longer than it may be silent.
    computes(&mut job, 100_000);
    assert!(job.devices[1].gone().is_empty());
    let status = (0..2).find_map(|_| {
        job.devices[1].progress();
        job.devices[1].poll(receive.request)
    });
    assert_eq!(status.map(|status| status.error), Some(None));
    assert_eq!(job.received(receive), bytes(1, 50_000));
    assert_eq!(job.devices[1].gone(), [0]);
}

/// Another channel than messages tells of its end.
#[test]
fn messages_that_a_turn_has_left_outlive_their_sender() {
    let mut job = Job::pair(&Config::default());
    let expected: Vec<_> = (0..64).map(|_| job.recv(1, Some(0), Some(1), 0)).collect();
    let last = job.recv(1, Some(0), Some(3), 0);
    let never = job.recv(1, Some(0), Some(4), 0);
    // Opens the connection, so that all others come together.
    job.send(0, 1, 2, &[]);
    job.steps(30);
    for tag in std::iter::repeat_n(1, 64).chain([2, 3]) {
        job.send(0, 1, tag, &[]);
    }
    job.devices[0].flush();
    job.fabric.advance_to(job.fabric.now() + Duration::from_millis(1));
    let device = &mut job.devices[1];
    device.progress();
    assert!(!device.is_complete(last.request), "the one before it is unexpected");
    let mut gone = Some(0);
    device.on_idle_ask(Box::new(move || gone.take()));
    (0..SELDOM).for_each(|_| device.pass_by());
    assert_eq!(device.gone(), [0]);
    for (receive, error) in
        expected.into_iter().chain([last]).map(|one| (one, None)).chain([(never, Some(Error::ProcFailed))])
    {
        assert_eq!(device.poll(receive.request).map(|status| status.error), Some(error));
    }
}

/// And what it says of this process, or of none, changes nothing.
#[test]
fn another_channel_is_asked_now_and_then_whatever_turns_bring() {
    type Pass = fn(&mut Device, &mut Idle);
    let all: [Pass; 4] = [|device, _| device.pass_by(), Device::go_on, Device::idle, Device::stay_awake];
    for pass in all {
        let patience = Patience { spin: 0, yields: 2 };
        let mut job = Job::pair(&Config { patience, ..Config::default() });
        let (device, mut idle, mut said) = (&mut job.devices[0], Idle::new(), vec![1, 0, 2, u32::MAX]);
        device.on_idle_ask(Box::new(move || said.pop()));
        (0..2 * SELDOM).for_each(|_| pass(device, &mut idle));
        assert_eq!(device.gone(), [1]);
    }
}

/// Only a connection tells of it.
#[test]
fn the_end_of_who_has_never_spoken_is_noticed_by_who_waits_for_it() {
    for (probes, sleeps) in [(false, false), (false, true), (true, false), (true, true)] {
        let endpoint =
            sidelane_proto::Config { connect_timeout: Duration::from_millis(5), ..Config::default().endpoint };
        let patience = Patience { spin: 0, yields: 2 };
        let mut job = Job::pair(&Config { endpoint, patience, ..small_limits() });
        job.fabric.crash(1);
        let receive = (!probes).then(|| job.recv(0, Some(1), None, 8));
        let mut idle = Idle::new();
        for _ in 0..1_000 {
            let device = &mut job.devices[0];
            if probes {
                assert_eq!(device.probe(pattern(Some(1), None)), None);
            }
            device.progress();
            if sleeps {
                device.idle(&mut idle);
            } else {
                device.stay_awake(&mut idle);
                job.fabric.advance_to(job.fabric.now() + Duration::from_micros(10));
            }
        }
        assert_eq!(job.devices[0].gone(), [1], "probes: {probes}, sleeps: {sleeps}");
        let ended = receive.map(|receive| job.finish(0, receive.request).error);
        assert_eq!(ended, (!probes).then_some(Some(Error::ProcFailed)));
    }
}

/// All others may have agreed on it, and make no part of what it says any more.
#[test]
fn who_counts_as_gone_and_lives_is_not_heard_and_hears_so() {
    for has_anothers_place in [false, true] {
        let quick = sidelane_proto::Config { keep_alive: Duration::from_millis(5), ..Config::default().endpoint };
        let mut job = Job::new(3, &Config { endpoint: quick, ..small_limits() }, 1, LinkModel::default());
        if has_anothers_place {
            let receive = job.recv(1, Some(0), Some(1), 5);
            job.send(0, 1, 1, b"hello");
            job.finish_recv(1, receive);
            job.fabric.crash(0);
            while job.devices[1].gone().is_empty() {
                job.step();
            }
        }
        job.devices[1].lose(2);
        let from_anybody = job.recv(1, None, None, 8);
        let answer = job.recv(2, Some(1), None, 8);
        job.send(2, 1, 2, b"it lives");
        assert_eq!(job.finish(2, answer.request).error, Some(Error::ProcFailed));
        assert!(!job.devices[1].is_complete(from_anybody.request));
        assert_eq!(job.devices[1].counters().strangers, 1);
    }
}

/// The first one sees that it lives, by its number.
#[test]
fn a_process_of_this_host_may_compute_for_hours_before_its_first_call() {
    let fabric = Fabric::new(1);
    let config = Config { single_copy: false, ..Config::default() };
    let ports: Vec<_> = (0..2).map(|_| Port::new(fabric.nic(NodeConfig::default()), &config).unwrap()).collect();
    let mut processes: Vec<_> = ports.iter().map(|port| Process::here("here", std::slice::from_ref(port))).collect();
    processes[1].pid += 1;
    let mut job = Job::of(fabric, ports, processes, &config);
    let send = job.send(0, 1, 2, &bytes(1, 100));
    for _ in 0..2_000 {
        job.devices[0].progress();
        job.fabric.advance_to(job.fabric.now() + Duration::from_millis(10_000));
    }
    assert!(job.devices[0].gone().is_empty());
    let receive = job.recv(1, Some(0), Some(2), 100);
    assert_eq!(job.finish_recv(1, receive).1, bytes(1, 100));
    assert_eq!(job.finish(0, send).error, None);
}

/// Its place in the endpoint is another's by then, and both are told of in one turn.
#[test]
fn the_end_of_a_process_is_noticed_though_another_has_its_place() {
    let quick = sidelane_proto::Config { keep_alive: Duration::from_millis(5), ..Config::default().endpoint };
    let mut job = Job::new(3, &Config { endpoint: quick, ..small_limits() }, 1, LinkModel::default());
    let send = job.send(0, 1, 1, &[7]);
    let receive = job.recv(1, Some(0), Some(1), 1);
    job.finish_recv(1, receive);
    job.finish(0, send);
    // Much longer than the first one may be silent.
    computes(&mut job, 20_000);
    let sends = [5, 6].map(|tag| {
        let send = job.send(2, 1, tag, &[tag as u8]);
        for _ in 0..100 {
            job.devices[2].progress();
            computes(&mut job, 1);
        }
        job.devices[1].progress();
        send
    });
    assert_eq!(job.devices[1].gone(), [0]);
    for (tag, send) in [5, 6].into_iter().zip(sends) {
        let receive = job.recv(1, Some(2), Some(tag), 1);
        assert_eq!(job.finish_recv(1, receive).1, [tag as u8]);
        assert_eq!(job.finish(2, send).error, None);
    }
    assert_eq!(job.devices[1].counters().malformed, 0);
}

/// The second process does nothing for so many times ten microseconds.
fn computes(job: &mut Job, turns: usize) {
    for _ in 0..turns {
        job.devices[1].stay_alive();
        job.fabric.advance_to(job.fabric.now() + Duration::from_micros(10));
    }
}
