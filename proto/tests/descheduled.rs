//! A receiver that others keep from its processor at random, under load from many: that nothing is lost of it, and what it is worth
//! that the receiver says so (`PROTOCOL.md`, "Busy hosts").

use sidelane_nic::time::Duration;
use sidelane_proto::sim::load::{Descheduled, LOADS, Load, Receiver, Shape};

/// Sums over all seeds, of which each run has judged itself: everything came, once and in order.
fn play(senders: u32, per_frame: Duration, runs: [Duration; 2], is_heard: bool) -> Descheduled {
    let load = Load { shape: Shape::ManyToOne(senders), span: Duration::from_millis(400), ..LOADS[0] };
    let rests = [Duration::from_millis(1), Duration::from_millis(50)];
    let played = (1..=SEEDS).map(|seed| load.deschedule(Receiver { per_frame, runs, rests, is_heard, seed }));
    let sum = played.reduce(|sum, one| Descheduled {
        goodput: sum.goodput + one.goodput,
        again: sum.again + one.again,
        timeouts: sum.timeouts + one.timeouts,
        duplicates: sum.duplicates + one.duplicates,
        lost: sum.lost + one.lost,
        gone: sum.gone + one.gone,
    });
    let sum = sum.expect("there are seeds");
    println!("{senders} to 1, {per_frame:?} a frame, runs {runs:?}, heard: {is_heard}: {sum:?}");
    assert_eq!(sum.gone, 0, "nobody is away for four keep-alives");
    sum
}

/// It takes what waits in no time: all that was written again was written for nothing, and that is a few frames a time-out.
#[test]
fn a_fast_receiver_that_is_away_now_and_then_is_sent_little_twice() {
    for senders in [4, 16] {
        for is_heard in [true, false] {
            let sum = play(senders, Duration::ZERO, LONG, is_heard);
            assert_eq!((sum.lost, sum.duplicates), (0, sum.again));
            assert!(sum.again <= 4 * sum.timeouts);
            assert!(sum.goodput > 0.95 * SEEDS as f64);
        }
    }
}

/// What waits for it is taken in over a time: of that its senders hear that it was late.
#[test]
fn a_slow_receiver_that_says_that_it_was_away_gets_more_and_less_of_it_twice() {
    for runs in [LONG, SHORT] {
        let [heard, unheard] = [true, false].map(|is_heard| play(4, Duration::from_nanos(1_500), runs, is_heard));
        assert!(heard.duplicates * 4 < unheard.duplicates && heard.lost <= unheard.lost);
        assert!(heard.goodput > unheard.goodput);
    }
}

const SEEDS: u64 = 6;
/// How long it runs at a time: longer than what waits takes, or not.
const LONG: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
const SHORT: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(3)];
