//! White box beside black box: where each nanosecond of a half round trip goes, layer by layer.
//!
//! Two sides play a ping-pong; some of its round trips carry a stamp ([`sidelane_nic::stamps`]), others are timed as a whole by
//! the side that sends first. Stamps of both sides are readings of one counter, so the way between two processes is a
//! difference too.
//!
//! A round trip is stamped at its ends, as the others are, and at one border, since a stamp costs as much as a part lasts: each border in turn
//! (`watched`). When a border is crossed is the share of its round trips' time that had passed, times the mean of all; parts are
//! differences of that. Means are used and not medians: the counter may tick in steps that are longer than a part.

mod play;
mod play_am;
mod report;
mod table;

pub use play::play;
pub use play_am::play as play_am;
pub use report::{Breakdowns, SCHEMA};

use serde::{Deserialize, Serialize};
use sidelane_nic::clock::{nanos_per_tick, ticks};
use sidelane_nic::stamps::{Border, Stamps, buffer};

use crate::clock::{READS_IN_ALL, cost_of};
use crate::ladder::{Host, NicKind, Pair, PairError, twice};
use crate::pattern::{Kind, Pattern, Role};
use crate::side::{Layer, Path};

use play::EVERY;

/// The stamps of one round trip, as one side has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Which round trip.
    pub number: u64,
    /// Ticks by border.
    pub stamps: Stamps,
}

/// What one side has sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Round trips with stamps.
    pub stamped: Vec<Sample>,
    /// Ticks that others took as a whole, where messages are sent first.
    pub unstamped: Vec<u64>,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Messages {
    /// Messages of the protocol.
    Plain,
    /// Requests of Active Messages, and replies that their handlers make.
    Active,
}

/// Where the time of a half round trip goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// Driver.
    pub nic: NicKind,
    /// Which messages.
    pub messages: Messages,
    /// Bytes of a message.
    pub size: usize,
    /// Stamped round trips that the means are of.
    pub samples: usize,
    /// In the order in which a message goes through them.
    pub parts: Vec<Part>,
    /// Nanoseconds that the call which rings the doorbell lasts at the sender. While it lasts the frame may be on its way already,
    /// so this is no part.
    pub doorbell_ns: f64,
    /// Half a round trip without stamps, in nanoseconds: black box.
    pub black_box_ns: f64,
    /// What one reading of the clock costs, taken off both boxes.
    pub clock_ns: f64,
    /// What it costs together with the push of a message's stamps into the buffer, which nothing here has in it.
    pub stamped_ns: f64,
}

/// A part of the way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Whose time it is.
    pub layer: &'static str,
    /// What happens in it.
    pub what: &'static str,
    /// Mean nanoseconds.
    pub ns: f64,
}

impl Breakdown {
    /// The sum of the parts, in nanoseconds: white box.
    pub fn white_box_ns(&self) -> f64 {
        self.parts.iter().map(|part| part.ns).sum()
    }

