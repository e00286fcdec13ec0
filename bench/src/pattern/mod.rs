//! What two sides say to each other, over whatever transport: one file a pattern.
//!
//! A part of a pattern is driven by turns that never wait, so that two sides run alike as two processes, each turning its
//! own part, or as one thread that turns both ([`play_both`]).

mod depth;
mod oneway;
mod pingpong;

use serde::{Deserialize, Serialize};

use crate::breakdown::Samples;
use crate::buffer::Buffer;
use crate::clock::now_ns;
use crate::stats::Summary;
use crate::study::chang::Costs;
use crate::study::chang::bulk::Bulk;
use crate::transport::{Broken, Flow, Transport};

use depth::{Answerer, Requester};
use oneway::{Receiver, Sender};
use pingpong::{Initiator, Responder};

/// Which of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Side A: begins.
    Initiator,
    /// Side B: answers, or receives.
    Responder,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One message back and forth: half round trips.
    PingPong,
    /// Small messages one way, as many as go: messages a second.
    Flood,
    /// Large messages one way: bits a second.
    Bandwidth,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// What is measured.
    pub kind: Kind,
    /// Bytes of a message, at least one.
    pub size: usize,
    /// Of a flood: each message is answered, and so many may be unanswered, or as many as the path holds. `None`: as many
    /// go as go, and none is answered.
    pub depth: Option<usize>,
    /// Time at the beginning that does not count.
    pub warm_ns: u64,
    /// Time that counts.
    pub measure_ns: u64,
    /// Time after which a side gives up, so that none spins for ever when its peer is gone.
    pub limit_ns: u64,
}

/// What one side has seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Messages handed over or taken, warm-up and last included: both sides must agree in a one-way pattern.
    pub messages: u64,
    /// Half round trips, at the initiator of a ping-pong.
    pub half_rtt_ns: Option<Summary>,
    /// Messages a second: at the receiver of a one-way pattern, answers at the initiator of a flood with a depth.
    pub msgs_per_s: Option<f64>,
    /// Messages that could be unanswered, at the initiator of a flood with a depth: fewer than that where the path holds fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// What calls cost, in the study of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// What stores and gets take, in the same study.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk: Option<Bulk>,
    /// Stamps, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
    /// How long a fixed piece of work took on this side's core right behind it ([`crate::pace::work_ns`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_ns: Option<u64>,
}

impl Outcome {
    /// The same with whole round trips in the place of half ones.
    pub fn whole(self) -> Self {
        Self { half_rtt_ns: self.half_rtt_ns.map(Summary::doubled), ..self }
    }
}

/// What a turn has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Busy,
    Idle,
    Done,
}

/// So many messages had come by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    at: u64,
    messages: u64,
}

/// Marks for a rate: where the first message came, where the warm-up was over, and the last.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    first: Option<Mark>,
    warm: Option<Mark>,
    last: Option<Mark>,
}

impl Marks {
    /// More messages have come; `warm` tells whether the warm-up is over, given the first mark.
    #[inline]
    fn on_more(&mut self, mark: Mark, warm: impl FnOnce(Mark) -> bool) {
        self.last = Some(mark);
        match self.first {
            None => self.first = Some(mark),
            Some(first) if self.warm.is_none() && warm(first) => self.warm = Some(mark),
            Some(_) => {}
        }
    }

    /// Messages a second behind the warm-up. Where they take so long that none came behind it, all but the first count.
    fn rate(&self) -> Option<f64> {
        let last = self.last?;
        let since = |mark: Mark| {
            let counted = last.at > mark.at && last.messages > mark.messages;
            counted.then(|| (last.messages - mark.messages) as f64 * 1e9 / (last.at - mark.at) as f64)
        };
        self.warm.and_then(since).or_else(|| self.first.and_then(since))
    }
}

trait Part {
    fn turn<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken>;
    fn outcome(self) -> Outcome;
}

impl Pattern {
    /// Which way messages go, seen from `role`.
    pub fn flow(&self, role: Role) -> Flow {
        match role {
            _ if self.is_answered() => Flow::Alternating,
            Role::Initiator => Flow::Outward,
            Role::Responder => Flow::Inward,
        }
    }

    /// True where every message has an answer; then the initiator is who measures.
    pub fn is_answered(&self) -> bool {
        self.kind == Kind::PingPong || self.window().is_some()
    }

    fn window(&self) -> Option<usize> {
        self.depth.filter(|_| self.kind == Kind::Flood)
    }
}

