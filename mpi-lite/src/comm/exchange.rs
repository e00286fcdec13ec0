#![allow(unsafe_code)]
//! Messages that are sent and received at the same time (MPI-4.1 3.10): of slices, and of raw memory, by calls that wait and that do not.
//! Unsafe, since raw memory is lent.

use crate::adi::{self, Device};
use crate::datatype::Datatype;

use super::context::{ContextIds, Kind};
use super::pending::{Pending, Transfer};
use super::point::{Mode, outgoing};
use super::running::Run;
use super::waiting::unless_given_up;
use super::{Communicator, Destination, Equivalence, ErrorClass, Source, Status};

impl Communicator {
    /// Sends and receives at the same time. It returns when both are over, also with an error of the send's: then `room` has what came.
    pub fn sendrecv<T: Equivalence, U: Equivalence>(
        &self,
        data: &[T],
        to: impl Into<Destination>,
        send_tag: i32,
        room: &mut [U],
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status, ErrorClass> {
        let ((memory, count), of) = ((data.as_ptr().cast(), data.len()), &T::datatype());
        let ((place, most), into) = ((room.as_mut_ptr().cast(), room.len()), &U::datatype());
        // SAFETY: both are borrowed until this returns, and any bytes make valid elements.
        unsafe { self.sendrecv_raw(memory, count, of, to.into(), send_tag, place, most, into, from.into(), tag.into()) }
    }

    /// Sends `data`, and receives another message in its place.
    pub fn sendrecv_replace<T: Equivalence>(
        &self,
        data: &mut [T],
        to: impl Into<Destination>,
        send_tag: i32,
        from: impl Into<Source>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Status, ErrorClass> {
        let ((memory, count), of) = ((data.as_mut_ptr().cast(), data.len()), &T::datatype());
        // SAFETY: `data` is borrowed until this returns, and any bytes make valid elements.
        unsafe { self.sendrecv_replace_raw(memory, count, of, to.into(), send_tag, from.into(), tag.into()) }
    }

    /// As [`Self::sendrecv`], of `count` elements, into room for `most`.
    ///
    /// # Safety
    ///
    /// As for [`Self::send_raw`] and [`Self::recv_raw`]; what is sent is not in the room.
    #[allow(clippy::too_many_arguments, reason = "they are the standard's")]
    pub unsafe fn sendrecv_raw(
        &self,
        memory: *const u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        send_tag: i32,
        room: *mut u8,
        most: usize,
        into: &Datatype,
        from: Source,
        tag: Option<i32>,
    ) -> Result<Status, ErrorClass> {
        let give = Give { mode: Mode::Standard, memory, count, datatype, to, tag: send_tag };
        let take = Take { memory: room, count: most, datatype: into, from, tag };
        // SAFETY: passed on; this waits until both are over.
        self.finish_both(unsafe { self.begin_both(&give, &take) }?)
    }

    /// As [`Self::sendrecv_replace`], of `count` elements.
    ///
    /// # Safety
    ///
    /// As for [`Self::recv_raw`], and the elements can be read.
    #[allow(clippy::too_many_arguments, reason = "they are the standard's")]
    pub unsafe fn sendrecv_replace_raw(
        &self,
        memory: *mut u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        send_tag: i32,
        from: Source,
        tag: Option<i32>,
    ) -> Result<Status, ErrorClass> {
        let give = Give { mode: Mode::Buffered, memory, count, datatype, to, tag: send_tag };
        let take = Take { memory, count, datatype, from, tag };
        // SAFETY: passed on; what is sent is copied first, and this waits until both are over.
        self.finish_both(unsafe { self.begin_both(&give, &take) }?)
    }

    /// Begins [`Self::sendrecv_raw`] (`MPI_Isendrecv`). Its status is the receive's, with the error of either. It is not cancelled.
    ///
    /// # Safety
    ///
    /// As for [`Self::start_send`] and [`Self::start_recv`]; what is sent is not in the room.
    #[allow(clippy::too_many_arguments, reason = "they are the standard's")]
    pub unsafe fn start_sendrecv(
        &self,
        memory: *const u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        send_tag: i32,
        room: *mut u8,
        most: usize,
        into: &Datatype,
        from: Source,
        tag: Option<i32>,
    ) -> Result<Pending, ErrorClass> {
        let give = Give { mode: Mode::Standard, memory, count, datatype, to, tag: send_tag };
        let take = Take { memory: room, count: most, datatype: into, from, tag };
        // SAFETY: passed on.
        Ok(self.run_both(unsafe { self.begin_both(&give, &take) }?))
    }

    /// Begins [`Self::sendrecv_replace_raw`] (`MPI_Isendrecv_replace`), as [`Self::start_sendrecv`] has it.
    ///
    /// # Safety
    ///
    /// As for [`Self::start_recv`], and the elements can be read now.
    #[allow(clippy::too_many_arguments, reason = "they are the standard's")]
    pub unsafe fn start_sendrecv_replace(
        &self,
        memory: *mut u8,
        count: usize,
        datatype: &Datatype,
        to: Destination,
        send_tag: i32,
        from: Source,
        tag: Option<i32>,
    ) -> Result<Pending, ErrorClass> {
        let give = Give { mode: Mode::Buffered, memory, count, datatype, to, tag: send_tag };
        let take = Take { memory, count, datatype, from, tag };
        // SAFETY: passed on; what is sent is copied first.
        Ok(self.run_both(unsafe { self.begin_both(&give, &take) }?))
    }

    /// Begins both, or neither.
    ///
    /// # Safety
    ///
    /// Of `give` as for [`Self::start_send`], or, if it is buffered, only that it can be read now; of `take` as for [`Self::start_recv`].
    unsafe fn begin_both(&self, give: &Give<'_>, take: &Take<'_>) -> Result<Both, ErrorClass> {
        // All that can fail comes before the receive takes a message in.
        let to = self.check_both(give, take).map_err(|class| self.fail(class))?;
        let sent = to.map(|(process, envelope)| {
            // SAFETY: passed on.
            let sent = unsafe { outgoing(give.mode, give.memory, give.count, give.datatype) };
            sent.map(|(bytes, stage)| (process, envelope, bytes, stage))
        });
        let sent = sent.transpose().map_err(|class| self.fail(class))?;
        // SAFETY: passed on.
        let receive = unsafe { self.start_recv(take.memory, take.count, take.datatype, take.from, take.tag) }?;
        let send = sent.map_or(Pending::Done(Status::EMPTY), |(process, envelope, bytes, stage)| {
            let request = self.local().lock().device.send(process, envelope, bytes, adi::Mode::Standard);
            Pending::Transfer(Transfer { request, stage })
        });
        Ok(Both { send, receive })
    }

    /// Whom the send goes to, if to anybody.
    fn check_both(&self, give: &Give<'_>, take: &Take<'_>) -> Result<Option<(u32, adi::Envelope)>, ErrorClass> {
        if take.from != Source::Null {
            self.pattern(take.from, take.tag)?;
        }
        for (datatype, count) in [(give.datatype, give.count), (take.datatype, take.count)] {
            datatype.pack_size(count).map_err(|_| ErrorClass::Count)?;
        }
        match give.to {
            Destination::Null => Ok(None),
            Destination::Rank(rank) => self.envelope(rank, give.tag).map(Some),
        }
    }

    /// Waits for both. The error handler runs when nothing is lent any more.
    fn finish_both(&self, Both { mut send, mut receive }: Both) -> Result<Status, ErrorClass> {
        let [sent, received] = [&mut send, &mut receive].map(|each| self.local().finish(each));
        self.status(sent)?;
        self.status(received)
    }

    /// Both as one operation.
    fn run_both(&self, both: Both) -> Pending {
        let context = self.context(Kind::Point);
        let exchange = Exchange { both, context, sent: None, received: None, given_up: false };
        Pending::Running(self.local().lock().begin_run(Box::new(exchange)))
    }
}

/// What is sent.
struct Give<'a> {
    /// Buffered: of a copy.
    mode: Mode,
    memory: *const u8,
    count: usize,
    datatype: &'a Datatype,
    to: Destination,
    tag: i32,
}

/// Where to, and what, is received.
struct Take<'a> {
    memory: *mut u8,
    count: usize,
    datatype: &'a Datatype,
    from: Source,
    tag: Option<i32>,
}

