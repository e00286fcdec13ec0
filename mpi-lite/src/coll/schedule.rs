use std::fmt;

use super::Call;

/// Which of a call's memories.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Memory {
    /// The caller's send buffer. Only read.
    Send,
    /// The caller's receive buffer; a call in place reads its input here too.
    Receive,
    /// Bytes of the schedule's own, of no value before and after.
    Scratch,
}

/// A range of bytes of one memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span {
    memory: Memory,
    start: usize,
    len: usize,
}

impl Span {
    /// `len` bytes of `memory` from `start` on.
    pub const fn new(memory: Memory, start: usize, len: usize) -> Self {
        Self { memory, start, len }
    }

    /// Whose bytes.
    pub fn memory(self) -> Memory {
        self.memory
    }

    /// The first byte's place.
    pub fn start(self) -> usize {
        self.start
    }

    /// The place after the last byte.
    pub fn end(self) -> usize {
        self.start + self.len
    }

    /// Bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// `len` of these bytes, from the `start`th on.
    pub fn part(self, start: usize, len: usize) -> Self {
        assert!(start <= self.len && len <= self.len - start, "a part is within its whole");
        Self { start: self.start + start, len, ..self }
    }

    /// Whether a byte is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.memory == other.memory && self.start.max(other.start) < self.end().min(other.end())
    }
}

/// A message of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// These bytes go to that rank.
    Send(u32, Span),
    /// What that rank sends comes here.
    Receive(u32, Span),
}

/// What is done to memory between rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// `into` becomes `from` operator `into`, element by element: what an MPI operator does to `invec` and `inoutvec`. So
    /// `from` comes of lower ranks, where that matters.
    Combine {
        /// The right operand and the result.
        into: Span,
        /// The left operand.
        from: Span,
    },
    /// `into` becomes `from`.
    Copy {
        /// Written.
        into: Span,
        /// Read.
        from: Span,
    },
    /// The ranks of our host make a call of their own: [`Schedule::call`] of this number.
    OnHost(u32),
}

/// A call of the ranks of our host, whose ranks there are their places in the order of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCall {
    /// What they call.
    pub call: Call<'static>,
    /// What this rank gives, unless that is in place, or nothing.
    pub send: Option<Span>,
    /// What it gets.
    pub receive: Span,
}

/// What one rank does in a collective: round after round of messages, all under way at once, and then local steps, in order.
///
/// Built by its methods in the order of doing: a message after a local step begins the next round, and so does
/// [`Self::next_round`]. It can be run any number of times, and built anew in the memory it has.
#[derive(Clone, Default, Debug)]
pub struct Schedule {
    transfers: Vec<Transfer>,
    steps: Vec<Step>,
    calls: Vec<HostCall>,
    /// Where each round that is complete ends in the two lists.
    ends: Vec<(u32, u32)>,
    bounds: Bounds,
}

impl Schedule {
    /// An empty one, which takes no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all, for a call with a send buffer of `send` bytes and a receive buffer of `receive`; gives these.
    pub fn begin(&mut self, send: usize, receive: usize) -> (Span, Span) {
        self.transfers.clear();
        self.steps.clear();
        self.calls.clear();
        self.ends.clear();
        self.bounds = Bounds { send, receive, scratch: 0 };
        (Span::new(Memory::Send, 0, send), Span::new(Memory::Receive, 0, receive))
    }

    /// `len` more bytes of scratch memory, aligned for every element.
    pub fn scratch(&mut self, len: usize) -> Span {
        let start = self.bounds.scratch.next_multiple_of(SCRATCH_ALIGN);
        self.bounds.scratch = start + len;
        Span::new(Memory::Scratch, start, len)
    }

    /// Sends `from` to `rank`. Nothing is not sent: the other side knows that too.
    pub fn send(&mut self, rank: u32, from: Span) {
        if !from.is_empty() {
            self.transfer(Transfer::Send(rank, from));
        }
    }

