#![allow(unsafe_code)]
//! Partitioned messages (MPI-4.1 chapter 4): one message, of which threads send parts when they have them and others see parts
//! when they have come. Unsafe, since their memory is lent.
//!
//! A pair is matched when it is made, by a word of the sender's on the communicator's context for this: how many partitions it
//! sends, of how many bytes, and the first of the tags that they have. Each partition of the sender's is a message of its own;
//! the receiver's may be others.

use std::ptr::slice_from_raw_parts_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::adi::{self, Device, Envelope, Incoming, Outgoing, Pattern};
use crate::datatype::Datatype;

use super::context::{ContextIds, Kind};
use super::local::Local;
use super::pending::{Memory, Packed, Pending, Stage, Transfer};
use super::persistent::Persistent;
use super::point::{Mode, outgoing};
use super::running::Run;
use super::{Communicator, Destination, ErrorClass, Source, Status};

/// Says which partitions are ready to be sent: from any thread, also from several at the same time.
#[derive(Debug, Clone)]
pub struct Partitions {
    local: Arc<Local>,
    sending: Arc<Mutex<Sending>>,
}

/// Tells which partitions have come.
#[derive(Debug, Clone)]
pub struct Arrivals {
    local: Arc<Local>,
    receiving: Arc<Mutex<Receiving>>,
}

/// Either side, for a persistent request.
#[derive(Debug)]
pub(super) enum Partitioned {
    Send(Arc<Mutex<Sending>>),
    Receive(Arc<Mutex<Receiving>>),
}

/// Elements in equal partitions, one after the other.
#[derive(Debug)]
struct Array {
    memory: Memory,
    partitions: usize,
    /// Elements of a partition, and their bytes packed.
    count: usize,
    bytes: usize,
    datatype: Datatype,
}

#[derive(Debug)]
pub(super) struct Sending {
    array: Array,
    /// `None` to the null process.
    to: Option<(u32, Envelope)>,
    round: Round,
}

/// ```text
///           start                       all are ready and gone
/// Inactive -------> Active: partitions ------------------------> Inactive
/// ```
#[derive(Debug)]
enum Round {
    Inactive,
    /// Which are ready, how many are not, and what is under way.
    Active {
        ready: Vec<bool>,
        missing: usize,
        under_way: Vec<Transfer>,
        error: Option<ErrorClass>,
    },
}

#[derive(Debug)]
pub(super) struct Receiving {
    array: Array,
    context: u32,
    /// `None` from the null process.
    from: Option<(adi::Source, i32)>,
    match_: Match,
    /// Room for all data where it does not lie in one piece.
    packed: Option<Box<[u8]>>,
    active: bool,
    /// Of this round's partitions as the sender has them: what is under way, or how it ended.
    parts: Vec<Part>,
    /// Of our own partitions, those that were brought to their place.
    unpacked: Vec<bool>,
}

/// Whether the sender is known.
#[derive(Debug)]
enum Match {
    Asked { request: adi::Request, word: Packed },
    Known(Word),
    Failed(ErrorClass),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    UnderWay(adi::Request),
    Here,
    Failed(ErrorClass),
}

/// What a sender tells its receiver, in 64-bit words, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    partitions: usize,
    bytes: usize,
    /// Of partition 0, the next ones below: negative, as programs' tags are not.
    tag: i32,
}

