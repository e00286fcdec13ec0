//! The target's side of a window: does what origins ask, in the order in which each of them asks, in every turn of the
//! device.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use sidelane_nic::share::Shared;

use crate::adi::{self, Device, Incoming, Message, Pattern, Service};

use super::combine::{combine, compare_and_swap};
use super::lent::Bytes;
use super::lock_table::{Asker, LockTable, Wish};
use super::members::{Members, tag};
use super::memory::{Places, Regions};
use super::request::{HEAD_LEN, Head, Kind, RUN_LEN, Request};
use super::runs::{GRAIN_MAX, PART, RUNS};
use super::{RmaError, lock};

/// What this process shows, and what others want of it.
#[derive(Debug)]
pub(super) struct Exposure {
    members: Members,
    pub regions: Regions,
    /// What they are part of, where that is not the user's.
    memory: Option<Shared>,
    locks: LockTable,
    origins: Vec<Origin>,
    /// Origins whose stream waits for something.
    waiting: Vec<usize>,
    answers: Answers,
    places: Places,
    /// Processes that were gone when we last looked.
    gone: usize,
}

/// Answers that are being sent.
type Answers = Vec<Answer>;

#[derive(Debug)]
struct Answer {
    request: adi::Request,
    origin: usize,
    bytes: AnswerBytes,
}

#[derive(Debug)]
enum AnswerBytes {
    Own(#[expect(dead_code, reason = "lent to the device")] Bytes),
    /// Those of the window at these addresses, as they are when they leave.
    Window(Range<usize>),
}

/// What one origin has asked.
#[derive(Debug, Default)]
struct Origin {
    stream: Stream,
    /// What it has asked since. The device's credit bounds it.
    behind: VecDeque<(Message, usize)>,
    /// The first thing that was refused since it last wanted to know.
    refused: Option<RmaError>,
}

/// ```text
///        request              all of it         data of its own
///  Idle ---------> Receiving ----------> Idle <------------------> Data
///                                             <------------------> Unlocking
///                                              answers that leave
/// ```
#[derive(Debug, Default)]
enum Stream {
    #[default]
    Idle,
    /// A request is being received.
    Receiving { request: adi::Request, room: Bytes },
    /// The data of a long put is being received, into the window at these addresses.
    Data { request: adi::Request, into: Range<usize> },
    /// A lock is given back once what was got under it has left the window.
    Unlocking { number: i32 },
}

/// Serves a window from within the device.
pub(super) struct Serving(pub Arc<Mutex<Exposure>>);

impl Service for Serving {
    fn turn(&mut self, device: &mut Device) -> bool {
        lock(&self.0).turn(device)
    }
}

impl Exposure {
    pub fn new(members: Members, regions: Regions, memory: Option<Shared>) -> Self {
        let origins = members.processes.iter().map(|_| Origin::default()).collect();
        Self {
            members,
            regions,
            memory,
            locks: LockTable::default(),
            origins,
            waiting: Vec::new(),
            answers: Vec::new(),
            places: Places::default(),
            gone: 0,
        }
    }

    /// Shows nothing any more: whatever is asked from now on is refused.
    pub fn close(&mut self) {
        self.regions = Regions::dynamic();
    }

    /// Gives its own memory back. It is closed and idle.
    pub fn release(&mut self) {
        self.memory = None;
    }

    /// Nothing was asked that is not answered.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.answers.is_empty()
    }

    /// Whether an operation still reads or writes memory at these addresses.
    pub fn uses(&self, memory: &Range<usize>) -> bool {
        let touches = |of: &Range<usize>| of.start < memory.end && memory.start < of.end;
        let reads = |answer: &Answer| matches!(&answer.bytes, AnswerBytes::Window(from) if touches(from));
        let writes = |origin: &Origin| matches!(&origin.stream, Stream::Data { into, .. } if touches(into));
        self.answers.iter().any(reads) || self.origins.iter().any(writes)
    }

    fn turn(&mut self, device: &mut Device) -> bool {
        let mut moved = false;
        if !self.answers.is_empty() {
            let leaving = self.answers.len();
            self.answers.retain(|answer| !over(device, answer.request));
            moved = self.answers.len() < leaving;
        }
        if device.gone().len() > self.gone {
            self.forget_gone(device);
        }
        for _ in 0..BURST {
            let any = Pattern { context: self.members.contexts.requests, source: None, tag: None };
            let Some((message, status)) = device.matched_probe(any) else { break };
            moved = true;
            let (origin, len) = (status.source as usize, status.bytes);
            match self.origins.get_mut(origin) {
                None => refuse(device, message),
                Some(Origin { stream: Stream::Idle, .. }) => self.receive(device, origin, message, len),
                Some(Origin { behind, .. }) => behind.push_back((message, len)),
            }
        }
        for at in (0..self.waiting.len()).rev() {
            moved |= self.go_on(device, self.waiting[at]);
            if matches!(self.origins[self.waiting[at]].stream, Stream::Idle) {
                self.waiting.swap_remove(at);
            }
        }
        moved
    }