/// Plays one side to its end.
pub fn play<T: Transport>(pattern: &Pattern, role: Role, transport: &mut T) -> Result<Outcome, Broken> {
    if let Some(depth) = pattern.window() {
        if !T::ANSWERS_MANY {
            return Err(Broken::OneByOne);
        }
        return match role {
            Role::Initiator => drive(pattern, Requester::new(pattern, depth, transport), transport),
            Role::Responder => drive(pattern, Answerer::new(pattern), transport),
        };
    }
    match (pattern.kind, role) {
        (Kind::PingPong, Role::Initiator) => drive(pattern, Initiator::new(pattern), transport),
        (Kind::PingPong, Role::Responder) => drive(pattern, Responder::new(pattern), transport),
        (Kind::Flood | Kind::Bandwidth, Role::Initiator) => drive(pattern, Sender::new(pattern), transport),
        (Kind::Flood | Kind::Bandwidth, Role::Responder) => drive(pattern, Receiver::new(pattern), transport),
    }
}

/// Plays both sides in one thread, turn by turn; the outcome is that of the side which measures. `pass` is called when
/// neither has anything to do: then only time helps.
pub fn play_both<A: Transport, B: Transport>(
    pattern: &Pattern,
    a: &mut A,
    b: &mut B,
    pass: impl FnMut(),
) -> Result<Outcome, Broken> {
    if let Some(depth) = pattern.window() {
        if !A::ANSWERS_MANY {
            return Err(Broken::OneByOne);
        }
        let requester = Requester::new(pattern, depth, a);
        return Ok(drive_both(pattern, (requester, a), (Answerer::new(pattern), b), pass)?.0);
    }
    match pattern.kind {
        Kind::PingPong => {
            let (a, _) = drive_both(pattern, (Initiator::new(pattern), a), (Responder::new(pattern), b), pass)?;
            Ok(a)
        }
        Kind::Flood | Kind::Bandwidth => {
            let (_, b) = drive_both(pattern, (Sender::new(pattern), a), (Receiver::new(pattern), b), pass)?;
            Ok(b)
        }
    }
}

fn drive<P: Part, T: Transport>(pattern: &Pattern, mut part: P, transport: &mut T) -> Result<Outcome, Broken> {
    let deadline = now_ns() + pattern.limit_ns;
    let mut turns = 0;
    loop {
        match part.turn(transport)? {
            Turn::Busy => {}
            Turn::Idle => transport.relax(),
            Turn::Done => break,
        }
        turns += 1;
        if (T::BLOCKING || turns % TURNS_PER_CLOCK == 0) && now_ns() > deadline {
            return Err(Broken::Deadline);
        }
    }
    transport.finish(deadline)?;
    Ok(part.outcome())
}

fn drive_both<P: Part, A: Transport, Q: Part, B: Transport>(
    pattern: &Pattern,
    (mut first, a): (P, &mut A),
    (mut second, b): (Q, &mut B),
    mut pass: impl FnMut(),
) -> Result<(Outcome, Outcome), Broken> {
    let deadline = now_ns() + pattern.limit_ns;
    let mut turns = 0;
    let (mut first_turn, mut second_turn) = (Turn::Busy, Turn::Busy);
    while first_turn != Turn::Done || second_turn != Turn::Done {
        if first_turn != Turn::Done {
            first_turn = first.turn(a)?;
        } else {
            // What it sent last may have to be sent again.
            a.make_room()?;
        }
        if second_turn != Turn::Done {
            second_turn = second.turn(b)?;
        }
        if first_turn != Turn::Busy && second_turn != Turn::Busy {
            pass();
        }
        turns += 1;
        if turns % TURNS_PER_CLOCK == 0 && now_ns() > deadline {
            return Err(Broken::Deadline);
        }
    }
    Ok((first.outcome(), second.outcome()))
}

/// Turns between two looks at the deadline: a look is some 20 ns, a turn at least as much.
const TURNS_PER_CLOCK: u64 = 1024;

/// Messages before the last one, however long one takes: the first tells that it has begun, and another that time has passed.
const LEAST: u64 = 2;

/// First byte of every message but the last.
const MORE: u8 = 0;
/// First byte of the last message.
const LAST: u8 = 1;

