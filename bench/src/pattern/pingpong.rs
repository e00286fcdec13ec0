//! One message back and forth. Every round trip is a sample.

use super::{LAST, MORE, Outcome, Part, Pattern, Turn, buffer};
use crate::buffer::Buffer;
use crate::clock::{self, now_ns};
use crate::stats::{SAMPLES_LEAST, Summary};
use crate::transport::{Broken, Transport};

/// Sends, waits for the answer, takes the time.
pub(super) struct Initiator {
    state: State,
    size: usize,
    outgoing: Buffer,
    incoming: Buffer,
    clock_cost: f64,
    warm_until: u64,
    end: u64,
    /// From here on few samples are enough.
    patient_until: u64,
    /// When the current message was handed over, which is when the answer before it was taken.
    sent_at: u64,
    samples: Vec<u64>,
    messages: u64,
}

/// Sends back what it gets.
pub(super) struct Responder {
    state: State,
    size: usize,
    buffer: Buffer,
    messages: u64,
}

enum State {
    Sending,
    Waiting,
}

impl Initiator {
    pub(super) fn new(pattern: &Pattern) -> Self {
        let clock_cost = clock::cost_ns();
        let now = now_ns();
        let end = now + pattern.warm_ns + pattern.measure_ns;
        Self {
            state: State::Sending,
            size: pattern.size,
            outgoing: buffer(pattern.size),
            incoming: buffer(pattern.size),
            clock_cost,
            warm_until: now + pattern.warm_ns,
            end,
            patient_until: end + PATIENCE * pattern.measure_ns,
            sent_at: now,
            samples: Vec::with_capacity(SAMPLES_MAX),
            messages: 0,
        }
    }

    /// With one sample at least, however long a round trip takes; the time limit is the end of patience with that one.
    #[inline]
    fn is_over(&self, now: u64) -> bool {
        let samples = self.samples.len();
        let few = if now < self.patient_until { SAMPLES_LEAST as usize } else { 1 };
        (now >= self.end && samples >= few) || samples == SAMPLES_MAX
    }

    #[inline]
    fn send<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken> {
        if !transport.send(&self.outgoing[..self.size])? {
            self.state = State::Sending;
            // Whatever makes room has to be received.
            transport.make_room()?;
            return Ok(Turn::Idle);
        }
        transport.flush()?;
        self.messages += 1;
        if self.outgoing[0] == LAST {
            return Ok(Turn::Done);
        }
        self.state = State::Waiting;
        Ok(Turn::Busy)
    }
}

impl Part for Initiator {
    #[inline]
    fn turn<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken> {
        match self.state {
            State::Sending => self.send(transport),
            State::Waiting => {
                if transport.recv(1, &mut self.incoming, |_| {})? == 0 {
                    return Ok(Turn::Idle);
                }
                let now = now_ns();
                if self.sent_at >= self.warm_until {
                    self.samples.push(now - self.sent_at);
                }
                if self.is_over(now) {
                    self.outgoing[0] = LAST;
                }
                self.sent_at = now;
                self.send(transport)
            }
        }
    }

    fn outcome(mut self) -> Outcome {
        let half_rtt_ns = Summary::of_round_trips(&mut self.samples, self.clock_cost);
        Outcome { messages: self.messages, half_rtt_ns, ..Outcome::default() }
    }
}

impl Responder {
    pub(super) fn new(pattern: &Pattern) -> Self {
        Self { state: State::Waiting, size: pattern.size, buffer: buffer(pattern.size), messages: 0 }
    }

    #[inline]
    fn send<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken> {
        if !transport.send(&self.buffer[..self.size])? {
            self.state = State::Sending;
            transport.make_room()?;
            return Ok(Turn::Idle);
        }
        transport.flush()?;
        self.state = State::Waiting;
        Ok(Turn::Busy)
    }
}

impl Part for Responder {
    #[inline]
    fn turn<T: Transport>(&mut self, transport: &mut T) -> Result<Turn, Broken> {
        match self.state {
            State::Sending => self.send(transport),
            State::Waiting => {
                let mut kind = MORE;
                if transport.recv(1, &mut self.buffer, |message| kind = message[0])? == 0 {
                    return Ok(Turn::Idle);
                }
                self.messages += 1;
                if kind == LAST { Ok(Turn::Done) } else { self.send(transport) }
            }
        }
    }

    fn outcome(self) -> Outcome {
        Outcome { messages: self.messages, ..Outcome::default() }
    }
}

/// Enough for a p99.9 that rests on 500 samples; 4 MiB, allocated before the first message.
const SAMPLES_MAX: usize = 1 << 19;

/// Times its own that a measurement may go on for samples, where the machine did other things meanwhile or a round trip is long:
/// ping-pongs are a fifth of the ladder.
const PATIENCE: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Kind;

    /// Has answered already.
    struct Answered;

    impl Transport for Answered {
        fn send(&mut self, _message: &[u8]) -> Result<bool, Broken> {
            Ok(true)
        }

        fn flush(&mut self) -> Result<(), Broken> {
            Ok(())
        }

        fn recv(&mut self, budget: usize, _into: &mut [u8], _each: impl FnMut(&[u8])) -> Result<usize, Broken> {
            Ok(budget)
        }

        fn finish(&mut self, _deadline_ns: u64) -> Result<(), Broken> {
            Ok(())
        }
    }

    #[test]
    fn a_round_trip_of_seconds_is_as_long_as_it_is() {
        const LONG_NS: u64 = 6_000_000_000;
        let limit_ns = 2 * LONG_NS;
        let pattern = Pattern { kind: Kind::PingPong, size: 8, depth: None, warm_ns: 0, measure_ns: 0, limit_ns };
        let mut initiator = Initiator::new(&pattern);
        assert_eq!(initiator.turn(&mut Answered).unwrap(), Turn::Busy);
        (initiator.sent_at, initiator.warm_until) = (now_ns() - LONG_NS, 0);
        assert_eq!(initiator.turn(&mut Answered).unwrap(), Turn::Done);
        let half = initiator.outcome().half_rtt_ns.unwrap();
        assert!(half.n == 1 && half.p50 >= (LONG_NS / 2) as f64 - 1e3, "{half:?}");
    }

    #[test]
    fn what_was_disturbed_goes_on_until_it_has_samples_or_its_patience_ends() {
        let (measure_ns, limit_ns) = (1_000_000_000, 100_000_000_000);
        let pattern = Pattern { kind: Kind::PingPong, size: 8, depth: None, warm_ns: 0, measure_ns, limit_ns };
        let mut initiator = Initiator::new(&pattern);
        let (end, patient_until) = (initiator.end, initiator.patient_until);
        assert_eq!(patient_until - end, PATIENCE * measure_ns);
        assert!(!initiator.is_over(patient_until), "it has no sample");
        initiator.samples.push(1);
        assert!(!initiator.is_over(end) && initiator.is_over(patient_until));
        initiator.samples.resize(SAMPLES_LEAST as usize, 1);
        assert!(!initiator.is_over(end - 1) && initiator.is_over(end));
    }
}
