//! What the table of [`super::phases`] does not tell: windows with gaps, late answers, ends, absences, and peers that break the rules.

mod one_sided;
mod sealed;

use std::collections::VecDeque;

use sidelane_nic::time::{Duration, Instant};

use super::phases::{STRANGER, Stage, THEM, US, hello, in_phase};
use super::{Conn, Owed};
use crate::counters::Reject;
use crate::event::Event;
use crate::in_flight::WINDOW_MAX;
use crate::rma::{Memory, OpError, Region, Rights};
use crate::seal::{Job, Seal, TAG_LEN};
use crate::wire::{
    FULL_LEN, Header, Hello, Kind, Operation, Operations, RECORD_LEN, Seq, Target, Tokens, flags, put_close, put_flags,
    put_message,
};
use crate::{Config, JobKey, Protection};

/// Lets it transmit, and reads the headers of the frames.
fn headers(stage: &mut Stage) -> Vec<Header> {
    let (mut headers, mut frame) = (Vec::new(), vec![0; 512]);
    let (conn, turn) = stage.turn();
    while let Some(plan) = conn.poll_transmit(turn, false) {
        conn.emit(turn, plan, &mut frame[..Conn::frame_len(plan, false)], false);
        headers.push(Header::parse(&frame, false).expect("we wrote it"));
    }
    headers
}

/// What flies has room long before that, since some of the window has arrived.
#[test]
fn a_gap_at_the_front_holds_the_window_back_and_its_last_frame_asks() {
    let mut stage = Stage::with(false, Config { congestion_control: false, ..Config::default() });
    let (conn, turn) = stage.turn();
    conn.handle_hello_ack(turn, &Hello { window: u16::MAX, ..hello(THEM, US) });
    stage.sent();
    assert_eq!(stage.conn.window, WINDOW_MAX, "the peer cannot offer more");
    let mut sent = Vec::new();
    for number in 0..2 * WINDOW_MAX {
        stage.send().expect("there is room");
        sent.extend(headers(&mut stage));
        if number == 100 {
            stage.sack = u32::MAX;
            stage.arrive(Kind::Ack, 0, &[]).expect("it is sound");
        }
    }
    let last = sent.iter().max_by_key(|header| header.seq.0).expect("some were sent");
    assert_eq!((last.seq, last.flags), (Seq(WINDOW_MAX - 1), flags::ACK_NOW));
}

#[test]
fn an_ack_of_what_was_never_sent_makes_a_message_worth_nothing() {
    let mut stage = in_phase("Open, unacknowledged");
    let mut message = [0; RECORD_LEN + 8];
    put_message(&mut message, b"8 bytes.");
    assert_eq!(stage.arrive(Kind::Data, stage.all_sent() + 1, &message), Err("Window".into()));
    assert!(!stage.conn.has_message());
}

/// Its next Hello was due, and a peer that had been silent for as long would be gone.
#[test]
fn whoever_answers_late_is_there_from_then_on() {
    let mut stage = in_phase("Connecting");
    stage.pass(Duration::from_millis(9_000)).expect("it takes its time");
    let (conn, turn) = stage.turn();
    conn.handle_hello_ack(turn, &hello(THEM, US));
    assert_eq!(stage.sent(), "Ack");
    assert!(!stage.conn.wants_to_transmit(), "a Hello that is not owed any more");
    stage.pass(stage.turn.config.keep_alive).expect("it takes its time");
    assert_eq!((stage.phase(), stage.sent()), ("Open", "Ping".into()));
}

#[test]
fn who_begins_anew_owes_nothing_of_the_life_before() {
    let connect_timeout = Config::default().connect_timeout;
    for (passed, next) in [(Duration::ZERO, Duration::from_millis(2)), (Duration::from_millis(9_999), connect_timeout)]
    {
        let mut stage = in_phase("Accepted, asked");
        stage.pass(passed).expect("it takes its time");
        let (conn, turn) = stage.turn();
        conn.handle_hello(turn.now, &hello(THEM, 0), 512).expect("it is the peer's");
        conn.handle_hello(turn.now, &hello(STRANGER, 0), 512).expect_err("the peer is asked");
        conn.handle_reset(turn, Tokens { from: THEM, to: US }, STRANGER).expect("it is the peer's");
        assert_eq!(stage.conn.next_timeout(), Instant::ZERO + next, "it asks again, or gives up");
        assert_eq!((stage.phase(), stage.sent()), ("Connecting", "Hello".into()));
        let (conn, turn) = stage.turn();
        conn.handle_hello_ack(turn, &hello(THEM, STRANGER));
        assert_eq!((stage.sent(), stage.told()), ("Ack".into(), "Connected".into()));
    }
}