    /// Receives into `into` from `rank`. Nothing is not received.
    pub fn receive(&mut self, rank: u32, into: Span) {
        if !into.is_empty() {
            assert!(into.memory != Memory::Send, "a send buffer is only read");
            self.transfer(Transfer::Receive(rank, into));
        }
    }

    /// Sends `rank` a message of no bytes.
    pub fn signal(&mut self, rank: u32) {
        self.transfer(Transfer::Send(rank, Span::new(Memory::Scratch, 0, 0)));
    }

    /// Waits for a message of no bytes from `rank`.
    pub fn await_signal(&mut self, rank: u32) {
        self.transfer(Transfer::Receive(rank, Span::new(Memory::Scratch, 0, 0)));
    }

    /// `into` becomes `from` operator `into`.
    pub fn combine(&mut self, into: Span, from: Span) {
        assert!(into.len == from.len, "operands are of the same length");
        self.step(into, from, Step::Combine { into, from });
    }

    /// `into` becomes `from`, unless it is the same. If it is longer its end stays as it was; if it is shorter the call ends there
    /// with an error.
    pub fn copy(&mut self, into: Span, from: Span) {
        if into != from {
            self.step(into, from, Step::Copy { into, from });
        }
    }

    /// The ranks of our host make this call.
    pub fn on_host(&mut self, call: HostCall) {
        let HostCall { send, receive, .. } = call;
        for span in send.into_iter().chain([receive]) {
            self.bounds.assert_hold(span);
        }
        assert!(receive.memory != Memory::Send, "a send buffer is only read");
        assert!(send.is_none_or(|send| !send.overlaps(receive)), "a call's buffers are apart, or it is in place");
        self.steps.push(Step::OnHost(self.calls.len() as u32));
        self.calls.push(call);
    }

    /// Whether the ranks of our host make calls of their own.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// A call of the ranks of our host, by the number that its step has.
    pub fn call(&self, number: u32) -> HostCall {
        self.calls[number as usize]
    }

    /// What comes now waits for what there is.
    pub fn next_round(&mut self) {
        let end = (self.transfers.len() as u32, self.steps.len() as u32);
        if self.last_end() != end {
            self.ends.push(end);
        }
    }

    /// Round `index`, or `None` after the last.
    pub fn round(&self, index: usize) -> Option<Round<'_>> {
        let begin = match index.checked_sub(1) {
            None => (0, 0),
            Some(before) => *self.ends.get(before)?,
        };
        let end = self.ends.get(index).copied().unwrap_or((self.transfers.len() as u32, self.steps.len() as u32));
        (begin != end).then(|| Round {
            transfers: &self.transfers[begin.0 as usize..end.0 as usize],
            steps: &self.steps[begin.1 as usize..end.1 as usize],
        })
    }

    /// All rounds in order.
    pub fn rounds(&self) -> impl Iterator<Item = Round<'_>> {
        (0..).map_while(|index| self.round(index))
    }

    /// Bytes of scratch memory that running it takes.
    pub fn scratch_len(&self) -> usize {
        self.bounds.scratch
    }

    /// The lengths of the send and the receive buffer it was built for.
    pub fn buffer_lens(&self) -> (usize, usize) {
        (self.bounds.send, self.bounds.receive)
    }

    /// Looks for a round in which what is received overlaps with anything else that is sent or received: an algorithm's
    /// mistake, whose outcome would depend on timing.
    pub fn check(&self) -> Result<(), Clash> {
        for (round, Round { transfers, .. }) in self.rounds().enumerate() {
            // By where they begin, so that an overlap shows between what ends last so far and the next.
            let mut spans: Vec<_> = transfers
                .iter()
                .map(|transfer| match *transfer {
                    Transfer::Send(_, span) => (span, false),
                    Transfer::Receive(_, span) => (span, true),
                })
                .collect();
            spans.sort_unstable();
            for (at, &(first, written)) in spans.iter().enumerate() {
                let within = spans[at + 1..].iter().take_while(|(later, _)| later.overlaps(first));
                if let Some(&(second, _)) = within.clone().find(|(_, also)| written || *also) {
                    return Err(Clash { round, first, second });
                }
            }
        }
        Ok(())
    }

    fn transfer(&mut self, transfer: Transfer) {
        let (Transfer::Send(_, span) | Transfer::Receive(_, span)) = transfer;
        self.bounds.assert_hold(span);
        if self.steps.len() as u32 != self.last_end().1 {
            self.next_round();
        }
        self.transfers.push(transfer);
    }

    fn step(&mut self, into: Span, from: Span, step: Step) {
        self.bounds.assert_hold(into);
        self.bounds.assert_hold(from);
        assert!(into.memory != Memory::Send, "a send buffer is only read");
        assert!(!into.overlaps(from), "a step is between spans apart");
        if !from.is_empty() {
            self.steps.push(step);
        }
    }

    fn last_end(&self) -> (u32, u32) {
        self.ends.last().copied().unwrap_or((0, 0))
    }
}

