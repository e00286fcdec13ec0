use super::*;

const MICRO: u64 = 1_000;

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * MICRO)
}

fn span(number: usize) -> Span {
    Span::Run { at: number, len: 1 }
}

/// `count` frames, one each microsecond from time zero, numbered across the wrap; a round trip takes 10 µs.
fn flight(count: usize) -> (InFlight, Rtt, Seq) {
    let first = Seq(u32::MAX - 1);
    let mut rtt = Rtt::new(Duration::from_micros(100));
    rtt.sample(Duration::from_micros(10));
    let mut flight = InFlight::new(first);
    for number in 0..count {
        flight.on_sent(at(number as u64), span(number));
    }
    (flight, rtt, first)
}

fn ack(flight: &mut InFlight, rtt: &mut Rtt, now: Instant, ack: Seq, sack: u32) -> (AckVerdict, Vec<Span>) {
    let mut released = Vec::new();
    let verdict = flight.on_ack(now, ack, sack, rtt, |span| released.push(span));
    (verdict, released)
}

#[test]
fn a_cumulative_ack_releases_in_order_and_a_late_one_does_nothing() {
    let (mut flight, mut rtt, first) = flight(4);
    let (verdict, released) = ack(&mut flight, &mut rtt, at(12), first.plus(3), 0);
    assert_eq!((verdict, released), (AckVerdict::Fresh { progress: true }, vec![span(0), span(1), span(2)]));
    assert_eq!(ack(&mut flight, &mut rtt, at(13), first.plus(1), 0), (AckVerdict::Stale, vec![]));
    assert_eq!(ack(&mut flight, &mut rtt, at(13), first.plus(3), 0).0, AckVerdict::Fresh { progress: false });
    assert_eq!((flight.len(), flight.flying(), flight.next_seq()), (1, 1, first.plus(4)));
}

/// Wherever the short way is taken it ends as the long one.
#[test]
fn a_lone_ack_does_what_any_ack_does() {
    let mut taken = 0;
    for frames in 0..3 {
        for (sack, lost, resent) in [(0, false, false), (0b1, false, false), (0, true, false), (0, true, true)] {
            for passed in 0..3 {
                // Behind one that has arrived.
                let (mut flight, mut rtt, first) = flight(1 + frames);
                let first = first.plus(1);
                ack(&mut flight, &mut rtt, at(9), first, sack);
                if lost {
                    flight.give_up_all();
                }
                if resent && frames > 0 {
                    flight.on_resent(at(10), first);
                }
                let (before, mut other, mut other_rtt) = (format!("{flight:?}"), flight.clone(), rtt.clone());
                let span = flight.on_lone_ack(at(20), first.plus(passed), &mut rtt);
                if span.is_none() {
                    assert_eq!(format!("{flight:?}"), before);
                    continue;
                }
                taken += 1;
                let (_, released) = ack(&mut other, &mut other_rtt, at(20), first.plus(passed), 0);
                assert_eq!(released, Vec::from_iter(span));
                assert_eq!(format!("{flight:?} {rtt:?}"), format!("{other:?} {other_rtt:?}"));
            }
        }
    }
    assert_eq!(taken, 3, "of one frame in flight, of one and a SACK that says nothing, and of two");
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    let (mut flight, mut rtt, first) = flight(2);
    assert_eq!(ack(&mut flight, &mut rtt, at(5), first.plus(3), 0), (AckVerdict::Impossible, vec![]));
    // Nor by a SACK: bits beyond the window say nothing.
    ack(&mut flight, &mut rtt, at(5), first, u32::MAX);
    assert_eq!((flight.len(), flight.flying()), (2, 1));
}