/// A message of `size` bytes, and room behind it for a transport that receives in larger units.
fn buffer(size: usize) -> Buffer {
    assert!(size > 0, "a message has a first byte, which says whether it is the last");
    let mut buffer = Buffer::new(size + crate::transport::SLACK);
    buffer[0] = MORE;
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(marks: &[(u64, u64)], warm_ns: u64) -> Option<f64> {
        let mut all = Marks::default();
        for &(at, messages) in marks {
            all.on_more(Mark { at, messages }, |first| at >= first.at + warm_ns);
        }
        all.rate()
    }

    #[test]
    fn a_rate_is_that_behind_the_warm_up() {
        assert_eq!(rate(&[(100, 1), (200, 50), (1_100, 60), (1_600, 65), (2_100, 70)], 1_000), Some(10.0 * 1e9 / 1e3));
    }

    #[test]
    fn where_nothing_comes_behind_the_warm_up_all_but_the_first_count() {
        assert_eq!(rate(&[(100, 1), (200, 2), (1_100, 3)], 1_000), Some(2.0 * 1e9 / 1e3));
        assert_eq!(rate(&[(100, 1), (200, 2)], 1_000), Some(1e9 / 100.0));
        assert_eq!((rate(&[(100, 3)], 0), rate(&[], 0)), (None, None));
    }

    /// Takes one message a turn.
    #[derive(Default)]
    struct Slow<const MANY: bool> {
        sent: Vec<u8>,
        taken: bool,
    }

    impl<const MANY: bool> Transport for Slow<MANY> {
        const ANSWERS_MANY: bool = MANY;

        fn send(&mut self, message: &[u8]) -> Result<bool, Broken> {
            self.taken = !self.taken;
            self.sent.extend(self.taken.then_some(message[0]));
            Ok(self.taken)
        }

        fn flush(&mut self) -> Result<(), Broken> {
            Ok(())
        }

        fn recv(&mut self, budget: usize, _into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
            // Whatever was sent is answered, where answers are taken.
            (0..budget).for_each(|_| each(&[MORE]));
            Ok(budget)
        }

        fn finish(&mut self, _deadline_ns: u64) -> Result<(), Broken> {
            Ok(())
        }
    }

    #[test]
    fn messages_that_take_longer_than_the_measurement_are_enough_for_a_rate() {
        for (kind, depth) in [(Kind::Bandwidth, None), (Kind::Flood, None), (Kind::Flood, Some(1))] {
            let pattern = Pattern { kind, size: 8, depth, warm_ns: 0, measure_ns: 0, limit_ns: 1_000_000_000 };
            let mut slow = Slow::<true>::default();
            play(&pattern, Role::Initiator, &mut slow).unwrap();
            assert_eq!(slow.sent, [MORE, MORE, LAST], "{kind} {depth:?}");
        }
    }

    #[test]
    fn what_answers_one_by_one_plays_no_flood_with_a_depth() {
        let (kind, limit_ns) = (Kind::Flood, 1_000_000_000);
        let pattern = Pattern { kind, size: 8, depth: Some(1), warm_ns: 0, measure_ns: 0, limit_ns };
        for role in [Role::Initiator, Role::Responder] {
            let broken = play(&pattern, role, &mut Slow::<false>::default()).unwrap_err();
            assert!(matches!(broken, Broken::OneByOne), "{broken}");
        }
    }

    /// Its messages take 10 us each at first, and a millisecond from `slow_from` on; those that nobody has asked for end at `last_from`.
    struct Slowing {
        slow_from: u64,
        last_from: u64,
        waiting: usize,
    }

    impl Transport for Slowing {
        fn send(&mut self, _message: &[u8]) -> Result<bool, Broken> {
            self.waiting += 1;
            Ok(true)
        }

        fn flush(&mut self) -> Result<(), Broken> {
            Ok(())
        }

        fn recv(&mut self, budget: usize, _into: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<usize, Broken> {
            let now = now_ns();
            let until = now + if now < self.slow_from { 10_000 } else { 1_000_000 };
            while now_ns() < until {
                std::hint::spin_loop();
            }
            let taken = self.waiting.min(budget).min(1);
            self.waiting -= taken;
            (0..taken).for_each(|_| each(&[if until < self.last_from { MORE } else { LAST }]));
            Ok(taken)
        }

        fn finish(&mut self, _deadline_ns: u64) -> Result<(), Broken> {
            Ok(())
        }
    }

    /// A busy machine makes all slower, which these bounds allow.
    #[test]
    fn what_came_while_it_was_warm_does_not_count() {
        let play = |kind, depth, role, waiting| {
            let (warm_ns, measure_ns) = (20_000_000, 10_000_000);
            let slow_from = now_ns() + warm_ns;
            let mut transport = Slowing { slow_from, last_from: slow_from + measure_ns, waiting };
            let pattern = Pattern { kind, size: 8, depth, warm_ns, measure_ns, limit_ns: 10_000_000_000 };
            play(&pattern, role, &mut transport).unwrap()
        };
        let half = play(Kind::PingPong, None, Role::Initiator, 0).half_rtt_ns.unwrap();
        assert!(half.min > 490_000.0, "{half:?}");
        for (depth, role, waiting) in [(None, Role::Responder, usize::MAX), (Some(4), Role::Initiator, 0)] {
            let rate = play(Kind::Flood, depth, role, waiting).msgs_per_s.unwrap();
            assert!(rate < 1_100.0, "{rate}");
        }
    }
}