impl Communicator {
    /// A message of `partitions` times `count` elements, inactive, and what says when each partition is ready
    /// (`MPI_Psend_init`).
    ///
    /// # Safety
    ///
    /// All data of the elements at `memory` stays while this lives, and that of a partition is not written from when it is said
    /// to be ready until the message is over.
    pub unsafe fn psend_init(
        &self,
        memory: *const u8,
        partitions: usize,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        tag: i32,
    ) -> Result<(Persistent, Partitions), ErrorClass> {
        let array = Array::new(memory.cast_mut(), partitions, count, datatype).map_err(|class| self.fail(class))?;
        let to = match to {
            Destination::Null => None,
            Destination::Rank(rank) => Some(self.envelope(rank, tag).map_err(|class| self.fail(class))?),
        };
        let to = to.map(|(process, envelope)| {
            let mut state = self.0.local.lock();
            let first = state.partition_tags(partitions);
            let envelope = Envelope { context: self.context(Kind::Partitioned), ..envelope };
            let word = Packed::new(Word { partitions, bytes: array.bytes, tag: first }.write());
            // SAFETY: `word` stays until the send is over: the state keeps it.
            let bytes = unsafe { Outgoing::lend(word.as_ptr()) };
            let request = state.device.send(process, envelope, bytes, adi::Mode::Standard);
            state.orphans.push(Transfer { request, stage: Stage::SentPacked(word) });
            (process, Envelope { tag: first, ..envelope })
        });
        let sending = Arc::new(Mutex::new(Sending { array, to, round: Round::Inactive }));
        let partitions = Partitions { local: Arc::clone(&self.0.local), sending: Arc::clone(&sending) };
        Ok((self.persistent_partitions(Partitioned::Send(sending)), partitions))
    }

    /// Room for such a message, and what tells when each partition has come (`MPI_Precv_init`). Partitions may be others than
    /// the sender's, of the same bytes in all.
    ///
    /// # Safety
    ///
    /// All data of the elements at `memory` stays while this lives, and nobody else uses that of a partition from the start
    /// until it has come.
    pub unsafe fn precv_init(
        &self,
        memory: *mut u8,
        partitions: usize,
        count: usize,
        datatype: &Datatype,
        from: impl Into<Source>,
        tag: i32,
    ) -> Result<(Persistent, Arrivals), ErrorClass> {
        let array = Array::new(memory, partitions, count, datatype).map_err(|class| self.fail(class))?;
        let context = self.context(Kind::Partitioned);
        let from = from.into();
        let (from, match_) = match from {
            Source::Null => (None, Match::Known(Word { partitions: 0, bytes: 0, tag: 0 })),
            // There are no wildcards (MPI-4.1 4.2.1).
            Source::Any => return Err(self.fail(ErrorClass::Rank)),
            Source::Rank(_) => {
                let pattern = self.pattern(from, Some(tag)).map_err(|class| self.fail(class))?;
                let word = Packed::new(vec![0; Word::LEN]);
                // SAFETY: `word` stays until the receive is over: this keeps it, and `give_up` leaves it to the state.
                let room = unsafe { Incoming::lend(word.as_ptr()) };
                let request = self.0.local.lock().device.recv(Pattern { context, ..pattern }, room);
                (pattern.source.map(|source| (source, tag)), Match::Asked { request, word })
            }
        };
        let packed = array.run().is_none().then(|| vec![0; array.len()].into_boxed_slice());
        let (parts, unpacked) = (Vec::new(), Vec::new());
        let receiving = Receiving { array, context, from, match_, packed, active: false, parts, unpacked };
        let receiving = Arc::new(Mutex::new(receiving));
        let arrivals = Arrivals { local: Arc::clone(&self.0.local), receiving: Arc::clone(&receiving) };
        Ok((self.persistent_partitions(Partitioned::Receive(receiving)), arrivals))
    }
}

impl Partitions {
    /// Sends a partition: its data is complete (`MPI_Pready`). `Arg` if it was ready already or is none, `Request` if the message
    /// was not begun.
    pub fn ready(&self, partition: usize) -> Result<(), ErrorClass> {
        let mut state = self.local.lock();
        let result = lock(&self.sending).ready(&mut state.device, partition);
        state.device.flush();
        result
    }

    /// The same of all partitions of a range (`MPI_Pready_range`).
    pub fn ready_range(&self, partitions: std::ops::RangeInclusive<usize>) -> Result<(), ErrorClass> {
        self.ready_list(partitions)
    }

    /// The same of all of these (`MPI_Pready_list`).
    pub fn ready_list(&self, partitions: impl IntoIterator<Item = usize>) -> Result<(), ErrorClass> {
        partitions.into_iter().try_for_each(|partition| self.ready(partition))
    }
}

