//! White box beside black box: where each nanosecond of a half round trip goes, layer by layer.
//!
//! Two sides play a ping-pong; some of its round trips carry stamps ([`sidelane_nic::stamps`]), others are timed as a whole by
//! the side that sends first. Stamps of both sides are readings of one counter, so the way between two processes is a
//! difference too. Means are used and not medians: means of parts add up, and the counter may tick in steps that are longer than a part.

mod play;
mod play_am;
mod table;

pub use play::play;
pub use play_am::play as play_am;

use serde::{Deserialize, Serialize};
use sidelane_nic::clock::{nanos_per_tick, ticks};
use sidelane_nic::stamps::{Border, Stamps};

use crate::ladder::{Host, NicKind, Pair, PairError};
use crate::pattern::{Kind, Pattern};
use crate::side::{Layer, Path};
use crate::stats::median;

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
    /// What one stamp costs, taken off each part.
    pub clock_ns: f64,
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
        tick_ns: f64,
        clock_ns: f64,
    ) -> Option<Self> {
        let mut trips: Vec<(&Stamps, &Stamps)> = a
            .stamped
            .iter()
            .filter_map(|ours| {
                let at = b.stamped.binary_search_by_key(&ours.number, |theirs| theirs.number).ok()?;
                Some((&ours.stamps, &b.stamped[at].stamps))
            })
            .filter(|(a, b)| is_whole(a, b))
            .collect();
        let whole = |a: &Stamps| a[Border::Returned as usize] - a[Border::Send as usize];
        trips.sort_unstable_by_key(|(a, _)| whole(a));
        trips.truncate(kept(trips.len()));
        let mut unstamped = a.unstamped.clone();
        unstamped.sort_unstable();
        unstamped.truncate(kept(unstamped.len()));
        if trips.is_empty() || unstamped.is_empty() {
            return None;
        }
        let half_of_mean = |sum: u64, count: usize| sum as f64 * tick_ns / count as f64 / 2.0;
        let sum = |spans: &dyn Fn(&Stamps, &Stamps) -> u64| trips.iter().map(|(a, b)| spans(a, b)).sum::<u64>();
        let ns = |spans: &dyn Fn(&Stamps, &Stamps) -> u64| half_of_mean(sum(spans), trips.len());
        // A driver may show a committed frame before the doorbell is rung.
        let before = |a: &Stamps, b: &Stamps| u64::from(a[Border::Flush as usize] < b[Border::Shown as usize]);
        let doorbells = sum(&|a, b| before(a, b) + before(b, a)) as f64 / (2 * trips.len()) as f64;
        let mut parts: Vec<Part> = WAY
            .iter()
            .map(|(layer, what, from, to)| Part {
                layer,
                what,
                // There and back, both halved; a stamp each, and where the doorbell is on the way its stamp too.
                ns: ns(&|a, b| span(a, b, *from, *to) + span(b, a, *from, *to))
                    - clock_ns * if *to == Border::Shown { 1.0 + doorbells } else { 1.0 },
            })
            .collect();
        let turn = ns(&|_, b| b[Border::Send as usize] - b[Border::Received as usize]) - clock_ns / 2.0;
        if messages == Messages::Active {
            parts.push(Part { layer: "am", what: "request's handler, up to its reply (half)", ns: turn });
            let back = ns(&|a, _| a[Border::Returned as usize] - a[Border::Received as usize]) - clock_ns / 2.0;
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
            doorbell_ns: ns(&|a, b| {
                [a, b].map(|s| s[Border::Flushed as usize] - s[Border::Flush as usize]).iter().sum()
            }) - clock_ns,
            black_box_ns: half_of_mean(unstamped.iter().sum(), unstamped.len()) - clock_ns / 2.0,
            clock_ns,
        })
    }
}

