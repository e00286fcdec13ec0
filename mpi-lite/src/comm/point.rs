#![allow(unsafe_code)]
//! Point to point, on raw memory: what the typed calls and the C interface stand on. Unsafe, since the memory is lent.

use std::ptr::{slice_from_raw_parts, slice_from_raw_parts_mut};
use std::sync::Arc;

use crate::adi::{self, Device, Envelope, Incoming, Message, Outgoing, Pattern};
use crate::datatype::Datatype;

use super::context::{Kind, Topic};
use super::local::State;
use super::pending::{Memory, Packed, Pending, Stage, Transfer};
use super::{Communicator, Destination, Equivalence, ErrorClass, Source, Status};

/// When a send is over (MPI-4.1 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// When its buffer may be used again.
    Standard,
    /// When its receive was found.
    Synchronous,
    /// At once: it is copied into room that was attached ([`Communicator::attach_buffer`]).
    Buffered,
    /// As standard. The receive is there already, says the program; nothing here depends on it.
    Ready,
}

/// A message that a matched probe has found. It has to be received.
#[derive(Debug)]
#[must_use = "the message waits to be received"]
pub enum Found {
    /// From the null process (`MPI_MESSAGE_NO_PROC`).
    Nobody,
    /// One that has come.
    Message(Message),
}

impl Communicator {
    /// Begins a send of `count` elements.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` stays and is not written until the send is over.
    pub unsafe fn start_send(
        &self,
        mode: Mode,
        memory: *const u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        tag: i32,
    ) -> Result<Pending, ErrorClass> {
        // SAFETY: passed on.
        unsafe { self.begin_send(mode, memory, count, datatype, to, tag) }.map_err(|class| self.fail(class))
    }

    /// The same without the error handler.
    ///
    /// # Safety
    ///
    /// As for [`Self::start_send`].
    unsafe fn begin_send(
        &self,
        mode: Mode,
        memory: *const u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        tag: i32,
    ) -> Result<Pending, ErrorClass> {
        let Destination::Rank(rank) = to else { return Ok(Pending::Done(Status::EMPTY)) };
        let (process, envelope) = self.envelope(rank, tag)?;
        if mode == Mode::Buffered {
            let len = datatype.pack_size(count).map_err(|_| ErrorClass::Count)?;
            let mut state = self.0.local.lock();
            let sent = self.room().send(&mut state, len, |device| {
                // SAFETY: the caller's elements are copied here.
                let (bytes, stage) = unsafe { outgoing(mode, memory, count, datatype) }?;
                Ok(Transfer { request: device.send(process, envelope, bytes, adi::Mode::Standard), stage })
            });
            return sent.map(Pending::Done);
        }
        // SAFETY: the caller's promise, until the send is over.
        let (bytes, stage) = unsafe { outgoing(mode, memory, count, datatype) }?;
        let request = self.0.local.lock().device.send(process, envelope, bytes, mode.of_device());
        Ok(Pending::Transfer(Transfer { request, stage }))
    }

    /// Sends `count` elements.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` can be read.
    pub unsafe fn send_raw(
        &self,
        mode: Mode,
        memory: *const u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        tag: i32,
    ) -> Result<(), ErrorClass> {
        if mode == Mode::Buffered {
            // SAFETY: a buffered send is over when it returns.
            let mut sent = unsafe { self.start_send(mode, memory, count, datatype, to, tag) }?;
            return self.status(self.0.local.finish(&mut sent)).map(drop);
        }
        let Destination::Rank(rank) = to else { return Ok(()) };
        let (process, envelope) = self.envelope(rank, tag).map_err(|class| self.fail(class))?;
        // SAFETY: this waits until the send is over.
        let (bytes, stage) = unsafe { outgoing(mode, memory, count, datatype) }.map_err(|class| self.fail(class))?;
        let begin = |device: &mut Device| {
            let request = device.send(process, envelope, bytes, mode.of_device());
            Transfer { request, stage }
        };
        self.status(self.0.local.run(begin, |_| false)).map(drop)
    }

    /// Receives into `count` elements.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` can be written, and nobody else uses it.
    pub unsafe fn recv_raw(
        &self,
        memory: *mut u8,
        count: usize,
        datatype: &Datatype,
        from: Source,
        tag: Option<i32>,
    ) -> Result<Status, ErrorClass> {
        if from == Source::Null {
            return Ok(Status::EMPTY);
        }
        let pattern = self.pattern(from, tag).map_err(|class| self.fail(class))?;
        // SAFETY: this waits until the receive is over.
        let (room, stage) = unsafe { incoming(memory, count, datatype) }.map_err(|class| self.fail(class))?;
        let begin = |device: &mut Device| Transfer { request: device.recv(pattern, room), stage };
        let is_hopeless = |device: &Device| from == Source::Any && self.0.acknowledged.is_behind(device.gone());
        self.status(self.0.local.run(begin, is_hopeless))
    }