#[test]
fn an_overtaken_frame_is_lost_when_the_window_has_passed_and_not_before() {
    let (mut flight, mut rtt, first) = flight(3);
    // Frame 2, sent at 2 µs, arrived; frames 0 and 1 did not.
    ack(&mut flight, &mut rtt, at(12), first, 0b10);
    assert_eq!(flight.flying(), 2);
    let look_again = flight.detect(at(12), &rtt).expect("frame 1 may only be late");
    assert!(look_again > at(12) && look_again < at(15), "{look_again:?}");
    assert_eq!(flight.detect(at(30), &rtt), None);
    assert_eq!((flight.next_lost(), flight.flying()), (Some((first, span(0))), 0));
    flight.on_resent(at(30), first);
    flight.on_resent(at(30), first.plus(1));
    assert_eq!((flight.next_lost(), flight.flying()), (None, 2));
    // A frame that was written again counts as lost again only once something sent later has arrived.
    assert_eq!(flight.detect(at(100), &rtt), None);
    assert_eq!(flight.next_lost(), None);
}

#[test]
fn the_ack_of_a_repetition_measures_nothing() {
    let (mut flight, mut rtt, first) = flight(1);
    flight.give_up_all();
    flight.on_resent(at(500), first);
    let before = rtt.smoothed();
    ack(&mut flight, &mut rtt, at(501), first.plus(1), 0);
    assert_eq!(rtt.smoothed(), before);
    assert!(flight.is_empty() && !flight.has_lost());
}

#[test]
fn a_probe_is_the_newest_frame_that_has_not_arrived() {
    let (mut flight, mut rtt, first) = flight(3);
    assert_eq!(flight.newest_missing(), Some((first.plus(2), span(2))));
    ack(&mut flight, &mut rtt, at(12), first, 0b10);
    assert_eq!(flight.newest_missing(), Some((first.plus(1), span(1))));
}

#[test]
fn what_a_receiver_held_and_gave_up_is_written_again() {
    let (mut flight, mut rtt, first) = flight(2);
    ack(&mut flight, &mut rtt, at(12), first, 0b1);
    // The first one is here too, and the second one had to go again.
    ack(&mut flight, &mut rtt, at(20), first.plus(1), 0);
    flight.give_up_all();
    assert_eq!((flight.next_lost(), flight.flying()), (Some((first.plus(1), span(1))), 0));
    ack(&mut flight, &mut rtt, at(30), first.plus(2), 0);
    assert_eq!((flight.len(), flight.flying(), flight.lost()), (0, 0, 0));
}

/// However often the peer says that it was away: it has had its time to take in what had arrived.
#[test]
fn what_is_missing_after_an_absence_is_waited_for_once() {
    let (mut flight, mut rtt, first) = flight(4);
    flight.give_up_all();
    flight.wait_for_all();
    assert_eq!((flight.lost(), flight.flying()), (0, 4));
    flight.on_sent(at(400), span(4));
    flight.give_up_all();
    flight.on_resent(at(500), first);
    ack(&mut flight, &mut rtt, at(600), first.plus(1), 0);
    flight.wait_for_all();
    // The one that was sent since is waited for.
    assert_eq!((flight.next_lost(), flight.lost(), flight.flying()), (Some((first.plus(1), span(1))), 3, 1));
}

#[test]
fn what_a_later_frame_proved_lost_stays_so_when_the_peer_was_away() {
    let (mut flight, mut rtt, first) = flight(4);
    ack(&mut flight, &mut rtt, at(12), first, 0b10);
    assert_eq!(flight.detect(at(30), &rtt), None);
    flight.give_up_all();
    assert_eq!(flight.lost(), 3);
    flight.wait_for_all();
    // The last one nothing has overtaken.
    assert_eq!((flight.next_lost(), flight.lost(), flight.flying()), (Some((first, span(0))), 2, 1));
    // Written again, and lost again.
    flight.on_resent(at(40), first);
    flight.give_up_all();
    flight.wait_for_all();
    assert_eq!(flight.next_lost(), Some((first, span(0))));
}

#[test]
fn a_reordering_window_that_proved_too_small_grows() {
    let (mut flight, mut rtt, first) = flight(3);
    ack(&mut flight, &mut rtt, at(12), first, 0b10);
    let narrow = flight.detect(at(12), &rtt);
    flight.on_spurious();
    assert!(flight.detect(at(12), &rtt) > narrow);
}