impl Arrivals {
    /// Whether all data of a partition is here (`MPI_Parrived`). True while the message is inactive.
    pub fn arrived(&self, partition: usize) -> Result<bool, ErrorClass> {
        let arrived = self.local.try_for(|state| {
            let arrived = lock(&self.receiving).arrived(&mut state.device, partition);
            (arrived != Ok(false)).then_some(arrived)
        });
        arrived.unwrap_or(Ok(false))
    }
}

impl Partitioned {
    /// Begins a round.
    pub fn start(&self, comm: &Communicator) -> Pending {
        let run: Box<dyn Run> = match self {
            Self::Send(sending) => {
                let mut it = lock(sending);
                let missing = it.array.partitions;
                it.round = Round::Active { ready: vec![false; missing], missing, under_way: Vec::new(), error: None };
                Box::new(SendRun(Arc::clone(sending)))
            }
            Self::Receive(receiving) => {
                lock(receiving).active = true;
                Box::new(ReceiveRun(Arc::clone(receiving)))
            }
        };
        let mut state = comm.local().lock();
        Pending::Running(state.begin_run(run))
    }

    /// Nothing more is sent or received: what is active ends as soon as the device has given its memory back.
    pub fn give_up(&self, local: &Local) {
        let mut state = local.lock();
        match self {
            Self::Send(sending) => {
                if let Round::Active { missing, under_way, .. } = &mut lock(sending).round {
                    *missing = 0;
                    under_way.iter().for_each(|transfer| state.device.cancel(transfer.request));
                }
            }
            Self::Receive(receiving) => {
                let mut it = lock(receiving);
                let known = std::mem::replace(&mut it.match_, Match::Failed(ErrorClass::Request));
                if let Match::Asked { request, word } = known {
                    state.device.cancel(request);
                    state.orphans.push(Transfer { request, stage: Stage::SentPacked(word) });
                } else if !it.parts.is_empty() {
                    it.match_ = known;
                }
                for part in &it.parts {
                    if let Part::UnderWay(request) = part {
                        state.device.cancel(*request);
                    }
                }
            }
        }
    }
}

impl Array {
    fn new(memory: *mut u8, partitions: usize, count: usize, datatype: &Datatype) -> Result<Self, ErrorClass> {
        let bytes = datatype.pack_size(count).map_err(|_| ErrorClass::Count)?;
        let fits = bytes.checked_mul(partitions).is_some() && i32::try_from(partitions).is_ok() && partitions > 0;
        let it = Self { memory: Memory(memory), partitions, count, bytes, datatype: datatype.clone() };
        if fits { Ok(it) } else { Err(ErrorClass::Count) }
    }

    /// Bytes of all data.
    const fn len(&self) -> usize {
        self.partitions * self.bytes
    }

    /// Where the elements of a partition begin.
    fn at(&self, partition: usize) -> *mut u8 {
        self.memory.0.wrapping_offset(self.datatype.extent() * (partition * self.count) as isize)
    }

    /// Where all data is, if it is in one piece.
    fn run(&self) -> Option<*mut u8> {
        let (at, _) = self.datatype.contiguous_run(self.partitions * self.count)?;
        Some(self.memory.0.wrapping_offset(at))
    }
}

impl Sending {
    fn ready(&mut self, device: &mut Device, partition: usize) -> Result<(), ErrorClass> {
        let Round::Active { ready, missing, under_way, .. } = &mut self.round else { return Err(ErrorClass::Request) };
        match ready.get_mut(partition) {
            Some(ready) if !*ready && *missing > 0 => *ready = true,
            _ => return Err(ErrorClass::Arg),
        }
        *missing -= 1;
        let Some((process, envelope)) = self.to else { return Ok(()) };
        let (at, count) = (self.array.at(partition), self.array.count);
        // SAFETY: who made it has promised that the data stays, and is not written, from now until the message is over.
        let (bytes, stage) = unsafe { outgoing(Mode::Standard, at, count, &self.array.datatype) }?;
        let envelope = Envelope { tag: tag(envelope.tag, partition), ..envelope };
        let request = device.send(process, envelope, bytes, adi::Mode::Standard);
        under_way.push(Transfer { request, stage });
        Ok(())
    }