    /// Begins a receive into `count` elements.
    ///
    /// # Safety
    ///
    /// All data of `count` elements at `memory` stays until the receive is over, and nobody else uses it.
    pub unsafe fn start_recv(
        &self,
        memory: *mut u8,
        count: usize,
        datatype: &Datatype,
        from: Source,
        tag: Option<i32>,
    ) -> Result<Pending, ErrorClass> {
        if from == Source::Null {
            return Ok(Pending::Done(Status::EMPTY));
        }
        let pattern = self.pattern(from, tag).map_err(|class| self.fail(class))?;
        // SAFETY: the caller's promise, until the receive is over.
        let (room, stage) = unsafe { incoming(memory, count, datatype) }.map_err(|class| self.fail(class))?;
        let transfer = Transfer { request: self.0.local.lock().device.recv(pattern, room), stage };
        Ok(match from {
            Source::Any => Pending::FromAnybody(transfer, Arc::clone(&self.0.acknowledged)),
            _ => Pending::Transfer(transfer),
        })
    }

    /// Begins to receive a message that a matched probe has found.
    ///
    /// # Safety
    ///
    /// As for [`Self::start_recv`].
    pub unsafe fn start_recv_found(
        &self,
        found: Found,
        memory: *mut u8,
        count: usize,
        datatype: &Datatype,
    ) -> Result<Pending, ErrorClass> {
        let Found::Message(message) = found else { return Ok(Pending::Done(Status::EMPTY)) };
        // SAFETY: the caller's promise, until the receive is over.
        let (room, stage) = unsafe { incoming(memory, count, datatype) }.map_err(|class| self.fail(class))?;
        Ok(Pending::Transfer(Transfer { request: self.0.local.lock().device.recv_matched(message, room), stage }))
    }

    /// A message that has come and would be received so, if there is one: a status with its length.
    pub fn iprobe(&self, from: impl Into<Source>, tag: impl Into<Option<i32>>) -> Result<Option<Status>, ErrorClass> {
        let Some(pattern) = self.probe_pattern(from.into(), tag.into())? else { return Ok(Some(Status::EMPTY)) };
        let found = self.0.local.try_for(|state| self.unless_hopeless(state, pattern, Device::probe));
        let found = found.transpose().map_err(|class| self.fail(class))?;
        Ok(found.map(Status::of_receive))
    }

    /// Waits for a message that would be received so: a status with its length. A later receive like this gets it, if no
    /// other thread does.
    pub fn probe(&self, from: impl Into<Source>, tag: impl Into<Option<i32>>) -> Result<Status, ErrorClass> {
        let Some(pattern) = self.probe_pattern(from.into(), tag.into())? else { return Ok(Status::EMPTY) };
        let found = self.0.local.wait_for(|state| self.unless_hopeless(state, pattern, Device::probe));
        found.map(Status::of_receive).map_err(|class| self.fail(class))
    }

    /// As [`Self::iprobe`], and keeps the message for who receives it as found.
    pub fn improbe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Option<(Found, Status)>, ErrorClass> {
        let pattern = self.probe_pattern(from.into(), tag.into())?;
        let Some(pattern) = pattern else { return Ok(Some((Found::Nobody, Status::EMPTY))) };
        let found = self.0.local.try_for(|state| self.unless_hopeless(state, pattern, Device::matched_probe));
        let found = found.transpose().map_err(|class| self.fail(class))?;
        Ok(found.map(|(message, status)| (Found::Message(message), Status::of_receive(status))))
    }

    /// As [`Self::probe`], and keeps the message for who receives it as found.
    pub fn mprobe(&self, from: impl Into<Source>, tag: impl Into<Option<i32>>) -> Result<(Found, Status), ErrorClass> {
        let pattern = self.probe_pattern(from.into(), tag.into())?;
        let Some(pattern) = pattern else { return Ok((Found::Nobody, Status::EMPTY)) };
        let found = self.0.local.wait_for(|state| self.unless_hopeless(state, pattern, Device::matched_probe));
        let (message, status) = found.map_err(|class| self.fail(class))?;
        Ok((Found::Message(message), Status::of_receive(status)))
    }

