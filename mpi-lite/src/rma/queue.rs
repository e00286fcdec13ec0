//! What an origin has under way at one target, oldest first: messages, and answers that the target gives in its own turns, whatever its
//! program and others do. So whoever waits for some of it waits for nothing that another thread of this process would have to do.

use std::collections::VecDeque;

use crate::adi::{Device, Request};

use super::RmaError;
use super::lent::{Bytes, Unpacking};
use super::request::Kind;

/// Names an operation, for [`super::Window::test`]. Who waits for it otherwise forgets it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    pub(super) rank: usize,
    /// Of its target's queue; 0 of what was done at once.
    pub(super) number: u64,
    /// What has to be over of that queue.
    pub(super) end: u64,
}

impl Operation {
    /// At once, without the target.
    pub(super) const fn done(rank: usize) -> Self {
        Self { rank, number: 0, end: 0 }
    }

    pub(super) const fn is_done(self) -> bool {
        self.number == 0
    }
}

/// What a call waits for that wants all to be done at a target: what others ask there meanwhile is no part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub messages: u64,
    /// Failures of which it is not told.
    told: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    messages: VecDeque<Messages>,
    /// How many were before them.
    over: u64,
    /// Operations begun.
    begun: u64,
    /// Something was asked that is not answered: only a verdict tells that it is done.
    pub dirty: bool,
    /// Which operations failed last: whoever waits for one is told, also after all were waited for.
    failed: VecDeque<(u64, RmaError)>,
    /// The newest operation of those whose failure is kept no more. One up to it that is not among `failed` may have failed as well, so it is
    /// told that it has.
    forgotten: Option<(u64, RmaError)>,
    /// How many have failed at all.
    failures: u64,
    /// Of those, how many were told to who waited for all.
    told: u64,
}

/// Messages of one request.
#[derive(Debug)]
struct Messages {
    operation: u64,
    /// What is being sent, and what of it is ours.
    sends: Vec<(Request, Bytes)>,
    answer: Option<Answer>,
}

/// What a target will answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub request: Request,
    /// Its bytes, unless it was refused.
    pub len: usize,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Bytes that are received where they belong, or none.
    InPlace,
    /// Bytes that are still to be unpacked.
    Packed { room: Bytes, unpacking: Unpacking },
    /// How all that came before has ended.
    Verdict { room: Bytes },
}

impl Queue {
    /// The number of an operation that begins.
    pub fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Adds messages of an operation, or of none (0). Those that are over need no place.
    pub fn push(
        &mut self,
        device: &mut Device,
        operation: u64,
        kind: Kind,
        mut sends: Vec<(Request, Bytes)>,
        answer: Option<Answer>,
    ) {
        match kind {
            Kind::Put | Kind::PutLong | Kind::Accumulate => self.dirty = true,
            Kind::Flush | Kind::Unlock => self.dirty = false,
            Kind::Get | Kind::GetAccumulate | Kind::CompareSwap | Kind::Lock => {}
        }
        sends.retain(|(request, _)| !self.is_sent(device, operation, *request));
        if !sends.is_empty() || answer.is_some() {
            self.messages.push_back(Messages { operation, sends, answer });
        }
    }

    /// Whether another request has to wait until some are over: what the target is not ready for takes room there and here.
    pub fn is_full(&self) -> bool {
        self.messages.len() >= QUEUE_MAX
    }

    /// What was asked so far.
    pub fn end(&self) -> End {
        End { messages: self.over + self.messages.len() as u64, told: self.told }
    }

    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Sees what is over.
    pub fn poll(&mut self, device: &mut Device) {
        while let Some(mut front) = self.messages.pop_front() {
            front.sends.retain(|(request, _)| !self.is_sent(device, front.operation, *request));
            let answered = match &front.answer {
                Some(answer) => device.poll(answer.request).map(|status| (status.error, status.bytes)),
                None => Some((None, 0)),
            };
            let Some((error, bytes)) = answered else {
                return self.messages.push_front(front);
            };
            if let Some(answer) = front.answer.take() {
                let end = answer.end(error.map(RmaError::from), bytes);
                self.note(front.operation, end);
            }
            if !front.sends.is_empty() {
                return self.messages.push_front(front);
            }
            self.over += 1;
        }
    }

    /// How an operation has ended; `None` while it has not.
    pub fn poll_operation(&mut self, device: &mut Device, operation: Operation) -> Option<Result<(), RmaError>> {
        self.poll(device);
        if self.over < operation.end {
            return None;
        }
        let forgotten = self.forgotten.iter().filter(|(newest, _)| operation.number <= *newest);
        let failed = self.failed.iter().filter(|(number, _)| *number == operation.number).chain(forgotten).next();
        Some(failed.map_or(Ok(()), |(_, error)| Err(*error)))
    }

    /// The first failure that nobody was told of when the call began; `None` while something is not over that it waits for.
    pub fn poll_all(&mut self, device: &mut Device, end: End) -> Option<Result<(), RmaError>> {
        self.poll(device);
        if self.over < end.messages {
            return None;
        }
        self.told = self.failures;
        let untold = (self.failures - end.told).min(self.failed.len() as u64) as usize;
        let first = self.failed.get(self.failed.len() - untold);
        Some(first.map_or(Ok(()), |(_, error)| Err(*error)))
    }

    fn note(&mut self, operation: u64, end: Result<(), RmaError>) {
        if let Err(error) = end {
            self.failures += 1;
            if self.failed.len() == FAILED_MAX {
                let dropped = self.failed.pop_front();
                self.forgotten = self.forgotten.into_iter().chain(dropped).max_by_key(|(number, _)| *number);
            }
            self.failed.push_back((operation, error));
        }
    }

