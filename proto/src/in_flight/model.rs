//! The sending end of the numbering against a simple model: a list of frames with what is known of each.

use sidelane_nic::time::{Duration, Instant};

use super::{AckVerdict, InFlight};
use crate::rtt::Rtt;
use crate::send_fifo::Span;
use crate::wire::Seq;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Send,
    /// An ack this far behind or beyond the window's front, and a SACK.
    Ack {
        passed: i32,
        sack: u32,
    },
    Detect,
    GiveUpAll,
    WaitForAll,
    /// The oldest lost frame, or else a probe.
    Resend,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => Just(Step::Send),
        3 => (-2i32..6, prop_oneof![Just(0u32), 0u32..64, any::<u32>()]).prop_map(|(passed, sack)| Step::Ack { passed, sack }),
        2 => Just(Step::Detect),
        1 => Just(Step::GiveUpAll),
        1 => Just(Step::WaitForAll),
        2 => Just(Step::Resend),
    ]
}

/// What is known of one frame.
#[derive(Debug, Clone)]
struct Known {
    span: Span,
    /// When it was written last.
    at: Instant,
    arrived: bool,
    lost: bool,
    /// It was waited for once, or a later frame proved it lost.
    is_hopeless: bool,
}

proptest! {
    #[test]
    fn every_frame_is_released_once_and_only_the_missing_are_lost(first: u32, steps in proptest::collection::vec((step(), 0u64..50), 1..300)) {
        let mut flight = InFlight::new(Seq(first));
        let mut rtt = Rtt::new(Duration::from_micros(20));
        let (mut model, mut front, mut count): (Vec<Known>, u32, usize) = (Vec::new(), first, 0);
        let mut now = Instant::ZERO;
        // The latest time of writing among all frames that are known to have arrived.
        let mut newest_at = Instant::ZERO;
        for (step, micros) in steps {
            now += Duration::from_micros(micros);
            match step {
                Step::Send => {
                    if model.len() < 256 {
                        count += 1;
                        let span = Span::Run { at: count, len: 1 };
                        flight.on_sent(now, span);
                        model.push(Known { span, at: now, arrived: false, lost: false, is_hopeless: false });
                    }
                }
                Step::Ack { passed, sack } => {
                    let mut released = Vec::new();
                    let ack = Seq(front.wrapping_add_signed(passed));
                    let verdict = flight.on_ack(now, ack, sack, &mut rtt, |span| released.push(span));
                    if passed < 0 {
                        prop_assert_eq!(verdict, AckVerdict::Stale);
                    } else if passed as usize > model.len() {
                        prop_assert_eq!(verdict, AckVerdict::Impossible);
                    } else {
                        let gone: Vec<Known> = model.drain(..passed as usize).collect();
                        front = front.wrapping_add(passed as u32);
                        prop_assert_eq!(&released, &gone.iter().map(|known| known.span).collect::<Vec<_>>());
                        let mut progress = !gone.is_empty();
                        newest_at = gone.iter().map(|known| known.at).fold(newest_at, Instant::max);
                        for bit in 0..32 {
                            if sack >> bit & 1 == 1 && let Some(known) = model.get_mut(bit + 1) {
                                progress |= !known.arrived;
                                known.arrived = true;
                                known.lost = false;
                                newest_at = newest_at.max(known.at);
                            }
                        }
                        prop_assert_eq!(verdict, AckVerdict::Fresh { progress });
                    }
                    prop_assert!(passed >= 0 || released.is_empty());
                }
                Step::Detect => {
                    let look_again = flight.detect(now, &rtt);
                    prop_assert!(look_again.is_none_or(|then| then > now));
                    // Which frames it took for lost shows by asking for each; none may have arrived, none may be
                    // younger than all that arrived.
                    let mut probe = flight.clone();
                    let mut lost = Vec::new();
                    while let Some((seq, span)) = probe.next_lost() {
                        lost.push((seq, span));
                        probe.on_resent(now, seq);
                    }
                    for (place, known) in model.iter_mut().enumerate() {
                        let seq = Seq(front.wrapping_add(place as u32));
                        let taken = lost.contains(&(seq, known.span));
                        prop_assert!(taken || !known.lost, "{:?} was lost, and is no more", seq);
                        prop_assert!(!taken || known.lost || !known.arrived && known.at <= newest_at, "{:?} {:?}", seq, known);
                        known.is_hopeless |= taken && !known.lost;
                        known.lost = taken;
                    }
                }
                Step::GiveUpAll => {
                    flight.give_up_all();
                    // What is due cannot be there ahead of its turn.
                    if let Some(front) = model.first_mut() {
                        front.arrived = false;
                    }
                    model.iter_mut().for_each(|known| known.lost = !known.arrived);
                }
                Step::WaitForAll => {
                    flight.wait_for_all();
                    for known in model.iter_mut().filter(|known| known.lost && !known.is_hopeless) {
                        known.lost = false;
                        known.is_hopeless = true;
                    }
                }
                Step::Resend => {
                    if let Some((seq, span)) = flight.next_lost().or(flight.newest_missing()) {
                        let place = seq.0.wrapping_sub(front) as usize;
                        let oldest_lost = model.iter().position(|known| known.lost);
                        let newest_missing = model.iter().rposition(|known| !known.arrived);
                        prop_assert_eq!(Some(place), oldest_lost.or(newest_missing));
                        prop_assert_eq!(span, model[place].span);
                        flight.on_resent(now, seq);
                        model[place].lost = false;
                        model[place].at = now;
                    } else {
                        prop_assert!(model.iter().all(|known| known.arrived));
                    }
                }
            }
            prop_assert_eq!(flight.len(), model.len());
            prop_assert_eq!(flight.flying(), model.iter().filter(|known| !known.arrived && !known.lost).count());
            prop_assert_eq!(flight.has_lost(), model.iter().any(|known| known.lost));
            prop_assert_eq!(flight.next_seq(), Seq(front.wrapping_add(model.len() as u32)));
        }
    }
}