#[test]
fn a_close_of_nothing_does_not_begin_anew() {
    let mut stage = in_phase("Accepted, asked");
    stage.close().expect("it is taken");
    let (conn, turn) = stage.turn();
    conn.handle_reset(turn, Tokens { from: THEM, to: US }, STRANGER).expect("it is the peer's");
    assert_eq!((stage.phase(), stage.told(), stage.sent()), ("Gone", "Closed".into(), "-".into()));
}

#[test]
fn only_whoever_may_hold_it_for_open_is_told_or_asked() {
    let phases = [
        ("Connecting", false, "-", "-"),
        ("Accepted", true, "-", "Reset"),
        ("Accepted, asked", true, "-", "Reset"),
        ("Open", true, "Ping", "Reset"),
        ("Open, unacknowledged", true, "Ping", "Reset"),
        ("Closing", true, "Ping", "Reset"),
        ("Lingering", false, "-", "-"),
        ("Gone", false, "-", "-"),
    ];
    for (phase, is_told, asked, end) in phases {
        let mut stage = in_phase(phase);
        assert_eq!(stage.conn.reset_tokens().is_some(), is_told, "{phase}");
        stage.conn.handle_unknown();
        assert_eq!(stage.sent(), asked, "{phase}, by a frame for nobody");
        if !stage.conn.is_winding_down() {
            let (conn, turn) = stage.turn();
            conn.end_too_long(turn);
            assert_eq!(stage.conn.reset_tokens().is_some(), is_told, "{phase}, before its end is told");
            assert_eq!(stage.sent(), end, "{phase}, by its end");
        }
        assert_eq!((stage.conn.reset_tokens(), stage.conn.wants_to_transmit()), (None, false), "{phase}, in the end");
    }
}

#[test]
fn who_is_gone_is_asked_nothing_any_more() {
    let mut stage = in_phase("Open");
    stage.conn.handle_unknown();
    assert!(stage.conn.owed.has(Owed::PING));
    let (conn, turn) = stage.turn();
    conn.handle_link_gone(turn);
    assert!(!stage.conn.wants_to_transmit());
}

/// What was heard or begun after our last turn counts from then on, however long that is ago.
#[test]
fn an_absence_is_made_up_for_and_no_more() {
    let Config { keep_alive, connect_timeout, .. } = Config::default();
    let silence = keep_alive.saturating_mul(4);
    for (phase, patience) in [
        ("Connecting", connect_timeout),
        ("Accepted", silence),
        ("Accepted, asked", connect_timeout),
        ("Open", silence),
    ] {
        let mut stage = in_phase(phase);
        let minute = Duration::from_millis(60_000);
        stage.turn.now += minute;
        stage.conn.on_absence(&stage.turn, minute.saturating_mul(2));
        for _ in 0..patience.as_nanos() / keep_alive.as_nanos() {
            assert_eq!(stage.phase(), phase);
            stage.pass(keep_alive).expect("it takes its time");
        }
        stage.pass(keep_alive).expect("it takes its time");
        assert_eq!(stage.phase(), "Gone", "{phase}");
    }
}

#[test]
fn an_ack_that_waited_for_us_measures_nothing() {
    let mut stage = in_phase("Open, unacknowledged");
    let before = stage.conn.rtt.latest();
    stage.turn.now += Duration::from_millis(60_000);
    stage.conn.on_absence(&stage.turn, Duration::from_millis(59_000));
    stage.arrive(Kind::Ack, stage.all_sent(), &[]).expect("it is sound");
    assert!(stage.conn.is_settled());
    assert_eq!(stage.conn.rtt.latest(), before);
}