    /// Makes the means. `a` sent first. `None` without a round trip that both sides have stamped.
    pub fn of(
        nic: NicKind,
        messages: Messages,
        size: usize,
        a: &Samples,
        b: &Samples,
        stamping: Stamping,
    ) -> Option<Self> {
        let Stamping { tick_ns, clock_ns, stamped_ns } = stamping;
        let mut trips: Vec<Trip> = a.stamped.iter().filter_map(|sample| Trip::of(sample, messages, b)).collect();
        trips.sort_unstable_by_key(|trip| trip.whole);
        trips.truncate(kept(trips.len()));
        let mut unstamped = a.unstamped.clone();
        unstamped.sort_unstable();
        unstamped.truncate(kept(unstamped.len()));
        if trips.is_empty() || unstamped.is_empty() {
            return None;
        }
        let mean = |sum: u64, count: usize| sum as f64 * tick_ns / count as f64 - clock_ns;
        let whole = mean(trips.iter().map(|trip| trip.whole).sum(), trips.len());
        let half = |role, border| {
            let (mut passed, mut of) = (0, 0);
            for trip in trips.iter().filter(|trip| trip.watch == (role, border)) {
                passed += trip.passed;
                of += trip.whole;
            }
            (of > 0).then_some(passed as f64 / of as f64 * whole / 2.0)
        };
        // Ends of every round trip.
        let at = |role, border| match (role, border) {
            (Role::Initiator, Border::Send) => Some(0.0),
            (Role::Initiator, Border::Returned) => Some(whole / 2.0),
            (Role::Initiator, Border::Received) if messages == Messages::Plain => Some(whole / 2.0),
            _ => half(role, border),
        };
        // There and back.
        let way = |from: Border, to: Border| {
            let leg = |sender: Role, receiver: Role| {
                let end = |border| at(if border < Border::Shown { sender } else { receiver }, border);
                Some(end(to)? - end(from)?)
            };
            Some(leg(Role::Initiator, Role::Responder)? + leg(Role::Responder, Role::Initiator)?)
        };
        let mut parts = Vec::new();
        for (layer, what, from, to) in WAY {
            parts.push(Part { layer, what, ns: way(from, to)? });
        }
        let turn = at(Role::Responder, Border::Send)? - at(Role::Responder, Border::Received)?;
        if messages == Messages::Active {
            parts.push(Part { layer: "am", what: "request's handler, up to its reply (half)", ns: turn });
            let back = whole / 2.0 - at(Role::Initiator, Border::Received)?;
            parts.push(Part { layer: "am", what: "reply's handler, and out of poll (half)", ns: back });
        } else {
            parts.push(Part { layer: "user", what: "answers (half of the responder's time)", ns: turn });
        }
        Some(Self {
            nic,
            messages,
            size,
            samples: trips.len(),
            parts,
            doorbell_ns: way(Border::Flush, Border::Flushed)?,
            black_box_ns: mean(unstamped.iter().sum(), unstamped.len()) / 2.0,
            clock_ns,
            stamped_ns,
        })
    }
}

/// What stamps are in, and what they cost, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Stamping {
    /// One tick.
    pub tick_ns: f64,
    /// One reading of the clock.
    pub clock_ns: f64,
    /// One reading, and the push of a message's stamps into the buffer.
    pub stamped_ns: f64,
}

impl Stamping {
    /// Of this machine.
    pub fn measure() -> Self {
        let tick_ns = nanos_per_tick();
        let (mut write, _read) = buffer(READS_IN_ALL);
        let (mut number, mut stamps) = (0, Stamps::default());
        let stamped = cost_of(|| {
            let at = ticks();
            stamps[number as usize % stamps.len()] = at;
            write.push(number, &stamps);
            number += 1;
            at
        });
        assert_eq!(write.dropped(), 0, "there is room for all, since a sample that is dropped costs less");
        Self { tick_ns, clock_ns: cost_of(ticks) * tick_ns, stamped_ns: stamped * tick_ns }
    }
}

/// A round trip that was stamped.
struct Trip {
    watch: (Role, Border),
    /// Ticks until its border was crossed, and in all.
    passed: u64,
    whole: u64,
}

impl Trip {
    /// Of what the side that sent first has, and the other. `None` where that lacks the stamp, or it is of something else.
    fn of(sample: &Sample, messages: Messages, b: &Samples) -> Option<Self> {
        let (role, border) = watched(sample.number & NUMBER_MASK, messages)?;
        let stamps = match role {
            Role::Initiator => &sample.stamps,
            Role::Responder => {
                let at = b.stamped.binary_search_by_key(&sample.number, |theirs| theirs.number).ok()?;
                &b.stamped[at].stamps
            }
        };
        let (from, to) = (sample.stamps[Border::Send as usize], sample.stamps[Border::Returned as usize]);
        let crossed = stamps[border as usize];
        // Two cores' counters may be a few ticks apart, but not by a whole round trip. And the responder may come back from its doorbell
        // only after its answer has been seen: on a veth always.
        let late = if border == Border::Flushed { to.saturating_sub(from) } else { 0 };
        let sound = from > 0 && crossed >= from && crossed <= to + late;
        sound.then(|| Self { watch: (role, border), passed: crossed - from, whole: to - from })
    }
}