    fn turn(&mut self, device: &mut Device) -> Option<Status> {
        let Round::Active { missing, under_way, error, .. } = &mut self.round else { return Some(Status::EMPTY) };
        under_way.retain_mut(|transfer| match transfer.poll(device) {
            None => true,
            Some(status) => {
                *error = error.or(status.error);
                false
            }
        });
        // Those that are not ready are not waited for when the others can't be sent.
        if !under_way.is_empty() || (*missing > 0 && error.is_none()) {
            return None;
        }
        let status = Status { error: *error, ..Status::EMPTY };
        self.round = Round::Inactive;
        Some(status)
    }
}

impl Receiving {
    fn turn(&mut self, device: &mut Device) -> Option<Status> {
        self.meet(device)?;
        let word = match self.match_ {
            Match::Known(word) => word,
            Match::Failed(class) => {
                self.active = false;
                return Some(Status { error: Some(class), ..Status::EMPTY });
            }
            Match::Asked { .. } => return None,
        };
        if self.parts.is_empty() && word.partitions > 0 {
            self.post(device, word);
        }
        self.poll(device);
        if self.parts.iter().any(|part| matches!(part, Part::UnderWay(_))) {
            return None;
        }
        let error = self.parts.iter().find_map(|part| if let Part::Failed(class) = part { Some(*class) } else { None });
        if error.is_none() {
            (0..self.array.partitions).for_each(|partition| self.unpack(partition));
        }
        (self.active, self.parts, self.unpacked) = (false, Vec::new(), Vec::new());
        let Some((source, tag)) = self.from else { return Some(Status::EMPTY) };
        Some(Status { source: Some(source.rank), tag: Some(tag), bytes: self.array.len(), error, ..Status::EMPTY })
    }

    /// Looks for the sender's word. `None` while it has not come.
    fn meet(&mut self, device: &mut Device) -> Option<()> {
        let Match::Asked { request, .. } = &self.match_ else { return Some(()) };
        let status = device.poll(*request)?;
        let Match::Asked { word, .. } = std::mem::replace(&mut self.match_, Match::Failed(ErrorClass::Intern)) else {
            unreachable!("it was just asked for")
        };
        // SAFETY: the receive is over.
        let bytes = unsafe { word.into_box() };
        self.match_ = match (status.error, Word::read(&bytes[..status.bytes])) {
            (Some(error), _) => Match::Failed(error.into()),
            (None, Some(word)) if word.partitions * word.bytes == self.array.len() => Match::Known(word),
            (None, _) => Match::Failed(ErrorClass::Truncate),
        };
        Some(())
    }

    /// Receives everything, as the sender has cut it.
    fn post(&mut self, device: &mut Device, word: Word) {
        let Some((source, _)) = self.from else { return };
        let start = match &mut self.packed {
            Some(packed) => packed.as_mut_ptr(),
            None => self.array.run().expect("it is in one piece where nothing is packed"),
        };
        self.unpacked = vec![self.packed.is_none(); self.array.partitions];
        self.parts = (0..word.partitions)
            .map(|partition| {
                let room = slice_from_raw_parts_mut(start.wrapping_add(partition * word.bytes), word.bytes);
                // SAFETY: a part of all data's room, which stays, and which nobody else uses, until it has come: as who made it
                // has promised, or as our own. `drop` waits.
                let room = unsafe { Incoming::lend(room) };
                let tag = Some(tag(word.tag, partition));
                Part::UnderWay(device.recv(Pattern { context: self.context, source: Some(source), tag }, room))
            })
            .collect();
    }

    fn poll(&mut self, device: &mut Device) {
        for part in &mut self.parts {
            if let Part::UnderWay(request) = part
                && let Some(status) = device.poll(*request)
            {
                *part = match status.error {
                    _ if status.cancelled => Part::Failed(ErrorClass::Request),
                    None => Part::Here,
                    Some(error) => Part::Failed(error.into()),
                };
            }
        }
    }