    /// Sends what members of this communicator agree on, apart from its program's messages.
    pub(super) fn tell<T: Equivalence>(&self, data: &[T], rank: u32, topic: Topic) -> Result<(), ErrorClass> {
        let (process, envelope) = self.envelope(rank, topic.tag)?;
        let envelope = envelope.in_context(self.context(topic.kind));
        // SAFETY: `data` is borrowed until this returns, which it does when the send is over.
        let (bytes, stage) = unsafe { outgoing(Mode::Standard, data.as_ptr().cast(), data.len(), &T::datatype()) }?;
        let begin = |device: &mut Device| {
            let request = device.send(process, envelope, bytes, adi::Mode::Standard);
            Transfer { request, stage }
        };
        self.0.local.run(begin, |_| false).ok().map(drop)
    }

    /// The same of a copy, and waits for nothing: whoever cannot be told will not be heard either.
    pub(super) fn leave_word<T: Equivalence>(&self, data: &[T], rank: u32, topic: Topic) -> Result<(), ErrorClass> {
        let (process, envelope) = self.envelope(rank, topic.tag)?;
        let envelope = envelope.in_context(self.context(topic.kind));
        // SAFETY: the elements are copied here.
        let (bytes, stage) = unsafe { outgoing(Mode::Buffered, data.as_ptr().cast(), data.len(), &T::datatype()) }?;
        let mut state = self.0.local.lock();
        let request = state.device.send(process, envelope, bytes, adi::Mode::Standard);
        state.orphans.push(Transfer { request, stage });
        Ok(())
    }

    /// Receives what [`Self::tell`] sends, of this length; waits no longer when that `is_hopeless`, and fails with `ProcFailed`.
    pub(super) fn hear<T: Equivalence>(
        &self,
        room: &mut [T],
        rank: u32,
        topic: Topic,
        is_hopeless: impl Fn(&Device) -> bool,
    ) -> Result<(), ErrorClass> {
        let (pattern, len) = (self.topic_pattern(rank, topic)?, size_of_val(room));
        // SAFETY: `room` is borrowed until this returns, which it does when the receive is over.
        let (room, stage) = unsafe { incoming(room.as_mut_ptr().cast(), room.len(), &T::datatype()) }?;
        let begin = |device: &mut Device| Transfer { request: device.recv(pattern, room), stage };
        let heard = self.0.local.run(begin, is_hopeless).ok()?;
        // A message of another length belongs to another call, whose ranks have the same tag for two things.
        if heard.bytes == len { Ok(()) } else { Err(ErrorClass::Other) }
    }

    /// Receives the next that `rank` tells, whenever that is, for nobody. Until then the communicator's id is not used again.
    pub(super) fn disregard(&self, rank: u32, topic: Topic) -> Result<(), ErrorClass> {
        let pattern = self.topic_pattern(rank, topic)?;
        let nothing = slice_from_raw_parts_mut(std::ptr::NonNull::dangling().as_ptr(), 0);
        let mut state = self.0.local.lock();
        // SAFETY: no bytes are lent.
        let request = state.device.recv(pattern, unsafe { Incoming::lend(nothing) });
        state.orphans.push(Transfer { request, stage: Stage::Received });
        Ok(())
    }

    /// Tells and hears, with one other rank that does the same.
    pub(super) fn swap<T: Equivalence>(
        &self,
        data: &[T],
        room: &mut [T],
        rank: u32,
        topic: Topic,
        is_hopeless: impl Fn(&Device) -> bool,
    ) -> Result<(), ErrorClass> {
        self.leave_word(data, rank, topic)?;
        self.hear(room, rank, topic, is_hopeless)
    }

    fn topic_pattern(&self, rank: u32, topic: Topic) -> Result<Pattern, ErrorClass> {
        let pattern = self.pattern(Source::Rank(rank), Some(topic.tag))?;
        Ok(Pattern { context: self.context(topic.kind), ..pattern })
    }

    /// Who a rank is, and what its message is matched by.
    #[inline]
    pub(super) fn envelope(&self, rank: u32, tag: i32) -> Result<(u32, Envelope), ErrorClass> {
        if tag < 0 {
            return Err(ErrorClass::Tag);
        }
        let process = self.peers().process(rank).ok_or(ErrorClass::Rank)?;
        Ok((process, Envelope::new(self.context(Kind::Point), self.0.rank, tag)))
    }