/// Which border of round trip `number` is stamped, and on whose side: none of most of them.
pub(crate) fn watched(number: u64, messages: Messages) -> Option<(Role, Border)> {
    if !number.is_multiple_of(EVERY) {
        return None;
    }
    // Of messages that no handler takes, the last border is the round trip's end.
    let count = if messages == Messages::Active { WATCHED.len() } else { WATCHED.len() - 1 };
    Some(WATCHED[(number / EVERY) as usize % count])
}

/// Measures on two hosts, A first: messages of at most [`SIZE_MAX`].
pub fn run(a: Host, b: Host, nic: NicKind, messages: Messages, size: usize) -> Result<Breakdown, PairError> {
    let mut pair = Pair::spawn(a, b)?;
    let pattern = Pattern {
        kind: Kind::PingPong,
        size,
        depth: None,
        warm_ns: WARM_NS,
        measure_ns: MEASURE_NS,
        limit_ns: LIMIT_NS + size as u64 * TRIPS_NS_A_BYTE,
    };
    let (mut all_a, mut all_b) = (Samples::default(), Samples::default());
    for round in 0..ROUNDS {
        let path = |end: &crate::ladder::End| {
            let layer = match messages {
                Messages::Plain => Layer::Stamped,
                Messages::Active => Layer::StampedAm,
            };
            Path::Nic { layer, nic: end.nic(nic), real_frames: false }
        };
        let (a, b) = twice(|| pair.measure(&pattern, path))?;
        for (all, side) in [(&mut all_a, a), (&mut all_b, b)] {
            let samples = side.samples.unwrap_or_default();
            all.unstamped.extend(samples.unstamped);
            // Numbers go on from round to round, so that they stay in order.
            let later = |sample: Sample| Sample { number: sample.number | (round << ROUND_AT), ..sample };
            all.stamped.extend(samples.stamped.into_iter().map(later));
        }
    }
    let nothing = || PairError::Failed(Role::Initiator, "no round trip was stamped".to_owned());
    Breakdown::of(nic, messages, size, &all_a, &all_b, Stamping::measure()).ok_or_else(nothing)
}

/// Who has a part of the way, what happens in it, and the borders that it lies between.
const WAY: [(&str, &str, Border, Border); 6] = [
    ("proto", "send: finds the peer, plans the frame", Border::Send, Border::Asked),
    ("driver", "lends a buffer", Border::Asked, Border::Lent),
    ("proto", "writes header, record and check", Border::Lent, Border::Committed),
    ("driver", "commit, doorbell, wire, frame is seen", Border::Committed, Border::Shown),
    ("proto", "checks the frame, takes it in", Border::Shown, Border::Taken),
    ("both", "end of the burst, and recv", Border::Taken, Border::Received),
];

/// The borders that are stamped, in turn.
const WATCHED: [(Role, Border); 17] = [
    (Role::Initiator, Border::Asked),
    (Role::Initiator, Border::Lent),
    (Role::Initiator, Border::Committed),
    (Role::Initiator, Border::Flush),
    (Role::Initiator, Border::Flushed),
    (Role::Responder, Border::Shown),
    (Role::Responder, Border::Taken),
    (Role::Responder, Border::Received),
    (Role::Responder, Border::Send),
    (Role::Responder, Border::Asked),
    (Role::Responder, Border::Lent),
    (Role::Responder, Border::Committed),
    (Role::Responder, Border::Flush),
    (Role::Responder, Border::Flushed),
    (Role::Initiator, Border::Shown),
    (Role::Initiator, Border::Taken),
    (Role::Initiator, Border::Received),
];

/// All but the slowest one of a hundred: what an interrupt or the scheduler took is none of the layers'.
fn kept(samples: usize) -> usize {
    samples - samples / 100
}