    /// Goes on with an origin's stream. True if it did.
    fn go_on(&mut self, device: &mut Device, origin: usize) -> bool {
        if !self.poll(device, origin) {
            return false;
        }
        while matches!(self.origins[origin].stream, Stream::Idle) {
            let Some((message, len)) = self.origins[origin].behind.pop_front() else { break };
            self.begin(device, origin, message, len);
            self.poll(device, origin);
        }
        true
    }

    fn receive(&mut self, device: &mut Device, origin: usize, message: Message, len: usize) {
        self.begin(device, origin, message, len);
        if !self.poll(device, origin) || !matches!(self.origins[origin].stream, Stream::Idle) {
            self.waiting.push(origin);
        }
    }

    fn begin(&mut self, device: &mut Device, origin: usize, message: Message, len: usize) {
        if len > REQUEST_MAX {
            self.origins[origin].refused.get_or_insert(RmaError::Malformed);
            return refuse(device, message);
        }
        let mut room = Bytes::zeros(len);
        let request = device.recv_matched(message, room.incoming());
        self.origins[origin].stream = Stream::Receiving { request, room };
    }

    /// Ends what an origin's stream waits for, if that is over. False if it is not.
    fn poll(&mut self, device: &mut Device, origin: usize) -> bool {
        let stream = &mut self.origins[origin].stream;
        let request = match stream {
            Stream::Idle => return true,
            Stream::Unlocking { number } => {
                let number = *number;
                return self.unlock(device, origin, number);
            }
            Stream::Receiving { request, .. } | Stream::Data { request, .. } => *request,
        };
        let Some(status) = device.poll(request) else { return false };
        let done = std::mem::take(stream);
        match (done, status.error) {
            (Stream::Receiving { room, .. }, None) => self.handle(device, origin, room.as_slice()),
            // Its data was longer than it had said, or was refused, and then the reason is known.
            (Stream::Data { .. }, Some(adi::Error::Truncated)) => {
                self.origins[origin].refused.get_or_insert(RmaError::Malformed);
            }
            (_, Some(error)) => {
                self.origins[origin].refused.get_or_insert(error.into());
            }
            (Stream::Data { .. } | Stream::Unlocking { .. } | Stream::Idle, None) => {}
        }
        true
    }

    /// Gives a lock back and tells the verdict. False, and the stream waits, while something leaves the window that was got under it: the
    /// next one who has the lock may change it.
    fn unlock(&mut self, device: &mut Device, origin: usize, number: i32) -> bool {
        let leaves = |answer: &Answer| answer.origin == origin && matches!(answer.bytes, AnswerBytes::Window(_));
        if self.answers.iter().any(leaves) {
            self.origins[origin].stream = Stream::Unlocking { number };
            return false;
        }
        self.origins[origin].stream = Stream::Idle;
        let (members, answers) = (&self.members, &mut self.answers);
        self.locks.release(origin, |asker| grant(members, answers, device, asker));
        self.tell_verdict(device, origin, number);
        true
    }

    fn tell_verdict(&mut self, device: &mut Device, origin: usize, number: i32) {
        let verdict = Bytes::from(&[RmaError::to_wire(self.origins[origin].refused.take())][..]);
        answer(&self.members, &mut self.answers, device, origin, number, verdict);
    }

    /// Does what a request asks for.
    fn handle(&mut self, device: &mut Device, origin: usize, bytes: &[u8]) {
        // His lock may be another one's by now, and one that he asks for he would never give back.
        if device.gone().contains(&self.members.processes[origin]) {
            return;
        }
        let Some(request) = Request::parse(bytes) else {
            self.origins[origin].refused.get_or_insert(RmaError::Malformed);
            return;
        };
        let Head { number, detail, .. } = request.head;
        match request.head.kind {
            Kind::Lock => {
                let (members, answers, wish) = (&self.members, &mut self.answers, Wish::from_wire(detail));
                self.locks.ask(Asker { origin, number }, wish, |asker| grant(members, answers, device, asker));
            }
            Kind::Unlock => {
                self.unlock(device, origin, number);
            }
            Kind::Flush => self.tell_verdict(device, origin, number),
            _ => {
                let Err(error) = self.access(device, origin, &request) else { return };
                if matches!(request.head.kind, Kind::Get | Kind::GetAccumulate | Kind::CompareSwap) {
                    answer(&self.members, &mut self.answers, device, origin, number, Bytes::from(&[][..]));
                } else {
                    self.origins[origin].refused.get_or_insert(error);
                }
            }
        }
    }