    fn arrived(&mut self, device: &mut Device, partition: usize) -> Result<bool, ErrorClass> {
        if partition >= self.array.partitions {
            return Err(ErrorClass::Arg);
        }
        if !self.active {
            return Ok(true);
        }
        self.poll(device);
        let (Match::Known(word), false) = (&self.match_, self.parts.is_empty()) else { return Ok(false) };
        if self.array.bytes > 0 {
            let (first, end) = (partition * self.array.bytes, (partition + 1) * self.array.bytes);
            let parts = &self.parts[first / word.bytes..end.div_ceil(word.bytes)];
            if !parts.iter().all(|part| *part == Part::Here) {
                return Ok(false);
            }
        }
        self.unpack(partition);
        Ok(true)
    }

    /// Brings what has come to its place.
    fn unpack(&mut self, partition: usize) {
        let (Some(packed), Some(done)) = (&self.packed, self.unpacked.get_mut(partition)) else { return };
        if std::mem::replace(done, true) {
            return;
        }
        let (at, bytes) = (self.array.at(partition), self.array.bytes);
        let part = &packed[partition * bytes..(partition + 1) * bytes];
        // SAFETY: all messages into this part are over; who made it has lent memory for the partition's elements.
        unsafe { self.array.datatype.unpack_raw(at, self.array.count, 0, part) };
    }
}

struct SendRun(Arc<Mutex<Sending>>);
struct ReceiveRun(Arc<Mutex<Receiving>>);

impl Run for SendRun {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        lock(&self.0).turn(device)
    }

    fn context(&self) -> Option<u32> {
        lock(&self.0).to.map(|(_, envelope)| envelope.context)
    }
}

impl Run for ReceiveRun {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        lock(&self.0).turn(device)
    }

    fn context(&self) -> Option<u32> {
        Some(lock(&self.0).context)
    }
}

impl Word {
    const LEN: usize = 24;

    fn write(self) -> Vec<u8> {
        let words = [self.partitions as u64, self.bytes as u64, self.tag as i64 as u64];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let ([partitions, bytes, tag], []) = bytes.as_chunks::<8>() else { return None };
        let number = |word: &[u8; 8]| usize::try_from(u64::from_le_bytes(*word)).ok();
        let (partitions, bytes) = (number(partitions)?, number(bytes)?);
        partitions.checked_mul(bytes)?;
        let tag = i32::try_from(i64::from_le_bytes(*tag)).ok()?;
        (tag < 0 && i32::try_from(partitions).is_ok()).then_some(Self { partitions, bytes, tag })
    }
}

/// Of a partition's messages: down from that of the first one, round and round among the negative ones.
pub(super) const fn tag(first: i32, partition: usize) -> i32 {
    let below = (-1 - first) as usize + partition;
    -1 - (below % TAGS) as i32
}

/// Negative tags but the one that no message has (`adi::Envelope`). They come again when as many partitions of one sender were made:
/// then those of the first are long over.
pub(super) const TAGS: usize = i32::MAX as usize;

fn lock<T>(side: &Mutex<T>) -> MutexGuard<'_, T> {
    side.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_partitions_are_negative_and_no_wildcard() {
        assert_eq!((tag(-1, 0), tag(-1, 5), tag(-3, 1)), (-1, -6, -4));
        let last = -(TAGS as i32);
        assert_eq!((tag(last, 0), tag(last, 1)), (last, -1));
        assert!(last > i32::MIN);
    }

    #[test]
    fn a_senders_word_reads_back_and_nonsense_is_refused() {
        let word = Word { partitions: 7, bytes: 1 << 40, tag: -9 };
        assert_eq!(Word::read(&word.write()), Some(word));
        for other in [Word { tag: 9, ..word }, Word { bytes: usize::MAX, ..word }] {
            assert_eq!(Word::read(&other.write()), None);
        }
        assert_eq!(Word::read(&word.write()[1..]), None);
    }
}