    fn is_sent(&mut self, device: &mut Device, operation: u64, request: Request) -> bool {
        let Some(status) = device.poll(request) else { return false };
        if let Some(error) = status.error {
            self.note(operation, Err(error.into()));
        }
        true
    }
}

impl Answer {
    fn end(self, error: Option<RmaError>, bytes: usize) -> Result<(), RmaError> {
        if let Some(error) = error {
            return Err(error);
        }
        if bytes != self.len {
            return Err(RmaError::Range);
        }
        match self.what {
            What::InPlace => Ok(()),
            What::Packed { room, unpacking } => {
                unpacking.unpack(room.as_slice());
                Ok(())
            }
            What::Verdict { room } => RmaError::from_wire(room.as_slice()[0]).map_or(Ok(()), Err),
        }
    }
}

/// Requests that one target may have to keep for one origin. Beyond the device's credit each is an announcement of a hundred bytes.
pub(super) const QUEUE_MAX: usize = 1024;

/// Failures that are kept for whoever waits for the operations: of all that can be under way at once, and as many that nobody asks for.
/// Those of messages that fail when they are sent are not bounded so.
const FAILED_MAX: usize = 2 * QUEUE_MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::{Config, Envelope, Mode, Process};

    const PUTS: u32 = 5;
    const LATER: u32 = 6;

    /// A process alone, and a put of one message to itself, which nobody receives.
    fn operation(queue: &mut Queue, device: &mut Device, context: u32) -> Operation {
        let number = queue.begin();
        push(queue, device, number, context, Mode::Synchronous)
    }

    fn push(queue: &mut Queue, device: &mut Device, number: u64, context: u32, mode: Mode) -> Operation {
        let bytes = Bytes::zeros(8);
        let envelope = Envelope::new(context, 0, 0);
        let sent = device.send(0, envelope, bytes.outgoing(), mode);
        queue.push(device, number, Kind::Put, vec![(sent, bytes)], None);
        Operation { rank: 0, number, end: queue.end().messages }
    }

    fn device() -> Device {
        Device::open(0, vec![Process::here("here", &[])], Vec::new(), &Config::default()).unwrap()
    }

    #[test]
    fn an_operation_is_told_its_own_failure_and_not_that_of_an_earlier_one() {
        let (mut device, mut queue) = (device(), Queue::default());
        let first = operation(&mut queue, &mut device, PUTS);
        let second = queue.begin();
        let second = push(&mut queue, &mut device, second, PUTS, Mode::Standard);
        assert_eq!(queue.poll_operation(&mut device, first), None);
        device.revoke(PUTS);
        assert_eq!(queue.poll_operation(&mut device, second), Some(Ok(())));
        assert!(matches!(queue.poll_operation(&mut device, first), Some(Err(_))));
    }

    #[test]
    fn a_failure_is_told_however_many_follow_it() {
        let (mut device, mut queue) = (device(), Queue::default());
        let first = operation(&mut queue, &mut device, PUTS);
        device.revoke(PUTS);
        assert!(queue.poll_all(&mut device, queue.end()).is_some());
        for _ in 0..FAILED_MAX {
            operation(&mut queue, &mut device, PUTS);
        }
        assert!(queue.failed.iter().all(|(number, _)| *number != first.number));
        assert!(matches!(queue.poll_operation(&mut device, first), Some(Err(_))));
        let later = queue.begin();
        let later = push(&mut queue, &mut device, later, LATER, Mode::Standard);
        assert_eq!(queue.poll_operation(&mut device, later), Some(Ok(())));
    }

    #[test]
    fn an_operation_is_not_over_before_its_messages_behind_those_of_a_later_one() {
        let (mut device, mut queue) = (device(), Queue::default());
        let first = queue.begin();
        let second = operation(&mut queue, &mut device, PUTS);
        let first = push(&mut queue, &mut device, first, LATER, Mode::Synchronous);
        assert_eq!(queue.poll_operation(&mut device, first), None);
        device.revoke(PUTS);
        assert!(queue.poll_operation(&mut device, second).is_some());
        assert_eq!(queue.poll_operation(&mut device, first), None);
        device.revoke(LATER);
        assert!(queue.poll_operation(&mut device, first).is_some());
    }

    #[test]
    fn who_waits_for_all_waits_for_what_was_asked_before_and_several_are_told() {
        let (mut device, mut queue) = (device(), Queue::default());
        operation(&mut queue, &mut device, PUTS);
        let ends = [queue.end(), queue.end()];
        operation(&mut queue, &mut device, LATER);
        assert_eq!(queue.poll_all(&mut device, ends[0]), None);
        device.revoke(PUTS);
        for end in ends {
            assert!(matches!(queue.poll_all(&mut device, end), Some(Err(_))));
        }
        let end = queue.end();
        assert_eq!(queue.poll_all(&mut device, end), None);
        device.revoke(LATER);
        assert!(matches!(queue.poll_all(&mut device, end), Some(Err(_))));
        let end = queue.end();
        assert_eq!(queue.poll_all(&mut device, end), Some(Ok(())), "they were told");
    }

    #[test]
    fn requests_under_way_are_bounded() {
        let (mut device, mut queue) = (device(), Queue::default());
        for _ in 0..QUEUE_MAX {
            assert!(!queue.is_full());
            operation(&mut queue, &mut device, PUTS);
        }
        assert!(queue.is_full());
        device.revoke(PUTS);
        queue.poll(&mut device);
        assert!(queue.is_empty());
    }
}