/// Of a get of 16 bytes, which is all that is under way.
#[test]
fn answers_to_what_was_not_asked_do_nothing_nor_does_what_comes_with_them() {
    let mut stage = in_phase("Open");
    let (conn, turn) = stage.turn();
    let region = turn.rma.regions.register(Memory::Owned(vec![0; 64]));
    let index = turn.rma.regions.hold(region, 8, 16).expect("it is there");
    let from = Target { region: 0, key: 0, offset: 0 };
    conn.one_sided(&turn.config).get(from, index, 8, 16).expect("there is room");
    let wrong = [
        Operation::Answer { op: 0, offset: 8, last: false, bytes: &[1; 9] },
        Operation::Answer { op: 1, offset: 0, last: true, bytes: &[1; 16] },
        Operation::Fetched { op: 0, value: 1 },
        Operation::Done { ops: 2 },
        Operation::Refused { op: 0, count: 2, why: OpError::Bounds },
        Operation::Refused { op: 2, count: 1, why: OpError::Bounds },
    ];
    let body = |operation: &Operation<'_>| {
        let mut body = vec![0; operation.len() + RECORD_LEN + 8];
        let (front, message) = body.split_at_mut(operation.len());
        operation.emit(front);
        put_message(message, b"8 bytes.");
        body
    };
    for operation in wrong {
        assert_eq!(stage.arrive(Kind::Data, 0, &body(&operation)), Err("Malformed".into()), "{operation:?}");
        assert_eq!((stage.told(), stage.conn.has_message()), ("-".into(), false), "{operation:?}");
        assert_eq!(stage.turn.rma.regions.memory(region), Some(&[0; 64][..]), "{operation:?}");
    }
    let right = Operation::Answer { op: 0, offset: 0, last: true, bytes: &[1; 16] };
    stage.arrive(Kind::Data, 0, &body(&right)).expect("it was asked");
    assert!(stage.told().starts_with("Got") && stage.conn.has_message());
}

const PROTECTION: Protection = Protection::Authenticated(JobKey::from_bytes([7; JobKey::LEN]));

/// The first time-out asks, the second gives up and tries with a few, and what then arrives opens the window again.
#[test]
fn what_arrives_after_a_time_out_ends_it() {
    let mut stage = in_phase("Open");
    for _ in 0..20 {
        stage.send().expect("there is room");
        stage.sent();
    }
    let (in_flight, window) = (stage.conn.in_flight.len(), stage.conn.window);
    stage.pass(Duration::from_millis(5)).expect("it takes its time");
    stage.arrive(Kind::Ack, 1, &[]).expect("it is sound");
    assert!(!stage.sent().contains("probe"), "it has been answered");
    for _ in 0..2 {
        stage.pass(Duration::from_millis(200)).expect("it takes its time");
        assert_ne!(stage.sent(), "-");
    }
    assert!(in_flight > 1 && stage.conn.congestion.frames() < window, "it was a loss");
    stage.arrive(Kind::Ack, 2, &[]).expect("it is sound");
    assert_eq!(stage.conn.window, stage.conn.congestion.frames());
    assert!(stage.conn.in_flight.has_lost() || stage.sent().contains("again"), "the rest is missing still");
}

/// It was heard once, perhaps before it had anything to take in.
#[test]
fn a_peer_is_heard_anew_each_time_before_it_counts_as_taking_nothing() {
    let mut stage = in_phase("Open, unacknowledged");
    for heard in [false, true, false, false] {
        if heard {
            stage.turn.now += Duration::from_millis(1);
            stage.arrive(Kind::Ack, 0, &[]).expect("it is sound");
        }
        stage.turn.now += Duration::from_millis(200);
        stage.conn.on_retransmit_timeout(stage.turn.now);
    }
    assert_eq!((stage.conn.backoff, stage.conn.unheeded), (4, 1));
}

#[test]
fn who_has_no_credit_asks_for_some_and_who_rests_does_not() {
    let mut stage = in_phase("Connecting");
    let (conn, turn) = stage.turn();
    conn.handle_hello_ack(turn, &Hello { credit: 0, ..hello(THEM, US) });
    stage.credit = 0;
    stage.sent();
    stage.send().expect("there is room");
    assert_eq!(stage.sent(), "-");
    stage.pass(Duration::from_millis(5)).expect("it takes its time");
    assert_eq!(stage.sent(), "Ping");

    let mut stage = in_phase("Open, unacknowledged");
    stage.arrive(Kind::Ack, stage.all_sent(), &[]).expect("it is sound");
    stage.conn.window = 0;
    stage.send().expect("there is room");
    stage.pass(Duration::from_millis(5)).expect("it takes its time");
    assert_eq!((stage.sent(), stage.conn.backoff), ("-".into(), 0));
}