/// Where a sample's number says its round.
const ROUND_AT: u32 = 48;
const NUMBER_MASK: u64 = (1 << ROUND_AT) - 1;
const ROUNDS: u64 = 5;
const WARM_NS: u64 = 50_000_000;
const MEASURE_NS: u64 = 300_000_000;
/// Of [`play::TRIPS_LEAST`] round trips each may wait for a turn of the scheduler's, some milliseconds, where others keep the cores
/// busy: 5 s were too few.
const LIMIT_NS: u64 = 20_000_000_000;

/// The longest message that is broken down: each border is stamped a few times, which takes a thousand round trips, and at a GB/s
/// those of this size are as long as all the rest.
pub const SIZE_MAX: usize = 4 << 20;
/// There and back, a GB/s each way.
const TRIPS_NS_A_BYTE: u64 = 2 * play::TRIPS_LEAST;

#[cfg(test)]
mod tests {
    use sidelane_nic::LinkAddr;
    use sidelane_nic::shm::ShmNic;

    use super::*;

    fn stamping(tick_ns: f64, clock_ns: f64) -> Stamping {
        Stamping { tick_ns, clock_ns, stamped_ns: clock_ns }
    }

    #[test]
    fn a_stamped_message_costs_a_reading_of_the_clock_and_a_push() {
        let Stamping { tick_ns, clock_ns, stamped_ns } = Stamping::measure();
        assert!(tick_ns > 0.0 && clock_ns > 0.0 && stamped_ns > clock_ns, "{clock_ns} {stamped_ns}");
    }

    /// Round trips whose every part lasts as long as its place, and 10 ticks in the responder's hands.
    fn samples(count: u64, messages: Messages) -> (Samples, Samples) {
        let (mut a, mut b) = (Samples::default(), Samples::default());
        for number in (0..count).map(|number| number * EVERY) {
            let start = 1_000 * (number + 1);
            let out = [0, 2, 5, 9, 14, 30, 20, 27, 35];
            let (role, border) = watched(number, messages).unwrap();
            // What is sent back begins where the responder's turn ends.
            let back = (role == Role::Responder) == (border < Border::Shown);
            let crossed = start + if back { 45 } else { 0 } + out[border as usize];
            let mut stamps = Stamps::default();
            stamps[border as usize] = crossed;
            if role == Role::Responder {
                b.stamped.push(Sample { number, stamps });
                stamps = Stamps::default();
            }
            stamps[Border::Send as usize] = start;
            stamps[Border::Returned as usize] = start + if messages == Messages::Active { 84 } else { 80 };
            a.stamped.push(Sample { number, stamps });
            a.unstamped.push(70);
        }
        (a, b)
    }

    fn close(parts: &[Part], expected: &[f64]) {
        let parts: Vec<f64> = parts.iter().map(|part| part.ns).collect();
        assert_eq!(parts.len(), expected.len());
        assert!(parts.iter().zip(expected).all(|(found, right)| (found - right).abs() < 1e-9), "{parts:?}");
    }