/// What was begun.
struct Both {
    send: Pending,
    receive: Pending,
}

/// A send and a receive that are over together.
struct Exchange {
    both: Both,
    context: u32,
    sent: Option<Status>,
    received: Option<Status>,
    /// The receive was cancelled, since nobody may send what it waits for.
    given_up: bool,
}

impl Run for Exchange {
    fn turn(&mut self, device: &mut Device, _: &mut ContextIds) -> Option<Status> {
        let Both { send, receive } = &mut self.both;
        self.sent = self.sent.or_else(|| poll(send, device, &mut false));
        self.received = self.received.or_else(|| poll(receive, device, &mut self.given_up));
        let (sent, received) = (self.sent?, self.received?);
        Some(Status { error: sent.error.or(received.error), ..received })
    }

    fn context(&self) -> Option<u32> {
        Some(self.context)
    }
}

/// How a message ended, if it has. One from anybody is given up when nobody may send it.
fn poll(message: &mut Pending, device: &mut Device, given_up: &mut bool) -> Option<Status> {
    let status = match message {
        Pending::Null | Pending::Running(_) => unreachable!("it is a message, and asked about until it is over"),
        Pending::Done(status) => Some(*status),
        Pending::Transfer(transfer) => transfer.poll(device),
        Pending::FromAnybody(transfer, acknowledged) => transfer.poll(device).or_else(|| {
            if acknowledged.is_behind(device.gone()) {
                *given_up = true;
                device.cancel(transfer.request);
            }
            transfer.poll(device)
        }),
    }?;
    Some(unless_given_up(status, *given_up))
}