    /// # Panics
    ///
    /// For the null process, which its callers have served before.
    #[inline]
    pub(super) fn pattern(&self, from: Source, tag: Option<i32>) -> Result<Pattern, ErrorClass> {
        if tag.is_some_and(|tag| tag < 0) {
            return Err(ErrorClass::Tag);
        }
        let source = match from {
            Source::Any => None,
            Source::Rank(rank) => {
                Some(adi::Source { rank, process: self.peers().process(rank).ok_or(ErrorClass::Rank)? })
            }
            Source::Null => unreachable!("the null process needs no pattern"),
        };
        Ok(Pattern { context: self.context(Kind::Point), source, tag })
    }

    /// The status as a result, after the error handler has run.
    #[inline]
    pub(super) fn status(&self, status: Status) -> Result<Status, ErrorClass> {
        status.ok().map_err(|class| self.fail(class))
    }

    /// Runs the error handler once if any of these has failed, which tell of it themselves.
    pub(super) fn tell_of<'a>(&self, statuses: impl IntoIterator<Item = &'a Status>) {
        if let Some(class) = statuses.into_iter().find_map(|status| status.error) {
            self.fail(class);
        }
    }

    /// What a probe finds; an error when nothing will come any more that it could find, or that may be.
    fn unless_hopeless<T>(
        &self,
        state: &mut State,
        pattern: Pattern,
        find: impl Fn(&mut Device, Pattern) -> Option<T>,
    ) -> Option<Result<T, ErrorClass>> {
        if let Some(found) = find(&mut state.device, pattern) {
            return Some(Ok(found));
        }
        let gone = state.device.gone();
        let failed = match pattern.source {
            Some(source) => gone.contains(&source.process),
            None => self.0.acknowledged.is_behind(gone),
        };
        if state.device.is_revoked(pattern.context) {
            Some(Err(ErrorClass::Revoked))
        } else {
            failed.then_some(Err(ErrorClass::ProcFailed))
        }
    }

    fn probe_pattern(&self, from: Source, tag: Option<i32>) -> Result<Option<Pattern>, ErrorClass> {
        if from == Source::Null {
            return Ok(None);
        }
        self.pattern(from, tag).map(Some).map_err(|class| self.fail(class))
    }
}

impl Mode {
    const fn of_device(self) -> adi::Mode {
        match self {
            Self::Synchronous => adi::Mode::Synchronous,
            Self::Standard | Self::Buffered | Self::Ready => adi::Mode::Standard,
        }
    }
}

/// What the device sends: the elements where they are, if they are one run of bytes and wait for nobody; else a packed copy.
///
/// # Safety
///
/// As for [`Communicator::start_send`].
#[inline]
pub(super) unsafe fn outgoing(
    mode: Mode,
    memory: *const u8,
    count: usize,
    datatype: &Datatype,
) -> Result<(Outgoing, Stage), ErrorClass> {
    if mode != Mode::Buffered
        && let Some((at, len)) = datatype.contiguous_run(count)
    {
        let bytes = slice_from_raw_parts(memory.wrapping_offset(at), len);
        // SAFETY: all data of the elements, as the caller promises.
        return Ok((unsafe { Outgoing::lend(bytes) }, Stage::Sent));
    }
    let mut packed = vec![0; datatype.pack_size(count).map_err(|_| ErrorClass::Count)?];
    // SAFETY: the caller's elements are only read.
    unsafe { datatype.pack_raw(memory, count, 0, &mut packed) };
    let packed = Packed::new(packed);
    // SAFETY: the bytes are the stage's, which keeps them until the transfer is over, and nobody writes them.
    let bytes = unsafe { Outgoing::lend(packed.as_ptr()) };
    Ok((bytes, Stage::SentPacked(packed)))
}

/// Where the device receives: at the elements' place, or into room of their packed size.
///
/// # Safety
///
/// As for [`Communicator::start_recv`].
#[inline]
unsafe fn incoming(memory: *mut u8, count: usize, datatype: &Datatype) -> Result<(Incoming, Stage), ErrorClass> {
    if let Some((at, len)) = datatype.contiguous_run(count) {
        let room = slice_from_raw_parts_mut(memory.wrapping_offset(at), len);
        // SAFETY: all data of the elements, as the caller promises.
        return Ok((unsafe { Incoming::lend(room) }, Stage::Received));
    }
    let packed = Packed::new(vec![0; datatype.pack_size(count).map_err(|_| ErrorClass::Count)?]);
    // SAFETY: the bytes are the stage's, which keeps them and does not touch them until the transfer is over.
    let room = unsafe { Incoming::lend(packed.as_ptr()) };
    let (memory, datatype) = (Memory(memory), datatype.clone());
    Ok((room, Stage::ReceivedPacked { packed, memory, count, datatype }))
}