/// Sixteen, of which each is one however often something is lost in it.
#[test]
fn after_recoveries_in_which_nothing_came_twice_the_window_is_narrow_again() {
    let (mut flight, mut rtt, mut first) = flight(0);
    // From the first of three that is missing on; returns how long it is waited for.
    let mut recover = |flight: &mut InFlight, round: u64, spurious: bool| {
        let begin = round * 1_000;
        (0..3).for_each(|number| flight.on_sent(at(begin + number), span(0)));
        ack(flight, &mut rtt, at(begin + 12), first, 0b10);
        let lost_at = flight.detect(at(begin + 12), &rtt).unwrap();
        flight.detect(lost_at, &rtt);
        assert_eq!(flight.lost(), 1);
        flight.give_up_all();
        if spurious {
            flight.on_spurious();
        }
        first = first.plus(3);
        ack(flight, &mut rtt, at(begin + 20), first, 0);
        lost_at.since(at(begin + 10))
    };
    let narrow = recover(&mut flight, 0, true);
    for round in 1..=17 {
        assert!(recover(&mut flight, round, false) > narrow, "{round}");
    }
    assert_eq!(recover(&mut flight, 18, false), narrow);
}

/// Every event in every state of a frame, by the counts that decide what is sent: (in the window, flying, lost).
#[test]
fn every_event_in_every_state() {
    type Event = fn(&mut InFlight, &mut Rtt, Seq);
    let states: [(&str, Event); 3] = [
        ("Flying", |_, _, _| {}),
        ("Lost", |flight, _, _| flight.give_up_all()),
        ("Arrived", |flight, rtt, first| drop(ack(flight, rtt, at(12), first, 0b1))),
    ];
    let events: [(&str, Event); 5] = [
        ("passed", |flight, rtt, first| drop(ack(flight, rtt, at(20), first.plus(2), 0))),
        ("in a SACK", |flight, rtt, first| drop(ack(flight, rtt, at(20), first, 0b1))),
        ("time-out", |flight, _, _| flight.give_up_all()),
        ("written again", |flight, _, first| flight.on_resent(at(20), first.plus(1))),
        ("waited for", |flight, _, _| flight.wait_for_all()),
    ];
    let mut table = String::new();
    for (state, enter) in states {
        for (event, happen) in events {
            // The second of two frames; the first one only holds the window open.
            let (mut flight, mut rtt, first) = flight(2);
            enter(&mut flight, &mut rtt, first);
            if (state, event) == ("Arrived", "written again") {
                continue; // Nobody asks for it: neither lost nor missing.
            }
            happen(&mut flight, &mut rtt, first);
            table += &format!("{state}, {event}: {} {} {}\n", flight.len(), flight.flying(), flight.lost);
        }
    }
    assert_eq!(
        table,
        "Flying, passed: 0 0 0\nFlying, in a SACK: 2 1 0\nFlying, time-out: 2 0 2\nFlying, written again: 2 2 0\nFlying, waited for: 2 2 0\n\
         Lost, passed: 0 0 0\nLost, in a SACK: 2 0 1\nLost, time-out: 2 0 2\nLost, written again: 2 1 1\nLost, waited for: 2 2 0\n\
         Arrived, passed: 0 0 0\nArrived, in a SACK: 2 1 0\nArrived, time-out: 2 0 1\nArrived, waited for: 2 1 0\n"
    );
}

/// In microseconds, of frames at 0 and 1 that one at 2 has overtaken.
#[test]
fn the_first_that_may_be_lost_says_when_to_look_and_patience_has_two_bounds() {
    // The smoothed round trip, and four of the smallest ones.
    for (smoothed, spurious, slack) in [(10, 0, 2_500), (10, 100, 10_000), (1_000, 100, 40_000)] {
        let (mut flight, mut rtt, first) = flight(3);
        (0..100).for_each(|_| rtt.sample(Duration::from_micros(smoothed)));
        ack(&mut flight, &mut rtt, at(12), first, 0b10);
        (0..spurious).for_each(|_| flight.on_spurious());
        assert_eq!(flight.detect(at(12), &rtt), Some(at(10) + Duration::from_nanos(slack)));
    }
}
