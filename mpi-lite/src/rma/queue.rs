//! What an origin has under way at one target, oldest first.

use std::collections::VecDeque;

use crate::adi::{Device, Request};

use super::RmaError;
use super::lent::{Bytes, Unpacking};

/// Names an operation, for [`super::Window::test`]. Who waits for it otherwise forgets it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    pub(super) rank: usize,
    pub(super) number: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    messages: VecDeque<Messages>,
    /// Operations begun.
    begun: u64,
    /// Something was asked that is not answered: only a verdict tells that it is done.
    pub dirty: bool,
    /// The first failure since it was last asked for.
    error: Option<RmaError>,
    /// Which operations failed last: whoever waits for one is told, also after all were waited for.
    failed: VecDeque<(u64, RmaError)>,
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

    /// Adds messages of the operation that was begun last. Those that are over need no place.
    pub fn push(&mut self, device: &mut Device, mut sends: Vec<(Request, Bytes)>, answer: Option<Answer>) {
        let operation = self.begun;
        sends.retain(|(request, _)| !self.is_sent(device, operation, *request));
        if !sends.is_empty() || answer.is_some() {
            self.messages.push_back(Messages { operation, sends, answer });
        }
    }

    /// Whether another request has to wait until some are over: what the target is not ready for takes room there and here.
    pub fn is_full(&self) -> bool {
        self.messages.len() >= QUEUE_MAX
    }

    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Sees what is over. True if all is.
    pub fn poll(&mut self, device: &mut Device) -> bool {
        while let Some(mut front) = self.messages.pop_front() {
            front.sends.retain(|(request, _)| !self.is_sent(device, front.operation, *request));
            let answered = match &front.answer {
                Some(answer) => device.poll(answer.request).map(|status| (status.error, status.bytes)),
                None => Some((None, 0)),
            };
            let Some((error, bytes)) = answered else {
                self.messages.push_front(front);
                return false;
            };
            if let Some(answer) = front.answer.take() {
                let end = answer.end(error.map(RmaError::from), bytes);
                self.note(front.operation, end);
            }
            if !front.sends.is_empty() {
                self.messages.push_front(front);
                return false;
            }
        }
        true
    }

    /// How an operation has ended; `None` while it has not.
    pub fn poll_operation(&mut self, device: &mut Device, number: u64) -> Option<Result<(), RmaError>> {
        self.poll(device);
        if self.messages.front().is_some_and(|front| front.operation <= number) {
            return None;
        }
        let failed = self.failed.iter().find(|(operation, _)| *operation == number);
        Some(failed.map_or(Ok(()), |(_, error)| Err(*error)))
    }

    /// The first failure since this was last called.
    pub fn take_error(&mut self) -> Option<RmaError> {
        self.error.take()
    }

    fn note(&mut self, operation: u64, end: Result<(), RmaError>) {
        if let Err(error) = end {
            self.error.get_or_insert(error);
            if self.failed.len() == FAILED_MAX {
                self.failed.pop_front();
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
const QUEUE_MAX: usize = 1024;

/// Failures that are kept for whoever waits for the operations: of all that can be under way at once, and as many that nobody asks for.
const FAILED_MAX: usize = 2 * QUEUE_MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::{Config, Envelope, Mode, Process};

    const PUTS: u32 = 5;

    /// A process alone, and a request to itself of a mode.
    fn send(device: &mut Device, mode: Mode) -> (Request, Bytes) {
        let bytes = Bytes::zeros(8);
        let envelope = Envelope { context: PUTS, source: 0, tag: 0 };
        (device.send(0, envelope, bytes.outgoing(), mode), bytes)
    }

    fn device() -> Device {
        Device::open(0, vec![Process::here("here", &[])], Vec::new(), &Config::default()).unwrap()
    }

    #[test]
    fn an_operation_is_told_its_own_failure_and_not_that_of_an_earlier_one() {
        let (mut device, mut queue) = (device(), Queue::default());
        let first = queue.begin();
        // Nobody receives it.
        let pending = send(&mut device, Mode::Synchronous);
        queue.push(&mut device, vec![pending], None);
        let second = queue.begin();
        let sent = send(&mut device, Mode::Standard);
        queue.push(&mut device, vec![sent], None);
        assert_eq!(queue.poll_operation(&mut device, first), None);
        device.revoke(PUTS);
        assert_eq!(queue.poll_operation(&mut device, second), Some(Ok(())));
        assert!(matches!(queue.poll_operation(&mut device, first), Some(Err(_))));
    }

    #[test]
    fn requests_under_way_are_bounded() {
        let (mut device, mut queue) = (device(), Queue::default());
        for _ in 0..QUEUE_MAX {
            assert!(!queue.is_full());
            queue.begin();
            let pending = send(&mut device, Mode::Synchronous);
            queue.push(&mut device, vec![pending], None);
        }
        assert!(queue.is_full());
        device.revoke(PUTS);
        assert!(queue.poll(&mut device) && queue.is_empty());
    }
}
