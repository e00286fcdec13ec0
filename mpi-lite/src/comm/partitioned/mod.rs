#![allow(unsafe_code)]
//! Partitioned messages (MPI-4.1 chapter 4): one message, of which threads send parts when they have them and others see parts
//! when they have come. Unsafe, since their memory is lent.
//!
//! A pair is matched when it is made, by a word of the sender's on the communicator's context for this: how many partitions it
//! sends, of how many bytes, and the first of the tags that they have. Each partition of the sender's is a message of its own;
//! the receiver's may be others.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `sending`, `receiving` | the two sides |
//! | `word` | what they tell each other |

mod receiving;
mod sending;
mod word;

use std::sync::{Arc, Mutex};

use crate::adi::{self, Incoming, Outgoing, Pattern, lock};
use crate::datatype::Datatype;

use super::context::Kind;
use super::local::Local;
use super::pending::{Memory, Packed, Pending, Stage, Transfer};
use super::persistent::Persistent;
use super::running::Run;
use super::{Communicator, Destination, ErrorClass, Source};

pub use receiving::Arrivals;
use receiving::{Match, Part, ReceiveRun, Receiving};
pub use sending::Partitions;
use sending::{Round, SendRun, Sending};
use word::Word;
pub(super) use word::{TAGS, tag};

/// Either side, for a persistent request.
#[derive(Debug)]
pub(super) enum Partitioned {
    Send(Arc<Mutex<Sending>>),
    Receive(Arc<Mutex<Receiving>>),
}

/// Elements in equal partitions, one after the other.
#[derive(Debug)]
pub struct Array {
    memory: Memory,
    partitions: usize,
    /// Elements of a partition, and their bytes packed.
    count: usize,
    bytes: usize,
    datatype: Datatype,
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
            let envelope = envelope.in_context(self.context(Kind::Partitioned));
            let word = Packed::new(Word { partitions, bytes: array.bytes, tag: first }.write());
            // SAFETY: `word` stays until the send is over: the state keeps it.
            let bytes = unsafe { Outgoing::lend(word.as_ptr()) };
            let request = state.device.send(process, envelope, bytes, adi::Mode::Standard);
            state.orphans.push(Transfer { request, stage: Stage::SentPacked(word) });
            (process, envelope.with_tag(first))
        });
        let sending = Arc::new(Mutex::new(Sending { array, to, round: Round::Inactive }));
        let partitions = Partitions { comm: self.clone(), sending: Arc::clone(&sending) };
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
        let (parts, over, unpacked) = (Vec::new(), 0, Vec::new());
        let receiving = Receiving {
            array,
            context,
            from,
            match_,
            packed,
            active: false,
            round: None,
            failed: None,
            parts,
            over,
            unpacked,
        };
        let receiving = Arc::new(Mutex::new(receiving));
        let arrivals = Arrivals { comm: self.clone(), receiving: Arc::clone(&receiving) };
        Ok((self.persistent_partitions(Partitioned::Receive(receiving)), arrivals))
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
                let mut it = lock(receiving);
                (it.active, it.failed) = (true, None);
                Box::new(ReceiveRun(Arc::clone(receiving)))
            }
        };
        // Whoever asks what has arrived looks at both.
        let mut state = comm.local().lock();
        let round = state.begin_run(run);
        if let Self::Receive(receiving) = self {
            lock(receiving).round = Some(round);
        }
        Pending::Running(round)
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
                    // Of one that was never begun the word is still this one's, and not the next one's (MPI-4.1 4.2.1).
                    if it.active {
                        state.device.cancel(request);
                    }
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
        let fits = bytes.checked_mul(partitions).is_some() && i32::try_from(partitions).is_ok();
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