/// What is done in one round.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Messages, all under way at once.
    pub transfers: &'a [Transfer],
    /// Done in order when all messages are.
    pub steps: &'a [Step],
}

/// Two spans of one round, one of them received into, that overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clash {
    round: usize,
    first: Span,
    second: Span,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in round {}, {:?} and {:?} overlap", self.round, self.first, self.second)
    }
}

impl std::error::Error for Clash {}

#[derive(Clone, Default, Debug)]
struct Bounds {
    send: usize,
    receive: usize,
    scratch: usize,
}

impl Bounds {
    fn assert_hold(&self, span: Span) {
        let bound = match span.memory {
            Memory::Send => self.send,
            Memory::Receive => self.receive,
            Memory::Scratch => self.scratch,
        };
        assert!(span.end() <= bound, "a span is within its memory");
    }
}

/// The largest alignment of an MPI element: that of `long double`.
const SCRATCH_ALIGN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_after_a_step_is_of_the_next_round() {
        let mut schedule = Schedule::new();
        let (input, output) = schedule.begin(8, 8);
        schedule.copy(output, input);
        schedule.send(1, output.part(0, 4));
        schedule.receive(1, output.part(4, 4));
        schedule.next_round();
        schedule.next_round();
        schedule.signal(2);
        schedule.copy(output, output);
        let shape: Vec<_> = schedule.rounds().map(|round| (round.transfers.len(), round.steps.len())).collect();
        assert_eq!(shape, [(0, 1), (2, 0), (1, 0)]);
        schedule.begin(0, 0);
        assert!(schedule.round(0).is_none());
    }

    #[test]
    fn a_receive_into_what_is_sent_is_found() {
        let mut schedule = Schedule::new();
        let (_, output) = schedule.begin(0, 16);
        schedule.send(1, output.part(0, 8));
        schedule.send(2, output.part(0, 8));
        schedule.receive(1, output.part(8, 8));
        assert_eq!(schedule.check(), Ok(()));
        schedule.next_round();
        schedule.send(1, output);
        schedule.send(1, output.part(0, 2));
        schedule.receive(1, output.part(8, 4));
        let clash = schedule.check().unwrap_err();
        assert_eq!((clash.round, clash.first, clash.second), (1, output, output.part(8, 4)));
    }

    #[test]
    #[should_panic(expected = "within its memory")]
    fn a_span_beyond_its_memory_is_refused() {
        let mut schedule = Schedule::new();
        schedule.begin(8, 8);
        schedule.send(0, Span::new(Memory::Send, 4, 5));
    }

    #[test]
    #[should_panic(expected = "only read")]
    fn a_send_buffer_is_not_written() {
        let mut schedule = Schedule::new();
        let (input, _) = schedule.begin(8, 8);
        schedule.receive(0, input);
    }
}