/// Measures on two hosts, A first.
pub fn run(a: Host, b: Host, nic: NicKind, messages: Messages, size: usize) -> Result<Breakdown, PairError> {
    let mut pair = Pair::spawn(a, b)?;
    let pattern = Pattern { kind: Kind::PingPong, size, warm_ns: WARM_NS, measure_ns: MEASURE_NS, limit_ns: LIMIT_NS };
    let (mut all_a, mut all_b) = (Samples::default(), Samples::default());
    for round in 0..ROUNDS {
        let path = |end: &crate::ladder::End| {
            let spec = end.nics.iter().find(|(kind, _)| *kind == nic).map(|(_, spec)| spec.clone());
            let layer = match messages {
                Messages::Plain => Layer::Stamped,
                Messages::Active => Layer::StampedAm,
            };
            Path::Nic { layer, nic: spec.unwrap_or_default(), real_frames: false }
        };
        let (a, b) = pair.measure(&pattern, path)?;
        for (all, side) in [(&mut all_a, a), (&mut all_b, b)] {
            let samples = side.samples.unwrap_or_default();
            all.unstamped.extend(samples.unstamped);
            // Numbers go on from round to round, so that they stay in order.
            let later = |sample: Sample| Sample { number: sample.number | (round << 48), ..sample };
            all.stamped.extend(samples.stamped.into_iter().map(later));
        }
    }
    let nothing = || PairError::Failed(crate::pattern::Role::Initiator, "no round trip was stamped".to_owned());
    Breakdown::of(nic, messages, size, &all_a, &all_b, nanos_per_tick(), stamp_cost_ns()).ok_or_else(nothing)
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

/// From a border at the sender, or at the receiver once the frame has been seen.
fn span(sender: &Stamps, receiver: &Stamps, from: Border, to: Border) -> u64 {
    let at = |border: Border| if border < Border::Shown { sender[border as usize] } else { receiver[border as usize] };
    // Two cores' counters may be a few ticks apart.
    at(to).saturating_sub(at(from))
}

/// Every border was crossed, in order.
fn is_whole(a: &Stamps, b: &Stamps) -> bool {
    let sorted = |stamps: &[u64]| stamps[0] > 0 && stamps.is_sorted();
    let halves =
        |stamps: &Stamps| sorted(&stamps[..Border::Shown as usize]) && sorted(&stamps[Border::Shown as usize..]);
    halves(a) && halves(b)
}

/// All but the slowest one of a hundred: what an interrupt or the scheduler took is none of the layers'.
fn kept(samples: usize) -> usize {
    samples - samples / 100
}

/// What a stamp costs: the median over batches.
fn stamp_cost_ns() -> f64 {
    const READS: u64 = 64;
    let mut costs: Vec<f64> = (0..101)
        .map(|_| {
            let from = ticks();
            for _ in 1..READS {
                std::hint::black_box(ticks());
            }
            (ticks() - from) as f64 / READS as f64
        })
        .collect();
    median(&mut costs).unwrap_or(0.0) * nanos_per_tick()
}

const ROUNDS: u64 = 5;
const WARM_NS: u64 = 50_000_000;
const MEASURE_NS: u64 = 300_000_000;
const LIMIT_NS: u64 = 5_000_000_000;

#[cfg(test)]
mod tests {
    use sidelane_nic::LinkAddr;

    use super::*;
    use crate::pattern::Role;

    /// Round trips whose every part lasts as long as its place, plus one tick for each stamp.
    fn samples(count: u64) -> (Samples, Samples) {
        let (mut a, mut b) = (Samples::default(), Samples::default());
        for number in 0..count {
            let start = 1_000 * (number + 1);
            let out = [0, 2, 5, 9, 14, 30];
            let (shown, taken, received) = (20, 27, 35);
            let at = |base: u64, outs: [u64; 6], ins: [u64; 3], in_base: u64| {
                let mut stamps = Stamps::default();
                stamps[..6].copy_from_slice(&outs.map(|tick| base + tick));
                stamps[6..9].copy_from_slice(&ins.map(|tick| in_base + tick));
                stamps[9] = stamps[8] + 4;
                stamps
            };
            let ins = [shown, taken, received];
            // B answers 10 ticks after it has the message.
            a.stamped.push(Sample { number, stamps: at(start, out, ins, start + 45) });
            b.stamped.push(Sample { number, stamps: at(start + 45, out, ins, start) });
            a.unstamped.push(70);
        }
        (a, b)
    }

    #[test]
    fn parts_add_up_to_the_stamped_round_trip() {
        let (a, b) = samples(1000);
        let breakdown = Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &b, 1.0, 0.0).unwrap();
        let parts: Vec<f64> = breakdown.parts.iter().map(|part| part.ns).collect();
        assert_eq!(parts, [2.0, 3.0, 4.0, 11.0, 7.0, 8.0, 5.0]);
        assert_eq!((breakdown.white_box_ns(), breakdown.black_box_ns), (40.0, 35.0));
        assert_eq!((breakdown.samples, breakdown.doorbell_ns), (990, 16.0));
    }

    #[test]
    fn handlers_are_parts_of_their_own_and_the_sum_is_still_that_of_the_round_trip() {
        let (a, b) = samples(1000);
        let breakdown = Breakdown::of(NicKind::Shm, Messages::Active, 8, &a, &b, 1.0, 0.0).unwrap();
        let of_am: Vec<f64> = breakdown.parts.iter().filter(|part| part.layer == "am").map(|part| part.ns).collect();
        assert_eq!((of_am, breakdown.white_box_ns()), (vec![5.0, 2.0], 42.0));
        let whole = a.stamped[0].stamps[Border::Returned as usize] - a.stamped[0].stamps[Border::Send as usize];
        assert_eq!(breakdown.white_box_ns() * 2.0, whole as f64);
    }

    #[test]
    fn each_part_has_the_cost_of_its_stamp_taken_off() {
        let (a, b) = samples(10);
        let breakdown = Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &b, 1.0, 1.0).unwrap();
        // Fifteen stamps end fifteen parts of a round trip.
        assert_eq!(breakdown.white_box_ns(), 40.0 - 7.5);
        assert_eq!(breakdown.black_box_ns, 34.5);
    }

    #[test]
    fn round_trips_that_one_side_lacks_or_that_are_not_in_order_do_not_count() {
        let (mut a, mut b) = samples(3);
        b.stamped.remove(1);
        a.stamped[2].stamps[Border::Lent as usize] = 0;
        assert_eq!(Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &b, 1.0, 0.0).unwrap().samples, 1);
        assert_eq!(Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &Samples::default(), 1.0, 0.0), None);
    }

    #[test]
    fn two_ends_in_shared_memory_stamp_the_same_round_trips() {
        let domain = format!("breakdown-test-{}", std::process::id());
        let pattern =
            Pattern { kind: Kind::PingPong, size: 8, warm_ns: 1, measure_ns: 1_500_000_000, limit_ns: 20_000_000_000 };
        // Whoever waits makes way: a busy machine has no core for each end.
        crate::idle::set_crowded(true);
        let end = |role: Role, own: u16, other: u16| {
            let nic = sidelane_nic::shm::ShmNic::open(&domain, Some(own)).unwrap();
            play(nic, LinkAddr::Shm { endpoint: other }, role, &pattern).unwrap().samples.unwrap()
        };
        let (a, b) = std::thread::scope(|scope| {
            let b = scope.spawn(|| end(Role::Responder, 2, 1));
            (end(Role::Initiator, 1, 2), b.join().unwrap())
        });
        let breakdown = Breakdown::of(NicKind::Shm, Messages::Plain, 8, &a, &b, nanos_per_tick(), 0.0).unwrap();
        assert!(breakdown.samples > 0 && breakdown.black_box_ns > 0.0);
        assert!(breakdown.parts.iter().all(|part| part.ns >= 0.0), "{breakdown}");
        let whole: u64 = breakdown.white_box_ns() as u64;
        assert!(whole > 0, "{breakdown}");
    }
}