    #[test]
    fn parts_add_up_to_the_stamped_round_trip() {
        let (a, b) = samples(1600, Messages::Plain);
        let breakdown = Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &b, stamping(1.0, 0.0)).unwrap();
        close(&breakdown.parts, &[2.0, 3.0, 4.0, 11.0, 7.0, 8.0, 5.0]);
        assert!((breakdown.white_box_ns() - 40.0).abs() < 1e-9 && breakdown.black_box_ns == 35.0);
        assert_eq!((breakdown.samples, breakdown.doorbell_ns.round()), (1584, 16.0));
    }

    #[test]
    fn a_doorbell_may_last_until_its_answer_has_come() {
        let (a, mut b) = samples(1600, Messages::Plain);
        for sample in &mut b.stamped {
            let flushed = &mut sample.stamps[Border::Flushed as usize];
            *flushed += if *flushed > 0 { 10 } else { 0 };
        }
        let breakdown = Breakdown::of(NicKind::Uring, Messages::Plain, 8, &a, &b, stamping(1.0, 0.0)).unwrap();
        close(&breakdown.parts, &[2.0, 3.0, 4.0, 11.0, 7.0, 8.0, 5.0]);
        assert_eq!((breakdown.samples, breakdown.doorbell_ns.round()), (1584, 21.0));
    }

    #[test]
    fn handlers_are_parts_of_their_own_and_the_sum_is_still_that_of_the_round_trip() {
        let (a, b) = samples(1700, Messages::Active);
        let breakdown = Breakdown::of(NicKind::Shm, Messages::Active, 8, &a, &b, stamping(1.0, 0.0)).unwrap();
        close(&breakdown.parts, &[2.0, 3.0, 4.0, 11.0, 7.0, 8.0, 5.0, 2.0]);
        assert!((breakdown.white_box_ns() - 42.0).abs() < 1e-9);
    }

    #[test]
    fn the_clock_is_taken_off_both_boxes() {
        let (a, b) = samples(1600, Messages::Plain);
        let breakdown = Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &b, stamping(1.0, 1.0)).unwrap();
        assert!((breakdown.white_box_ns() - 39.5).abs() < 1e-9);
        assert_eq!(breakdown.black_box_ns, 34.5);
    }

    #[test]
    fn round_trips_without_their_stamp_or_out_of_order_do_not_count() {
        let (mut a, mut b) = samples(1600, Messages::Plain);
        a.stamped[0].stamps[Border::Asked as usize] = 0;
        a.stamped[17].stamps[Border::Lent as usize] = u64::MAX;
        b.stamped.remove(0);
        let breakdown = Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &b, stamping(1.0, 0.0)).unwrap();
        assert_eq!(breakdown.samples, kept(1597));
        assert_eq!(Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &Samples::default(), stamping(1.0, 0.0)), None);
    }

    #[test]
    fn two_ends_in_shared_memory_stamp_the_same_round_trips() {
        let domain = format!("breakdown-test-{}", std::process::id());
        let pattern = Pattern {
            kind: Kind::PingPong,
            size: 8,
            depth: None,
            warm_ns: 1,
            measure_ns: 300_000_000,
            limit_ns: 60_000_000_000,
        };
        // Whoever waits makes way: a busy machine has no core for each end.
        crate::idle::set_crowded(true);
        for messages in [Messages::Plain, Messages::Active] {
            let end = |role: Role, own: u16, other: u16| {
                let nic = ShmNic::open(&domain, Some(own)).unwrap();
                let other = LinkAddr::Shm { endpoint: other };
                let outcome = match messages {
                    Messages::Plain => play(nic, other, role, &pattern),
                    Messages::Active => play_am(nic, other, role, &pattern),
                };
                outcome.unwrap().samples.unwrap()
            };
            let (a, b) = std::thread::scope(|scope| {
                let b = scope.spawn(|| end(Role::Responder, 2, 1));
                (end(Role::Initiator, 1, 2), b.join().unwrap())
            });
            let breakdown = Breakdown::of(NicKind::Shm, messages, 8, &a, &b, stamping(nanos_per_tick(), 0.0)).unwrap();
            assert!(breakdown.samples > 0 && breakdown.black_box_ns > 0.0);
            let has_handlers = breakdown.parts.iter().any(|part| part.layer == "am");
            assert_eq!(has_handlers, messages == Messages::Active, "{breakdown}");
            // The parts are of the same round trips from end to end: nothing between two of them is left out.
            let whole =
                |sample: &Sample| sample.stamps[Border::Returned as usize] - sample.stamps[Border::Send as usize];
            let longest = a.stamped.iter().map(whole).max().unwrap();
            let white_box_ns = breakdown.white_box_ns();
            assert!(0.0 < white_box_ns && white_box_ns <= longest as f64 * nanos_per_tick(), "{breakdown}");
        }
    }
}