#[test]
fn whoever_is_dialled_while_it_dials_says_hello_no_more() {
    let mut stage = in_phase("Connecting");
    stage.pass(Duration::from_millis(5)).expect("it takes its time");
    stage.conn.handle_hello(stage.turn.now, &hello(THEM, 0), 512).expect("both are one");
    assert_eq!(stage.sent(), "HelloAck");
}

#[test]
fn nothing_is_taken_behind_a_close_that_waits_for_its_answer() {
    let mut stage = in_phase("Connecting");
    stage.send().and_then(|()| stage.close()).expect("both are taken");
    assert_eq!((stage.phase(), stage.send()), ("Connecting", Err("NoPeer".into())));
}

#[test]
fn a_connection_is_known_by_both_tokens() {
    let stage = in_phase("Open");
    for (from, to, is_known) in [(THEM, US, true), (STRANGER, US, false), (THEM, STRANGER, false)] {
        assert_eq!(stage.conn.is_between(Tokens { from, to }), is_known);
    }
}

fn close_record() -> [u8; RECORD_LEN] {
    let mut body = [0; RECORD_LEN];
    put_close(&mut body);
    body
}

/// With the ack of the last thing that was sent, and without.
#[test]
fn a_close_that_brings_the_last_ack_is_as_agreed() {
    for (ack, told) in [(1, "Closed"), (0, "Gone(ClosedByPeer)")] {
        let mut stage = in_phase("Open, unacknowledged");
        stage.arrive(Kind::Data, ack, &close_record()).expect("it is sound");
        stage.take().expect("the Close");
        assert_eq!((stage.phase(), stage.told()), ("Lingering", told.into()));
        stage.seq += 1;
        assert_eq!(stage.arrive(Kind::Ack, 1, &[]), Ok(()), "what it acknowledges was sent");
    }
}

/// Whose Close lies here, and who acknowledges nothing any more.
#[test]
fn a_peer_that_closed_owes_its_acks() {
    let mut stage = in_phase("Open, unacknowledged");
    stage.arrive(Kind::Data, 0, &close_record()).expect("it is sound");
    for _ in 0..5 {
        stage.pass(stage.turn.config.keep_alive).expect("it takes its time");
    }
    assert_eq!(stage.told(), "Gone(ClosedByPeer)");
}

/// As where the driver has no room.
#[test]
fn a_last_ack_that_cannot_leave_is_given_up_with_the_peer() {
    let mut stage = in_phase("Lingering");
    stage.seq = u32::MAX;
    stage.arrive(Kind::Data, 1, &[]).expect("it is sound");
    let linger = Duration::from_millis(250);
    for phase in ["Lingering", "Lingering", "Lingering", "Gone"] {
        stage.pass(linger).expect("it takes its time");
        assert_eq!(stage.phase(), phase);
    }
}

/// 16 keep-alives count as long, in which either side has sent something.
#[test]
fn a_peer_that_is_quiet_for_long_gives_its_memory_back() {
    let mut message = [0; RECORD_LEN + 8];
    put_message(&mut message, b"8 bytes.");
    for sends in [[true, false], [false, true]] {
        let mut stage = in_phase("Open");
        let mut turn = |we_send: bool, it_sends: bool| {
            if we_send {
                stage.send().expect("there is room");
                stage.sent();
            }
            for seq in if it_sends { vec![1, 0] } else { vec![] } {
                let next = stage.seq;
                stage.seq += seq;
                stage.arrive(Kind::Data, stage.all_sent(), &message).expect("it is sound");
                stage.seq = next;
            }
            stage.seq += 2 * u32::from(it_sends);
            while stage.conn.has_message() {
                stage.take().expect("it is taken");
            }
            for _ in 0..4 {
                stage.arrive(Kind::Ack, stage.all_sent(), &[]).expect("it lives");
                stage
                    .pass(Duration::from_nanos(stage.turn.config.keep_alive.as_nanos() / 4))
                    .expect("it takes its time");
                stage.sent();
            }
            stage.conn.memory()
        };
        turn(true, true);
        for _ in 0..20 {
            assert!(turn(sends[0], sends[1]) > 0);
        }
        let memory = (0..20).map(|_| turn(false, false)).last();
        assert_eq!(memory, Some(0));
    }
}