    fn access(&mut self, device: &mut Device, origin: usize, request: &Request<'_>) -> Result<(), RmaError> {
        let Head { kind, number, element, displacement, bytes, .. } = request.head;
        let places = &mut self.places;
        let found = self.regions.find(displacement, request.runs(), places);
        let found = found.and(if places.len() as u64 == bytes { Ok(()) } else { Err(RmaError::Malformed) });
        if kind == Kind::PutLong {
            // Refused data is received all the same, into no room.
            let room = found.ok().and_then(|()| places.incoming()).unwrap_or(Incoming::EMPTY);
            let request = self.members.hear(device, origin, tag::data(number), room);
            self.origins[origin].stream = Stream::Data { request, into: places.addresses() };
            return found;
        }
        found?;
        match kind {
            Kind::Put if request.data.len() == places.len() => places.scatter(request.data),
            Kind::Put => return Err(RmaError::Malformed),
            Kind::Get => {
                if let Some(whole) = places.outgoing() {
                    let request = self.members.say(device, origin, number, whole);
                    let bytes = AnswerBytes::Window(places.addresses());
                    keep(&mut self.answers, device, Answer { request, origin, bytes });
                    return Ok(());
                }
                // One request is not to be answered by more than its share of memory.
                if places.len() > PART {
                    return Err(RmaError::Malformed);
                }
                let old = gathered(places);
                answer(&self.members, &mut self.answers, device, origin, number, old);
            }
            Kind::Accumulate | Kind::GetAccumulate => {
                if places.len() > PART {
                    return Err(RmaError::Malformed);
                }
                let (Some(element), Some(op)) = (element, request.op()) else { return Err(RmaError::Malformed) };
                let old = (kind == Kind::GetAccumulate).then(|| gathered(places));
                combine(places, element, op, request.data)?;
                if let Some(old) = old {
                    answer(&self.members, &mut self.answers, device, origin, number, old);
                }
            }
            Kind::CompareSwap => {
                if places.len() > GRAIN_MAX {
                    return Err(RmaError::Malformed);
                }
                let old = gathered(places);
                compare_and_swap(places, request.data)?;
                answer(&self.members, &mut self.answers, device, origin, number, old);
            }
            Kind::PutLong | Kind::Lock | Kind::Unlock | Kind::Flush => {}
        }
        Ok(())
    }

    /// Who is gone holds no lock any more.
    #[cold]
    fn forget_gone(&mut self, device: &mut Device) {
        let gone = device.gone()[self.gone..].to_vec();
        self.gone += gone.len();
        for process in gone {
            let Some(origin) = self.members.processes.iter().position(|other| *other == process) else { continue };
            let (members, answers) = (&self.members, &mut self.answers);
            self.locks.forget(origin, |asker| grant(members, answers, device, asker));
        }
    }
}

fn grant(members: &Members, answers: &mut Answers, device: &mut Device, to: Asker) {
    answer(members, answers, device, to.origin, to.number, Bytes::from(&[][..]));
}

fn answer(members: &Members, answers: &mut Answers, device: &mut Device, to: usize, number: i32, bytes: Bytes) {
    let request = members.say(device, to, number, bytes.outgoing());
    keep(answers, device, Answer { request, origin: to, bytes: AnswerBytes::Own(bytes) });
}

/// Has what it lends until it is over.
fn keep(answers: &mut Answers, device: &mut Device, answer: Answer) {
    if !over(device, answer.request) {
        answers.push(answer);
    }
}

fn gathered(places: &Places) -> Bytes {
    let mut old = Vec::with_capacity(places.len());
    places.gather(&mut old);
    Bytes::from(old)
}

/// Takes a message that is of no use from the device.
#[cold]
fn refuse(device: &mut Device, message: Message) {
    let request = device.recv_matched(message, Incoming::EMPTY);
    device.free(request);
}

/// True once a send is over, which is freed then. What it ended with is its receiver's to find out.
fn over(device: &mut Device, request: adi::Request) -> bool {
    device.poll(request).is_some()
}

/// Requests taken in before others get their turn.
const BURST: usize = 64;

/// The longest request: a part of an operation, with both operands where there are two.
const REQUEST_MAX: usize = HEAD_LEN + (RUNS + GRAIN_MAX) * RUN_LEN + PART;
const _: () = assert!(2 * GRAIN_MAX <= PART, "two operands of a compare-and-swap fit");
